"""Which back end executes a kernel: NumPy lanes, or native code where that pays.

`numpy` and `compiled` ask for one of them; a kernel that compiled code cannot execute stays on
NumPy lanes whatever is asked for. `auto` begins on NumPy lanes. Once those have taken longer than
loading native code would, an object in the cache is loaded; where there is none and the kernel goes
on, another process compiles it while NumPy lanes answer, and the launch after that is native. All
give the same bytes; each launch is counted by who answered it, and why.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from importlib.util import find_spec
from typing import Any, NamedTuple

from oracle.errors import UsageError
from oracle.machine.ir import Function
from oracle.machine.launch import Program, Statistics
from oracle.machine.memory import Memory

TIERS = ("auto", "numpy", "compiled")
TIER_VARIABLE = "LAYOUT_ORACLE_TIER"
"""The environment variable that says which tier to use where nobody says it otherwise."""
LOAD_SECONDS = 0.1
"""Seconds on NumPy lanes after which a cached object is worth loading, and looked for again."""
COMPILE_SECONDS = 0.5
"""Seconds on NumPy lanes after which a kernel is worth compiling."""
LARGE_LAUNCH = 16_384
"""Lanes of a launch for which a cached object is worth loading at once."""


def default_tier() -> str:
    """The tier asked for by the environment, else "auto". Raises UsageError as `checked_tier`."""
    return checked_tier(os.environ.get(TIER_VARIABLE) or "auto")


def checked_tier(name: str) -> str:
    """A tier's name. Raises UsageError for an unknown one, and where it is not installed."""
    if name not in TIERS:
        raise UsageError(f"there is no tier {name!r}: choose {', '.join(TIERS)}")
    if name == "compiled" and not installed():
        raise UsageError("--tier compiled needs llvmlite: pip install 'layout-oracle[fast]'")
    return name


class Answer(NamedTuple):
    """Who executed a launch, "numpy" or "compiled", and why; "" where it was asked for or best."""

    tier: str
    reason: str = ""


class TieredProgram:
    """A kernel ready to launch on whichever tier is to execute it.

    `answered` counts the launches so far. Raises what `checked_tier` raises.
    """

    def __init__(self, function: Function, tier: str | None = None) -> None:
        self.function = function
        self.tier = default_tier() if tier is None else checked_tier(tier)
        self.numpy = Program(function)
        self.answered: Counter[Answer] = Counter()
        self._reason = "little work" if self.tier == "auto" else ""
        self._settled = self.tier == "numpy"
        self._seconds = 0.0
        self._looked_at = 0.0
        self._build: Any = None
        self._native: Any = None
        self._compilation: Any = None

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        params: bytes,
        memory: Memory,
        **options: Any,
    ) -> Statistics:
        """Execute a launch, as `Program.launch` does and with its options."""
        if not self._settled:
            lanes = grid[0] * grid[1] * grid[2] * block[0] * block[1] * block[2]
            self._prepare(lanes)
        if self._native is not None:
            statistics: Statistics = self._native.launch(grid, block, params, memory, **options)
            reason = self._native.reason
            self.answered[Answer("numpy" if reason else "compiled", reason)] += 1
            return statistics
        self.answered[Answer("numpy", self._reason)] += 1
        start = time.perf_counter()
        try:
            return self.numpy.launch(grid, block, params, memory, **options)
        finally:
            self._seconds += time.perf_counter() - start

    def _prepare(self, lanes: int) -> None:
        """Load native code, or have it compiled, if that is due."""
        if self.tier == "compiled":
            self._load()
        elif not installed():
            self._settle("llvmlite is not installed")
        elif lanes >= LARGE_LAUNCH or self._seconds - self._looked_at >= LOAD_SECONDS:
            self._looked_at = self._seconds
            self._look()

    def _look(self) -> None:
        """Load the object if the cache has it by now; else see to it that it gets there."""
        from oracle.machine.compiled.background import Compilation
        from oracle.machine.compiled.build import Build, NotCompiled

        try:
            self._build = self._build or Build(self.function)
        except NotCompiled as error:
            self._settle(str(error))
            return
        if self._build.cached():
            self._load()
        elif self._compilation is not None:
            if self._compilation.over:
                self._settle("the kernel could not be compiled or kept in the cache")
        elif self._seconds >= COMPILE_SECONDS:
            try:
                # None where another process is compiling: that may be this kernel.
                self._compilation = Compilation.begin(self.function)
                self._reason = "compiling meanwhile"
            except OSError as error:
                self._settle(f"the cache cannot be written to: {error.strerror or error}")

    def _load(self) -> None:
        from oracle.machine.compiled.build import NotCompiled
        from oracle.machine.compiled.runtime import CompiledProgram

        try:
            self._native = CompiledProgram(self.function, build=self._build)
        except NotCompiled as error:
            self._settle(str(error))
        self._settled = True

    def _settle(self, reason: str) -> None:
        """Stay on NumPy lanes from now on."""
        self._settled, self._reason = True, reason


def installed() -> bool:
    """Whether what compiled code needs is installed."""
    return find_spec("llvmlite") is not None
