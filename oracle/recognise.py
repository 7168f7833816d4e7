"""From an address map to a name, a shape:stride, or a table.

A map is named only where a candidate gives the same offset at every coordinate; where several do,
all of them are named. It is never rounded to the nearest name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from oracle.addressmap import AddressMap, IntArray
from oracle.candidates import CANDIDATES
from oracle.geometry import CACHE_LAYOUTS
from oracle.layout import Layout, shape_stride


@dataclass(frozen=True, eq=False)
class Recognition:
    """What a map is.

    `table` int64 [T, W] holds flat offsets in the plane, the same for every page and head, or is
    None where the map leaves its planes or differs between them. `layouts` are the candidates equal
    to it, `shape_stride` its algebraic form where it has one.
    """

    table: IntArray | None
    layouts: tuple[str, ...]
    shape_stride: str | None
    reason: str | None


def recognise(amap: AddressMap) -> Recognition:
    """Name a map."""
    relative = amap.plane_relative()
    if relative is None:
        return Recognition(None, (), None, _why_not(amap))
    table = relative[0, 0]
    if not (relative == table).all():
        return Recognition(None, (), None, "pages or heads are laid out differently")
    algebra = shape_stride(table)
    text = None
    if algebra is not None:
        layout, base = algebra
        text = f"{layout}" if base == 0 else f"{layout}+{base}"
    return Recognition(table, names_of(table, amap.plane), text, None)


def names_of(table: IntArray, plane: str) -> tuple[str, ...]:
    """Every candidate equal to a table [T, W] of flat offsets in a plane."""
    tokens, width = table.shape
    if plane == "data":
        # The codes of a head are stored in one order everywhere; only `linear` has been seen.
        linear = np.arange(tokens * width).reshape(tokens, width)
        return ("linear",) if np.array_equal(table, linear) else ()
    return tuple(
        each.name
        for each in CANDIDATES.values()
        if each.undefined_reason(tokens, width) is None
        and np.array_equal(each.table(tokens, width), table)
    )


def _why_not(amap: AddressMap) -> str:
    missing = int(np.count_nonzero(~amap.found))
    if missing:
        return f"{missing} of {amap.offset.size} coordinates were found nowhere"
    reason = "some coordinates are not in the plane of their own page and head"
    for layout in CACHE_LAYOUTS:
        other = replace(amap, geometry=replace(amap.geometry, cache_layout=layout))
        relative = other.plane_relative()
        if relative is not None and (relative == relative[0, 0]).all():
            return f"{reason}: these are the addresses of an {layout} page"
    return reason


def expected_offset(amap: AddressMap, table: IntArray) -> IntArray:
    """Where a layout given by a table [T, W] would put each coordinate, like `amap.offset`."""
    geometry = amap.geometry
    page = np.array(amap.pages)[:, None, None, None]
    head = np.arange(geometry.num_heads)[:, None, None]
    width = table.shape[1]
    row, col = np.divmod(table, width)
    if amap.plane == "scale":
        return geometry.scale_offset(amap.side, page, head, row, col)
    nibbles: IntArray = 2 * geometry.data_offset(amap.side, page, head, row, col // 2) + col % 2
    return nibbles


@lru_cache
def linear_data_shape(tokens: int, width: int) -> str:
    """The shape:stride of a linear plane [tokens, width] of elements."""
    return str(Layout((tokens, width), (width, 1)).coalesce())
