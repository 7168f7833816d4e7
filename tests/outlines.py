"""Takes the parts of a report out of its outline."""

from __future__ import annotations

from oracle.report.outline import Listing, Paragraph, Section, Table
from oracle.report.sections import outline
from oracle.verdict import Verdict


def sections(made: Verdict) -> dict[str, Section]:
    parts = outline(made, made.exit_code, 50)
    return {part.title: part for part in parts if not isinstance(part, Paragraph)}


def sentences(made: Verdict) -> list[str]:
    parts = outline(made, made.exit_code, 50)
    return [s.text for part in parts if isinstance(part, Paragraph) for s in part.sentences]


def items(made: Verdict, title: str) -> list[str]:
    listing = sections(made)[title]
    assert isinstance(listing, Listing)
    return [item.text for item in listing.items]


def texts(table: Section) -> list[list[str]]:
    assert isinstance(table, Table)
    return [[cell.text for cell in row] for row in table.rows]
