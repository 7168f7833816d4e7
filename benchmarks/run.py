"""Measure the oracle on this machine: `python benchmarks/run.py [--quick] [--json FILE]`.

Numbers of different machines, or of one machine on different days, do not compare; the ratios
within one run do. Nothing here fails on a slow machine: goals are printed as met or not. Only
bytes that differ between executors end the run with exit code 1. With `--docs FILE` everything is
written as the page of the documentation as well.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import cold, growth, processes, quantisers
from benchmarks.executors import CHECKED, LOGGED, NOTES, NUMPY, TAGGED, VECTOR, stores
from benchmarks.native import BytesDiffer, NativeStore, NoCompiler, check_equal
from benchmarks.output import Cell, Goal, Table, environment, goals_table, write_json
from benchmarks.page import STORES, as_page
from benchmarks.sampling import Duration, clocked, take_turns
from benchmarks.workload import FEW_TOKENS, MANY_TOKENS, Workload
from oracle.errors import OracleError
from oracle.formats import DTYPES
from oracle.quantize import ScaleSearch

_BUILD_LIMITS = {"compile, max6": 2.0, "compile, 4over6": 4.0, "load, 4over6": 0.03}
"""Seconds that building native code may take."""
_RATIO_LIMITS = {
    ("max6", CHECKED): 1.5, ("max6", LOGGED): 1.2, ("max6", TAGGED): 0.6, ("4over6", LOGGED): 0.8
}  # fmt: skip
"""How many times as fast as vectorised C the tiers are meant to be, by search and executor."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and give the exit code."""
    parser = argparse.ArgumentParser(description="Measure the oracle on this machine.")
    parser.add_argument("--quick", action="store_true", help="fewer turns and a smaller verdict")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON too")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="write everything as a page too")
    arguments = parser.parse_args(argv)
    for path in (arguments.json, arguments.docs):
        if path is not None and not path.parent.is_dir():
            parser.error(f"there is no directory {path.parent}: make it first")
    if arguments.quick and arguments.docs is not None:
        parser.error("--docs takes every table in full: leave out --quick")
    try:
        return _run(arguments.quick, arguments.json, arguments.docs)
    except (BytesDiffer, OracleError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, OracleError) else 1


def _run(quick: bool, json_path: Path | None, page_path: Path | None) -> int:
    load = _load()
    with tempfile.TemporaryDirectory(prefix="layout-oracle-bench-") as directory:
        native = _native(Path(directory))
        tables, goals = _measure(native, quick)
    after = _load()
    print(f"load average: {load} before, {after} after, {os.cpu_count()} processors\n")
    _show(goals_table(goals))
    facts = environment(native.command if native else None)
    facts |= {"load_before": load, "load_after": after}
    if json_path is not None:
        write_json(json_path, facts, tables, goals)
        print(f"wrote {json_path}")
    if page_path is not None:
        page_path.write_text(as_page(facts, [goals_table(goals), *tables]), encoding="utf-8")
        print(f"wrote {page_path}")
    return 0


def _native(directory: Path) -> NativeStore | None:
    """The C store, once it stores what the machine stores; None where it cannot be compiled."""
    try:
        native = NativeStore.build(directory)
    except NoCompiler as error:
        print(f"C store: skipped, since {error}\n")
        return None
    compared = sum(
        check_equal(native, Workload(FEW_TOKENS, dtype, search))
        for dtype in DTYPES
        for search in ScaleSearch
    )
    print(f"C store: {native.command}")
    print(f"C store: both variants leave the machine's bytes, {compared:,} compared\n")
    return native


def _measure(native: NativeStore | None, quick: bool) -> tuple[list[Table], list[Goal]]:
    """Every table, shown as soon as it is there, and the goals."""
    tables: list[Table] = []

    def add(table: Table) -> Table:
        _show(table)
        tables.append(table)
        return table

    # Processes first: while this one is small, what it starts does not inherit its peak memory.
    short, shown = processes.short_runs(3 if quick else 9)
    add(short)
    verdict, runs = processes.verdict_runs(1 if quick else 2, quick)
    add(verdict)
    add(cold.costs(1 if quick else 3))
    built, seconds = cold.native_costs(1 if quick else 3)
    add(built)
    ratios: dict[tuple[str, int, str], float | None] = {}
    rates: dict[str, float | None] = {}
    explained: tuple[str, ...] = NOTES
    for tokens, search in STORES:
        if quick and tokens != MANY_TOKENS:
            continue
        table = stores(tokens, search, native, 3 if quick else 7)
        add(replace(table, notes=(*explained, *table.notes)))
        explained = ()
        for row in _rows(table):
            ratios[search.value, tokens, str(row["executor"])] = _number(row[f"x {VECTOR}"])
            if tokens == MANY_TOKENS and row["executor"] == NUMPY:
                rates[search.value] = _number(row["Minstr/s"])
    add(growth.growth(growth.TOKENS[:2] if quick else growth.TOKENS, 3 if quick else 7))
    add(growth.small_stores(3 if quick else 7))
    quantiser_rates, quantiser_goals = quantisers.rates(2 if quick else 3)
    add(quantiser_rates)
    goals = [
        _few_tokens(3 if quick else 9),
        Goal(
            "65,536 lanes on one core, NumPy", 200, "M lane-instructions/s",
            min((rate for rate in rates.values() if rate is not None), default=None), at_least=True,
        ),
        *_ratio_goals(ratios),
        *(
            Goal(f"{what}, native code", limit, "s", seconds.get(what))
            for what, limit in _BUILD_LIMITS.items()
        ),
        _time_goal("verdict after set-up, empty cache", 15, "s", runs["empty"]),
        _time_goal("verdict, full cache", 5, "s", runs["full"]),
        _time_goal("--help", 200, "ms", shown),
        *quantiser_goals,
    ]  # fmt: skip
    return tables, goals


def _ratio_goals(ratios: Mapping[tuple[str, int, str], float | None]) -> Iterator[Goal]:
    """How fast the tiers are beside vectorised C: of all numbers of tokens the slowest counts."""
    for (search, executor), limit in _RATIO_LIMITS.items():
        found = [r for (s, _, e), r in ratios.items() if (s, e) == (search, executor)]
        known = [ratio for ratio in found if ratio is not None]
        yield Goal(f"{search}: {executor}", limit, "x vectorised C", min(known, default=None), True)


def _few_tokens(turns: int) -> Goal:
    """The whole write of few tokens on NumPy lanes: of dtypes and searches the slowest."""
    worst: tuple[float, float] = 0.0, 0.0
    for dtype in DTYPES:
        for search in ScaleSearch:
            workload = Workload(FEW_TOKENS, dtype, search)
            writer, request = workload.writer().on_tier("numpy"), workload.request()
            case = clocked("it", lambda writer=writer, request=request: writer.write(request))
            samples = take_turns([case], turns)
            worst = max(worst, (samples.wall("it") * 1e3, samples.cpu("it") * 1e3))
    return Goal("42 tokens x 8 heads x 128, warm, NumPy", 20, "ms", worst[0], cpu=worst[1])


def _time_goal(name: str, limit: float, unit: str, duration: Duration | None) -> Goal:
    if duration is None:
        return Goal(name, limit, unit, None)
    scale = {"s": 1.0, "ms": 1e3}[unit]
    return Goal(name, limit, unit, duration.wall * scale, cpu=duration.cpu * scale)


def _rows(table: Table) -> list[dict[str, Cell]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def _number(cell: Cell) -> float | None:
    return cell if isinstance(cell, float) else None


def _show(table: Table) -> None:
    print("\n".join(table.lines()), flush=True)


def _load() -> float:
    return round(os.getloadavg()[0], 2)


if __name__ == "__main__":
    sys.exit(main())
