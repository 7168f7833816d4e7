"""What a report consists of, before anything decides how it looks.

Texts are plain: names in them are printable (`oracle.report.text`) but not yet escaped for any
format. A renderer turns paragraphs, tables and lists into its own notation and adds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias


class Tone(Enum):
    """How a piece of text is meant; only a help for the eye, never the only carrier of meaning.

    GOOD: as it should be; BAD: a fault; DIFFERENT: a disagreement nobody is blamed for.
    """

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    DIFFERENT = "different"
    QUIET = "quiet"


class Cell(NamedTuple):
    """A text and its tone; `pair` has the ids of the writer and the reader that it compares."""

    text: str
    tone: Tone = Tone.PLAIN
    pair: tuple[str, str] | None = None


@dataclass(frozen=True)
class Paragraph:
    """Sentences that belong together."""

    sentences: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns; `note` explains the table.

    What is `folded` is a detail: a terminal leaves it out, Markdown folds it away.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Listing:
    """One line for each item; `folded` as in a Table."""

    title: str
    items: tuple[Cell, ...]
    folded: bool = False


Section: TypeAlias = Paragraph | Table | Listing
