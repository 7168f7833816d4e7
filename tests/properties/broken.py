"""Writers that break a promise on purpose, each in one way, and who is to notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from oracle.candidates import candidate
from oracle.formats import ByteArray, WordArray
from oracle.geometry import CacheGeometry, IntArray
from oracle.properties.builds import Builds
from oracle.reference import reference_write
from oracle.requests import ByteStores, Stored, StoreRequest
from oracle.subjects.base import SubjectInfo, Writer

K, V = "linear", "swizzle_4x4"
Write = Callable[[StoreRequest], ByteStores]


class PlantedWriter:
    """Performs the stores that a function lists, in order; declares K linear and V swizzled."""

    def __init__(self, name: str, write: Write, logged: bool = True) -> None:
        self._write = write
        self._logged = logged
        self.info = SubjectInfo(name, "writer", name, "callable", declared={"K": K, "V": V})

    def unsupported_reason(self, geometry: CacheGeometry, dtype: str) -> str | None:
        return candidate(V).undefined_reason(geometry.block_size, geometry.scale_columns)

    def write(self, request: StoreRequest) -> Stored:
        stores = self._write(request)
        cache = request.cache.copy()
        inside = (stores.offset >= 0) & (stores.offset < cache.size)
        cache[stores.offset[inside]] = stores.value[inside]
        return Stored(cache, stores if self._logged else None)


def stores(request: StoreRequest, k: str | IntArray = K, v: str | IntArray = V) -> ByteStores:
    """The bytes that the specification stores: those that no image shows through.

    Where two of them may be one byte, the stores of each token are listed apart.
    """
    slots = request.slot_mapping[request.slot_mapping >= 0]
    apart = not (isinstance(k, str) and isinstance(v, str)) or np.unique(slots).size < slots.size
    step = 1 if apart else max(request.slot_mapping.size, 1)
    offsets, values = [np.zeros(0, np.int64)], [np.zeros(0, np.uint8)]
    for first in range(0, request.slot_mapping.size, step):
        part = _tokens(request, slice(first, first + step))
        images = [np.full(request.cache.size, byte, np.uint8) for byte in (0x00, 0xFF)]
        low, high = (reference_write(replace(part, cache=image), k, v) for image in images)
        offset = np.flatnonzero(low == high)
        offsets.append(offset)
        values.append(low[offset])
    return ByteStores(np.concatenate(offsets), np.concatenate(values))


def _tokens(request: StoreRequest, tokens: slice | IntArray) -> StoreRequest:
    return replace(
        request,
        key=request.key[tokens],
        value=request.value[tokens],
        slot_mapping=request.slot_mapping[tokens],
    )


def _is_scale(request: StoreRequest, offset: IntArray) -> NDArray[np.bool_]:
    return request.geometry.locate(offset).plane == 1


def _also(told: ByteStores, offset: int, value: int = 0) -> ByteStores:
    """The stores, and one more byte."""
    return ByteStores(np.append(told.offset, offset), np.append(told.value, np.uint8(value)))


# ---- Where bytes go -----------------------------------------------------------------------------


def t_mod_4_dropped(request: StoreRequest) -> ByteStores:
    tokens, columns = request.geometry.block_size, request.geometry.scale_columns
    table = candidate(V).table(tokens, columns)
    return stores(request, v=table[np.arange(tokens) // 4 * 4])


def layouts_exchanged(request: StoreRequest) -> ByteStores:
    return stores(request, k=V, v=K)


def v_linear(request: StoreRequest) -> ByteStores:
    return stores(request, v=K)


def heads_rotated(request: StoreRequest) -> ByteStores:
    told, geometry = stores(request), request.geometry
    where = geometry.locate(told.offset)
    head = (where.head + 1) % geometry.num_heads
    moved = told.offset + (head - where.head) * geometry.scale_strides.head
    return ByteStores(np.where(where.plane == 1, moved, told.offset), told.value)


def one_head_off(request: StoreRequest) -> ByteStores:
    told = stores(request)
    moved = told.offset + request.geometry.scale_strides.head
    return ByteStores(np.where(_is_scale(request, told.offset), moved, told.offset), told.value)


def page_off_by_one(request: StoreRequest) -> ByteStores:
    told, geometry = stores(request), request.geometry
    return ByteStores((told.offset + geometry.page_bytes) % geometry.cache_bytes, told.value)


def page_0_linear(request: StoreRequest) -> ByteStores:
    first = (request.slot_mapping >= 0) & (request.slot_mapping < request.geometry.block_size)
    parts = [
        stores(_tokens(request, np.flatnonzero(chosen)), v=layout)
        for chosen, layout in ((first, K), (~first, V))
    ]
    return ByteStores(*(np.concatenate(each) for each in zip(*map(_pair, parts), strict=True)))


def _pair(told: ByteStores) -> tuple[IntArray, ByteArray]:
    return told.offset, told.value


# ---- How often, and what else -------------------------------------------------------------------


def scales_stored_twice(request: StoreRequest) -> ByteStores:
    told = stores(request)
    times = 1 + _is_scale(request, told.offset).astype(np.int64)
    return ByteStores(np.repeat(told.offset, times), np.repeat(told.value, times))


def last_column_never_written(request: StoreRequest) -> ByteStores:
    told = stores(request, v=V)
    where = request.geometry.locate(told.offset)
    last = (where.side == 0) & (where.col == request.geometry.scale_columns - 1)
    keep = ~(_is_scale(request, told.offset) & last)
    return ByteStores(told.offset[keep], told.value[keep])


def next_page_cleared(request: StoreRequest) -> ByteStores:
    geometry, slots = request.geometry, request.slot_mapping
    page = (int(slots.max()) // geometry.block_size + 1) % geometry.num_blocks
    return _also(stores(request), page * geometry.page_bytes)


def stored_before_the_cache(request: StoreRequest) -> ByteStores:
    return _also(stores(request), -4096)


# ---- Which tokens are stored --------------------------------------------------------------------


def padding_stored(request: StoreRequest) -> ByteStores:
    slots = request.slot_mapping % request.geometry.num_slots
    return stores(replace(request, slot_mapping=slots))


def slots_of_32_bits(request: StoreRequest) -> ByteStores:
    narrow = request.slot_mapping.astype(np.int32).astype(np.int64)
    return stores(replace(request, slot_mapping=narrow))


def first_wins(request: StoreRequest) -> ByteStores:
    return stores(_tokens(request, np.arange(request.slot_mapping.size)[::-1]))


# ---- What is stored -----------------------------------------------------------------------------


def signs_by_position(request: StoreRequest) -> ByteStores:
    position = np.arange(request.slot_mapping.size, dtype=np.uint16) % 2
    return stores(replace(request, key=request.key ^ (position << 15)[:, None, None]))


def tokens_share_a_maximum(request: StoreRequest) -> ByteStores:
    """The first element of each head is the largest pattern of all tokens."""
    key: WordArray = request.key.copy()
    if len(key):
        key[..., 0] = (key & 0x7FFF).max(axis=(0, 2), initial=0)
    return stores(replace(request, key=key))


def keys_for_values(request: StoreRequest) -> ByteStores:
    return stores(replace(request, key=request.value, value=request.key))


def ties_away(request: StoreRequest) -> ByteStores:
    """Of each data byte, codes 2 of the low nibble become 3."""
    told = stores(request)
    hit = ~_is_scale(request, told.offset) & (told.value & 0xF == 2)
    return ByteStores(told.offset, told.value + hit.astype(np.uint8))


class EveryOtherTime:
    """Stores all signs of odd elements turned, every other time."""

    def __init__(self) -> None:
        self._times = count()

    def __call__(self, request: StoreRequest) -> ByteStores:
        told = stores(request)
        flip = np.uint8(0x80 * (next(self._times) % 2))
        data = ~_is_scale(request, told.offset)
        return ByteStores(told.offset, np.where(data, told.value ^ flip, told.value))


PLANTED = (
    t_mod_4_dropped,
    layouts_exchanged,
    v_linear,
    heads_rotated,
    one_head_off,
    page_off_by_one,
    page_0_linear,
    scales_stored_twice,
    last_column_never_written,
    next_page_cleared,
    stored_before_the_cache,
    padding_stored,
    slots_of_32_bits,
    first_wins,
    signs_by_position,
    tokens_share_a_maximum,
    keys_for_values,
    ties_away,
    EveryOtherTime,
)
"""Every fault, by the function that has it."""


def planted(fault: Write | type[EveryOtherTime], logged: bool = True) -> PlantedWriter:
    """The writer with a fault of `PLANTED`; one with a memory is a class, and made anew."""
    write = fault() if isinstance(fault, type) else fault
    return PlantedWriter(fault.__name__, write, logged)


def built_otherwise() -> Writer:
    """A sound writer whose build for another arch stores keys for values."""

    def build(arch: str, write: Write) -> PlantedWriter:
        writer = PlantedWriter(f"planted@{arch}", write)
        writer.info = replace(writer.info, arch=arch)
        return writer

    one, other = build("sm_100a", stores), build("sm_90", keys_for_values)
    return Builds(one, lambda: [one, other])
