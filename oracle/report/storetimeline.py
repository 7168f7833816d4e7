"""The timeline of a store kernel as tables: what it is and does, release by release."""

from __future__ import annotations

from collections.abc import Sequence

from oracle.report.outline import Cell, Listing, Paragraph, Section, Table, Tone
from oracle.storetimeline import Row
from oracle.text import counted, enumerated, printable


def summary(rows: Sequence[Row]) -> tuple[Cell, ...]:
    """How many releases hold the kernel, and what their host sides check."""
    held = [row for row in rows if row.holds]
    checks = enumerated(dict.fromkeys(check for row in held for check in row.checks))
    said = f"{counted(len(rows), 'release')}, {len(held)} of them with the kernel."
    return (Cell(said + (f" Host checks: {checks}." if checks else "")),)


def sections(rows: Sequence[Row]) -> list[Section]:
    """A summary, the table of releases, and what cannot stand in a cell."""
    held = [row for row in rows if row.holds]
    notes = [Cell(f"{row.version}: {printable(row.note)}") for row in rows if row.note]
    variants = [Cell(text) for row in held if (text := _changes(row))]
    table = Table(
        "Releases",
        ("release", "kernel", "K scales", "V scales", "code", "searches", "threads", "params"),
        tuple(_cells(row) for row in rows),
        "code: whether the instructions of every shared variant are those of the release before; "
        "threads: of a group of 16; params: parameters of the kernel",
    )
    builds = Table(
        "Builds",
        ("release", "member", "archs", "dtypes", "host checks"),
        tuple(_build(row) for row in held),
        "host checks: as this tool models them",
        folded=True,
    )
    found: list[Section] = [Paragraph(summary(rows)), table, builds]
    if variants:
        found.append(Listing("Changes of code", tuple(variants)))
    if notes:
        found.append(Listing("Without the kernel", tuple(notes)))
    return found


def _cells(row: Row) -> tuple[Cell, ...]:
    if not row.holds:
        kernel = Cell("not had", Tone.BAD) if row.holds is None else Cell("no", Tone.QUIET)
        return (Cell(row.version), kernel, *(Cell("-", Tone.QUIET) for _ in range(6)))
    tone = Tone.BAD if row.faults else Tone.PLAIN
    return (
        Cell(row.version),
        Cell("yes", Tone.GOOD),
        Cell(row.k or "-", tone),
        Cell(row.v or "-", tone),
        _code(row),
        Cell(enumerated(row.searches)),
        Cell(enumerated(row.threads_per_group)),
        Cell(enumerated(row.parameters)),
    )


def _build(row: Row) -> tuple[Cell, ...]:
    return (
        Cell(row.version),
        Cell(printable(row.member or "-")),
        Cell(enumerated(row.archs)),
        Cell(enumerated(row.dtypes)),
        Cell(enumerated(row.checks)),
    )


def _code(row: Row) -> Cell:
    if row.same_code is None:
        return Cell("first", Tone.QUIET)
    if not row.same_code:
        return Cell("changed", Tone.DIFFERENT)
    return Cell("same, more variants" if row.added else "same")


def _changes(row: Row) -> str:
    """What differs from the release before, in words; empty where nothing does."""
    parts = []
    if row.same_code is False:
        parts.append("other instructions")
    if row.added:
        parts.append(f"added {enumerated(row.added)}")
    if row.gone:
        parts.append(f"gone {enumerated(row.gone)}")
    return f"{row.version}: {'; '.join(parts)}" if parts else ""
