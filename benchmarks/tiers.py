"""The tiers against each other and against C: `python benchmarks/tiers.py [--quick]`.

One store of 8 heads of 128, warm, each executor taking turns with the others. A launch has every
check on; "log" adds the record of every store, "tags" the provenance of every byte as well.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks.native import VARIANTS, NativeStore, NoCompiler
from benchmarks.output import Cell, Goal, Table, goals_table
from benchmarks.sampling import Case, Duration, Samples, clocked, take_turns
from benchmarks.workload import FEW_TOKENS, Workload
from oracle.errors import OracleError
from oracle.machine.ir import Function
from oracle.machine.launch import Program
from oracle.machine.memory import Memory
from oracle.machine.provenance import map_tags, with_tags
from oracle.quantize import ScaleSearch
from oracle.requests import StoreRequest
from oracle.subjects.binary import MachineWriter
from oracle.subjects.store_abi import StoreLaunch

TOKENS = (FEW_TOKENS, 1024, 8192)
GOAL_TOKENS = 1024
_LEAST_SECONDS = 5e-3
_COLUMNS = ("search", "tokens", "executor", "ms", "Mgroup/s", "Minstr/s", "x vector C")
_NOTES = (
    "CPU time; Minstr/s: instructions of the kernel times lanes, in millions a second",
    "x vector C: how many times as fast as the C store that compilers turn into vectors",
)


class LaunchCase:
    """Launches a store again and again over the same memory, which is put back in between."""

    def __init__(
        self, name: str, program: Any, writer: MachineWriter, request: StoreRequest,
        tags: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        self.name = name
        self.lane_instructions = 0
        self._program, self._options = program, options
        self._memory, params = store_memory(writer, request)
        if tags:
            labels = np.arange(request.key.nbytes).astype(np.uint8)
            map_tags(self._memory, {"key": labels})
        shape = StoreLaunch.of(request.geometry, request.slot_mapping.size)
        self._launch = shape.grid, shape.block, params
        self._count = max(1, round(_LEAST_SECONDS / max(self._once().cpu, 1e-6)))

    def _once(self) -> Duration:
        self._memory.stores.clear()
        for region in self._memory.regions:
            if region.initialised is not None:
                region.initialised[:] = False
        start = Duration.now()
        statistics = self._program.launch(*self._launch, self._memory, **self._options)
        self.lane_instructions = statistics.lane_instructions
        return Duration.now().since(start)

    def __call__(self) -> Mapping[str, Duration]:
        """The mean duration of a launch."""
        every = [self._once() for _ in range(self._count)]
        wall, cpu = (sum(part) / len(every) for part in zip(*every, strict=True))
        return {self.name: Duration(wall, cpu)}


def store_memory(writer: MachineWriter, request: StoreRequest) -> tuple[Memory, bytes]:
    """The memory of a store, as the writer maps it, and the kernel's parameters."""
    memory, geometry = Memory(), request.geometry
    inputs: dict[str, Any] = {
        "key": request.key,
        "value": request.value,
        "slot_mapping": request.slot_mapping,
        "k_scale": np.array([request.k_scale], np.float32),
        "v_scale": np.array([request.v_scale], np.float32),
    }
    addresses = {name: memory.map(name, data).base for name, data in inputs.items()}
    cache = memory.map("cache", request.cache, writable=True, initialised=False)
    for side, prefix in (("K", "key"), ("V", "value")):
        addresses[f"{prefix}_data"] = cache.base + geometry.side_base(side)
        addresses[f"{prefix}_scale"] = cache.base + geometry.scale_base(side)
    launch = StoreLaunch.of(geometry, request.slot_mapping.size)
    return memory, launch.params(writer._kernel, addresses)


def compare(native: NativeStore | None, tokens: int, search: ScaleSearch, turns: int) -> Table:
    """Every executor of one store."""
    from oracle.machine.compiled.runtime import CompiledProgram

    workload = Workload(tokens, "bf16", search)
    request, writer = workload.request(), workload.writer()
    function = writer.program.function
    compiled = CompiledProgram(function)
    launches = [
        LaunchCase("NumPy, log", Program(function), writer, request),
        LaunchCase("compiled", compiled, writer, request, log=False),
        LaunchCase("compiled, log", CompiledProgram(function), writer, request),
        LaunchCase(
            "compiled, log, tags", CompiledProgram(with_tags(function)), writer, request, True
        ),
        LaunchCase("compiled, 2 threads", CompiledProgram(function), writer, request, jobs=2),
    ]
    cases: list[Case] = list(launches)
    if native is not None:
        for variant in VARIANTS:
            call = native.store(variant, workload, request, request.cache.copy())
            cases.append(clocked(f"C, {variant}", call))
    samples = take_turns(cases, turns)
    rows = [_row(samples, workload, case.name, case.lane_instructions) for case in launches]
    if native is not None:
        rows += [_row(samples, workload, f"C, {variant}", None) for variant in VARIANTS]
    title = f"Store of {tokens:,} tokens, search {search.value}: {workload.lanes:,} lanes"
    return Table(title, _COLUMNS, rows, (*_NOTES, f"medians over turns: {turns}"))


def _row(
    samples: Samples, workload: Workload, name: str, instructions: int | None
) -> tuple[Cell, ...]:
    # The CPU time of the calling thread is not that of others.
    seconds = samples.wall(name) if "threads" in name else samples.cpu(name)
    vector = f"C, {VARIANTS[-1]}"
    ratio = samples.ratio(vector, name) if vector in samples.readings else None
    if "threads" in name:
        ratio = samples.wall(vector) / seconds if ratio is not None else None
    rate = instructions / seconds / 1e6 if instructions is not None else None
    return (
        workload.search.value, workload.tokens, name, seconds * 1e3,
        workload.groups / seconds / 1e6, rate, ratio,
    )  # fmt: skip


def build_costs(turns: int) -> tuple[Table, dict[str, float]]:
    """What compiling a kernel takes, and loading it from the cache."""
    rows: list[tuple[Cell, ...]] = []
    costs: dict[str, float] = {}
    for search in ScaleSearch:
        function = Workload(FEW_TOKENS, "bf16", search).writer().program.function
        compile_seconds, load_seconds = _build_seconds(function, turns)
        costs |= {f"{search.value} compile": compile_seconds, f"{search.value} load": load_seconds}
        rows.append((search.value, compile_seconds * 1e3, load_seconds * 1e3))
    columns = ("search", "compile ms", "load ms")
    note = f"CPU time, the least of {turns}; lowering and llvmlite's own import not included"
    return Table("Native code of the bf16 store", columns, rows, (note,)), costs


def _build_seconds(function: Function, turns: int) -> tuple[float, float]:
    from oracle.machine.compiled.runtime import CompiledProgram

    def seconds(work: Callable[[], object]) -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    before = os.environ.get("LAYOUT_ORACLE_CACHE")
    compiling, loading = [], []
    try:
        for _ in range(turns):
            with tempfile.TemporaryDirectory(prefix="layout-oracle-bench-") as directory:
                os.environ["LAYOUT_ORACLE_CACHE"] = directory
                compiling.append(seconds(lambda: CompiledProgram(function)))
                loading.append(seconds(lambda: CompiledProgram(function)))
    finally:
        os.environ.pop("LAYOUT_ORACLE_CACHE")
        if before is not None:
            os.environ["LAYOUT_ORACLE_CACHE"] = before
    return min(compiling), min(loading)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure the tiers of the machine.")
    parser.add_argument("--quick", action="store_true", help="fewer turns and sizes")
    quick = parser.parse_args().quick
    try:
        from oracle.machine.compiled.build import host

        print(f"processor {host().cpu}, {host().lanes} lanes a vector, llvmlite {host().llvm}\n")
        tables, goals = measure(quick)
    except OracleError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print("\n".join(line for table in (*tables, goals_table(goals)) for line in table.lines()))
    return 0


def measure(quick: bool) -> tuple[list[Table], list[Goal]]:
    """Every table and the goals; `quick` takes fewer turns and sizes."""
    with tempfile.TemporaryDirectory(prefix="layout-oracle-bench-") as directory:
        try:
            native = NativeStore.build(Path(directory))
        except NoCompiler:
            native = None
        table, costs = build_costs(1 if quick else 3)
        tables = [table]
        ratios: dict[tuple[str, str], float] = {}
        for search in ScaleSearch:
            for tokens in (GOAL_TOKENS,) if quick else TOKENS:
                turns = 3 if quick else 7
                tables.append(compare(native, tokens, search, turns))
                if tokens == GOAL_TOKENS:
                    for row in tables[-1].rows:
                        if isinstance(row[-1], float):
                            ratios[search.value, str(row[2])] = row[-1]
    goals = [
        Goal(f"{search} {name}", limit, "x vector C", ratios.get((search, name)), at_least=True)
        for search, name, limit in (
            ("max6", "compiled", 1.5),
            ("max6", "compiled, log", 1.2),
            ("max6", "compiled, log, tags", 0.6),
            ("4over6", "compiled, log", 0.8),
        )
    ]
    goals += [
        Goal("compile, max6", 2.0, "s", costs["max6 compile"]),
        Goal("compile, 4over6", 4.0, "s", costs["4over6 compile"]),
        Goal("load, 4over6", 30, "ms", costs["4over6 load"] * 1e3),
    ]
    return tables, goals


if __name__ == "__main__":
    sys.exit(main())
