"""Memory for logs, used again once nobody looks at the events in it any more.

New memory costs as much as writing the log does, since the system clears every page of it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.machine.memory import U8

_ROUNDING = 1 << 16
ALIGNMENT = 64


class BufferPool:
    """Gives out buffers; those that are given back are kept, up to `limit` bytes."""

    def __init__(self, limit: int = 64 << 20) -> None:
        self._limit = limit
        self._held = 0
        self._free: dict[int, list[U8]] = {}

    def take(self, size: int) -> U8:
        """A buffer of at least `size` bytes; it comes back when the last view of it is gone."""
        size = -(-size // _ROUNDING) * _ROUNDING
        kept = self._free.get(size)
        if kept:
            block = kept.pop()
            self._held -= size
        else:
            block = np.empty(size, np.uint8)
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


def arrays(buffer: U8, *shapes: tuple[type[np.generic], tuple[int, ...]]) -> list[NDArray[Any]]:
    """Arrays of the given types and shapes, one after the other in a buffer."""
    found = []
    start = 0
    for kind, shape in shapes:
        size = math.prod(shape) * kind().itemsize
        found.append(buffer[start : start + size].view(kind).reshape(shape))
        start += -(-size // ALIGNMENT) * ALIGNMENT
    return found


def bytes_of(*shapes: tuple[type[np.generic], tuple[int, ...]]) -> int:
    """How large a buffer `arrays` needs."""
    sizes = (math.prod(shape) * kind().itemsize for kind, shape in shapes)
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)
