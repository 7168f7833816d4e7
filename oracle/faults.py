"""What is wrong with an address map: bytes shared, left out, astray or misaligned, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.addressmap import MISSING, AddressMap, IntArray, Written
from oracle.geometry import PLANES, SIDES, CacheGeometry, Location
from oracle.verdict import Clash, Defects, Witness

CLASHES_LISTED = 32
"""Pairs of tokens that a finding lists."""
_REPEATED = "its byte is stored more than once"
_MISALIGNED = "stored at an address that is no multiple of the store's size"


def _region(amap: AddressMap) -> tuple[int, int]:
    """Byte offsets in a page at which the region of the map's plane starts and stops."""
    geometry = amap.geometry
    middle = geometry.scale_base(amap.side)
    if amap.plane == "data":
        return geometry.side_base(amap.side), middle
    return middle, geometry.side_base(amap.side) + geometry.side_bytes


@dataclass(frozen=True, eq=False)
class Faults:
    """Defects of a map with the smallest coordinate that shows each kind.

    `strays` and `clashes` as in a Finding.
    """

    defects: Defects
    out_of_region: Witness | None
    overlap: Witness | None
    gap: Witness | None
    undefined: Witness | None = None
    strays: Mapping[str, int] = field(default_factory=dict)
    clashes: tuple[Clash, ...] = ()

    @property
    def by_status(self) -> Mapping[str, Witness | None]:
        """The witnesses by the status they make, the gravest first."""
        return {
            "undefined": self.undefined,
            "out_of_region": self.out_of_region,
            "overlap": self.overlap,
            "gap": self.gap,
        }


def faults_of(amap: AddressMap, written: Written) -> Faults:
    """What is wrong with where a writer stored one plane of one side, counted over one page.

    Of the probed pages the one with the most defects of a kind is counted.
    """
    start, stop = _region(amap)
    relative = amap.page_relative() // amap.unit
    landed = amap.found
    below, above = landed & (relative < start), landed & (relative >= stop)
    outside = below | above
    where = amap.geometry.locate(amap.offset // amap.unit)
    other = outside & where.inside
    foreign = landed & ~_own_rows(amap, where)
    size = stop - start
    collisions = never = misaligned = pairs = 0
    clashes: tuple[Clash, ...] = ()
    overlap: Witness | None = None
    gap: Witness | None = None
    for place, page in enumerate(amap.pages):
        first = page * amap.geometry.page_bytes + start
        low, high = np.searchsorted(written.touched, (first, first + size))
        inside = landed[place] & ~outside[place]
        early, late = np.searchsorted(written.misaligned, (first, first + size))
        misaligned = max(misaligned, int(late - early))
        repeats = _repeats(amap, place, inside, written.times[low:high])
        if repeats > collisions:
            collisions = repeats
            clashes, pairs = _clashes(amap, place, inside)
            overlap = (
                overlap or _sharing(amap, place, inside) or _stored_again(amap, written, place)
            )
        if size - (high - low) > never:
            never = int(size - (high - low))
            gap = gap or _untouched(amap.geometry, first, size, written.touched[low:high])
    lost = ~landed
    if lost.any():
        gap = _coordinate(amap, np.argwhere(lost)[0], note="stored nowhere")
    astray = None
    if outside.any():
        astray = _landing(amap, np.argwhere(outside)[0])
    elsewhere = _landed_twice(amap, start, stop)
    nobody = _nobodys(amap, written)
    undefined = _misaligned(amap, written.misaligned) if misaligned else None
    defects = Defects(
        collisions=collisions,
        never_written=never,
        below_region=_most(amap, below) + elsewhere[0] + nobody[0],
        above_region=_most(amap, above) + elsewhere[1] + nobody[1],
        other_plane=_most(amap, other) + elsewhere[2] + nobody[2],
        other_head_rows=_most(amap, foreign),
        misaligned=misaligned,
        clashing_pairs=pairs,
    )
    strays = _strays(amap, outside, start, stop)
    astray = astray or elsewhere[3] or nobody[3]
    return Faults(defects, astray, overlap, gap, undefined, strays, clashes)


def _nobodys(amap: AddressMap, written: Written) -> tuple[int, int, int, Witness | None]:
    """Bytes stored that belong to no token: below, above, in the cache, witness.

    A byte in the cache is told of the plane it hit, on a page that no token is stored to; one
    before the cache of K's data, which comes first, and one past it of V's scales, which come last.
    """
    offsets = np.unique(written.unexplained)
    where = amap.geometry.locate(offsets)
    hit = (where.side == SIDES.index(amap.side)) & (where.plane == PLANES.index(amap.plane))
    mine = np.where(where.inside, hit & ~np.isin(where.page, amap.pages), False)
    if (amap.side, amap.plane) == ("K", "data"):
        mine |= offsets < 0
    if (amap.side, amap.plane) == ("V", "scale"):
        mine |= offsets >= amap.geometry.cache_bytes
    if not mine.any():
        return 0, 0, 0, None
    below, above = mine & (where.page < amap.pages[0]), mine & (where.page > amap.pages[-1])
    padded = mine & np.isin(offsets, written.padding)
    padding = bool(padded.any())
    offset = int(offsets[padded if padding else mine][0])
    note = "a padding token (slot -1) was stored" if padding else "a byte of no token was stored"
    witness: dict[str, Any] = {"stored": amap.geometry.plane_name(offset), "note": note}
    if padding:
        witness["padding"] = True
    inside = int((mine & where.inside).sum())
    return int(below.sum()), int(above.sum()), inside, witness


def linear_data_faults(
    geometry: CacheGeometry, side: str, pages: tuple[int, ...], written: Written
) -> Faults:
    """What `faults_of` says of the data plane of a side in which every element is in its place."""
    start = geometry.side_base(side)
    size = geometry.scale_base(side) - start
    collisions = never = misaligned = 0
    overlap = gap = undefined = None
    for page in pages:
        first = page * geometry.page_bytes + start
        low, high = np.searchsorted(written.touched, (first, first + size))
        times, touched = written.times[low:high], written.touched[low:high]
        early, late = np.searchsorted(written.misaligned, (first, first + size))
        misaligned = max(misaligned, int(late - early))
        undefined = undefined or _first_byte(
            geometry, first, written.misaligned[early:late], _MISALIGNED
        )
        repeats = int((times - 1).sum())
        if repeats > collisions:
            collisions = repeats
            overlap = overlap or _first_byte(geometry, first, touched[times > 1], _REPEATED)
        if size - touched.size > never:
            never = size - touched.size
            gap = gap or _untouched(geometry, first, size, touched)
    defects = Defects(collisions=collisions, never_written=never, misaligned=misaligned)
    return Faults(defects, None, overlap, gap, undefined)


def _first_byte(
    geometry: CacheGeometry, first: int, offsets: IntArray, note: str
) -> Witness | None:
    """The smallest coordinate of a linear data plane that is at one of some offsets."""
    if offsets.size == 0:
        return None
    where = geometry.locate(offsets)
    spot = np.lexsort((where.col, where.row, where.head))[0]
    return {
        "page": int(where.page[spot]),
        "head": int(where.head[spot]),
        "token": int(where.row[spot]),
        "element": 2 * int(where.col[spot]),
        "note": note,
        "region_offset": int(offsets[spot]) - first,
    }


def _own_rows(amap: AddressMap, where: Location) -> NDArray[np.bool_]:
    """Which coordinates are in the rows of their own head, in their own plane and page."""
    page = np.array(amap.pages)[:, None, None, None]
    head = np.arange(amap.geometry.num_heads)[:, None, None]
    own: NDArray[np.bool_] = (
        (where.page == page)
        & (where.side == SIDES.index(amap.side))
        & (where.plane == PLANES.index(amap.plane))
        & (where.head == head)
    )
    return own


def _strays(
    amap: AddressMap, outside: NDArray[np.bool_], start: int, stop: int
) -> Mapping[str, int]:
    """Bytes outside the region by where they land, for the page that has the most of them."""
    coordinates, offsets = amap.again
    most: Mapping[str, int] = {}
    for place, page in enumerate(amap.pages):
        astray = outside[place]
        if amap.plane == "data":
            # One byte for each pair of neighbouring elements.
            astray = astray & (np.arange(astray.shape[-1]) % 2 == 0)
        second = offsets[coordinates[:, 0] == place][:: amap.unit] // amap.unit
        relative = second - page * amap.geometry.page_bytes
        second = second[(relative < start) | (relative >= stop)]
        landed = np.concatenate([amap.offset[place][astray] // amap.unit, second])
        counts = Counter(_landings(amap, page, landed))
        if sum(counts.values()) > sum(most.values()):
            most = dict(sorted(counts.items()))
    return most


def _landings(amap: AddressMap, page: int, offsets: IntArray) -> list[str]:
    """Where bytes are, seen from a page: `own page V data`, `page+1 K data`."""
    where = amap.geometry.locate(offsets)
    names = []
    for inside, there, side, plane in zip(
        where.inside, where.page, where.side, where.plane, strict=True
    ):
        if not inside:
            names.append("before the allocation" if there < 0 else "past the allocation")
            continue
        apart = int(there) - page
        names.append(f"{f'page{apart:+}' if apart else 'own page'} {SIDES[side]} {PLANES[plane]}")
    return names


def _clashes(
    amap: AddressMap, place: int, inside: NDArray[np.bool_]
) -> tuple[tuple[Clash, ...], int]:
    """The pairs of tokens whose coordinates share bytes of a page's plane, and how many pairs.

    Of several coordinates on a byte each is paired with the first.
    """
    step = amap.unit
    spots = np.flatnonzero(inside[..., ::step].ravel())
    offsets = amap.offset[place][..., ::step].ravel()[spots] // amap.unit
    order = np.argsort(offsets, kind="stable")
    offsets, spots = offsets[order], spots[order]
    starts = np.flatnonzero(np.diff(offsets, prepend=offsets[:1] - 1))
    owner = np.repeat(spots[starts], np.diff(starts, append=offsets.size))
    later = spots != owner
    width = amap.offset.shape[-1] // step
    tokens = amap.geometry.block_size
    first, second = (spot[later] // width % tokens for spot in (owner, spots))
    pairs, counts = np.unique(
        np.minimum(first, second) * tokens + np.maximum(first, second), return_counts=True
    )
    listed = tuple(
        Clash(int(pair) // tokens, int(pair) % tokens, int(count))
        for pair, count in zip(pairs[:CLASHES_LISTED], counts, strict=False)
    )
    return listed, int(pairs.size)


def _misaligned(amap: AddressMap, offsets: IntArray) -> Witness | None:
    """The smallest coordinate whose store is misaligned."""
    hit = np.isin(amap.offset // amap.unit, offsets)
    if not hit.any():
        return None
    witness = _landing(amap, np.argwhere(hit)[0])
    return {**witness, "note": _MISALIGNED}


def reader_faults_of(amap: AddressMap) -> Faults:
    """What is wrong with where a reader looks for one plane of one side, counted over one page.

    `never_written` counts bytes that the reader never looks at.
    """
    start, stop = _region(amap)
    relative = amap.page_relative() // amap.unit
    below, above = amap.found & (relative < start), amap.found & (relative >= stop)
    outside = below | above
    shared = never = 0
    overlap: Witness | None = None
    for place in range(len(amap.pages)):
        inside = amap.found[place] & ~outside[place]
        offsets = amap.offset[place][inside]
        shared = max(shared, offsets.size - _distinct(offsets))
        overlap = overlap or _sharing(amap, place, inside, "looked for in")
        never = max(never, stop - start - _distinct(offsets // amap.unit))
    lost = np.argwhere(~amap.found)
    gap = None
    if lost.size:
        gap = _coordinate(amap, lost[0], note="no byte of the cache explains the value read")
    astray = _landing(amap, np.argwhere(outside)[0], "looked for in") if outside.any() else None
    defects = Defects(
        collisions=shared,
        never_written=never,
        below_region=_most(amap, below),
        above_region=_most(amap, above),
        other_plane=_most(amap, outside & amap.geometry.locate(amap.offset // amap.unit).inside),
    )
    return Faults(defects, astray, overlap, gap)


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
    return max(int((times - 1).sum()), int(bytes_hit.size) - _distinct(bytes_hit))


def _distinct(offsets: IntArray) -> int:
    """How many different offsets of one region there are; far faster than `np.unique` tells it."""
    if not offsets.size:
        return 0
    return int(np.count_nonzero(np.bincount((offsets - offsets.min()).ravel())))


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
    counts = np.zeros(3, np.int64)
    for place in range(len(amap.pages)):
        here = coordinates[:, 0] == place
        masks = (below & here, above & here, outside & inside_cache & here)
        # Two elements of data make a byte.
        count = [-(-np.count_nonzero(mask) // amap.unit) for mask in masks]
        counts = np.maximum(counts, count)
    before, after, elsewhere = map(int, counts)
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


def _landing(amap: AddressMap, spot: Sequence[int], what: str = "stored in") -> Witness:
    """Where a coordinate went, relative to its plane's region and in words."""
    offset = int(amap.offset[tuple(spot)]) // amap.unit
    start = amap.pages[spot[0]] * amap.geometry.page_bytes + _region(amap)[0]
    where = amap.geometry.plane_name(offset)
    if where.endswith("allocation"):
        what = what.removesuffix(" in")
    witness = _coordinate(amap, spot, note=f"{what} {where}")
    return {**witness, "region_offset": offset - start}


def _sharing(
    amap: AddressMap, place: int, inside: NDArray[np.bool_], what: str = "stored in"
) -> Witness | None:
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
    one = _landing(amap, (place, *np.unravel_index(first, shape)), what)
    other = _coordinate(amap, (place, *np.unravel_index(second, shape)), note="same byte")
    return {**one, "note": "shares its byte", "with": other}


def _stored_again(amap: AddressMap, written: Written, place: int) -> Witness | None:
    """A coordinate whose byte was stored more than once."""
    often = written.touched[written.times > 1]
    hit = np.isin(amap.offset[place] // amap.unit, often)
    if not hit.any():
        return None
    witness = _landing(amap, (place, *np.argwhere(hit)[0]))
    return {**witness, "note": _REPEATED}


def _untouched(geometry: CacheGeometry, first: int, size: int, touched: IntArray) -> Witness:
    """The first byte of a region that no store touched."""
    left = np.setdiff1d(np.arange(first, first + size), touched)
    offset = int(left[0])
    where = geometry.locate(offset)
    return {
        "page": int(where.page),
        "head": int(where.head),
        "row": int(where.row),
        "col": int(where.col),
        "region_offset": offset - first,
        "note": "this byte is never written",
    }
