"""The bytes of a page as a bar: K data, K scales, V data, V scales, and what leaves its region."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import accumulate

from oracle.report.digest import configuration_in_words
from oracle.report.html.markup import Markup, element, joined
from oracle.report.outline import Cell, Table
from oracle.text import counted
from oracle.verdict import Configuration

# Data takes eight times the bytes of its scales, in every geometry, so one drawing fits all.
_DATA, _SCALE = 400, 50
_STUB, _GAP, _TOP, _HEIGHT = 90, 10, 26, 34
_REGIONS = tuple(
    zip(
        ("K data", "K scale", "V data", "V scale"),
        accumulate((_DATA, _SCALE, _DATA), initial=_STUB + _GAP),
        (_DATA, _SCALE, _DATA, _SCALE),
        strict=True,
    )
)
_PAGE_END = _STUB + _GAP + 2 * (_DATA + _SCALE)
_WIDTH = _PAGE_END + _GAP + _STUB
_OTHER_PAGE = re.compile(r"page([+-]\d+) ")


def bar(strays: Mapping[str, int] | None = None, label: str = "The bytes of one page") -> Markup:
    """The regions of a page in proportion, and a mark with a count where strays land."""
    shapes = [
        element("g", _box(x, width), _name(x, width, name), class_=f"region {name[2:]}")
        for name, x, width in _REGIONS
    ]
    stubs = [
        element("g", _box(0, _STUB), _name(0, _STUB, "pages before"), class_="region stub"),
        element("g", _box(_PAGE_END + _GAP, _STUB), _name(_PAGE_END + _GAP, _STUB, "pages behind"),
                class_="region stub"),
    ]  # fmt: skip
    marks = [
        element(
            "g",
            element("title", f"{counted(count, 'byte')}: {place}"),
            element("path", d=f"M{x} {_TOP - 2}l-6 -9h12z"),
            element("text", f"{count:,}", x=x + 9, y=_TOP - 4),
            class_="stray",
        )
        for x, (place, count) in _spread(strays or {})
    ]
    return element(
        "svg",
        *shapes,
        *(stubs if strays is not None else ()),
        *marks,
        class_="page-bar",
        viewBox=_frame(strays is not None),
        role="img",
        aria_label=label,
    )


def _frame(beyond: bool) -> str:
    """What is in view: the page, or also what is before and behind it."""
    start, width = (0, _WIDTH) if beyond else (_STUB, _WIDTH - 2 * _STUB)
    return f"{start} 0 {width} {_TOP + _HEIGHT + 16}"


def _spread(strays: Mapping[str, int]) -> list[tuple[int, tuple[str, int]]]:
    """A place on the bar for each count; several of one region stand side by side."""
    taken: dict[int, int] = {}
    spots = []
    for place, count in strays.items():
        x = _where(place)
        taken[x] = taken.get(x, 0) + 1
        spots.append((x + 40 * (taken[x] - 1), (place, count)))
    return spots


def _where(place: str) -> int:
    """Where a landing such as `page+1 K data` is on the bar."""
    other = _OTHER_PAGE.match(place)
    if place.startswith("before") or (other and other[1].startswith("-")):
        return _STUB // 5
    if other or place.startswith("past"):
        return _PAGE_END + _GAP + _STUB // 5
    name = place.removeprefix("own page ")
    return next(x + width // 4 for region, x, width in _REGIONS if region == name)


def _box(x: int, width: int) -> Markup:
    return element("rect", x=x, y=_TOP, width=width, height=_HEIGHT)


def _name(x: int, width: int, name: str) -> Markup:
    return element("text", name, x=x + width // 2, y=_TOP + _HEIGHT // 2 + 4)


def regions(configuration: Configuration) -> Table:
    """The regions of a page of one geometry, in bytes."""
    geometry = configuration.geometry()
    return Table(
        f"The page at {configuration_in_words(configuration)}",
        ("region", "first byte", "last byte", "bytes"),
        tuple(
            (Cell(region.name), *map(Cell, _numbers(region.start, region.stop)))
            for region in geometry.page_regions()
        ),
        f"{geometry.page_bytes:,} bytes; offsets count from the start of the page",
    )


def _numbers(start: int, stop: int) -> tuple[str, str, str]:
    return f"{start:,}", f"{stop - 1:,}", f"{stop - start:,}"


def stray_figure(said: str, strays: Mapping[str, int]) -> Markup:
    """A page with the bytes that leave their region, and the same in words."""
    words = [element("li", f"{counted(count, 'byte')}: {place}") for place, count in strays.items()]
    return element(
        "figure",
        element("figcaption", said),
        joined(bar(strays, said), element("ul", *words, class_="strays")),
    )
