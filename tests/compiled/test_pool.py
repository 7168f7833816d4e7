"""Buffers come back when the last view of them is gone, and not before."""

from __future__ import annotations

import numpy as np

from oracle.machine.compiled.pool import BufferPool

SIZE = 1 << 16


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_a_buffer_is_used_again_once_no_view_is_left() -> None:
    pool = BufferPool()
    first = pool.take(SIZE)
    place = address(first)
    view = first[8:16].view(np.uint64).reshape(1, 1)[0]
    del first
    second = pool.take(SIZE)
    assert address(second) != place
    view[:] = 7
    del view
    assert address(pool.take(SIZE)) == place


def test_what_exceeds_the_limit_is_not_kept() -> None:
    pool = BufferPool(limit=SIZE)
    buffers = [pool.take(SIZE) for _ in range(3)]
    del buffers
    assert sum(map(len, pool._free.values())) == 1
