"""One launch on both tiers: the same bytes, the same marks, the same stores, the same faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.geometry import CacheGeometry
from oracle.machine.compiled.log import canonical, overlap
from oracle.machine.compiled.runtime import CompiledProgram
from oracle.machine.launch import Program, Statistics
from oracle.machine.memory import MachineFault, Memory
from oracle.machine.primitives import RcpModel, rcp_exact
from oracle.requests import StoreRequest
from oracle.subjects.binary import MachineWriter

Dim = tuple[int, int, int]


@dataclass
class Outcome:
    """What a launch left: memory, statistics, and the fault if it ended in one."""

    memory: Memory
    statistics: Statistics | None
    fault: str | None


def run(
    program: Any, memory: Memory, grid: Dim, block: Dim, params: bytes, **options: Any
) -> Outcome:
    try:
        statistics = program.launch(grid, block, params, memory, **options)
    except MachineFault as error:
        return Outcome(memory, None, str(error))
    return Outcome(memory, statistics, None)


def differences(a: Outcome, b: Outcome) -> list[str]:
    """In what two outcomes of one launch differ; nothing where they agree."""
    found = []
    if a.fault != b.fault:
        found.append(f"fault {a.fault!r} and {b.fault!r}")
    logs = [canonical(x.memory.stores) for x in (a, b)]
    if not np.array_equal(*logs):
        found.append(f"logs of {logs[0].size} and {logs[1].size} stores")
    if not np.array_equal(*(canonical(x.memory.strays) for x in (a, b))):
        found.append("strays")
    for mine, theirs in zip(a.memory.regions, b.memory.regions, strict=True):
        same = np.array_equal(mine.data, theirs.data)
        if not same and not overlap(a.memory.stores):
            found.append(f"bytes of {mine.name}")
        if (mine.initialised is None) != (theirs.initialised is None) or (
            mine.initialised is not None
            and not np.array_equal(mine.initialised, theirs.initialised)
        ):
            found.append(f"marks of {mine.name}")
    if a.statistics and b.statistics:
        one, other = a.statistics, b.statistics
        if (one.lanes, one.lane_instructions) != (other.lanes, other.lane_instructions):
            found.append(f"{one} and {other}")
    return found


def compare(
    numpy: Program, compiled: CompiledProgram, memory: Callable[[], Memory], grid: Dim,
    block: Dim, params: bytes, jobs: int = 1, **options: Any,
) -> tuple[list[str], Outcome]:  # fmt: skip
    """Run a launch on both tiers; the differences, and what NumPy lanes made of it."""
    expected = run(numpy, memory(), grid, block, params, **options)
    got = run(compiled, memory(), grid, block, params, jobs=jobs, **options)
    return differences(expected, got), expected


def mapped(
    writer: MachineWriter, request: StoreRequest
) -> tuple[Callable[[], Memory], Dim, Dim, bytes]:
    """What `compare` takes for a store: fresh memory, grid, block and parameters."""

    def memory() -> Memory:
        made = Memory()
        writer.map(request, made)
        return made

    launch = writer.launch(request.geometry, request.slot_mapping.size)
    return memory, launch.grid, launch.block, writer.map(request, Memory())


def compare_store(
    writer: MachineWriter, compiled: CompiledProgram, request: StoreRequest,
    rcp: RcpModel = rcp_exact, jobs: int = 1, **options: Any,
) -> tuple[list[str], Outcome]:  # fmt: skip
    """A store on both tiers."""
    numpy = writer.program.numpy
    return compare(numpy, compiled, *mapped(writer, request), jobs, rcp=rcp, **options)


def wild_request(
    geometry: CacheGeometry, dtype: str, tokens: int, seed: int, scales: tuple[float, float],
    odd_slots: bool = False,
) -> StoreRequest:  # fmt: skip
    """Every 16-bit pattern, groups of zeros and of one magnitude; slots without repetition.

    `odd_slots` adds padding, slots far behind the cache and, where there are tokens to spare, the
    smallest and largest numbers.
    """
    noise = np.random.default_rng(seed)
    shape = (2, tokens, geometry.num_heads, geometry.head_size)
    values = noise.integers(0, 1 << 16, shape, np.uint16)
    groups = values.reshape(-1, 16)
    groups[1::3] &= np.uint16(0xBFFF)
    groups[2::7] = 0
    groups[3::11] = 0x7FFF
    slots = noise.permutation(geometry.num_blocks * geometry.block_size)[:tokens].astype(np.int64)
    if odd_slots:
        extremes = [-1, slots.max() + 10_000_000, -(2**63), 2**62, 2**31, -(2**31)]
        slots[: len(extremes)] = extremes[:tokens]
    cache = noise.integers(0, 256, geometry.cache_bytes, np.uint8)
    return StoreRequest(geometry, dtype, values[0], values[1], slots, *scales, cache)
