"""A table of offsets in short: runs of offsets that rise or fall in one step.

What a layout's name or its shape:stride says in a word, a map that has neither must spell. Most of
them are still regular in parts, so the offsets are listed as runs (first, step, count), in order of
tokens and, within a token, of scale columns: (4, 2, 3) is 4, 6, 8. A coordinate that was found
nowhere has no offset; a run of those has None for its first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

MAX_RUNS = 256
"""Runs that a table may have. What is less regular is kept for smaller planes alone."""

Run: TypeAlias = tuple[int | None, int, int]
"""First offset, step and count; the first is None, and the step 0, where there is no offset."""


@dataclass(frozen=True)
class OffsetTable:
    """Where the scales of one head of one page are, as `runs` over (token, column).

    Offsets are bytes from the start of the plane's region on that page: negative before it, and
    beyond its size behind it.
    """

    page: int
    head: int
    runs: tuple[Run, ...]


def runs_of(offsets: Iterable[int | None]) -> tuple[Run, ...]:
    """The offsets as the runs that a reader of them from left to right would see."""
    runs: list[Run] = []
    for offset in offsets:
        if runs and (longer := _continued(runs[-1], offset)) is not None:
            runs[-1] = longer
        else:
            runs.append((offset, 0, 1))
    return tuple(runs)


def _continued(run: Run, offset: int | None) -> Run | None:
    """The run with one more offset, or None where that does not go on with it."""
    first, step, count = run
    if first is None or offset is None:
        return (None, 0, count + 1) if first is offset is None else None
    if count == 1:
        step = offset - first
    return (first, step, count + 1) if offset == first + step * count else None


def offsets_of(runs: Sequence[Run]) -> list[int | None]:
    """What `runs_of` was given."""
    return [
        None if first is None else first + step * index
        for first, step, count in runs
        for index in range(count)
    ]
