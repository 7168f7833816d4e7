"""Stores made from one another: fewer tokens, another order, more padding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oracle.formats import WordArray
from oracle.geometry import IntArray
from oracle.requests import StoreRequest

_SIGN = np.uint16(0x8000)


def chosen(request: StoreRequest, tokens: IntArray) -> StoreRequest:
    """The same store of some of its tokens, in the order given (indices, int64 [n])."""
    return replace(
        request,
        key=request.key[tokens],
        value=request.value[tokens],
        slot_mapping=request.slot_mapping[tokens],
    )


def real(request: StoreRequest) -> StoreRequest:
    """The store without its padding tokens."""
    return chosen(request, np.flatnonzero(request.slot_mapping >= 0))


def distinct(request: StoreRequest) -> StoreRequest:
    """The store with only the last token of each slot; padding tokens stay."""
    slots = request.slot_mapping
    _, from_the_end = np.unique(slots[::-1], return_index=True)
    last = np.zeros(slots.size, np.bool_)
    last[slots.size - 1 - from_the_end] = True
    return chosen(request, np.flatnonzero(last | (slots < 0)))


def padded(request: StoreRequest) -> StoreRequest:
    """The store with a padding token in front, unless it has one; it carries the first values."""
    if (request.slot_mapping < 0).any():
        return request
    return _in_front(request, request.key[:1], request.value[:1], -1)


def repeated(request: StoreRequest) -> StoreRequest:
    """The store with a slot that is stored twice, unless it has one or stores nothing.

    In front comes the first real token with K and V exchanged and all signs turned.
    """
    slots = request.slot_mapping[request.slot_mapping >= 0]
    if slots.size == 0 or np.unique(slots).size < slots.size:
        return request
    first = int(np.flatnonzero(request.slot_mapping >= 0)[0])
    token = slice(first, first + 1)
    return _in_front(request, request.value[token] ^ _SIGN, request.key[token] ^ _SIGN,
                     int(slots[0]))  # fmt: skip


def turned(request: StoreRequest) -> StoreRequest:
    """The store with its pages renamed: each is the next one, the last one the first."""
    geometry = request.geometry
    slots = request.slot_mapping
    moved = (slots + geometry.block_size) % geometry.num_slots
    return replace(
        request,
        slot_mapping=np.where(slots < 0, slots, moved),
        cache=np.roll(request.cache, geometry.page_bytes),
    )


def _in_front(request: StoreRequest, key: WordArray, value: WordArray, slot: int) -> StoreRequest:
    return replace(
        request,
        key=np.concatenate([key, request.key]),
        value=np.concatenate([value, request.value]),
        slot_mapping=np.concatenate([np.array([slot], np.int64), request.slot_mapping]),
    )
