"""Scale planes to draw: where each scale of one head is, from what a finding says of its map."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oracle.addressmap import IntArray
from oracle.candidates import CANDIDATES, candidate
from oracle.errors import UsageError
from oracle.geometry import PLANES, SIDES, Location
from oracle.offsettable import OffsetTable, offsets_of
from oracle.quantize import GROUP
from oracle.report.notation import table_of
from oracle.verdict import Configuration, Finding

MAX_CELLS = 16_384
"""Scales of a plane that is drawn: 256 tokens of head size 1024."""
NO_PLACE = "no place that was found"
NOWHERE = -1
"""Stands for a scale that was found nowhere; what is below for one outside the plane."""


@dataclass(frozen=True, eq=False)
class Plane:
    """Where the scales of one head are.

    `place` int64 [T, S] holds flat offsets in the head's own plane, NOWHERE, or -2 - i for the
    place `elsewhere[i]` outside it. `head` is set where other heads may differ.
    """

    place: IntArray
    elsewhere: tuple[str, ...] = ()
    head: int | None = None

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
    columns = geometry.scale_columns
    offsets = offsets_of(table.runs)
    found = np.array([offset is not None for offset in offsets])
    where = geometry.locate(np.array([o or 0 for o in offsets]) + geometry.scale_base(side))
    own = (where.page == 0) & (where.side == SIDES.index(side)) & (where.head == table.head)
    own &= where.plane == PLANES.index("scale")
    place = np.where(found & own, where.row * columns + where.col, NOWHERE)
    names: dict[str, int] = {}
    for spot in np.flatnonzero(found & ~own):
        name = _landing(where, int(spot))
        place[spot] = -2 - names.setdefault(name, len(names))
    return Plane(place.reshape(-1, columns), tuple(names), table.head)


def _landing(where: Location, spot: int) -> str:
    """`page+1 K data, head 0, row 3, col 1`: a byte, seen from the page it should be on."""
    page = f"page{where.page[spot]:+}" if where.page[spot] else "own page"
    region = f"{SIDES[where.side[spot]]} {PLANES[where.plane[spot]]}"
    return f"{page} {region}, head {where.head[spot]}, row {where.row[spot]}, col {where.col[spot]}"
