"""The log that compiled code writes while it runs a chunk, and the events that come of it.

Events are ordered by the place of a store among the stores of its group of lanes, then by address,
then by lane. For lanes that all run the same blocks that is the order of NumPy lanes; for others,
each lane's own stores are still in the order in which it executed them.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from oracle.machine.compiled.abi import Site, address_of, offset
from oracle.machine.compiled.pool import BufferPool
from oracle.machine.memory import U32, U64, StoreEvent

SiteTable = U64
"""The `Site` structures of a chunk, a row each: uint64 [sites, fields]."""

_MOST_NUMBERS = 1 << 20
"""Lane numbers below this are made once and shared by events."""


def _column(field: str) -> int:
    return offset(Site, field) // 8


_FIELDS = ctypes.sizeof(Site) // 8
_RECORDS, _CAPACITY = _column("records"), _column("capacity")
_LANES = 0xFFFF_FFFF
"""The part of a head's second word that has the bits of its lanes."""
_LOG = [_column(name) for name in ("address", "words", "heads")]


@dataclass(frozen=True)
class StoreSite:
    """A store of the code: the number of its site, its address and the bytes it stores."""

    number: int
    pc: int
    size: int

    @cached_property
    def words(self) -> int:
        """How many words it stores."""
        return max(1, self.size // 4)


class LogShape:
    """How the logs of a kernel's stores share a buffer.

    One after the other stand all addresses, words and heads of records; in each part a row is a
    store, but of `words` a store has as many rows as it stores words.
    """

    def __init__(self, stores: list[StoreSite], sites: int, lanes: int) -> None:
        self.stores = stores
        self.lanes = lanes
        self.rows = np.array([store.number for store in stores], np.intp)
        counts = [store.words for store in stores]
        self.first_word = [sum(counts[:row]) for row in range(len(counts) + 1)]
        self._sites = sites
        self._tables: dict[int, tuple[SiteTable, SiteTable]] = {}
        self._orders: dict[tuple[int, ...], list[int]] = {}

    @cached_property
    def nothing_logged(self) -> SiteTable:
        """The sites of a launch without a log; copy them."""
        return np.zeros((max(self._sites, 1), _FIELDS), np.uint64)

    def starts(self, capacity: int) -> tuple[int, int, int]:
        """Where words and heads begin, and the size, of a buffer for so many records a store."""
        vectors = capacity * self.lanes
        words = 8 * vectors * len(self.stores)
        heads = words + 4 * vectors * self.first_word[-1]
        return words, heads, heads + 16 * capacity * len(self.stores)

    def sites_at(self, address: int, capacity: int) -> SiteTable:
        """The sites with their logs in a buffer at an address."""
        if capacity not in self._tables:
            self._tables[capacity] = self._relative(capacity)
        table, pointers = self._tables[capacity]
        placed: SiteTable = table + np.uint64(address) * pointers
        return placed

    def in_order(self, places: tuple[int, ...]) -> list[int]:
        """The rows of stores in the order of their places, those that share one by address."""
        if places not in self._orders:
            rows = range(len(places))
            pcs = [store.pc for store in self.stores]
            self._orders[places] = sorted(rows, key=lambda row: (places[row], pcs[row]))
        return self._orders[places]

    def _relative(self, capacity: int) -> tuple[SiteTable, SiteTable]:
        """The sites for a buffer at 0, and ones where an address is to be added."""
        table, pointers = self.nothing_logged.copy(), self.nothing_logged.copy()
        words, heads, _ = self.starts(capacity)
        vectors = capacity * self.lanes
        for row, store in enumerate(self.stores):
            table[store.number, _CAPACITY] = capacity
            table[store.number, _LOG] = (
                8 * vectors * row,
                words + 4 * vectors * self.first_word[row],
                heads + 16 * capacity * row,
            )
            pointers[store.number, _LOG] = 1
        return table, pointers


class ChunkLog:
    """The logs of a chunk's stores: parts of a buffer, which is exchanged as the code runs."""

    def __init__(self, shape: LogShape, capacity: int, pool: BufferPool) -> None:
        self._shape = shape
        self._pool = pool
        self._allocate(max(capacity, 1))
        self.sites = shape.sites_at(self._place, self._capacity)

    def _allocate(self, capacity: int) -> None:
        shape, rows = self._shape, len(self._shape.stores)
        words, heads, size = shape.starts(capacity)
        buffer = self._pool.take(size)
        self._capacity = capacity
        self._place = address_of(buffer)
        self._address: U64 = buffer[:words].view(np.uint64).reshape(rows, capacity, shape.lanes)
        self._words: U32 = buffer[words:heads].view(np.uint32).reshape(-1, capacity, shape.lanes)
        self._heads = buffer[heads:size].view(np.int64).reshape(rows, 2, capacity)

    def counts(self) -> list[int]:
        """How many records each store has by now."""
        counts: list[int] = self.sites[self._shape.rows, _RECORDS].tolist()
        return counts

    def grow(self) -> None:
        """Twice the room, with the records so far kept."""
        count, address, words, heads = max(self.counts()), self._address, self._words, self._heads
        self._allocate(2 * max(count, 1))
        self._address[:, :count] = address[:, :count]
        self._words[:, :count] = words[:, :count]
        self._heads[..., :count] = heads[..., :count]
        placed, rows = self._shape.sites_at(self._place, self._capacity), self._shape.rows
        # The code has this table's address, and keeps in it what it knows of the regions.
        for column in (_CAPACITY, *_LOG):
            self.sites[rows, column] = placed[rows, column]

    def events(self, counts: list[int]) -> list[StoreEvent]:
        """The events of all stores in order, given how many records each has."""
        if not any(counts):
            return []
        together = self._together(counts[0]) if len(set(counts)) == 1 else None
        return self._apart(counts) if together is None else together

    def _together(self, count: int) -> list[StoreEvent] | None:
        """The events, where the same lanes executed each store, once and in order; else None."""
        starts: list[list[int]] = self._heads[:, :, 0].tolist()
        begin, rest = starts[0]
        if any(lane != begin or (other ^ rest) & _LANES for lane, other in starts):
            return None
        lanes, total = self._shape.lanes, count * self._shape.lanes
        relative = self._heads[..., :count] - self._heads[..., :1]
        if rest & _LANES == (1 << lanes) - 1 and (relative == _plain(count, lanes)).all():
            lane = lane_numbers(begin, total)
            address: U64 = self._address[:, :count].reshape(-1, total)
            words: U32 = self._words[:, :count].reshape(-1, total)
        else:
            first, bits = self._heads[0, :, :count]
            rising = (first[1:] > first[:-1]).all() and (bits >> 32 == rest >> 32).all()
            if not rising or (relative != relative[0]).any():
                return None
            index = np.flatnonzero((bits[:, None] >> _numbers(lanes)) & 1)
            lane = (first[:, None] + _numbers(lanes)).ravel()[index]
            address = self._address.reshape(len(self._address), -1)[:, index]
            words = self._words.reshape(len(self._words), -1)[:, index]
        events = []
        for row in self._shape.in_order(tuple(rest >> 32 for _, rest in starts)):
            store, start = self._shape.stores[row], self._shape.first_word[row]
            stored = tuple(words[start : start + store.words])
            events.append(StoreEvent(store.pc, store.size, lane, address[row], stored))
        return events

    def _apart(self, counts: list[int]) -> list[StoreEvent]:
        """The events, an event for each place in which a store was executed."""
        found: list[tuple[int, int, StoreEvent]] = []
        for row in np.flatnonzero(counts).tolist():
            places = self._heads[row, 1, : counts[row]] >> 32
            for place in np.unique(places):
                event = self._some(row, np.flatnonzero(places == place))
                found.append((int(place), event.pc, event))
        found.sort(key=lambda item: item[:2])
        return [event for _, _, event in found]

    def _some(self, row: int, records: NDArray[np.intp]) -> StoreEvent:
        """The event of some records of one store."""
        shape = self._shape
        store, start = shape.stores[row], shape.first_word[row]
        first, bits = self._heads[row, :, records].T
        lane = (first[:, None] + _numbers(shape.lanes)).ravel()
        keep = (bits[:, None] >> _numbers(shape.lanes)) & 1 != 0
        words = tuple(self._words[start + k, records].ravel() for k in range(store.words))
        address = self._address[row, records].ravel()
        event = StoreEvent(store.pc, store.size, lane, address, words).part(keep.ravel())
        # Lanes that were finished one by one have a record each.
        return event if (first[1:] > first[:-1]).all() else _by_lane(event)


@lru_cache(maxsize=64)
def _plain(count: int, lanes: int) -> NDArray[np.int64]:
    """Heads [2, count], less the first, of one vector of lanes after the other, all alike."""
    return np.stack([lanes * np.arange(count), np.zeros(count, np.int64)])


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
