"""Scale planes as SVG that needs no script: every distinct plane is drawn once and used by name."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from oracle.report.html.markup import Markup, element, joined
from oracle.report.planes import NOWHERE, Plane

CELL_WIDTH, CELL_HEIGHT = 30, 18
LEFT, TOP = 34, 18
"""Room for the names of tokens and columns."""
MAX_TOKENS, MAX_COLUMNS = 64, 32
"""What is drawn of a plane without a script."""
COLOURS = 8
"""Stored rows that have a colour of their own, two bands of four; then the colours start again."""


class Pictures:
    """The planes of a page: each distinct one has an id and is drawn once."""

    def __init__(self) -> None:
        self._ids: dict[Hashable, str] = {}
        self._drawn: list[Markup] = []

    def definitions(self) -> Markup:
        """What the pictures refer to; goes into the page once."""
        return element("svg", *self._drawn, class_="unseen", aria_hidden="true")

    def panel(self, plane: Plane, marked: NDArray[np.bool_] | None, label: str) -> Markup:
        """A picture of a plane, with a corner on the scales that are `marked` [T, S]."""
        tokens, columns = _window(plane)
        width, height = LEFT + columns * CELL_WIDTH + 1, TOP + tokens * CELL_HEIGHT + 1
        marks = "" if marked is None else _corners(marked[:tokens, :columns])
        return element(
            "svg",
            element("use", href=f"#{self._id(plane)}"),
            element("path", class_="corner", d=marks) if marks else "",
            class_="plane",
            viewBox=f"0 0 {width} {height}",
            width=width,
            height=height,
            role="img",
            aria_label=label,
        )

    def _id(self, plane: Plane) -> str:
        if plane.key not in self._ids:
            self._ids[plane.key] = f"plane-{len(self._ids)}"
            self._drawn.append(element("g", *_drawing(plane), id=self._ids[plane.key]))
        return self._ids[plane.key]


def is_cut(plane: Plane) -> bool:
    """Whether a picture shows only the first tokens or columns of a plane."""
    return _window(plane) != plane.place.shape


def _window(plane: Plane) -> tuple[int, int]:
    tokens, columns = plane.place.shape
    return min(tokens, MAX_TOKENS), min(columns, MAX_COLUMNS)


def _drawing(plane: Plane) -> Iterable[Markup]:
    tokens, columns = _window(plane)
    for column in range(columns):
        x = LEFT + column * CELL_WIDTH + CELL_WIDTH // 2
        yield element("text", f"s{column}", class_="axis", x=x, y=TOP - 5)
    for token in range(tokens):
        y = TOP + token * CELL_HEIGHT
        yield element("text", f"t{token}", class_="axis first", x=LEFT - 5, y=y + 12)
        for column in range(columns):
            yield _cell(plane, token, column)
    shared = plane.shared[:tokens, :columns]
    lines = "".join(
        f"M{x + 3} {y + CELL_HEIGHT - 3}h{CELL_WIDTH - 6}" for x, y in _corners_of(shared)
    )
    if lines:
        yield element("path", class_="shared", d=lines)


def _cell(plane: Plane, token: int, column: int) -> Markup:
    x, y = LEFT + column * CELL_WIDTH, TOP + token * CELL_HEIGHT
    place = int(plane.place[token, column])
    title = f"token {token}, column {column}: {plane.in_words(token, column)}"
    return element(
        "g",
        element("title", title),
        element("rect", x=x, y=y, width=CELL_WIDTH, height=CELL_HEIGHT),
        element("text", number(place), x=x + CELL_WIDTH // 2, y=y + 12),
        class_=colour(place, plane.place.shape[1]),
    )


def colour(place: int, columns: int) -> str:
    """The classes of a cell: its stored row's colour, unless it is outside the plane."""
    return f"cell r{place // columns % COLOURS}" if place >= 0 else "cell outside"


def number(place: int) -> str:
    """What is written in a cell."""
    if place >= 0:
        return str(place)
    return "?" if place == NOWHERE else "out"


def _corners_of(marked: NDArray[np.bool_]) -> Iterable[tuple[int, int]]:
    """The upper left corners of marked cells."""
    for token, column in np.argwhere(marked):
        yield LEFT + int(column) * CELL_WIDTH, TOP + int(token) * CELL_HEIGHT


def _corners(marked: NDArray[np.bool_]) -> str:
    """A triangle in the upper right corner of each marked cell."""
    return "".join(f"M{x + CELL_WIDTH} {y}h-8l8 8z" for x, y in _corners_of(marked))


LEGEND = joined(
    element(
        "p",
        "A cell is the scale of a token (down) and a column (across). Its number is the offset of "
        "its byte in the plane of its head, its colour the row that is stored in.",
    ),
    element(
        "ul",
        element(
            "li",
            *(element("span", str(row), class_=f"key row-key-{row}") for row in range(COLOURS)),
            "rows 0 to 7, then the same again",
        ),
        element("li", element("span", class_="key corner-key"), "the two look at different bytes"),
        element("li", element("span", class_="key shared-key"), "its byte holds another scale too"),
        element("li", element("span", class_="key outside-key"), "not in the head's own plane"),
        class_="keys",
    ),
)
"""What the colours and marks of a picture mean."""
