"""The tiers from few tokens to many, and over launches as small as a fuzzer's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.executors import LOGGED, NUMPY, launches
from benchmarks.output import Cell, Heading, Table
from benchmarks.sampling import Case, clocked, take_turns
from benchmarks.workload import FEW_TOKENS, SCALES, Workload
from oracle.formats import DTYPES
from oracle.geometry import CacheGeometry
from oracle.machine.tiers import installed
from oracle.quantize import ScaleSearch
from oracle.requests import StoreRequest

GROWTH = Heading(
    "Growth of the bf16 max6 store",
    ("tokens", "lanes", "tier", "ms", "ns/lane", "Mgroup/s", "Minstr/s", "peak RSS MiB"),
)
SMALL = Heading(
    "Small stores: 16 tokens x 2 heads x 64, as a fuzz session makes them",
    ("search", "tier", "us a write", "writes/s", "x NumPy"),
)
TOKENS = (FEW_TOKENS, 512, 4096, 65_536)
_MANY = 16_384
"""Tokens from which on two turns have to do."""


def growth(token_counts: Sequence[int], turns: int) -> Table:
    """Time, rate and memory of each tier over so many tokens."""
    rows: list[tuple[Cell, ...]] = []
    for tokens in token_counts:
        workload = Workload(tokens, "bf16", ScaleSearch.MAX_OVER_6)
        request = workload.request()
        cases = [case for case in launches(workload, request) if case.name in (NUMPY, LOGGED)]
        peaks = {case.name: _peak_mebibytes(case) for case in cases}
        samples = take_turns(cases, min(turns, 2) if tokens >= _MANY else turns)
        for case in cases:
            seconds = samples.cpu(case.name)
            rows.append(
                (
                    tokens,
                    workload.lanes,
                    case.name,
                    seconds * 1e3,
                    seconds / workload.lanes * 1e9,
                    workload.groups / seconds / 1e6,
                    case.lane_instructions / seconds / 1e6,
                    peaks[case.name],
                )
            )
    note = "CPU time of a launch with its log; peak RSS: of this process with all it holds"
    return GROWTH.table(rows, (note,))


def small_request() -> StoreRequest:
    """A store as small as those of a fuzz session."""
    noise = np.random.default_rng(0)
    geometry = CacheGeometry(4, 16, 2, 64, "HND")
    values = DTYPES["bf16"].encode(noise.standard_normal((2, 16, 2, 64), dtype=np.float32))
    slots = noise.permutation(geometry.num_slots)[:16].astype(np.int64)
    cache = np.zeros(geometry.cache_bytes, np.uint8)
    return StoreRequest(geometry, "bf16", values[0], values[1], slots, *SCALES, cache)


def small_stores(turns: int) -> Table:
    """`MachineWriter.write` over a small request, on each tier."""
    request = small_request()
    tiers = {NUMPY: "numpy", **({LOGGED: "compiled"} if installed() else {})}
    rows: list[tuple[Cell, ...]] = []
    for search in ScaleSearch:
        writer = Workload(FEW_TOKENS, "bf16", search).writer()
        cases: list[Case] = []
        for name, tier in tiers.items():
            on_tier = writer.on_tier(tier)
            cases.append(clocked(name, lambda on_tier=on_tier: on_tier.write(request)))
        samples = take_turns(cases, turns)
        for name in tiers:
            seconds = samples.cpu(name)
            rows.append(
                (search.value, name, seconds * 1e6, 1 / seconds, samples.ratio(NUMPY, name))
            )
    note = "the whole write: memory mapped, parameters packed, every byte stored listed"
    return SMALL.table(rows, (note,))


def _peak_mebibytes(work: Case) -> float | None:
    """Peak resident memory during `work`; None where the system keeps no such mark to reset."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        work()
        status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    marks = [line.split()[1] for line in status if line.startswith("VmHWM:")]
    return int(marks[0]) / 1024 if marks else None
