"""How far a long run is, on standard error: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from oracle.run import Progress
from oracle.subjects.kernelgroups import groups_of
from oracle.text import counted, printable

SECONDS = 10.0
"""Between two lines, at the least; what ends sooner says nothing."""


@contextmanager
def progress_on_stderr() -> Iterator[Progress]:
    """What is told how many steps of how many are done, and the name of one of them."""
    if not sys.stderr.isatty():
        yield lines_of_progress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def step(done: int, total: int, label: str) -> None:
            bar.update(task, completed=done, total=total, description=printable(label))

        yield step


def lines_of_progress(clock: Callable[[], float] = time.monotonic) -> Progress:
    """Prints a line where SECONDS have passed since the last one, or since now."""
    last = clock()

    def step(done: int, total: int, label: str) -> None:
        nonlocal last
        if clock() - last >= SECONDS:
            last = clock()
            print(printable(f"{done} of {total}: {label}"), file=sys.stderr, flush=True)

    return step


def say_how_to_narrow(what: str, names: Sequence[str], head_sizes: Sequence[int] = ()) -> None:
    """Tell on standard error how many attention kernels of a source there are, and how to take few.

    `head_sizes` are those asked for. Nothing is told where the names are of one group.
    """
    groups, _ = groups_of(names)
    if len(groups) < 2:
        return
    fitting = [group for group in groups if not head_sizes or group.head_size in head_sizes]
    example = f"'{what}:{(fitting or groups)[0].pattern}'"
    line = f"{counted(len(names), 'kernel')}; narrow them with a pattern, such as {example}"
    print(printable(line), file=sys.stderr, flush=True)
