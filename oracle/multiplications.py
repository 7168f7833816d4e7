"""From what an attention kernel multiplied to where it looks: its address map, and what is wrong.

The element that a code belongs to is known by where the code is stored, as codes are stored in one
order by everybody; the map says which scale byte each group of 16 elements was multiplied with. It
is only worth something if the run was sound, so every way in which it could be unsound is looked
for and named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oracle.addressmap import MISSING, AddressMap, IntArray, Read
from oracle.geometry import PLANES, SIDES, CacheGeometry
from oracle.machine.cta import Observation
from oracle.machine.replicas import NOWHERE, spelled
from oracle.quantize import GROUP


@dataclass(frozen=True, eq=False)
class Multiplications:
    """Codes and the scales they met: arrays of one length.

    `code` is the nibble of the cache (twice the byte, plus one for the high half), `scale` the byte
    of the cache; NOWHERE where the operand was no whole one. `pc` and `warp` say who did it.
    """

    code: IntArray
    scale: IntArray
    pc: IntArray
    warp: IntArray

    @classmethod
    def of(cls, observations: Sequence[Observation]) -> Multiplications:
        """The multiplications of some observations, in no particular order."""
        kinds: dict[tuple[str, str], list[Observation]] = {}
        for each in observations:
            kinds.setdefault((each.nibbles, each.places), []).append(each)
        parts = [_decoded(nibbles, places, seen) for (nibbles, places), seen in kinds.items()]
        if not parts:
            return cls(*(np.zeros(0, np.int64) for _ in range(4)))
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _decoded(nibbles: str, places: str, seen: list[Observation]) -> tuple[IntArray, ...]:
    codes = np.concatenate([each.codes for each in seen], axis=1)
    scales = np.concatenate([each.scales for each in seen], axis=1)
    element = [(codes >> np.uint32(4 * int(n))) & np.uint32(15) for n in nibbles]
    byte = [(scales >> np.uint32(8 * int(n))) & np.uint32(255) for n in places]
    code = spelled(np.stack(element, axis=1))
    both = np.stack(byte, axis=1)
    low, high = spelled(both & 15), spelled(both >> 4)
    # A scale is one whole byte: its halves are neighbours.
    whole = (low >= 0) & (low % 2 == 0) & (high == low + 1)
    scale = np.where(whole, low // 2, NOWHERE)
    count = [each.codes.shape[1] for each in seen]
    pc = np.repeat([each.pc for each in seen], count)
    warp = np.repeat([each.warp for each in seen], count)
    tiled = (np.broadcast_to(v, code.shape).ravel() for v in (pc, warp))
    return (code.ravel(), scale.ravel(), *tiled)


@dataclass(frozen=True, eq=False)
class ReaderMap:
    """Where a reader looks.

    `read` has the maps of every page of the sequence; `faults` are one line each, and empty for a
    sound run. By side, over these pages: `unread` counts scale bytes that no code met, `shared`
    groups of 16 elements beyond the first that met a byte.
    `warps` and `copies` say which warps multiplied and in how many places of the code.
    """

    read: Read
    faults: tuple[str, ...]
    unread: dict[str, int]
    shared: dict[str, int]
    warps: tuple[int, ...]
    copies: int


def reader_map(
    found: Multiplications,
    geometry: CacheGeometry,
    pages: tuple[int, ...],
    heads: Sequence[int] | None = None,
) -> ReaderMap:
    """The map of `pages`, in that order, of which `heads` (all) were to be read, each code once."""
    heads = range(geometry.num_heads) if heads is None else heads
    faults: list[str] = []
    _count(faults, found.code == NOWHERE, "multiply what is no code of the cache")
    _count(faults, found.scale == NOWHERE, "multiply with what is no scale byte of the cache")
    good = (found.code != NOWHERE) & (found.scale != NOWHERE)
    code, scale = found.code[good], found.scale[good]
    data, where = geometry.locate(code // 2), geometry.locate(scale)
    _count(faults, data.plane != PLANES.index("data"), "take a code from a scale plane")
    _count(faults, where.plane != PLANES.index("scale"), "take a scale from a data plane")
    _count(faults, data.side != where.side, "take a scale from the other side")
    _count(faults, data.page != where.page, "take a scale from another page")
    _count(faults, data.head != where.head, "take a scale from another head")
    place = np.full(geometry.num_blocks, NOWHERE, np.int64)
    place[list(pages)] = np.arange(len(pages))
    mine = (data.plane == 0) & (place[data.page] != NOWHERE) & np.isin(data.head, list(heads))
    _count(faults, ~mine, "read what is not of the sequence")
    element = 2 * data.col + code % 2
    spot = tuple(v[mine] for v in (data.side, place[data.page], data.head, data.row, element))
    shape = (
        len(SIDES), len(pages), geometry.num_heads, geometry.block_size, geometry.head_size
    )  # fmt: skip
    times = np.zeros(shape, np.int32)
    np.add.at(times, spot, 1)
    expected = times[:, :, list(heads)]
    _count(faults, expected == 0, "elements are never multiplied", "")
    _count(faults, expected > 1, "elements are multiplied more than once", "")
    used = np.full(shape, MISSING, np.int64)
    used[spot] = scale[mine]
    groups = used.reshape(*shape[:-1], -1, GROUP)
    first = groups[..., 0]
    mixed = (groups != first[..., None]).any(axis=-1)
    _count(faults, mixed[:, :, list(heads)], "groups of 16 elements meet several scales", "")
    offsets = np.where(mixed, MISSING, first)
    nibbles = np.where(times > 0, _nibbles(geometry, pages), MISSING)
    maps = {
        (side, plane): AddressMap(side, plane, geometry, pages, table[i])
        for plane, table in (("data", nibbles), ("scale", offsets))
        for i, side in enumerate(SIDES)
    }
    return ReaderMap(
        Read(maps),
        tuple(faults),
        {side: _unread(offsets[i], geometry, side, pages) for i, side in enumerate(SIDES)},
        {side: _shared(offsets[i]) for i, side in enumerate(SIDES)},
        tuple(int(w) for w in np.unique(found.warp)),
        int(np.unique(found.pc).size),
    )


def _count(
    faults: list[str], wrong: NDArray[np.bool_], text: str, who: str = "multiplications "
) -> None:
    number = int(np.count_nonzero(wrong))
    if number:
        faults.append(f"{number} {who}{text}")


def _nibbles(geometry: CacheGeometry, pages: tuple[int, ...]) -> IntArray:
    """Nibble of every element [2, P, H, T, D], as codes are stored."""
    page = np.array(pages)[:, None, None, None]
    head = np.arange(geometry.num_heads)[:, None, None]
    token = np.arange(geometry.block_size)[:, None]
    element = np.arange(geometry.head_size)
    sides = [geometry.data_offset(side, page, head, token, element // 2) for side in SIDES]
    nibbles: IntArray = 2 * np.stack(sides) + element % 2
    return nibbles


def _unread(offsets: IntArray, geometry: CacheGeometry, side: str, pages: tuple[int, ...]) -> int:
    """Scale bytes of the pages that no code met."""
    page = np.array(pages)[:, None, None, None]
    head = np.arange(geometry.num_heads)[:, None, None]
    row = np.arange(geometry.block_size)[:, None]
    column = np.arange(geometry.scale_columns)
    plane = geometry.scale_offset(side, page, head, row, column)
    return int(plane.size - np.isin(plane, offsets).sum())


def _shared(offsets: IntArray) -> int:
    met = offsets[offsets != MISSING]
    return int(met.size - np.unique(met).size)


def narrowed(read: Read, geometry: CacheGeometry, pages: tuple[int, ...]) -> Read:
    """The maps of some of the pages only, as those of a cache of another number of pages."""
    maps = {}
    for key, amap in read.maps.items():
        rows = [amap.pages.index(page) for page in pages]
        maps[key] = AddressMap(amap.side, amap.plane, geometry, pages, amap.offset[rows])
    return Read(maps)
