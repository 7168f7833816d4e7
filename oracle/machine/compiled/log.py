"""What the events of a launch say of memory: strays, overlaps, and whose store stays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from oracle.machine.memory import Mask, Memory, Region, StoreEvent, scatter


def inside(region: Region, event: StoreEvent) -> Mask:
    """Which stores of an event lie in a region."""
    if region.size < event.size:
        return np.zeros(event.address.shape, dtype=bool)
    distance = event.address - np.uint64(region.base)
    return distance <= np.uint64(region.size - event.size)


def strays(memory: Memory, events: Sequence[StoreEvent]) -> list[StoreEvent]:
    """The stores that lie in no region that may be written."""
    found = []
    for event in events:
        left = np.ones(event.address.size, dtype=bool)
        for region in memory.regions:
            if region.writable:
                left &= ~inside(region, event)
        if left.any():
            found.append(event.part(left))
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
                within = event.part(inside(region, event))
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
