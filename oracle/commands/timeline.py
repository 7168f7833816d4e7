"""`timeline`: what the store kernel is and does, release by release."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from oracle.commands.verdict import artifact_options, progress_bar
from oracle.errors import UsageError
from oracle.report import terminal
from oracle.report.document import TOOL, dump
from oracle.report.markdown import as_markdown
from oracle.report.outline import Cell, Listing, Paragraph, Section, Table, Tone
from oracle.report.text import counted, enumerated, printable
from oracle.subjects.release import PACKAGE, parse_release
from oracle.timeline import Row, timeline, versions_between

TITLE = "The store kernel of vLLM, release by release"


def run(arguments: argparse.Namespace) -> int:
    """Print the table; 1 where a variant of some release stores otherwise than declared.

    Raises UsageError for a range that is none, NothingRan where no release is there.
    """
    if arguments.package != PACKAGE:
        raise UsageError(f"there is a timeline of {PACKAGE} alone, not of {arguments.package!r}")
    first, last = _range(arguments.range)
    options = artifact_options(arguments)
    versions = versions_between(first, last, options)
    with progress_bar() as progress:
        rows = timeline(versions, options, progress)
    found = sections(rows)
    if arguments.markdown is not None:
        _write(Path(arguments.markdown), as_markdown(TITLE, found))
    if arguments.json:
        sys.stdout.write(dump({"tool": TOOL, "releases": [asdict(row) for row in rows]}))
    else:
        terminal.show(found, terminal.console())
    return int(any(row.faults for row in rows))


def _range(text: str) -> tuple[str, str]:
    """The first and last version of `A..B`; either may be left out, and `A` alone is both."""
    first, dots, last = text.partition("..")
    last = last if dots else first
    for version in filter(None, (first, last)):
        parse_release(f"{PACKAGE}=={version}")
    if not (first or last):
        raise UsageError(f"{text!r} is no range of releases: give one such as 0.20.0..0.33.0")
    return first, last


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--markdown {path}: {error.strerror or error}") from error
    print(f"wrote {path}", file=sys.stderr)


def sections(rows: Sequence[Row]) -> list[Section]:
    """The table of releases, and what cannot stand in a cell."""
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
    checks = enumerated(dict.fromkeys(check for row in held for check in row.checks))
    said = f"{counted(len(rows), 'release')}, {len(held)} of them with the kernel."
    if checks:
        said += f" Host checks: {checks}."
    found: list[Section] = [Paragraph((Cell(said),)), table, builds]
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
