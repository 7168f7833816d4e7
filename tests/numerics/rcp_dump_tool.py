"""The tool in benchmarks/rcp_dump, which is a script, as a module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_PATH = Path(__file__).parents[2] / "benchmarks" / "rcp_dump" / "dump.py"
_SPEC = importlib.util.spec_from_file_location("rcp_dump", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
sys.modules["rcp_dump"] = _MODULE
_SPEC.loader.exec_module(_MODULE)

SOURCE = _MODULE.SOURCE
disagreements = _MODULE.disagreements
main = _MODULE.main
measure = _MODULE.measure
