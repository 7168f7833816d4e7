"""The address map: where each logical scale or code of the probed pages lives in the allocation."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oracle.geometry import CacheGeometry

IntArray = NDArray[np.int64]

MISSING = int(np.iinfo(np.int64).min)
"""The offset of a coordinate that was not found anywhere."""


@dataclass(frozen=True, eq=False)
class AddressMap:
    """Where the scales or the codes of one side are.

    `offset` int64 [P, H, T, W] for the P probed pages: with plane "scale", W = S and offsets are
    bytes from the start of the cache; with plane "data", W = D and offsets are nibbles (twice the
    byte, plus one for the high nibble). MISSING where a coordinate was not found. `again` lists
    further places of coordinates that were stored in more than one: (coordinate [n, 4], offset
    [n]).
    """

    side: str
    plane: str
    geometry: CacheGeometry
    pages: tuple[int, ...]
    offset: IntArray
    again: tuple[IntArray, IntArray] = field(
        default_factory=lambda: (np.zeros((0, 4), np.int64), np.zeros(0, np.int64))
    )

    @property
    def found(self) -> NDArray[np.bool_]:
        """Which coordinates have a place."""
        found: NDArray[np.bool_] = self.offset != MISSING
        return found

    @property
    def unit(self) -> int:
        """Offsets a byte: 1 for scales, 2 for the nibbles of data."""
        return 2 if self.plane == "data" else 1

    def page_relative(self) -> IntArray:
        """`offset` counted from the start of each coordinate's own page, MISSING kept."""
        start = np.array(self.pages, np.int64) * self.geometry.page_bytes * self.unit
        relative = self.offset - start[:, None, None, None]
        return np.where(self.found, relative, MISSING)

    def plane_relative(self) -> IntArray | None:
        """Flat offsets [P, H, T, W] in each coordinate's own plane of its own page and head.

        None where some coordinate is not there at all.
        """
        if not self.found.all():
            return None
        where = self.geometry.locate(self.offset // self.unit)
        pages = np.array(self.pages)[:, None, None, None]
        heads = np.arange(self.geometry.num_heads)[:, None, None]
        own = (
            where.inside
            & (where.page == pages)
            & (where.side == "KV".index(self.side))
            & (where.plane == ("data", "scale").index(self.plane))
            & (where.head == heads)
        )
        if not own.all():
            return None
        if self.plane == "scale":
            return where.row * self.geometry.scale_columns + where.col
        return where.row * self.geometry.head_size + 2 * where.col + self.offset % 2


@dataclass(frozen=True, eq=False)
class Written:
    """What a writer did to the cache: four maps, and the bytes it touched.

    `maps` by (side, plane). `touched` are the distinct offsets stored to, rising, and `times` how
    often each (1 where the executor cannot tell); `unexplained` are offsets of stores whose byte
    names no coordinate, and `padding` those of them that carry what only a padding token carries.
    `faults` are one line each. `misaligned` are offsets of stores, rising, that no GPU executes.
    """

    maps: dict[tuple[str, str], AddressMap]
    touched: IntArray
    times: IntArray
    unexplained: IntArray
    faults: tuple[str, ...]
    misaligned: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    padding: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True, eq=False)
class Read:
    """Which bytes a reader used: maps by (side, plane)."""

    maps: dict[tuple[str, str], AddressMap]
