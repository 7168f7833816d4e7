"""From the stores that the machine logs to the offset and value of every byte stored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from oracle.geometry import IntArray
from oracle.machine.memory import StoreEvent
from oracle.requests import ByteStores


def begins(event: StoreEvent, base: int) -> IntArray:
    """Where an event's stores begin, counted from an address; they may lie before it."""
    return (event.address - np.uint64(base)).astype(np.int64)


class ByteLog:
    """Makes the logs of one writer.

    A probe stores to the same addresses time and again, so the offsets of the log before are given
    out again where they are the same; they are not to be written to.
    """

    def __init__(self) -> None:
        self._shape: list[tuple[int, int]] = []
        self._offset: IntArray = np.zeros(0, np.int64)

    def of(self, events: Sequence[StoreEvent], base: int) -> ByteStores:
        """Every byte of some events, in order; offsets count from the address `base`."""
        offset = self._offsets(events, base)
        value = np.empty(offset.size, np.uint8)
        start = 0
        for event in events:
            stop = start + event.address.size * event.size
            value[start:stop].reshape(-1, event.size)[:] = event.byte_values()
            start = stop
        return ByteStores(offset, value)

    def _offsets(self, events: Sequence[StoreEvent], base: int) -> IntArray:
        first = [begins(event, base) for event in events]
        shape = [(event.size, event.address.size) for event in events]
        if shape == self._shape:
            parts = _parts(self._offset, shape)
            known = (part[::size] for part, (size, _) in zip(parts, shape, strict=True))
            if all(map(np.array_equal, first, known)):
                return self._offset
        offset = np.empty(sum(size * stores for size, stores in shape), np.int64)
        for begin, part, (size, stores) in zip(first, _parts(offset, shape), shape, strict=True):
            np.add(np.repeat(begin, size), _places(size, stores), out=part)
        offset.flags.writeable = False
        self._shape, self._offset = shape, offset
        return offset


def _parts(offset: IntArray, shape: Sequence[tuple[int, int]]) -> list[IntArray]:
    """The offsets of each event's bytes."""
    ends = np.cumsum([size * stores for size, stores in shape]).tolist()
    return [offset[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _places(size: int, stores: int) -> IntArray:
    """Which byte of its store each of the bytes is, for so many stores of `size` bytes."""
    return _places_of(size, 1 << max(stores - 1, 0).bit_length())[: size * stores]


@cache
def _places_of(size: int, stores: int) -> IntArray:
    return np.tile(np.arange(size), stores)
