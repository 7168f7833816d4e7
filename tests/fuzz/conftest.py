"""Planted faults come from the tests of the promises."""

from __future__ import annotations

import sys
from pathlib import Path

_PLANTED = str(Path(__file__).parents[1] / "properties")
if _PLANTED not in sys.path:
    sys.path.append(_PLANTED)
