"""The compiled tier is an extra: its tests need llvmlite, and use what the other tests use."""

from __future__ import annotations

import sys
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
for directory in (_TESTS, _TESTS / "machine"):
    if str(directory) not in sys.path:
        sys.path.append(str(directory))
