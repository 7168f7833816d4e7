"""Whole processes: what a person waits for, from the shell's prompt to the next."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.cold import temporary_cache
from benchmarks.output import Cell, Heading, Table
from benchmarks.sampling import Duration

ROOT = Path(__file__).resolve().parents[1]
HARNESS = ROOT / "harness.py"
SHORT = Heading("Short commands", ("command", "wall ms", "CPU ms", "wall / bare", "exit code"))
VERDICT = Heading(
    "The verdict", ("command", "cache", "wall s", "CPU s", "peak RSS MiB", "exit code")
)
_SMALL_DOMAIN = ("--head-size", "64", "--block-size", "16")


@dataclass(frozen=True)
class Finished:
    """A process that has ended: seconds of wall and CPU time, peak memory, exit code.

    CPU time includes the processes it started and waited for; `peak_mebibytes` is that of the
    largest among them.
    """

    wall: float
    cpu: float
    peak_mebibytes: float
    code: int


def run_process(command: Sequence[str]) -> Finished:
    """Run `command` in the checkout, its output dropped."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    # The one number that Linux gives in KiB and macOS in bytes.
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    cpu = usage.ru_utime + usage.ru_stime
    return Finished(wall, cpu, usage.ru_maxrss / unit, process.returncode)


def short_runs(turns: int) -> tuple[Table, Duration | None]:
    """`--help` beside a bare interpreter and an import of NumPy; and how long it took."""
    commands = {
        "python -c pass": ("-c", "pass"),
        "python -c 'import numpy'": ("-c", "import numpy"),
    }
    if HARNESS.is_file():
        commands["harness.py --help"] = (str(HARNESS), "--help")
        commands["harness.py --version"] = (str(HARNESS), "--version")
    runs: dict[str, list[Finished]] = {name: [] for name in commands}
    for _ in range(turns):
        for name, arguments in commands.items():
            runs[name].append(run_process((sys.executable, *arguments)))
    bare = runs["python -c pass"]
    rows: list[tuple[Cell, ...]] = [
        (
            name,
            median(run.wall for run in finished) * 1e3,
            median(run.cpu for run in finished) * 1e3,
            median(run.wall / other.wall for run, other in zip(finished, bare, strict=True)),
            finished[0].code,
        )
        for name, finished in runs.items()
    ]
    table = SHORT.table(rows, (f"medians over turns: {turns}",))
    return table, _duration(runs.get("harness.py --help", []))


def verdict_runs(turns: int, quick: bool) -> tuple[Table, dict[str, Duration | None]]:
    """`verdict` with an empty cache and with a full one; and how long each took.

    `quick` asks for a small domain only, whose durations are not those of the goals.
    """
    arguments = ("verdict", *(_SMALL_DOMAIN if quick else ()))
    runs: dict[str, list[Finished]] = {"empty": [], "full": []}
    if HARNESS.is_file():
        command = (sys.executable, str(HARNESS), *arguments)
        for _ in range(turns):
            with temporary_cache():
                for finished in runs.values():
                    finished.append(run_process(command))
    rows: list[tuple[Cell, ...]] = [
        (
            " ".join(("harness.py", *arguments)),
            cache,
            median(run.wall for run in finished),
            median(run.cpu for run in finished),
            max(run.peak_mebibytes for run in finished),
            finished[0].code,
        )
        for cache, finished in runs.items()
        if finished
    ]
    notes = (f"medians over turns: {turns}; peak RSS: of its largest process",)
    if not rows:
        notes = ("harness.py is not there: no verdict was run",)
    table = VERDICT.table(rows, notes)
    return table, {
        cache: None if quick else _duration(finished) for cache, finished in runs.items()
    }


def _duration(runs: Sequence[Finished]) -> Duration | None:
    """The median of some runs; None where there is none, or where one failed and proves nothing."""
    if not runs or any(run.code for run in runs):
        return None
    return Duration(median(run.wall for run in runs), median(run.cpu for run in runs))
