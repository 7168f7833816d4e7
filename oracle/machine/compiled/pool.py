"""Memory for logs, used again once nobody looks at the events in it any more.

New memory costs as much as writing the log does, since the system clears every page of it.
"""

from __future__ import annotations

import numpy as np

from oracle.machine.compiled.abi import address_of
from oracle.machine.memory import U8

ALIGNMENT = 64
"""Bytes of a line of the processor's cache, which a vector should not straddle two of."""
_ROUNDING = 1 << 16


class BufferPool:
    """Gives out buffers; those that are given back are kept, up to `limit` bytes."""

    def __init__(self, limit: int = 64 << 20) -> None:
        self._limit = limit
        self._held = 0
        self._free: dict[int, list[U8]] = {}

    def take(self, size: int) -> U8:
        """A buffer of at least `size` bytes; it comes back when the last view of it is gone.

        It begins at a multiple of ALIGNMENT.
        """
        size = -(-size // _ROUNDING) * _ROUNDING
        kept = self._free.get(size)
        if kept:
            block = kept.pop()
            self._held -= size
        else:
            whole = np.empty(size + ALIGNMENT, np.uint8)
            block = whole[-address_of(whole) % ALIGNMENT :][:size]
        return np.asarray(_Lease(self, block))

    def give(self, block: U8) -> None:
        """Keep a buffer that nobody uses."""
        if self._held + block.size <= self._limit:
            self._held += block.size
            self._free.setdefault(block.size, []).append(block)


class _Lease:
    """What NumPy holds on to as the owner of a buffer's memory, through all its views."""

    def __init__(self, pool: BufferPool, block: U8) -> None:
        self._pool, self._block = pool, block
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        self._pool.give(self._block)
