"""One store of 8 heads of 128 by everything that can execute it, warm, in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.native import VARIANTS, BytesDiffer, NativeStore
from benchmarks.output import Cell, Heading, Table
from benchmarks.sampling import Case, Duration, Samples, clocked, take_turns
from benchmarks.workload import FEW_TOKENS, Workload, quantise
from oracle.machine.launch import Program
from oracle.machine.memory import Memory
from oracle.machine.provenance import map_tags, with_tags
from oracle.machine.tiers import installed
from oracle.quantize import ScaleSearch
from oracle.requests import StoreRequest
from oracle.subjects.binary import MachineWriter

NUMPY, CHECKED, LOGGED, TAGGED = "NumPy", "compiled, no log", "compiled", "compiled, tags"
QUANTISER, TRITON = "quantiser", "Triton"
BRANCHY, VECTOR = (f"C, {variant}" for variant in VARIANTS)
EXECUTORS = (NUMPY, CHECKED, LOGGED, TAGGED, QUANTISER, BRANCHY, VECTOR, TRITON)
_COMPARED = (NUMPY, BRANCHY, VECTOR, TRITON)
_COLUMNS = (
    "executor", "ms", "spread %", "Mgroup/s", "Minstr/s", *(f"x {name}" for name in _COMPARED),
)  # fmt: skip
NOTES = (
    "ms: CPU time of the launch alone; Minstr/s: instructions of the kernel times lanes",
    "x: how many times as fast as this one",
    "NumPy, compiled: the tiers, which check every access and log every store; no log: the checks "
    "alone; tags: the provenance of every byte as well",
    "quantiser: the reference, which stores nothing; C: one core, nothing checked or logged",
    "Triton: the same store in Triton's interpreter, a program for each token and side",
)
"""What the tables of stores mean."""
_LEAST_SECONDS = 5e-3


def heading(tokens: int, search: ScaleSearch) -> Heading:
    """What the table of one store is headed with."""
    lanes = Workload(tokens, "bf16", search).lanes
    return Heading(f"Store of {tokens:,} tokens, {search.value} search: {lanes:,} lanes", _COLUMNS)


def missing(native: NativeStore | None) -> dict[str, str]:
    """Executors that are not here, and why."""
    found = {}
    if not installed():
        found |= dict.fromkeys((CHECKED, LOGGED, TAGGED), "llvmlite is not installed")
    if native is None:
        found |= dict.fromkeys((BRANCHY, VECTOR), "there is no C compiler")
    absent = [name for name in ("triton", "torch") if find_spec(name) is None]
    if absent:
        found[TRITON] = f"{' and '.join(absent)} not installed"
    return found


class LaunchCase:
    """Launches a store again and again over the same memory, which is put back in between."""

    def __init__(
        self, name: str, program: Any, writer: MachineWriter, request: StoreRequest,
        tags: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        self.name = name
        self.lane_instructions = 0
        self._program, self._options = program, options
        self.memory = Memory()
        params = writer.map(request, self.memory)
        if tags:
            map_tags(self.memory, {"key": np.arange(request.key.nbytes).astype(np.uint8)})
        launch = writer.launch(request.geometry, request.slot_mapping.size)
        self._launch = launch.grid, launch.block, params
        self._count = max(1, round(_LEAST_SECONDS / max(self._once().cpu, 1e-6)))

    def _once(self) -> Duration:
        self.memory.forget()
        start = Duration.now()
        statistics = self._program.launch(*self._launch, self.memory, **self._options)
        self.lane_instructions = statistics.lane_instructions
        return Duration.now().since(start)

    def __call__(self) -> Mapping[str, Duration]:
        """The mean duration of a launch."""
        every = [self._once() for _ in range(self._count)]
        wall, cpu = (sum(part) / len(every) for part in zip(*every, strict=True))
        return {self.name: Duration(wall, cpu)}


def launches(workload: Workload, request: StoreRequest) -> list[LaunchCase]:
    """The store on the tiers of the machine that are here."""
    writer = workload.writer()
    function = writer.program.function
    cases = [LaunchCase(NUMPY, Program(function), writer, request)]
    if installed():
        from oracle.machine.compiled.runtime import CompiledProgram

        tagged = CompiledProgram(with_tags(function))
        cases += [
            LaunchCase(CHECKED, CompiledProgram(function), writer, request, log=False),
            LaunchCase(LOGGED, CompiledProgram(function), writer, request),
            LaunchCase(TAGGED, tagged, writer, request, tags=True),
        ]
    return cases


def _others(
    workload: Workload, request: StoreRequest, native: NativeStore | None, absent: Mapping[str, str]
) -> list[Case]:
    cases = [clocked(QUANTISER, lambda: quantise(workload, request))]
    if native is not None:
        for name, variant in zip((BRANCHY, VECTOR), VARIANTS, strict=True):
            cases.append(
                clocked(name, native.store(variant, workload, request, request.cache.copy()))
            )
    if TRITON not in absent and _for_triton(workload):
        cases.append(_in_triton(workload, request))
    return cases


def _for_triton(workload: Workload) -> bool:
    return workload.tokens == FEW_TOKENS and workload.search is ScaleSearch.MAX_OVER_6


def _in_triton(workload: Workload, request: StoreRequest) -> Case:
    """Triton's store, once it leaves the bytes of the machine. Raises BytesDiffer."""
    from benchmarks.triton_kernel import store

    cache = request.cache.copy()
    store(request, cache)
    different = np.flatnonzero(cache != workload.writer().write(request).cache)
    if different.size:
        raise BytesDiffer(f"Triton and the machine differ in {different.size} bytes")
    return clocked(TRITON, lambda: store(request, cache))


def stores(tokens: int, search: ScaleSearch, native: NativeStore | None, turns: int) -> Table:
    """The bf16 store of so many tokens, by every executor; NOTES explain it.

    Raises BytesDiffer.
    """
    workload = Workload(tokens, "bf16", search)
    request, absent = workload.request(), missing(native)
    on_tiers = launches(workload, request)
    samples = take_turns([*on_tiers, *_others(workload, request, native, absent)], turns)
    instructions = {case.name: case.lane_instructions for case in on_tiers}
    rows = [_row(samples, workload, name, instructions.get(name)) for name in EXECUTORS]
    skipped = [f"not here: {name}, since {reason}" for name, reason in absent.items()]
    if TRITON not in absent and not _for_triton(workload):
        skipped.append(f"Triton: only {FEW_TOKENS} tokens and the max6 search")
    core = f"got {samples.core_share:.0%} of a core meanwhile"
    notes = (*skipped, f"medians over turns: {turns}; {core}")
    return heading(tokens, search).table(rows, notes)


def _row(
    samples: Samples, workload: Workload, name: str, instructions: int | None
) -> Sequence[Cell]:
    if name not in samples.readings:
        return (name, *(None,) * (len(_COLUMNS) - 1))
    seconds = samples.cpu(name)
    return (
        name,
        seconds * 1e3,
        samples.spread(name) * 100,
        workload.groups / seconds / 1e6,
        instructions / seconds / 1e6 if instructions is not None else None,
        *(samples.ratio(other, name) if other in samples.readings else None for other in _COMPARED),
    )
