"""Lines of text for a drawing of scale planes, one line a token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

from oracle.report.outline import Drawing, Panel
from oracle.text import shortened

_GAP = 4


class Piece(NamedTuple):
    """Some characters of a line: what they are of, and of a scale in its plane the stored row."""

    text: str
    kind: str
    row: int = 0


NAME, AXIS, INSIDE, OUTSIDE = "name", "axis", "inside", "outside"
"""What a piece is of: a panel's label, a token's or column's name, a scale in its plane or not."""

Line: TypeAlias = Sequence[Piece]


def lines(drawing: Drawing, width: int) -> Iterator[Line]:
    """The lines of a drawing that is at most `width` wide, without title and legend.

    Two panels stand beside each other where there is room for both. A plane that is wider is drawn
    in parts, some columns at a time.
    """
    blocks = [list(_parts(panel, width)) for panel in drawing.panels]
    if len(blocks) == 2 and all(len(parts) == 1 for parts in blocks):
        (left,), (right,) = blocks
        reach = max(map(_width, left)) + _GAP
        if reach + max(map(_width, right)) <= width:
            yield ()
            for one, other in zip_longest(left, right, fillvalue=()):
                yield [*one, Piece(" " * (reach - _width(one)), AXIS), *other]
            return
    for part in (part for parts in blocks for part in parts):
        yield ()
        yield from part


def _parts(panel: Panel, width: int) -> Iterator[list[Line]]:
    """A panel in parts of as many columns as there is room for, the first under its label."""
    (token, column), count = panel.first, len(panel.tiles[0])
    margin = len(f"t{token + len(panel.tiles) - 1}") + 2
    cell = max(len(tile.text) for row in panel.tiles for tile in row) + 2
    cell = max(cell, len(f"s{column + count - 1}") + 1)
    step = max(1, (width - margin) // cell)
    for start in range(0, count, step):
        part: list[Line] = []
        if panel.label and not start:
            part.append([Piece(shortened(panel.label, width), NAME)])
        some = range(start, min(start + step, count))
        names = "".join(f"{f's{column + index}':>{cell - 1}} " for index in some)
        part.append([Piece(f"{' ' * margin}{names}".rstrip(), AXIS)])
        for place, row in enumerate(panel.tiles):
            line = [Piece(f"{f't{token + place}':>{margin - 1}} ", AXIS)]
            for tile in row[start : start + step]:
                text = f"{tile.text:>{cell - 1}}{tile.mark}"
                if tile.row is None:
                    line.append(Piece(text, OUTSIDE))
                else:
                    line.append(Piece(text, INSIDE, tile.row))
            part.append(line)
        yield part


def _width(line: Line) -> int:
    return sum(len(piece.text) for piece in line)
