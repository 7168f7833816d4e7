"""Draws scale planes: at which offset each scale is, which of them are wrong, and in what way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oracle.geometry import CacheGeometry
from oracle.report.outline import Drawing, Panel, Tile
from oracle.report.planes import NOWHERE, Plane
from oracle.text import counted

Marks: TypeAlias = NDArray[np.bool_]
"""Which scales [T, S] of a plane."""

ROWS, COLUMNS = 16, 16
"""Tokens and columns that are drawn where something is wrong."""
UNKNOWN = "?"
"""Stands for a scale that was found nowhere."""
WRONG, SHARED, WITNESS = "!", "=", "*"
_BAND = 4
_KINDS_OF_PLACES = 3
"""Kinds of places outside a plane that a legend explains."""


def whole(title: str, plane: Plane) -> Drawing:
    """All of a plane, judged by nothing."""
    return Drawing(title, (_panel("", plane, np.full(plane.place.shape, " ")),))


def scale_named(witness: Mapping[str, Any], geometry: CacheGeometry) -> tuple[int, int] | None:
    """Token and column of the scale that a witness names, if it names one of the geometry."""
    token, column = (witness.get(name, -1) for name in ("token", "column"))
    inside = token in range(geometry.block_size) and column in range(geometry.scale_columns)
    return (int(token), int(column)) if inside else None


def drawing(
    title: str,
    planes: Mapping[str, Plane],
    wrong: Mapping[str, Marks] | None = None,
    witness: tuple[int, int] | None = None,
    rows: int = ROWS,
) -> Drawing | None:
    """A plane, and where there are two of them what it is compared with, with marks.

    `planes` are of one size, by what they show. Marked are the scales that differ between the two,
    those of the first plane that have no place of their own in it, those that are `wrong` for
    another reason, and the `witness` (token, column). At most `rows` tokens and COLUMNS columns are
    drawn, around the witness or the first mark. None where nothing is marked.
    """
    first, *others = planes.values()
    reasons: list[tuple[str, str, Marks]] = [
        *((WRONG, "differs between the two", first.differs(other)) for other in others),
        *((WRONG, reason, marks) for reason, marks in (wrong or {}).items()),
        (WRONG, "is not in its own plane", first.place < NOWHERE),
        (WRONG, "was found nowhere", first.place == NOWHERE),
        (SHARED, "shares its byte with another", first.shared),
    ]
    spots = np.zeros(first.place.shape, np.bool_)
    if witness is not None:
        spots[witness] = True
    marks = [_marks([(WITNESS, "", spots), *reasons])]
    marks += [_marks([(WITNESS, "", spots), reason]) for reason in reasons[: len(others)]]
    marked = np.argwhere(marks[0] != " ")
    if not marked.size:
        return None
    tokens, columns = marks[0].shape
    token, column = witness or map(int, marked[0])
    shown = _around(token, tokens, rows), _around(column, columns, COLUMNS)
    panels = tuple(
        _panel(label, plane, each, shown)
        for (label, plane), each in zip(planes.items(), marks, strict=True)
    )
    legend = [*_told(reasons), *_places(panels)]
    if witness is not None:
        legend.insert(0, f"{WITNESS} is named above")
    if (len(shown[0]), len(shown[1])) != (tokens, columns):
        legend.append(
            f"tokens {_ends(shown[0])} of {tokens}, columns {_ends(shown[1])} of {columns}"
        )
    return Drawing(title, panels, "; ".join(legend))


def _marks(reasons: Iterable[tuple[str, str, Marks]]) -> NDArray[np.str_]:
    """The mark of every scale: that of the first reason it is marked for, or a space."""
    marks, which = [], []
    for mark, _, each in reasons:
        marks.append(mark)
        which.append(each)
    return np.select(which, marks, " ")


def _told(reasons: Iterable[tuple[str, str, Marks]]) -> list[str]:
    """What each mark means, without the reasons that only hold where an earlier one does."""
    told: dict[str, list[str]] = {}
    covered: Marks | None = None
    for mark, reason, marks in reasons:
        new = marks if covered is None else marks & ~covered
        covered = marks if covered is None else marks | covered
        if new.any():
            told.setdefault(mark, []).append(reason)
    return [f"{mark} {' or '.join(words)}" for mark, words in told.items()]


def _around(spot: int, extent: int, most: int) -> range:
    """At most `most` of an extent, from the band of a spot on as far as there are so many."""
    start = max(0, min(spot // _BAND * _BAND, extent - most))
    return range(start, min(start + most, extent))


def _ends(part: range) -> str:
    return f"{part[0]} to {part[-1]}"


def _panel(
    label: str,
    plane: Plane,
    marks: NDArray[np.str_],
    shown: tuple[range, range] | None = None,
) -> Panel:
    tokens, columns = shown or map(range, plane.place.shape)
    tiles = tuple(
        tuple(_tile(plane, token, column, str(marks[token, column])) for column in columns)
        for token in tokens
    )
    return Panel(label, tiles, (tokens[0], columns[0]))


def _tile(plane: Plane, token: int, column: int, mark: str) -> Tile:
    place = int(plane.place[token, column])
    if place >= 0:
        return Tile(str(place), place // plane.place.shape[1], mark)
    return Tile(UNKNOWN if place == NOWHERE else plane.short[-2 - place], None, mark)


def _places(panels: Iterable[Panel]) -> list[str]:
    """What names of places outside the planes mean: an example of each kind of them."""
    examples: dict[str, str] = {}
    for panel in panels:
        for tile in (tile for row in panel.tiles for tile in row):
            if tile.row is None and tile.text != UNKNOWN:
                examples.setdefault(re.sub(r"\d+", "", tile.text), tile.text)
    return [f"{name} is {_meaning(name)}" for name in [*examples.values()][:_KINDS_OF_PLACES]]


def _meaning(short: str) -> str:
    """`h1:0` as `offset 0 in the plane of head 1`; see `oracle.report.planes.Plane`."""
    where, _, offset = short.partition(":")
    told = [f"offset {offset}"] if offset else []
    for part in reversed(where.replace(" data", "_").split()):
        if part[0] == "h":
            told.append(f"in the plane of head {part[1:]}")
        elif part[0] == "p":
            way = "further on" if part[1] == "+" else "back"
            told.append(f"{counted(int(part[2:]), 'page')} {way}")
        else:
            told.append(f"among the {'codes' if part.endswith('_') else 'scales'} of {part[0]}")
    return ", ".join(told)
