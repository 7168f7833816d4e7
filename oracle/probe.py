"""Coded inputs in, written or read bytes out: the full address map of any writer or reader.

A writer is a black box that turns tokens into bytes. In each pass every group gets a scale, and
every element a code, that is one symbol of the word of its coordinate (`oracle.codewords`); what is
seen at an address over all passes spells whose byte it is. Nothing is assumed about where a byte
should go. Two pages in the middle of four are stored, in a shuffled order and with padding tokens
between, so that strays on both sides, and any dependence on page, head or order, come to light.

Where the executor logs single stores those are decoded, so a byte stored twice shows both stores.
Elsewhere the image before and after is compared, and what is beside it; a coordinate that another
one overwrote is then found by storing its token alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracle.addressmap import MISSING, AddressMap, IntArray, Written
from oracle.codewords import (
    ELEMENT_CODES,
    GUARD_CODE,
    MAX_PASSES,
    OFF_GRID_CODE,
    PADDING_BYTE,
    PADDING_SCALE,
    SCALE_CODES,
    Book,
    digits,
    keys,
    words,
)
from oracle.errors import OracleError, UsageError
from oracle.formats import DTYPES, ByteArray, e2m1_decode, e4m3_decode, pack_codes
from oracle.geometry import PLANES, SIDES, CacheGeometry
from oracle.quantize import GROUP
from oracle.requests import RED_ZONE, ByteStores, Stored, StoreRequest
from oracle.subjects.base import Writer

PAGES_IN_CACHE = 4
PROBED_PAGES = (1, 2)
PADDING_TOKENS = 3
"""Tokens with slot -1, which a writer must skip."""


class AddressesVary(OracleError):
    """A writer's addresses depend on the values stored, so it has no address map."""

    exit_code = 1


def probed(geometry: CacheGeometry) -> CacheGeometry:
    """The geometry with the number of pages every probe uses."""
    return replace(geometry, num_blocks=PAGES_IN_CACHE)


def probe_slots(geometry: CacheGeometry) -> IntArray:
    """The slots of the probed pages, in a shuffled order with padding between, int64 [T]."""
    tokens = geometry.block_size
    real = [page * tokens + token for page in PROBED_PAGES for token in range(tokens)]
    slots = np.array([*real, *([-1] * PADDING_TOKENS)], np.int64)
    return np.random.default_rng(0).permutation(slots)


def special_request(geometry: CacheGeometry, dtype: str, slots: IntArray) -> StoreRequest:
    """Values no word has: zeros, infinities, NaN, subnormals, all negative, beyond the range.

    What is stored says nothing; where it is stored must be where everything else was.
    """
    groups = np.array([0, -0.0, -3, np.inf, np.nan, 1e-7, 6e4, -np.inf], np.float32)
    ramp = np.linspace(0.5, 1, GROUP, dtype=np.float32)
    with np.errstate(invalid="ignore"):
        pattern = DTYPES[dtype].encode(groups[:, None] * ramp)
    values = np.resize(pattern, (slots.size, geometry.num_heads, geometry.head_size))
    image = np.zeros(geometry.cache_bytes, np.uint8)
    return StoreRequest(geometry, dtype, values, values, slots, 0.5, 3.0, image)


def check_special(
    writer: Writer, geometry: CacheGeometry, dtype: str, slots: IntArray, offset: IntArray
) -> None:
    """Raise AddressesVary unless special values are stored at the offsets where others are."""
    log = writer.write(special_request(geometry, dtype, slots)).stores
    if log is not None and np.array_equal(log.offset, offset):
        return
    # Lanes part on special values, and then store in another order.
    if log is None or not np.array_equal(np.sort(log.offset), np.sort(offset)):
        raise AddressesVary(
            "the addresses stored to depend on the values: they differ for groups that are zero, "
            "negative, not finite or beyond the range"
        )


class WriterProbe:
    """The coded requests for one geometry and dtype, and the book that decodes what comes back."""

    def __init__(self, geometry: CacheGeometry, dtype: str) -> None:
        self.geometry = geometry
        self.dtype = dtype
        heads, tokens = geometry.num_heads, geometry.block_size
        outer = (len(SIDES), len(PROBED_PAGES), heads, tokens)
        self.shapes = {
            "scale": (*outer, geometry.scale_columns),
            "data": (*outer, geometry.head_size),
        }
        elements = int(np.prod(self.shapes["data"]))
        # Two symbols of a word may be lost to guards, so the code has two to spare.
        self.passes = digits(elements, ELEMENT_CODES.size) + 2
        if self.passes > MAX_PASSES:
            raise UsageError(
                f"{elements} elements are too many for one probe: ask for fewer heads or tokens"
            )
        self.codes = self._element_codes(elements)
        self.scales = self._scale_codes()
        self.books = {"scale": Book(keys(self.scales, 8)), "data": Book(keys(self.codes, 4))}

    def _element_codes(self, elements: int) -> ByteArray:
        """E2M1 codes [passes, elements] with the guards in place.

        In pass p element p of each group is +6, which fixes the scale, and element 8+p is +0.5,
        which keeps the four-over-six search from preferring another one. No element is both.
        """
        codes = ELEMENT_CODES[words(elements, ELEMENT_CODES.size, self.passes)]
        groups = codes.reshape(self.passes, -1, GROUP)
        for row in range(self.passes):
            groups[row, :, row] = GUARD_CODE
            groups[row, :, GROUP // 2 + row] = OFF_GRID_CODE
        return codes

    def _scale_codes(self) -> ByteArray:
        """E4M3 codes [passes, scales] whose keys no pair of neighbouring elements imitates."""
        count = int(np.prod(self.shapes["scale"]))
        data = keys(pack_codes(self.codes), 8)
        for first in range(SCALE_CODES.size - self.passes):
            scales = SCALE_CODES[words(count, SCALE_CODES.size, self.passes, first)]
            if not np.isin(keys(scales, 8), data).any():
                return scales
        raise AssertionError("every set of scale words collides with data words")

    def linear_guess(self, offset: IntArray, plane: str, nibble: int = 0) -> IntArray:
        """The coordinate that would be at a byte offset if the plane were stored linearly."""
        where = self.geometry.locate(offset)
        column = where.col if plane == "scale" else 2 * where.col + nibble
        page = where.page - PROBED_PAGES[0]
        place = (where.side, page, where.head, where.row, column)
        return np.ravel_multi_index(place, self.shapes[plane], mode="clip").astype(np.int64)

    @property
    def slots(self) -> IntArray:
        """The slots stored."""
        return probe_slots(self.geometry)

    def requests(self, slots: IntArray) -> Iterator[StoreRequest]:
        """One request a pass, each over its own random image."""
        tokens = self.geometry.block_size
        page, token = np.divmod(np.maximum(slots, PROBED_PAGES[0] * tokens), tokens)
        page -= PROBED_PAGES[0]
        noise = np.random.default_rng(1)
        encode = DTYPES[self.dtype].encode
        for row in range(self.passes):
            codes = e2m1_decode(self.codes[row]).reshape(*self.shapes["scale"], GROUP)
            scales = e4m3_decode(self.scales[row]).reshape(self.shapes["scale"])
            values = (codes * scales[..., None]).reshape(self.shapes["data"])
            sides = [values[side][page, :, token, :] for side in (0, 1)]
            for side in sides:
                side[slots < 0] = self._padding(row)
            key, value = (encode(side) for side in sides)
            image = noise.integers(0, 256, self.geometry.cache_bytes, np.uint8)
            yield StoreRequest(self.geometry, self.dtype, key, value, slots, 1.0, 1.0, image)

    def _padding(self, row: int) -> NDArray[np.float32]:
        """What padding tokens carry in one pass, float32 [D]: +6, and a +0.5 that moves on."""
        codes = np.full(self.geometry.head_size, GUARD_CODE, np.uint8)
        codes[row::GROUP] = OFF_GRID_CODE
        return e2m1_decode(codes) * e4m3_decode(np.array([PADDING_SCALE], np.uint8))

    def run(self, writer: Writer, slots: IntArray) -> Observed:
        """Every pass of the writer over some slots."""
        before, after = [], []
        for request in self.requests(slots):
            before.append(request.cache)
            after.append(writer.write(request))
        seen = _observe(before, after)
        if seen.logged:
            check_special(writer, self.geometry, self.dtype, slots, seen.offset)
        return seen


class Observed(NamedTuple):
    """Bytes seen stored: `offset` [n], `values` [passes, n].

    `logged` says whether these are single stores, in order of execution, or bytes that changed.
    """

    offset: IntArray
    values: ByteArray
    logged: bool
    faults: tuple[str, ...]
    misaligned: IntArray


def values_at(log: ByteStores | None, offset: IntArray) -> ByteArray:
    """The values uint8 [n] that a log has at the offsets of another one, int64 [n], in its order.

    Raises AddressesVary where the offsets are not the same.
    """
    if log is None or log.offset.size != offset.size:
        raise AddressesVary("the addresses stored to depend on the values stored")
    if log.offset is offset or np.array_equal(log.offset, offset):
        return log.value
    # Lanes that part on the values store in another order.
    theirs, mine = np.argsort(log.offset, kind="stable"), np.argsort(offset, kind="stable")
    if not np.array_equal(log.offset[theirs], offset[mine]):
        raise AddressesVary("the addresses stored to depend on the values stored")
    values = np.empty_like(log.value)
    values[mine] = log.value[theirs]
    return values


def _observe(before: list[ByteArray], after: list[Stored]) -> Observed:
    logs = [stored.stores for stored in after]
    faults = tuple(dict.fromkeys(fault for stored in after for fault in stored.faults))
    first = logs[0]
    misaligned = np.unique(after[0].misaligned)
    if first is not None:
        values = np.stack([values_at(log, first.offset) for log in logs])
        return Observed(first.offset, values, True, faults, misaligned)
    images = np.stack([stored.cache for stored in after])
    touched = np.flatnonzero((images != np.stack(before)).any(axis=0)).astype(np.int64)
    offset = np.unique(np.concatenate([stored.beside.offset for stored in after]))
    beside = np.full((len(after), offset.size), RED_ZONE, np.uint8)
    for row, stored in zip(beside, after, strict=True):
        row[np.searchsorted(offset, stored.beside.offset)] = stored.beside.value
    seen: ByteArray = np.concatenate([images[:, touched], beside], axis=1)
    return Observed(np.concatenate([touched, offset]), seen, False, faults, misaligned)


@lru_cache(maxsize=2)
def writer_probe(geometry: CacheGeometry, dtype: str) -> WriterProbe:
    """The probe of a geometry; the latest ones are kept, as several writers are asked in turn."""
    return WriterProbe(geometry, dtype)


def map_writer(writer: Writer, geometry: CacheGeometry, dtype: str) -> Written:
    """Recover where a writer puts every scale and code of the probed pages.

    `geometry` is taken with the probe's own number of pages. Raises what the writer raises, and
    AddressesVary.
    """
    probe = writer_probe(probed(geometry), dtype)
    seen = probe.run(writer, probe.slots)
    found = {plane: np.full(np.prod(probe.shapes[plane]), MISSING, np.int64) for plane in PLANES}
    again: dict[str, list[tuple[IntArray, IntArray]]] = {plane: [] for plane in PLANES}
    known = _place(probe, seen, found, again)
    if not seen.logged:
        _find_overwritten(probe, writer, found, again)
    touched, times = np.unique(seen.offset, return_counts=True)
    maps = {
        (side, plane): _side_map(probe, side, plane, found[plane], again[plane])
        for plane in PLANES
        for side in SIDES
    }
    unknown, values = seen.offset[~known], seen.values[:, ~known]
    padding = (values == PADDING_SCALE).all(axis=0)
    padding |= (values == PADDING_BYTE).sum(axis=0) >= len(values) - 2
    return Written(maps, touched, times, unknown, seen.faults, seen.misaligned, unknown[padding])


def _place(
    probe: WriterProbe,
    seen: Observed,
    found: dict[str, IntArray],
    again: dict[str, list[tuple[IntArray, IntArray]]],
) -> NDArray[np.bool_]:
    """Enter decoded stores into `found`, later places into `again`; which stores made sense."""
    offset, values = seen.offset, seen.values
    scale = probe.books["scale"].find(keys(values, 8), probe.linear_guess(offset, "scale"))
    is_scale = scale >= 0
    _enter(found["scale"], again["scale"], scale[is_scale], offset[is_scale])
    known = is_scale.copy()
    rest = ~is_scale
    for nibble in (0, 1):
        codes = (values[:, rest] >> np.uint8(4 * nibble)) & np.uint8(15)
        guess = probe.linear_guess(offset[rest], "data", nibble)
        element = probe.books["data"].find(keys(codes, 4), guess)
        hit = element >= 0
        _enter(found["data"], again["data"], element[hit], 2 * offset[rest][hit] + nibble)
        known[rest] |= hit
    return known


def _enter(
    found: IntArray,
    again: list[tuple[IntArray, IntArray]],
    index: IntArray,
    offset: IntArray,
) -> None:
    """Note where each coordinate went: its first place in `found`, others in `again`."""
    _, first = np.unique(index, return_index=True)
    new = first[found[index[first]] == MISSING]
    found[index[new]] = offset[new]
    elsewhere = found[index] != offset
    again.append((index[elsewhere], offset[elsewhere]))


def _find_overwritten(
    probe: WriterProbe,
    writer: Writer,
    found: dict[str, IntArray],
    again: dict[str, list[tuple[IntArray, IntArray]]],
) -> None:
    """Store the tokens of coordinates nobody saw one by one, so that no other one hides them."""
    lost = np.zeros(probe.geometry.block_size, dtype=bool)
    for plane in PLANES:
        missing = found[plane].reshape(probe.shapes[plane]) == MISSING
        lost |= missing.any(axis=(0, 1, 2, 4))
    tokens = probe.geometry.block_size
    for token in np.flatnonzero(lost):
        slots = np.array([page * tokens + token for page in PROBED_PAGES], np.int64)
        _place(probe, probe.run(writer, slots), found, again)


def _side_map(
    probe: WriterProbe,
    side: str,
    plane: str,
    found: IntArray,
    again: list[tuple[IntArray, IntArray]],
) -> AddressMap:
    shape = probe.shapes[plane]
    index = np.concatenate([part for part, _ in again])
    places = np.concatenate([part for _, part in again])
    coordinates = np.stack(np.unravel_index(index, shape), axis=1)
    mine = coordinates[:, 0] == SIDES.index(side)
    return AddressMap(
        side,
        plane,
        probe.geometry,
        PROBED_PAGES,
        found.reshape(shape)[SIDES.index(side)],
        (coordinates[mine, 1:], places[mine]),
    )
