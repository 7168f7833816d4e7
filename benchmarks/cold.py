"""What is paid once: compiling, disassembling, lowering, and what the disk cache makes of it."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from benchmarks.output import Cell, Heading, Table
from benchmarks.workload import FEW_TOKENS, K_LAYOUT, V_LAYOUT, Workload
from oracle.machine.cubin import Cubin
from oracle.machine.disassembly import disassemble
from oracle.machine.ir import Function
from oracle.machine.launch import Program
from oracle.machine.lower import lower
from oracle.machine.tiers import installed
from oracle.quantize import ScaleSearch
from oracle.subjects.source import KERNEL
from oracle.toolchain import compile_cuda, kernel_source, supported_archs

CACHE_VARIABLE = "LAYOUT_ORACLE_CACHE"
_SUBJECTS = (
    ("sm_100a", ScaleSearch.MAX_OVER_6),
    ("sm_100a", ScaleSearch.FOUR_OVER_SIX),
    ("sm_80", ScaleSearch.MAX_OVER_6),
    ("sm_80", ScaleSearch.FOUR_OVER_SIX),
)
_STEPS = (
    "NVRTC", "load cubin", "nvdisasm", "load SASS", "lower", "blocks", "sum", "sum from cache",
)  # fmt: skip

COLD = Heading(
    "Cold costs of the store kernel, bf16",
    ("arch", "search", *(f"{step} ms" for step in _STEPS)),
)
NATIVE = Heading(
    "Native code of the bf16 store", ("search", "compile ms", "cached load ms", "object KiB")
)

_Result = TypeVar("_Result")


@contextmanager
def temporary_cache() -> Iterator[str]:
    """An empty disk cache for the oracle, in this process and in those it starts."""
    kept = os.environ.get(CACHE_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="layout-oracle-bench-") as directory:
        os.environ[CACHE_VARIABLE] = directory
        try:
            yield directory
        finally:
            if kept is None:
                del os.environ[CACHE_VARIABLE]
            else:
                os.environ[CACHE_VARIABLE] = kept


def costs(turns: int) -> Table:
    """Milliseconds from source to a program that can be launched, with and without the cache."""
    _, loading = _timed(supported_archs)
    readings: dict[tuple[str, ScaleSearch], list[list[float]]] = {s: [] for s in _SUBJECTS}
    for _ in range(turns):
        for subject in _SUBJECTS:
            readings[subject].append(_steps(*subject))
    rows: list[tuple[Cell, ...]] = []
    for arch, search in _SUBJECTS:
        steps = [statistics.median(step) for step in zip(*readings[arch, search], strict=True)]
        rows.append((arch, search.value, *steps))
    notes = (
        f"wall time, medians over turns: {turns}; loading NVRTC took {loading:.0f} ms before, once",
        "load: from the disk cache; lower: without the disassembly; blocks: every one written and "
        "compiled",
        "a launch compiles only the blocks it reaches",
    )
    return COLD.table(rows, notes)


def native_costs(turns: int) -> tuple[Table, dict[str, float]]:
    """What compiling a kernel takes, and loading it from the cache; seconds by what it was."""
    rows: list[tuple[Cell, ...]] = []
    seconds: dict[str, float] = {}
    notes = ("CPU time, the least of some turns; importing and starting LLVM not included",)
    for search in ScaleSearch if installed() else ():
        function = Workload(FEW_TOKENS, "bf16", search).writer().program.function
        compiling, loading, size = _native_costs(function, turns)
        seconds |= {f"compile, {search.value}": compiling, f"load, {search.value}": loading}
        rows.append((search.value, compiling * 1e3, loading * 1e3, size / 1024))
    return NATIVE.table(rows, notes if rows else ("not here: llvmlite is not installed",)), seconds


def _native_costs(function: Function, turns: int) -> tuple[float, float, int]:
    """Seconds to compile and to load, and bytes of the object."""
    from oracle.machine.compiled.build import Build, host
    from oracle.machine.compiled.runtime import CompiledProgram

    host()
    readings = []
    for _ in range(turns):
        with temporary_cache():
            times = [time.process_time()]
            for _ in range(2):
                CompiledProgram(function)
                times.append(time.process_time())
            size = len(Build(function).code("group"))
        readings.append((times[1] - times[0], times[2] - times[1]))
    compiling, loading = (min(part) for part in zip(*readings, strict=True))
    return compiling, loading, size


def _steps(arch: str, search: ScaleSearch) -> list[float]:
    """Milliseconds of each of _STEPS."""
    defines = {
        "DTYPE": "BF16",
        "K_LAYOUT": K_LAYOUT.upper(),
        "V_LAYOUT": V_LAYOUT.upper(),
        "SCALE_SEARCH": search.name,
    }
    source = kernel_source(KERNEL)
    with temporary_cache():
        binary, compiling = _timed(lambda: compile_cuda(source, arch, defines))
        _, compiled = _timed(lambda: compile_cuda(source, arch, defines))
        cubin = Cubin.parse(binary)
        _, disassembling = _timed(lambda: disassemble(cubin))
        _, disassembled = _timed(lambda: disassemble(cubin))
        function, lowering = _timed(lambda: lower(cubin))
        lowering -= disassembled
        _, generating = _timed(lambda: [b.run for b in Program(function).blocks.values()])
    once = [compiling, compiled, disassembling, disassembled, lowering, generating]
    rest = lowering + generating
    return [*once, compiling + disassembling + rest, compiled + disassembled + rest]


def _timed(work: Callable[[], _Result]) -> tuple[_Result, float]:
    """The result of `work`, and its duration in milliseconds."""
    start = time.perf_counter()
    result = work()
    return result, (time.perf_counter() - start) * 1e3
