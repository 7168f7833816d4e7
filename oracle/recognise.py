"""From an address map to a name, a shape:stride, or a table; and to what is wrong with it.

A map is named only where a candidate gives the same offset at every coordinate; where several do,
all of them are named. It is never rounded to the nearest name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oracle.addressmap import MISSING, AddressMap, IntArray, Written
from oracle.candidates import CANDIDATES
from oracle.layout import shape_stride
from oracle.verdict import Defects, Witness


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
    return "some coordinates are not in the plane of their own page and head"


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


def _region(amap: AddressMap) -> tuple[int, int]:
    """Byte offsets in a page at which the region of the map's plane starts and stops."""
    geometry = amap.geometry
    middle = geometry.scale_base(amap.side)
    if amap.plane == "data":
        return geometry.side_base(amap.side), middle
    return middle, geometry.side_base(amap.side) + geometry.side_bytes


@dataclass(frozen=True, eq=False)
class Faults:
    """Defects of a writer's map with the smallest coordinate that shows each kind."""

    defects: Defects
    out_of_region: Witness | None
    overlap: Witness | None
    gap: Witness | None


def faults_of(amap: AddressMap, written: Written) -> Faults:
    """What is wrong with where a writer stored one plane of one side, counted over one page.

    Of the probed pages the one with the most defects of a kind is counted.
    """
    start, stop = _region(amap)
    relative = amap.page_relative() // amap.unit
    landed = amap.found
    below, above = landed & (relative < start), landed & (relative >= stop)
    outside = below | above
    other = outside & amap.geometry.locate(amap.offset // amap.unit).inside
    size = stop - start
    collisions = never = 0
    overlap: Witness | None = None
    gap: Witness | None = None
    for place, page in enumerate(amap.pages):
        first = page * amap.geometry.page_bytes + start
        low, high = np.searchsorted(written.touched, (first, first + size))
        inside = landed[place] & ~outside[place]
        repeats = _repeats(amap, place, inside, written.times[low:high])
        if repeats > collisions:
            collisions = repeats
            overlap = (
                overlap or _sharing(amap, place, inside) or _stored_again(amap, written, place)
            )
        if size - (high - low) > never:
            never = int(size - (high - low))
            gap = gap or _untouched(amap, first, size, written.touched[low:high])
    lost = ~landed
    if lost.any():
        gap = _coordinate(amap, np.argwhere(lost)[0], note="stored nowhere")
    astray = None
    if outside.any():
        astray = _landing(amap, np.argwhere(outside)[0])
    elsewhere = _landed_twice(amap, start, stop)
    defects = Defects(
        collisions=collisions,
        never_written=never,
        below_region=_most(amap, below) + elsewhere[0],
        above_region=_most(amap, above) + elsewhere[1],
        other_plane=_most(amap, other) + elsewhere[2],
    )
    return Faults(defects, astray or elsewhere[3], overlap, gap)


def _most(amap: AddressMap, mask: NDArray[np.bool_]) -> int:
    """How many stores of bytes a mask of coordinates stands for, on the page with the most."""
    if amap.plane == "data":
        # Two neighbouring elements are stored as one byte.
        mask = mask[..., 0::2] | mask[..., 1::2]
    return int(mask.sum(axis=(1, 2, 3)).max())


def _repeats(amap: AddressMap, place: int, inside: NDArray[np.bool_], times: IntArray) -> int:
    """Stores to bytes of the region beyond the first one of each."""
    if amap.plane == "data":
        # A byte holds two elements of one store; only whole repeated stores count.
        return int((times - 1).sum())
    bytes_hit = amap.offset[place][inside]
    return max(int((times - 1).sum()), int(bytes_hit.size - np.unique(bytes_hit).size))


def _landed_twice(amap: AddressMap, start: int, stop: int) -> tuple[int, int, int, Witness | None]:
    """Second places of coordinates outside the region: below, above, in another plane, witness."""
    coordinates, offsets = amap.again
    page = np.array(amap.pages)[coordinates[:, 0]] if coordinates.size else np.zeros(0, np.int64)
    relative = offsets // amap.unit - page * amap.geometry.page_bytes
    below, above = relative < start, relative >= stop
    outside = below | above
    if not outside.any():
        return 0, 0, 0, None
    inside_cache = amap.geometry.locate(offsets // amap.unit).inside
    first = int(np.flatnonzero(outside)[0])
    witness = _coordinate(amap, coordinates[first], note="stored a second time")
    witness = {**witness, "stored": amap.geometry.plane_name(int(offsets[first] // amap.unit))}
    # Over all pages, and two elements to a byte of data.
    share = len(amap.pages) * amap.unit
    counts = (below.sum(), above.sum(), (outside & inside_cache).sum())
    before, after, elsewhere = (-(-int(count) // share) for count in counts)
    return before, after, elsewhere, witness


def _coordinate(amap: AddressMap, spot: Sequence[int], note: str) -> Witness:
    """A coordinate (page, head, token, column or element) with a remark."""
    page, head, token, column = (int(i) for i in spot)
    name = "element" if amap.plane == "data" else "column"
    return {
        "page": amap.pages[page],
        "head": head,
        "token": token,
        name: column,
        "note": note,
    }


def _landing(amap: AddressMap, spot: Sequence[int]) -> Witness:
    """Where a coordinate went, relative to its plane's region and in words."""
    offset = int(amap.offset[tuple(spot)]) // amap.unit
    start = amap.pages[spot[0]] * amap.geometry.page_bytes + _region(amap)[0]
    where = amap.geometry.plane_name(offset)
    witness = _coordinate(amap, spot, note=f"stored in {where}")
    return {**witness, "region_offset": offset - start}


def _sharing(amap: AddressMap, place: int, inside: NDArray[np.bool_]) -> Witness | None:
    """Two coordinates of a page that share a byte."""
    offsets = np.where(inside, amap.offset[place], MISSING).ravel()
    order = np.argsort(offsets, kind="stable")
    ordered = offsets[order]
    same = np.flatnonzero((ordered[1:] == ordered[:-1]) & (ordered[1:] != MISSING))
    if same.size == 0:
        return None
    pairs = np.sort(np.stack([order[same], order[same + 1]]), axis=0)
    first, second = pairs[:, np.argmin(pairs[1])]
    shape = amap.offset.shape[1:]
    one = _landing(amap, (place, *np.unravel_index(first, shape)))
    other = _coordinate(amap, (place, *np.unravel_index(second, shape)), note="same byte")
    return {**one, "note": "shares its byte", "with": other}


def _stored_again(amap: AddressMap, written: Written, place: int) -> Witness | None:
    """A coordinate whose byte was stored more than once."""
    often = written.touched[written.times > 1]
    hit = np.isin(amap.offset[place] // amap.unit, often)
    if not hit.any():
        return None
    witness = _landing(amap, (place, *np.argwhere(hit)[0]))
    return {**witness, "note": "its byte is stored more than once"}


def _untouched(amap: AddressMap, first: int, size: int, touched: IntArray) -> Witness:
    """The first byte of a region that no store touched."""
    left = np.setdiff1d(np.arange(first, first + size), touched)
    offset = int(left[0])
    where = amap.geometry.locate(offset)
    return {
        "page": int(where.page),
        "head": int(where.head),
        "row": int(where.row),
        "col": int(where.col),
        "region_offset": offset - first,
        "note": "this byte is never written",
    }
