"""The log that compiled code writes, as the events that NumPy lanes would have recorded.

Events are ordered by the place of a store among the stores of its group of lanes, then by address,
then by lane. For lanes that all run the same blocks that is the order of NumPy lanes; for others,
each lane's own stores are still in the order in which it executed them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.machine.compiled.abi import Site
from oracle.machine.compiled.pool import BufferPool, arrays, bytes_of
from oracle.machine.memory import Mask, Memory, Region, StoreEvent, scatter

_MOST_NUMBERS = 1 << 20
"""Lane numbers below this are made once and shared by events."""


@dataclass(frozen=True)
class StoreSite:
    """A store of the code: the number of its site, its address and the bytes it stores."""

    number: int
    pc: int
    size: int

    @property
    def words(self) -> int:
        """How many words it stores."""
        return max(1, self.size // 4)


class ChunkLog:
    """The logs of a chunk's stores: arrays that grow together while the code runs.

    Rows of the arrays are stores; of `words` a store has as many as it stores words.
    """

    def __init__(
        self,
        sites: ctypes.Array[Site],
        stores: Sequence[StoreSite],
        lanes: int,
        capacity: int,
        pool: BufferPool,
    ) -> None:
        self._sites = [sites[store.number] for store in stores]
        self._stores = stores
        self._lanes = lanes
        self._pool = pool
        self._allocate(max(capacity, 1))

    def _allocate(self, capacity: int) -> None:
        rows, lanes = len(self._stores), self._lanes
        count = sum(store.words for store in self._stores)
        shapes = (
            (np.uint64, (rows, capacity, lanes)),
            (np.uint32, (count, capacity, lanes)),
            (np.int64, (rows, capacity)),
            (np.int64, (rows, capacity)),
            (np.uint32, (rows, capacity)),
        )
        parts = arrays(self._pool.take(bytes_of(*shapes)), *shapes)
        self._address, self._words, self._lane, self._order, self._mask = parts
        address, words, lane, order, mask = (
            int(array.__array_interface__["data"][0]) for array in self._arrays
        )
        for site, store in zip(self._sites, self._stores, strict=True):
            site.capacity = capacity
            site.address, site.words = address, words
            site.lane, site.order, site.mask = lane, order, mask
            address += 8 * lanes * capacity
            words += 4 * lanes * capacity * store.words
            lane += 8 * capacity
            order += 8 * capacity
            mask += 4 * capacity

    @property
    def _arrays(self) -> tuple[NDArray[Any], ...]:
        return self._address, self._words, self._lane, self._order, self._mask

    @property
    def records(self) -> int:
        """The largest number of records of a store."""
        return max((int(site.records) for site in self._sites), default=0)

    def grow(self) -> None:
        """Twice the room, with the records so far kept."""
        count, old = self.records, self._arrays
        self._allocate(2 * max(count, 1))
        for mine, kept in zip(self._arrays, old, strict=True):
            mine[:, :count] = kept[:, :count]

    def events(self) -> list[StoreEvent]:
        """The events of all stores in order."""
        counts = [int(site.records) for site in self._sites]
        used = [row for row, count in enumerate(counts) if count]
        if not used:
            return []
        count = counts[used[0]]
        if len(set(counts)) == 1 and self._plain(count):
            used.sort(key=lambda row: (int(self._order[row, 0]), self._stores[row].pc))
            lane = lane_numbers(int(self._lane[0, 0]), count * self._lanes)
            return [self._whole(row, lane, slice(0, count)) for row in used]
        found: list[tuple[int, int, StoreEvent]] = []
        for row in used:
            order = self._order[row, : counts[row]]
            for place in np.unique(order):
                event = self._some(row, np.flatnonzero(order == place))
                found.append((int(place), event.pc, event))
        found.sort(key=lambda item: item[:2])
        return [event for _, _, event in found]

    def _plain(self, count: int) -> bool:
        """Whether each store was executed once, by all lanes, in the order of the lanes."""
        mask, order, lane = (a[:, :count] for a in (self._mask, self._order, self._lane))
        run = lane[0, 0] + self._lanes * np.arange(count)
        return bool(
            (mask == np.uint32((1 << self._lanes) - 1)).all()
            and (order == order[:, :1]).all()
            and (lane == run).all()
        )

    def _whole(
        self, row: int, lane: NDArray[np.int64], rows: slice | NDArray[np.int64]
    ) -> StoreEvent:
        store = self._stores[row]
        start = sum(s.words for s in self._stores[:row])
        words = tuple(self._words[start + k][rows].reshape(-1) for k in range(store.words))
        return StoreEvent(store.pc, store.size, lane, self._address[row][rows].reshape(-1), words)

    def _some(self, row: int, rows: NDArray[np.int64]) -> StoreEvent:
        first = self._lane[row][rows]
        index = np.arange(self._lanes)
        lane = (first[:, None] + index).reshape(-1)
        keep = (self._mask[row][rows][:, None] >> index.astype(np.uint32)) & np.uint32(1)
        event = part(self._whole(row, lane, rows), keep.astype(bool).reshape(-1))
        # Lanes that were finished one by one have a record each.
        return event if (first[1:] > first[:-1]).all() else _by_lane(event)


def lane_numbers(first: int, count: int) -> NDArray[np.int64]:
    """The numbers `first` .. `first + count`, not to be written to."""
    if first + count > _MOST_NUMBERS:
        return np.arange(first, first + count)
    size = 1 << 12
    while size < first + count:
        size *= 2
    return _numbers(size)[first : first + count]


@cache
def _numbers(count: int) -> NDArray[np.int64]:
    numbers = np.arange(count)
    numbers.flags.writeable = False
    return numbers


def _by_lane(event: StoreEvent) -> StoreEvent:
    """The same stores in the order of their lanes, which finishing lanes singly may break."""
    order = np.argsort(event.lane, kind="stable")
    words = tuple(word[order] for word in event.words)
    return StoreEvent(event.pc, event.size, event.lane[order], event.address[order], words)


def inside(region: Region, event: StoreEvent) -> Mask:
    """Which stores of an event lie in a region."""
    if region.size < event.size:
        return np.zeros(event.address.shape, dtype=bool)
    distance = event.address - np.uint64(region.base)
    return distance <= np.uint64(region.size - event.size)


def part(event: StoreEvent, keep: Mask) -> StoreEvent:
    """Some stores of an event."""
    words = tuple(word[keep] for word in event.words)
    return StoreEvent(event.pc, event.size, event.lane[keep], event.address[keep], words)


def strays(memory: Memory, events: Sequence[StoreEvent]) -> list[StoreEvent]:
    """The stores that lie in no region that may be written."""
    found = []
    for event in events:
        left = np.ones(event.address.size, dtype=bool)
        for region in memory.regions:
            if region.writable:
                left &= ~inside(region, event)
        if left.any():
            found.append(part(event, left))
    return found


def overlap(events: Sequence[StoreEvent]) -> bool:
    """Whether any byte is stored more than once."""
    if not events:
        return False
    start = np.concatenate([event.address for event in events])
    size = np.concatenate([np.full(e.address.size, e.size, np.uint64) for e in events])
    order = np.argsort(start)
    start, size = start[order], size[order]
    # Aligned accesses are nested or apart, so the furthest end so far decides.
    end = np.maximum.accumulate(start + size)
    return bool((start[1:] < end[:-1]).any())


def replay(memory: Memory, events: Sequence[StoreEvent]) -> None:
    """Perform stores again in order, so that of several to a byte the last event's stays."""
    for event in events:
        for region in memory.regions:
            if region.writable:
                within = part(event, inside(region, event))
                offset = (within.address - np.uint64(region.base)).astype(np.int64)
                scatter(region.data, offset, within.size, within.words)


def canonical(events: Sequence[StoreEvent]) -> NDArray[np.void]:
    """Every store, by lane and then in the order of execution within the lane.

    One row a store: lane, pc, size, address, words (four, zero beyond the size). Two executions of
    one launch that agree give equal arrays, whatever the order in which lanes took turns.
    """
    dtype = [("lane", "i8"), ("pc", "i8"), ("size", "i8"), ("address", "u8"), ("words", "u4", 4)]
    rows = []
    for event in events:
        row = np.zeros(event.address.size, dtype=dtype)
        row["lane"], row["address"] = event.lane, event.address
        row["pc"], row["size"] = event.pc, event.size
        # A narrow store uses the low bits of its word; what is above them is nobody's business.
        cut = np.uint32((1 << 8 * min(event.size, 4)) - 1)
        for k, word in enumerate(event.words):
            row["words"][:, k] = word & cut
        rows.append(row)
    whole = np.concatenate(rows) if rows else np.zeros(0, dtype=dtype)
    return whole[np.argsort(whole["lane"], kind="stable")]
