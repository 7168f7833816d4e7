"""Which back end executes a kernel: NumPy lanes, or native code where that pays.

`numpy` and `compiled` ask for one of them; a kernel that compiled code cannot execute stays on
NumPy lanes whatever is asked for, and the reason is kept. `auto` begins on NumPy lanes. Once those
have taken longer than loading native code would, an object in the cache is loaded; where there is
none, another process compiles it while NumPy lanes go on, and the launch after that is native.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
import weakref
from collections import Counter
from importlib.util import find_spec
from typing import Any

from oracle.errors import UsageError
from oracle.machine.ir import Function
from oracle.machine.launch import Program, Statistics
from oracle.machine.memory import Memory

TIERS = ("auto", "numpy", "compiled")
TIER_VARIABLE = "LAYOUT_ORACLE_TIER"
"""The environment variable that says which tier to use where nobody says it otherwise."""
LOAD_SECONDS = 0.05
"""Seconds on NumPy lanes after which a cached object is worth loading."""
COMPILE_SECONDS = 0.5
"""Seconds on NumPy lanes after which a kernel is worth compiling."""
LARGE_LAUNCH = 16_384
"""Lanes of a launch for which a cached object is worth loading at once."""


def default_tier() -> str:
    """The tier asked for by the environment, else "auto". Raises UsageError for an unknown one."""
    return checked_tier(os.environ.get(TIER_VARIABLE) or "auto")


def checked_tier(name: str) -> str:
    """A tier's name. Raises UsageError for an unknown one."""
    if name not in TIERS:
        raise UsageError(f"there is no tier {name!r}: choose {', '.join(TIERS)}")
    return name


class TieredProgram:
    """A kernel ready to launch on whichever tier is to execute it.

    `answered` counts launches by the tier that executed them; `reason` says why the latest one ran
    on NumPy lanes where native code was asked for or preferred, and is empty otherwise. Raises
    UsageError where native code is asked for and llvmlite is not installed.
    """

    def __init__(self, function: Function, tier: str | None = None) -> None:
        self.function = function
        self.tier = checked_tier(tier) if tier is not None else default_tier()
        self.numpy = Program(function)
        self.answered: Counter[str] = Counter()
        self.reason = ""
        self._seconds = 0.0
        self._native: Any = None
        self._compiler: subprocess.Popen[bytes] | None = None
        self._hopeless = self.tier == "numpy"
        if self.tier == "compiled" and not installed():
            raise UsageError("--tier compiled needs llvmlite: pip install 'layout-oracle[fast]'")

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        params: bytes,
        memory: Memory,
        **options: Any,
    ) -> Statistics:
        """Execute a launch, as `Program.launch` does and with its options."""
        lanes = grid[0] * grid[1] * grid[2] * block[0] * block[1] * block[2]
        if self._native is None and not self._hopeless:
            self._prepare(lanes)
        if self._native is not None:
            statistics: Statistics = self._native.launch(grid, block, params, memory, **options)
            answered, _, self.reason = self._native.tier.partition(": ")
            self.answered[answered] += 1
            return statistics
        start = time.perf_counter()
        try:
            return self.numpy.launch(grid, block, params, memory, **options)
        finally:
            self._seconds += time.perf_counter() - start
            self.answered["numpy"] += 1

    def _prepare(self, lanes: int) -> None:
        """Load native code, or have it compiled, if that is due."""
        if self.tier == "compiled":
            self._load()
        elif not installed():
            self._give_up("llvmlite is not installed")
        elif self._compiler is not None:
            if self._compiler.poll() is not None:
                self._compiler = None
                self._load(only_cached=True)
        elif self._seconds >= LOAD_SECONDS or lanes >= LARGE_LAUNCH:
            self._load_or_compile()

    def _load_or_compile(self) -> None:
        from oracle.machine.compiled.build import Build, NotCompiled

        try:
            cached = Build(self.function).cached()
        except NotCompiled as error:
            self._give_up(str(error))
            return
        if cached:
            self._load()
        elif self._seconds >= COMPILE_SECONDS:
            self._compiler = _compile_elsewhere(self.function)
            weakref.finalize(self, _stop, self._compiler)

    def _load(self, only_cached: bool = False) -> None:
        from oracle.machine.compiled.build import Build, NotCompiled
        from oracle.machine.compiled.runtime import CompiledProgram

        try:
            if only_cached and not Build(self.function).cached():
                self._give_up("the kernel could not be compiled or kept in the cache")
                return
            self._native = CompiledProgram(self.function)
        except NotCompiled as error:
            self._give_up(str(error))

    def _give_up(self, reason: str) -> None:
        self._hopeless, self.reason = True, reason


def installed() -> bool:
    """Whether what compiled code needs is installed."""
    return find_spec("llvmlite") is not None


def _compile_elsewhere(function: Function) -> subprocess.Popen[bytes]:
    """Another process that compiles a kernel into the cache."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    with tempfile.TemporaryFile() as kernel:
        pickle.dump(function, kernel)
        kernel.seek(0)
        return subprocess.Popen(
            [sys.executable, "-m", "oracle.machine.compiled.worker"],
            stdin=kernel,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a compilation nobody waits for any more."""
    if process.poll() is None:
        process.kill()
    process.wait()
