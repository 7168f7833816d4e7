"""What a report consists of, before anything decides how it looks.

Texts are plain: names in them are printable (`oracle.text`) but not yet escaped for any
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


class Tile(NamedTuple):
    """A scale that is drawn, with a mark of one character.

    `text` says where it is, `row` is the stored row of that place, None outside the plane.
    """

    text: str
    row: int | None
    mark: str = " "


@dataclass(frozen=True)
class Panel:
    """A plane that is drawn, or a part of it: `tiles` by token and column, counted from `first`."""

    label: str
    tiles: tuple[tuple[Tile, ...], ...]
    first: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Drawing:
    """Scale planes beside or below one another; `legend` says what the marks mean."""

    title: str
    panels: tuple[Panel, ...]
    legend: str = ""


Section: TypeAlias = Paragraph | Table | Listing | Drawing
