"""The store, warm: on the machine, by the reference quantiser, and in C; and how it grows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.native import VARIANTS, NativeStore
from benchmarks.output import Cell, Table
from benchmarks.sampling import Case, Samples, clocked, take_turns
from benchmarks.workload import FEW_TOKENS, MANY_TOKENS, MachineCase, Workload, quantise
from oracle.formats import DTYPES
from oracle.quantize import ScaleSearch

_MILLI = 1e3
_MEGA = 1e-6

_EXECUTORS = ("NumPy", *VARIANTS)
_COLUMNS = (
    "dtype", "search", "wall ms", "write ms", "launch ms", "spread %", "Mgroup/s", "Minstr/s",
    *(f"{name} ms" for name in _EXECUTORS), *(f"x {name}" for name in _EXECUTORS),
)  # fmt: skip
_NOTES = (
    "CPU time, but for the wall time of a write in the first column",
    "write: the whole store, memory mapped and every byte logged; launch: its execution alone",
    "Mgroup/s and Minstr/s: groups of 16 values, and instructions times lanes, a launch executes",
    "NumPy: the reference quantiser, which stores nothing; branchy, vector: the two C stores",
    "x: how many times as long as these a launch takes",
)


def compare(tokens: int, native: NativeStore | None, turns: int) -> Table:
    """Both dtypes and searches at one size, each executor taking turns with the others."""
    rows: list[tuple[Cell, ...]] = []
    shares = []
    for dtype in DTYPES:
        for search in ScaleSearch:
            workload = Workload(tokens, dtype, search)
            row, share = _compare(workload, native, turns)
            rows.append(row)
            shares.append(share)
    lanes = workload.lanes
    title = f"Store of {tokens:,} tokens x 8 heads x 128: {lanes:,} lanes, {2 * lanes:,} groups"
    core = f"got {min(shares):.0%} to {max(shares):.0%} of a core meanwhile"
    return Table(title, _COLUMNS, rows, (*_NOTES, f"medians over turns: {turns}; {core}"))


def _compare(
    workload: Workload, native: NativeStore | None, turns: int
) -> tuple[tuple[Cell, ...], float]:
    request = workload.request()
    machine = MachineCase(workload, request)
    cases: list[Case] = [machine, clocked("NumPy", lambda: quantise(workload, request))]
    if native is not None:
        for variant in VARIANTS:
            call = native.store(variant, workload, request, request.cache.copy())
            cases.append(clocked(variant, call))
    samples = take_turns(cases, turns)
    launch = samples.cpu("launch")
    row: tuple[Cell, ...] = (
        workload.dtype,
        workload.search.value,
        samples.wall("write") * _MILLI,
        samples.cpu("write") * _MILLI,
        launch * _MILLI,
        samples.spread("launch") * 100,
        workload.groups / launch * _MEGA,
        machine.lane_instructions / launch * _MEGA,
        *(_milliseconds(samples, name) for name in _EXECUTORS),
        *(_ratio(samples, name) for name in _EXECUTORS),
    )
    return row, samples.core_share


def _milliseconds(samples: Samples, name: str) -> float | None:
    return samples.cpu(name) * _MILLI if name in samples.readings else None


def _ratio(samples: Samples, name: str) -> float | None:
    return samples.ratio("launch", name) if name in samples.readings else None


def growth(token_counts: Sequence[int], turns: int) -> Table:
    """The bf16 max/6 store from few lanes to many: time, rate, and memory at its highest."""
    rows: list[tuple[Cell, ...]] = []
    for tokens in token_counts:
        workload = Workload(tokens, "bf16", ScaleSearch.MAX_OVER_6)
        machine = MachineCase(workload, workload.request())
        peak = _peak_mebibytes(machine)
        samples = take_turns([machine], turns)
        launch, write = samples.cpu("launch"), samples.cpu("write")
        rows.append(
            (
                tokens,
                workload.lanes,
                write * _MILLI,
                launch * _MILLI,
                launch / workload.lanes * 1e6,
                machine.lane_instructions / launch * _MEGA,
                peak,
            )
        )
    columns = (
        "tokens", "lanes", "write ms", "launch ms", "us/lane", "Minstr/s", "peak RSS MiB",
    )  # fmt: skip
    note = "CPU time; peak RSS: of this process with all it holds, during one store; Linux only"
    return Table("Growth of the bf16 max6 store", columns, rows, (note,))


def default_token_counts(quick: bool) -> tuple[int, ...]:
    """From one token to 65,536 lanes, by way of 42 tokens."""
    return (
        (1, FEW_TOKENS, MANY_TOKENS) if quick else (1, 10, FEW_TOKENS, 128, 256, 512, MANY_TOKENS)
    )


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
