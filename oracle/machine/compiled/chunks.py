"""What a launch of compiled code works on: memory as it was, what its chunks share, each chunk."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from oracle.machine.compiled.abi import DONE, MAX_BANKS, Context, address_of
from oracle.machine.compiled.chunklog import ChunkLog, LogShape
from oracle.machine.compiled.pool import BufferPool
from oracle.machine.memory import MAX_LOGGED, U8, U32, Mask, Memory, StoreEvent
from oracle.machine.state import ConstantBank

Dim = tuple[int, int, int]


class Snapshot:
    """What a launch may change, as it was before, and which bytes it stores to."""

    def __init__(self, memory: Memory, spare: dict[int, U8], watch: bool) -> None:
        self._spare = spare
        self._kept = [(r, self._copy(r.data)) for r in memory.regions if r.writable]
        self._marks: dict[int, Mask] = {}
        self.touched: dict[int, Mask] = {}
        """For regions by their base: where stores leave their marks."""
        self._fresh = True
        for region, _ in self._kept:
            if region.initialised is None:
                if watch:
                    self.touched[region.base] = np.zeros(region.data.size, bool)
                continue
            self.touched[region.base] = region.initialised
            if region.initialised.any():
                self._fresh = False
                self._marks[region.base] = region.initialised.copy()

    def _copy(self, data: U8) -> U8:
        # New memory costs more than the copy: take what an earlier launch left.
        kept = self._spare.pop(data.size, None)
        if kept is None:
            return data.copy()
        kept[:] = data
        return kept

    def restore(self) -> None:
        """Put everything back."""
        for region, data in self._kept:
            region.data[:] = data
            if region.initialised is not None:
                region.initialised[:] = self._marks.get(region.base, False)

    def release(self) -> None:
        """Leave the memory of the copies to a later launch."""
        self._spare.clear()
        for _, data in self._kept:
            self._spare[data.size] = data

    def may_overlap(self, events: list[StoreEvent]) -> bool:
        """Whether a byte may have been stored twice; False where each store marked new bytes."""
        if not self._fresh:
            return True
        marked = sum(int(np.count_nonzero(marks)) for marks in self.touched.values())
        return marked != sum(event.address.size * event.size for event in events)


class Shared:
    """What all chunks of a launch have in common; `touched` are maps for stores to mark."""

    def __init__(
        self, lanes: int, grid: Dim, block: Dim, memory: Memory, constants: ConstantBank,
        touched: Mapping[int, Mask],
    ) -> None:  # fmt: skip
        threads = block[0] * block[1] * block[2]
        self.groups_per_cta = -(-threads // lanes)
        self._kept_alive = memory, constants, touched
        coordinates, self._tables = _thread_coordinates(block, self.groups_per_cta * lanes)
        self._regions = np.array(
            [
                (
                    region.base,
                    region.size,
                    address_of(region.data),
                    0 if region.initialised is None else address_of(region.initialised),
                    address_of(touched[region.base]) if region.base in touched else 0,
                    region.writable,
                )
                for region in memory.regions
            ],
            np.uint64,
        )
        self.context = context = Context()
        context.threads = threads
        context.grid_x, context.grid_y = grid[0], grid[1]
        context.tid_x, context.tid_y, context.tid_z = coordinates
        context.regions, context.region_count = address_of(self._regions), len(memory.regions)
        context.known_constants = address_of(constants.known)
        for bank, words in constants.words.items():
            if bank < MAX_BANKS:
                context.banks[bank] = address_of(words)
                context.bank_words[bank] = words.size


@lru_cache(maxsize=16)
def _thread_coordinates(block: Dim, count: int) -> tuple[tuple[int, ...], tuple[U32, ...]]:
    """Addresses of the three coordinates of so many threads, uint32 [count], and these."""
    thread = np.arange(count, dtype=np.uint32)
    x, y = np.uint32(block[0]), np.uint32(block[1])
    tables = thread % x, thread // x % y, thread // (x * y)
    return tuple(map(address_of, tables)), tables


class Chunk:
    """Some CTAs of a launch: the context its code works on, and its logs if there are any.

    `records` is how many records a group is expected to need for a store; None means no log.
    """

    def __init__(
        self, shared: Shared, first: int, count: int, shape: LogShape, pool: BufferPool,
        records: int | None,
    ) -> None:  # fmt: skip
        self.status = DONE
        self.counts: list[int] = []
        self._lanes = shape.lanes
        self.groups = count * shared.groups_per_cta
        self.log = ChunkLog(shape, self.groups * records, pool) if records is not None else None
        self._sites = self.log.sites if self.log is not None else shape.nothing_logged.copy()
        self.context = Context.from_buffer_copy(shared.context)
        self.context.first_cta, self.context.cta_count = first, count
        self.context.sites = address_of(self._sites)
        self.address = ctypes.addressof(self.context)

    def grow(self) -> None:
        """Make room for more records; where there are too many already, end the code soon."""
        assert self.log is not None
        self.log.grow()
        if self._lanes * sum(self.log.counts()) > MAX_LOGGED:
            self.context.step_limit = 0

    def over(self, status: int) -> None:
        """Note how the code ended, and how many records it left for each store."""
        self.status = status
        self.counts = self.log.counts() if self.log is not None else []

    def events(self) -> list[StoreEvent]:
        """The stores that were logged, in order."""
        return self.log.events(self.counts) if self.log is not None else []
