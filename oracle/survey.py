"""Maps a writer with three or four launches for a geometry, whatever its size.

The probe (`oracle.probe`) takes a writer for a black box and spells out every element alone, which
takes up to eight launches. Most geometries need less. Here the codes of half a group, 8 of them in
4 bytes, spell its coordinate in one launch, and are the same in all; the scales change from launch
to launch and spell theirs over all of them. What changed is a scale, what did not is a code.

Nothing is taken for granted: where halves of groups are not 4 bytes in a row, a code is not where a
linear data plane has it, or a coordinate is missing or stored twice, the survey gives up and the
probe takes over. Both give the same findings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from oracle.addressmap import MISSING, AddressMap, IntArray, Written
from oracle.codewords import (
    ELEMENT_CODES,
    GUARD_CODE,
    OFF_GRID_CODE,
    SCALE_CODES,
    Book,
    Keys,
    digits,
    keys,
    words,
)
from oracle.findings import data_finding, writer_findings
from oracle.formats import DTYPES, ByteArray, WordArray, e2m1_decode, e4m3_decode, pack_codes
from oracle.geometry import SIDES, CacheGeometry
from oracle.probe import (
    PROBED_PAGES,
    check_special,
    map_writer,
    probe_slots,
    probed,
    values_at,
)
from oracle.quantize import GROUP
from oracle.requests import Stored, StoreRequest
from oracle.subjects.base import Writer
from oracle.verdict import Configuration, Finding

MOST_LAUNCHES = 3
_HALF = GROUP // 2
_HALF_BYTES = _HALF // 2
_CONSTANT = SCALE_CODES.size
"""Words of so many first coordinates have one symbol only, and would look like codes."""
_MAX_SCALES = SCALE_CODES.size**MOST_LAUNCHES - _CONSTANT
_STEP = 1 << 12
"""Words are made for multiples of so many coordinates, and kept."""


def survey(
    writer: Writer, geometry: CacheGeometry, configuration: Configuration
) -> tuple[list[Finding], Written]:
    """What `writer_findings` says of what `map_writer` recovers, and the maps of the scales.

    Raises what `map_writer` raises.
    """
    geometry = probed(geometry)
    written = _survey(writer, geometry, configuration.dtype)
    if written is None:
        mapped = map_writer(writer, geometry, configuration.dtype)
        return writer_findings(writer.info, configuration, mapped), mapped
    data = [
        data_finding(writer.info, side, configuration, geometry, PROBED_PAGES, written)
        for side in SIDES
    ]
    return [*data, *writer_findings(writer.info, configuration, written)], written


def _survey(writer: Writer, geometry: CacheGeometry, dtype: str) -> Written | None:
    """The scale maps of a writer whose data is linear; None where the probe must tell."""
    count = len(SIDES) * len(PROBED_PAGES) * geometry.num_heads * geometry.block_size
    count *= geometry.scale_columns
    if count > _MAX_SCALES:
        return None
    stored = [writer.write(request) for request in _requests(geometry, dtype, count)]
    logs = [each.stores for each in stored]
    first = logs[0]
    if first is None:
        return None
    values = [values_at(log, first.offset) for log in logs]
    check_special(writer, geometry, dtype, probe_slots(geometry), first.offset)
    changed = np.any([value != values[0] for value in values[1:]], axis=0)
    linear = _linear(geometry)
    halves = _halves(first.offset[~changed], values[0][~changed], linear)
    scales = _scales(first.offset[changed], np.stack(values)[:, changed], count, linear)
    if halves is None or scales is None or not np.array_equal(halves, linear.halves):
        return None
    return _written(geometry, scales, first.offset, stored)


def _written(
    geometry: CacheGeometry, scales: IntArray, offset: IntArray, stored: list[Stored]
) -> Written:
    lowest = int(offset.min())
    hit = np.zeros(int(offset.max()) - lowest + 1, bool)
    hit[offset - lowest] = True
    touched = np.flatnonzero(hit)
    times = np.ones(touched.size, np.int64)
    if touched.size < offset.size:
        times = np.bincount(offset - lowest)[touched]
    shape = (len(SIDES), len(PROBED_PAGES), geometry.num_heads, geometry.block_size, -1)
    by_side = scales.reshape(shape)
    maps = {
        (side, "scale"): AddressMap(side, "scale", geometry, PROBED_PAGES, by_side[index])
        for index, side in enumerate(SIDES)
    }
    faults = tuple(dict.fromkeys(fault for each in stored for fault in each.faults))
    nothing = np.zeros(0, np.int64)
    misaligned = np.unique(stored[0].misaligned)
    return Written(maps, touched + lowest, times, nothing, faults, misaligned)


def _halves(offset: IntArray, value: ByteArray, linear: _Linear) -> IntArray | None:
    """Where each half of a group begins, int64 [count]; None where some half is not found once."""
    count = linear.halves.size
    if offset.size != count * _HALF_BYTES:
        return None
    rows = offset.reshape(-1, _HALF_BYTES)
    if (rows != rows[:, :1] + np.arange(_HALF_BYTES)).any():
        return None
    seen = np.ascontiguousarray(value).view(np.uint32).astype(np.uint64)
    return _placed(_code_words(count)[1], seen, rows[:, 0], count, linear)


def _scales(offset: IntArray, values: ByteArray, count: int, linear: _Linear) -> IntArray | None:
    """Where each scale is, int64 [count]; None where some scale is not found once."""
    if offset.size != count:
        return None
    return _placed(_scale_words(count)[1], keys(values, 8), offset, count, linear)


def _placed(
    book: Book, seen: Keys, offset: IntArray, count: int, linear: _Linear
) -> IntArray | None:
    guess = linear.coordinate[np.clip(offset, 0, linear.coordinate.size - 1)]
    index = book.find(seen, np.minimum(guess, count - 1))
    place = np.full(count, MISSING, np.int64)
    known = (index >= 0) & (index < count)
    place[index[known]] = offset[known]
    # As many stores as coordinates: with none missing, none is there twice.
    return place if known.all() and (place != MISSING).all() else None


@dataclass(frozen=True, eq=False)
class _Linear:
    """Where everything would be if all planes were linear.

    `halves` int64 [count] are the offsets of halves of groups, `coordinate` int64 [cache bytes] the
    index of the half or the scale that begins at an offset.
    """

    halves: IntArray
    coordinate: IntArray


@lru_cache(maxsize=2)
def _linear(geometry: CacheGeometry) -> _Linear:
    page = np.array(PROBED_PAGES)[:, None, None, None]
    head = np.arange(geometry.num_heads)[:, None, None]
    token = np.arange(geometry.block_size)[:, None]
    byte = np.arange(0, geometry.data_bytes, _HALF_BYTES)
    column = np.arange(geometry.scale_columns)
    halves, scales = (
        np.concatenate([place(side, page, head, token, each).ravel() for side in SIDES])
        for place, each in ((geometry.data_offset, byte), (geometry.scale_offset, column))
    )
    coordinate = np.zeros(geometry.cache_bytes, np.int64)
    coordinate[halves], coordinate[scales] = np.arange(halves.size), np.arange(scales.size)
    return _Linear(halves, coordinate)


# ---- What is stored -----------------------------------------------------------------------------


def _scale_words(count: int) -> tuple[ByteArray, Book]:
    return _scale_words_to(-(-count // _STEP) * _STEP)


@lru_cache(maxsize=4)
def _scale_words_to(count: int) -> tuple[ByteArray, Book]:
    """E4M3 codes [launches, count], none the same in all, and the book of their words."""
    count = min(count, _MAX_SCALES)
    launches = max(2, digits(count + _CONSTANT, SCALE_CODES.size))
    codes = SCALE_CODES[words(count + _CONSTANT, SCALE_CODES.size, launches)[:, _CONSTANT:]]
    return codes, Book(keys(codes, 8))


def _code_words(count: int) -> tuple[ByteArray, Book]:
    return _code_words_to(-(-count // _STEP) * _STEP)


@lru_cache(maxsize=4)
def _code_words_to(count: int) -> tuple[ByteArray, Book]:
    """E2M1 codes [count, 8] of halves of groups, and the book of their 4 bytes.

    A first half begins with +6, which fixes the scale, a second one with +0.5, which keeps the
    four-over-six search from preferring another.
    """
    length = digits(count, ELEMENT_CODES.size)
    symbols = ELEMENT_CODES[words(count, ELEMENT_CODES.size, max(length, _HALF - 1))]
    codes = np.empty((count, _HALF), np.uint8)
    codes[0::2, 0], codes[1::2, 0] = GUARD_CODE, OFF_GRID_CODE
    codes[:, 1:] = symbols[: _HALF - 1].T
    packed = np.ascontiguousarray(pack_codes(codes)).view(np.uint32).ravel()
    return codes, Book(packed.astype(np.uint64))


@lru_cache
def _products(dtype: str) -> WordArray:
    """Bit patterns [256 * 16] of a scale byte's value times that of a code."""
    scale = e4m3_decode(np.arange(256, dtype=np.uint8))
    code = e2m1_decode(np.arange(16, dtype=np.uint8))
    # NaN scales are never asked for.
    return DTYPES[dtype].encode(np.nan_to_num(scale)[:, None] * code).ravel()


def _requests(geometry: CacheGeometry, dtype: str, count: int) -> Iterator[StoreRequest]:
    """One request a launch; the slots are those of the probe."""
    slots = probe_slots(geometry)
    tokens = geometry.block_size
    page, token = np.divmod(np.maximum(slots, PROBED_PAGES[0] * tokens), tokens)
    page -= PROBED_PAGES[0]
    codes = _code_words(2 * count)[0][: 2 * count].reshape(count, GROUP).astype(np.int16)
    image = np.zeros(geometry.cache_bytes, np.uint8)
    shape = (len(SIDES), len(PROBED_PAGES), geometry.num_heads, tokens, geometry.head_size)
    for scale in _scale_words(count)[0]:
        row = scale[:count, None].astype(np.int16) << np.int16(4)
        values: NDArray[np.uint16] = np.take(_products(dtype), codes | row).reshape(shape)
        key, value = (values[side][page, :, token, :] for side in (0, 1))
        yield StoreRequest(geometry, dtype, key, value, slots, 1.0, 1.0, image)
