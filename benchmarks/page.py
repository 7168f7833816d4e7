"""The page of the documentation that `benchmarks/run.py --docs FILE` writes, and its outline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks import cold, executors, growth, processes, quantisers
from benchmarks.output import GOALS, Heading, Table
from benchmarks.workload import FEW_TOKENS, MANY_TOKENS
from oracle.quantize import ScaleSearch

STORES = tuple(
    (tokens, search) for search in ScaleSearch for tokens in (FEW_TOKENS, MANY_TOKENS, 8192)
)
"""Tokens and searches whose stores are compared."""
HEADINGS = (
    GOALS,
    processes.SHORT,
    processes.VERDICT,
    cold.COLD,
    cold.NATIVE,
    *(executors.heading(*which) for which in STORES),
    growth.GROWTH,
    growth.SMALL,
    quantisers.HEADING,
)
"""What the tables of the page are headed with, in order."""
INTRODUCTION = """\
# Performance

What this project's code costs, on one machine and in one run: `make bench` prints the same tables
for yours, and `python benchmarks/run.py --docs docs/performance.md` writes this page. Numbers of
different machines or days do not compare; the ratios within one run do. What is compared takes
turns, and the time is that of the CPU unless a column says wall.

The machine has two tiers, which leave the same bytes (`tests/compiled/`). NumPy lanes run every
kernel. Native code, with the extra `fast`, runs those whose lanes do not exchange anything; the
others stay on NumPy lanes, and a verdict says so by name. `verdict --tier` chooses; `auto`, the
default, begins on NumPy lanes, loads a kernel from the cache once it has run for a tenth of a
second, and after half a second has another process compile it meanwhile. Both tiers check each
access for bounds, alignment and initialisation, and log every store.
"""


def as_page(facts: Mapping[str, object], tables: Sequence[Table]) -> str:
    """The page as Markdown: the introduction, where it was measured, and the tables."""
    parts = [INTRODUCTION, "## Measured on", ""]
    parts += [f"- {name}: {value}" for name, value in facts.items() if value is not None]
    for table in tables:
        parts += ["", f"## {table.title}", "", *_markdown(table)]
    return "\n".join(parts) + "\n"


def _markdown(table: Table) -> Iterator[str]:
    head, *rows = table.cells
    yield _line(head)
    yield _line([":--" if word else "--:" for word in table.words])
    yield from map(_line, rows)
    yield ""
    yield from (f"- {note}" for note in table.notes)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def outline(page: str) -> list[Heading]:
    """What the tables of a page are headed with."""
    found = []
    title = ""
    lines = iter(page.splitlines())
    for line in lines:
        if line.startswith("## "):
            title = line.removeprefix("## ")
        elif line.startswith("| "):
            found.append(Heading(title, tuple(line[2:-2].split(" | "))))
            # The rest of the table.
            for rest in lines:
                if not rest.startswith("|"):
                    break
    return found
