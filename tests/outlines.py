"""Takes the parts of a report out of its outline; spaces that may not break are plain ones here."""

from __future__ import annotations

from oracle.report.outline import Listing, Paragraph, Section, Table
from oracle.report.sections import outline
from oracle.text import NO_BREAK
from oracle.verdict import Verdict


def _plain(text: str) -> str:
    return text.replace(NO_BREAK, " ")


def sections(made: Verdict) -> dict[str, Section]:
    parts = outline(made, made.exit_code, 50)
    return {part.title: part for part in parts if not isinstance(part, Paragraph)}


def sentences(made: Verdict) -> list[str]:
    parts = outline(made, made.exit_code, 50)
    return [_plain(s.text) for part in parts if isinstance(part, Paragraph) for s in part.sentences]


def items(made: Verdict, title: str) -> list[str]:
    listing = sections(made)[title]
    assert isinstance(listing, Listing)
    return [_plain(item.text) for item in listing.items]


def texts(table: Section) -> list[list[str]]:
    assert isinstance(table, Table)
    return [[_plain(cell.text) for cell in row] for row in table.rows]
