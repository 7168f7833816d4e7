"""Measure the oracle on this machine: `python benchmarks/run.py [--quick] [--json FILE]`.

Numbers of different machines, or of one machine on different days, do not compare; the ratios
within one run do. Nothing here fails on a slow machine: goals are printed as met or not. Only
bytes that differ between the machine and the C store end the run with exit code 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import cold, processes, store
from benchmarks.native import BytesDiffer, NativeStore, NoCompiler, check_equal
from benchmarks.output import Goal, Table, environment, goals_table, write_json
from benchmarks.sampling import Duration
from benchmarks.workload import FEW_TOKENS, MANY_TOKENS, Workload
from oracle.errors import OracleError
from oracle.formats import DTYPES
from oracle.quantize import ScaleSearch


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and give the exit code."""
    parser = argparse.ArgumentParser(description="Measure the oracle on this machine.")
    parser.add_argument("--quick", action="store_true", help="fewer turns and a smaller verdict")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON too")
    arguments = parser.parse_args(argv)
    if arguments.json is not None and not arguments.json.parent.is_dir():
        parser.error(f"there is no directory {arguments.json.parent}: make it first")
    try:
        return _run(arguments.quick, arguments.json)
    except (BytesDiffer, OracleError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, OracleError) else 1


def _run(quick: bool, json_path: Path | None) -> int:
    load = _load()
    with tempfile.TemporaryDirectory(prefix="layout-oracle-bench-") as directory:
        native = _native(Path(directory))
        tables, goals = _measure(native, quick)
    after = _load()
    print(f"load average: {load} before, {after} after, {os.cpu_count()} processors\n")
    _show(goals_table(goals))
    if json_path is not None:
        facts = environment(native.command if native else None)
        facts |= {"load_before": load, "load_after": after}
        write_json(json_path, facts, tables, goals)
        print(f"wrote {json_path}")
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
    short, shown = processes.short_runs(5 if quick else 15)
    add(short)
    verdict, cold_run = processes.verdict_runs(1 if quick else 3, quick)
    add(verdict)
    add(cold.costs(1 if quick else 5))
    few = add(store.compare(FEW_TOKENS, native, 5 if quick else 41))
    many = add(store.compare(MANY_TOKENS, native, 3 if quick else 15))
    add(store.growth(store.default_token_counts(quick), 3 if quick else 11))
    write = max(zip(_column(few, "wall ms"), _column(few, "write ms"), strict=True))
    goals = [
        Goal("42 tokens x 8 heads x 128, warm", 20, "ms", write[0], cpu=write[1]),
        Goal(
            "65,536 lanes on one core", 200, "M lane-instructions/s",
            min(_column(many, "Minstr/s")), at_least=True,
        ),
        _time_goal("verdict after set-up, empty cache", 15, "s", cold_run),
        _time_goal("--help", 200, "ms", shown),
    ]  # fmt: skip
    return tables, goals


def _time_goal(name: str, limit: float, unit: str, duration: Duration | None) -> Goal:
    if duration is None:
        return Goal(name, limit, unit, None)
    scale = {"s": 1.0, "ms": 1e3}[unit]
    return Goal(name, limit, unit, duration.wall * scale, cpu=duration.cpu * scale)


def _column(table: Table, name: str) -> list[float]:
    place = table.columns.index(name)
    return [cell for row in table.rows if isinstance(cell := row[place], float)]


def _show(table: Table) -> None:
    print("\n".join(table.lines()), flush=True)


def _load() -> float:
    return round(os.getloadavg()[0], 2)


if __name__ == "__main__":
    sys.exit(main())
