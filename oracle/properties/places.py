"""Which byte of a cache holds what, under given layouts, and the smallest coordinate of a set."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracle.addressmap import AddressMap, IntArray
from oracle.candidates import candidate
from oracle.geometry import PLANES, SIDES, CacheGeometry
from oracle.recognise import expected_offset

Tables = Mapping[str, IntArray]
"""Side -> flat offsets [N, S] of the scales of a page and head in their plane."""

KEPT = 32
"""Places that are kept: examples come back to the same small geometries."""
_SPOT = ("page", "head", "token", "row", "column", "col", "element")


class Own(NamedTuple):
    """The bytes of some tokens, of one side: data [T, H, D/2], scales [T, H, S]."""

    data: IntArray
    scales: IntArray


class Places:
    """Where the tokens of a cache have their bytes.

    `tables` are the layouts of the scales; without them a scale byte is called by the row and
    column it is stored in.
    """

    def __init__(self, geometry: CacheGeometry, tables: Tables | None = None) -> None:
        self.geometry = geometry
        self.known = tables is not None
        self._data = {side: _linear(geometry, side, "data", geometry.head_size) for side in SIDES}
        self._scales = {
            side: _linear(geometry, side, "scale", geometry.scale_columns)
            if tables is None
            else _laid_out(geometry, side, "scale", tables[side])
            for side in SIDES
        }

    def of_slots(self, side: str, slots: IntArray) -> Own:
        """The bytes of the tokens in `slots`, none of which is negative."""
        page, token = np.divmod(slots, self.geometry.block_size)
        return Own(self._data[side][page, :, token], self._scales[side][page, :, token])

    @cached_property
    def _order(self) -> IntArray:
        """Every byte, by page, head, token, plane (scales first), side and column."""
        parts = [plane[side] for plane in (self._scales, self._data) for side in SIDES]
        return np.concatenate(parts, axis=-1).ravel()

    def smallest(self, marked: NDArray[np.bool_]) -> int | None:
        """The byte of the smallest coordinate of those `marked` [cache_bytes]; None for none."""
        in_order = marked[self._order]
        first = int(in_order.argmax())
        if in_order[first]:
            return int(self._order[first])
        # A layout whose coordinates share bytes leaves others to nobody.
        rest = np.flatnonzero(marked)
        return int(rest[0]) if rest.size else None

    def beside(self, byte: int, marked: NDArray[np.bool_]) -> tuple[int, ...]:
        """The bytes `marked` [cache_bytes] that are in the plane of another byte and its head."""
        found = np.flatnonzero(marked)
        each, own = self.geometry.locate(found), self.geometry.locate(byte)
        same = (each.page == own.page) & (each.side == own.side)
        same &= (each.plane == own.plane) & (each.head == own.head)
        return tuple(found[same].tolist())

    def coordinate(self, byte: int) -> dict[str, Any]:
        """What a byte of the cache holds: side, plane, page, head, token, column or element."""
        where = self.geometry.locate(byte)
        side, plane = SIDES[int(where.side)], PLANES[int(where.plane)]
        page, head, row, col = (int(n) for n in (where.page, where.head, where.row, where.col))
        told: dict[str, Any] = {"side": side, "plane": plane, "page": page, "head": head}
        owners = np.argwhere(self._scales[side][page, head] == byte)
        if plane == "data":
            told |= {"token": row, "element": 2 * col}
        elif self.known and owners.size:
            told |= {"token": int(owners[0, 0]), "column": int(owners[0, 1])}
        else:
            told |= {"row": row, "col": col}
        return {**told, "byte": byte}


@lru_cache(maxsize=KEPT)
def named_places(geometry: CacheGeometry, k_layout: str, v_layout: str) -> Places:
    """The places of two named layouts. Raises LayoutUndefined where one is none here."""
    shape = geometry.block_size, geometry.scale_columns
    tables = {
        side: candidate(name).table(*shape)
        for side, name in zip(SIDES, (k_layout, v_layout), strict=True)
    }
    return Places(geometry, tables)


def spot_in_words(told: Mapping[str, Any]) -> str:
    """The numbers of a coordinate for a person: `page 1, head 0, token 3, column 2`."""
    return ", ".join(f"{name} {told[name]}" for name in _SPOT if name in told)


def in_words(told: Mapping[str, Any]) -> str:
    """A coordinate of `Places.coordinate` for a person."""
    return f"{spot_in_words(told)} of the {told['side']} {told['plane']} (byte {told['byte']})"


def _linear(geometry: CacheGeometry, side: str, plane: str, width: int) -> IntArray:
    table = np.arange(geometry.block_size * width).reshape(geometry.block_size, width)
    return _laid_out(geometry, side, plane, table)


def _laid_out(geometry: CacheGeometry, side: str, plane: str, table: IntArray) -> IntArray:
    """Offsets [B, H, N, W] of the bytes of one plane of one side."""
    pages = tuple(range(geometry.num_blocks))
    amap = AddressMap(side, plane, geometry, pages, np.zeros((0, 0, 0, 0), np.int64))
    offsets = expected_offset(amap, table)
    return offsets[..., ::2] // amap.unit if plane == "data" else offsets
