"""Scale planes to draw: where each scale of one head is, from what a finding says of its map."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from oracle.addressmap import AddressMap, IntArray
from oracle.candidates import CANDIDATES, candidate
from oracle.errors import UsageError
from oracle.geometry import PLANES, SIDES, CacheGeometry, Location
from oracle.offsettable import OffsetTable, offsets_of
from oracle.quantize import GROUP
from oracle.report.notation import table_of
from oracle.verdict import Configuration, Finding

MAX_CELLS = 16_384
"""Scales of a plane that is drawn: 256 tokens of head size 1024."""
NO_PLACE = "no place that was found"
Spot: TypeAlias = tuple[int, ...]
NOWHERE = -1
"""Stands for a scale that was found nowhere; what is below for one outside the plane."""


@dataclass(frozen=True, eq=False)
class Plane:
    """Where the scales of one head are.

    `place` int64 [T, S] holds flat offsets in the head's own plane, NOWHERE, or -2 - i for the
    place `elsewhere[i]` outside it, which `short` has in a few letters. `head` is set where other
    heads may differ.
    """

    place: IntArray
    elsewhere: tuple[str, ...] = ()
    head: int | None = None
    short: tuple[str, ...] = ()

    @property
    def key(self) -> Hashable:
        """Equal for planes that look the same."""
        return (self.place.shape, self.place.tobytes(), self.elsewhere, self.head)

    @property
    def shared(self) -> NDArray[np.bool_]:
        """Which scales [T, S] share their byte of the plane with another one."""
        used, times = np.unique(self.place[self.place >= 0], return_counts=True)
        repeated: NDArray[np.bool_] = np.isin(self.place, used[times > 1])
        return repeated

    def differs(self, other: Plane) -> NDArray[np.bool_]:
        """Which scales [T, S] two planes of one size have in different places, both known.

        None where they are of different heads, whose planes may differ without a disagreement.
        """
        apart = None not in (self.head, other.head) and self.head != other.head
        known = (self.place != NOWHERE) & (other.place != NOWHERE) & (not apart)
        differ: NDArray[np.bool_] = known & (self.place != other.place)
        # What is outside is numbered by each plane for itself: there the words decide.
        for token, column in np.argwhere(known & (self.place < 0) & (other.place < 0)):
            told = (each.in_words(token, column) for each in (self, other))
            differ[token, column] = next(told) != next(told)
        return differ

    def in_words(self, token: int, column: int) -> str:
        """`offset 6, row 1, col 2`, or where it is instead."""
        place = int(self.place[token, column])
        if place >= 0:
            row, col = divmod(place, self.place.shape[1])
            return f"offset {place}, row {row}, col {col}"
        return NO_PLACE if place == NOWHERE else self.elsewhere[-2 - place]


def plane_of(finding: Finding) -> Plane | None:
    """The plane of a finding about scales; None where it does not tell, or is too large to draw."""
    if finding.plane != "scale" or not finding.positions:
        return None
    tokens, columns = _extents(finding.configuration)
    if tokens * columns > MAX_CELLS:
        return None
    if finding.layouts:
        return named_plane(finding.layouts[0], finding.configuration)
    if finding.shape_stride is not None:
        return _algebraic(finding.shape_stride, tokens, columns)
    if finding.table is not None:
        return _spelled(finding.table, finding.side, finding.configuration)
    return None


def plane_at(amap: AddressMap, page: int, head: int) -> Plane:
    """The plane of one head on one probed page of a map of scales."""
    spot = amap.pages.index(page), head
    offset, found = amap.page_relative()[spot], amap.found[spot]
    return _located(offset, found, amap.side, head, amap.geometry)


def named_plane(name: str, configuration: Configuration) -> Plane | None:
    """The plane of a candidate; None where it is undefined there, or too large to draw."""
    tokens, columns = _extents(configuration)
    undefined = candidate(name).undefined_reason(tokens, columns) is not None
    if undefined or tokens * columns > MAX_CELLS:
        return None
    return Plane(CANDIDATES[name].table(tokens, columns))


def _extents(configuration: Configuration) -> tuple[int, int]:
    return configuration.block_size, configuration.head_size // GROUP


def _algebraic(form: str, tokens: int, columns: int) -> Plane | None:
    try:
        place = table_of(form, tokens, columns)
    except UsageError:
        return None
    inside = place.min() >= 0 and place.max() < place.size
    return Plane(place) if inside else None


def _spelled(table: OffsetTable, side: str, configuration: Configuration) -> Plane:
    """A plane from offsets in the region, with words for what is not in the head's own rows."""
    geometry = configuration.geometry()
    offsets = offsets_of(table.runs)
    shape = (-1, geometry.scale_columns)
    found = np.array([offset is not None for offset in offsets]).reshape(shape)
    offset = np.array([o or 0 for o in offsets]).reshape(shape) + geometry.scale_base(side)
    return _located(offset, found, side, table.head, geometry)


def _located(
    offset: IntArray, found: NDArray[np.bool_], side: str, head: int, geometry: CacheGeometry
) -> Plane:
    """A plane from offsets [T, S] from the start of the head's own page, where they were found."""
    where = geometry.locate(np.where(found, offset, 0))
    own = (where.page == 0) & (where.side == SIDES.index(side)) & (where.head == head)
    own &= where.plane == PLANES.index("scale")
    flat = where.row * geometry.scale_columns + where.col
    place = np.where(found & own, flat, NOWHERE)
    names: dict[tuple[str, str], int] = {}
    for spot in map(tuple, np.argwhere(found & ~own)):
        name = _landing(where, spot), _in_short(where, spot, side, head, int(flat[spot]))
        place[spot] = -2 - names.setdefault(name, len(names))
    elsewhere, short = zip(*names, strict=True) if names else ((), ())
    return Plane(place, elsewhere, head, short)


def _landing(where: Location, spot: Spot) -> str:
    """`page+1 K data, head 0, row 3, col 1`: a byte, seen from the page it should be on."""
    page = f"page{where.page[spot]:+}" if where.page[spot] else "own page"
    region = f"{SIDES[where.side[spot]]} {PLANES[where.plane[spot]]}"
    return f"{page} {region}, head {where.head[spot]}, row {where.row[spot]}, col {where.col[spot]}"


def _in_short(where: Location, spot: Spot, side: str, head: int, flat: int) -> str:
    """`h1:0`, `p+1:3`, `V:0`, `K data`: in what a byte differs from the head's own plane.

    What follows the colon is its offset in that other plane of scales.
    """
    page = f"p{where.page[spot]:+}" if where.page[spot] else ""
    region = SIDES[where.side[spot]]
    if PLANES[where.plane[spot]] == "data":
        return f"{page} {region} data".lstrip()
    other = f"h{where.head[spot]}" if where.head[spot] != head else ""
    parts = (page, region if region != side else "", other)
    return f"{' '.join(filter(None, parts))}:{flat}"
