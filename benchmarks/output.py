"""What was measured, as plain tables for people and as JSON for programs."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from oracle import __version__
from oracle.toolchain import tool_versions

Cell = str | float | None


@dataclass(frozen=True)
class Heading:
    """What a table is headed with, which is known before anything is measured."""

    title: str
    columns: tuple[str, ...]

    def table(self, rows: Iterable[Sequence[Cell]], notes: tuple[str, ...] = ()) -> Table:
        """The table."""
        return Table(self.title, self.columns, [tuple(row) for row in rows], notes)


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns; None is what could not be measured."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    notes: tuple[str, ...] = ()

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """The columns, then the rows, as text."""
        return [self.columns, *(tuple(map(_text, row)) for row in self.rows)]

    @property
    def words(self) -> list[bool]:
        """Whether each column holds words alone."""
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self.columns)
        return [all(isinstance(cell, str) for cell in column) for column in columns]

    def lines(self) -> list[str]:
        """The table as text: words to the left, numbers to the right."""
        cells, words = self.cells, self.words
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        body = [
            "  ".join(
                cell.ljust(width) if word else cell.rjust(width)
                for cell, width, word in zip(row, widths, words, strict=True)
            ).rstrip()
            for row in cells
        ]
        rule = "  ".join("-" * width for width in widths)
        return [self.title, "", body[0], rule, *body[1:], *(f"({note})" for note in self.notes), ""]


@dataclass(frozen=True)
class Goal:
    """A number that was promised: at most `limit`, or at least where `at_least`.

    `cpu` is the CPU time within a `measured` time, in the same unit: what an idle machine could do
    with.
    """

    name: str
    limit: float
    unit: str
    measured: float | None
    at_least: bool = False
    cpu: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether it is kept; None where it was not measured."""
        if self.measured is None:
            return None
        if self.at_least:
            return self.measured >= self.limit
        return self.measured <= self.limit


GOALS = Heading("Goals", ("what", "goal", "measured", "kept", "CPU time"))


def goals_table(goals: Sequence[Goal]) -> Table:
    """What was promised beside what was measured."""
    words = {True: "met", False: "NOT MET", None: "not measured"}
    rows = [
        (
            goal.name,
            f"{'at least' if goal.at_least else 'at most'} {goal.limit:g} {goal.unit}",
            f"{_text(goal.measured)} {goal.unit}" if goal.measured is not None else "-",
            words[goal.met],
            f"{_text(goal.cpu)} {goal.unit}" if goal.cpu is not None else "-",
        )
        for goal in goals
    ]
    notes = (
        "of dtypes and searches the slowest counts; a time is the wall's, so a loaded machine may "
        "miss it",
        "CPU time: of that, of all processes together; the rate is per second of CPU time",
    )
    return GOALS.table(rows, notes)


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    if cell == int(cell) or abs(cell) >= 1000:
        return f"{cell:,.0f}"
    # Three digits that count, whatever the magnitude.
    return f"{cell:.{2 if abs(cell) < 10 else 1 if abs(cell) < 100 else 0}f}"


def environment(compiler: str | None) -> dict[str, Cell]:
    """What the numbers depend on; `compiler` is the command that built the C store."""
    return {
        "oracle": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "processors": os.cpu_count(),
        "c_compiler": compiler,
        **tool_versions(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def write_json(
    path: Path, facts: Mapping[str, object], tables: Sequence[Table], goals: Sequence[Goal]
) -> None:
    """Write everything: the environment, each table's rows by column, and the goals."""
    document = {
        "environment": facts,
        "tables": [
            {
                "title": table.title,
                "rows": [dict(zip(table.columns, row, strict=True)) for row in table.rows],
                "notes": table.notes,
            }
            for table in tables
        ],
        "goals": [{**asdict(goal), "met": goal.met} for goal in goals],
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
