"""Writes an outline as Markdown, for the summary of a CI job or a file beside the JSON.

Names in it come from files and command lines: whatever could act as markup is escaped.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from oracle.report import textgrid
from oracle.report.outline import Cell, Drawing, Listing, Paragraph, Section, Table, Tone

FAULTS_PER_SUBJECT = 50
MAX_BYTES = 1_000_000
"""Below the mebibyte that a job summary may have."""

_DRAWING_WIDTH = 100

_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
# An underscore inside a word is plain text, as in swizzle_4x4.
_MARKUP = re.compile(r"[\\`*|\[\]$#~]|(?<!\w)_+|_+(?!\w)")
# What would start a list or underline the line before.
_LEADING = re.compile(r"^(\d*)([-+=.)])")
_MARKS = {Tone.GOOD: "✓ ", Tone.BAD: "✗ ", Tone.DIFFERENT: "≠ "}
_UNFOLDED = "\n\n</details>\n"
_SHORTENED = "\n\n*Shortened here: verdict.json has everything.*\n"


def as_markdown(title: str, sections: Iterable[Section], longest: int = MAX_BYTES) -> str:
    """A Markdown document of at most `longest` bytes in UTF-8; the end is left out beyond that."""
    text = f"# {escaped(title)}\n"
    for section in sections:
        text += "\n" + _section(section)
    if len(text.encode()) <= longest:
        return text
    # Room for the end of a fold that the cut may fall into.
    room = longest - len(_SHORTENED) - len(_UNFOLDED)
    kept = text.encode()[:room].decode(errors="ignore")
    kept = kept[: kept.rindex("\n")]
    open_fold = kept.count("<details>") > kept.count("</details>")
    return kept + (_UNFOLDED if open_fold else "") + _SHORTENED


def escaped(text: str) -> str:
    """`text` as Markdown that shows it as it is."""
    spelled = _MARKUP.sub(lambda found: "".join(f"\\{c}" for c in found[0]), text)
    return _LEADING.sub(r"\1\\\2", spelled).translate(_ENTITIES)


def _section(section: Section) -> str:
    if isinstance(section, Paragraph):
        return "\n\n".join(_cell(sentence) for sentence in section.sentences) + "\n"
    if isinstance(section, Drawing):
        return f"## {escaped(section.title)}\n\n{_drawing(section)}"
    body = _items(section) if isinstance(section, Listing) else _table(section)
    if section.folded:
        title = html.escape(section.title)
        return f"<details>\n<summary>{title}</summary>\n\n{body.rstrip()}{_UNFOLDED}"
    return f"## {escaped(section.title)}\n\n{body}"


def _items(listing: Listing) -> str:
    return "".join(f"- {_cell(item)}\n" for item in listing.items)


def _drawing(drawing: Drawing) -> str:
    """A block of code by its indentation, which nothing in it can end."""
    told = (
        "".join(piece.text for piece in line).rstrip()
        for line in textgrid.lines(drawing, _DRAWING_WIDTH)
    )
    block = "".join(f"    {line}\n" if line else "\n" for line in told).lstrip("\n")
    return f"{block}\n{escaped(drawing.legend)}\n"


def _cell(cell: Cell) -> str:
    return _MARKS.get(cell.tone, "") + escaped(cell.text)


def _table(table: Table) -> str:
    lines = [
        _row(map(escaped, table.columns)),
        _row("---" for _ in table.columns),
        *(_row(map(_cell, row)) for row in table.rows),
    ]
    note = f"\n{escaped(table.note)}\n" if table.note else ""
    return "\n".join(lines) + "\n" + note


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
