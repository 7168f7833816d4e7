"""The shared memory of one CTA, in as many replicas as there are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.machine.memory import MachineFault
from oracle.machine.replicas import REPLICAS

IntArray = NDArray[np.int64]

RESERVED = 0x400
"""Bytes at the start of shared memory that belong to the system; they read as zero."""


class SharedMemory:
    """`size` bytes a replica. Reading a byte that nobody wrote is a fault."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._bytes = np.zeros((REPLICAS, -(-size // 16) * 16), np.uint8)
        self._views: dict[int, NDArray[Any]] = {1: self._bytes, 2: self._bytes.view(np.uint16)}
        self._words = self._bytes.view(np.uint32)
        self._known = np.zeros(self._bytes.shape[1], dtype=bool)
        self._known[:RESERVED] = True

    def _check(self, at: IntArray, size: int, pc: int) -> None:
        bad = ((at & (size - 1)) != 0) | (at > self.size - size)
        if bad.any():
            raise MachineFault(
                f"pc {pc:#06x}: {size}-byte access at shared address {int(at[bad][0]):#x} is "
                f"misaligned or outside its {self.size} bytes"
            )

    def load(self, at: IntArray, size: int, pc: int) -> tuple[Any, ...]:
        """Words at byte addresses [n]: [n] where the replicas agree, else [replicas, n]."""
        self._check(at, size, pc)
        known = self._known[at[:, None] + np.arange(size)]
        if not known.all():
            first = int(at[~known.all(axis=1)][0])
            raise MachineFault(f"pc {pc:#06x} loads shared bytes nobody wrote, at {first:#x}")
        if size < 4:
            return (_condensed(self._views[size][:, at // size].astype(np.uint32)),)
        first_word = at // 4
        return tuple(_condensed(self._words[:, first_word + i]) for i in range(size // 4))

    def store(self, at: IntArray, size: int, words: tuple[Any, ...], pc: int) -> None:
        """Store `size` bytes at addresses [n]; of equal addresses the last one stays."""
        self._check(at, size, pc)
        if size < 4:
            view = self._views[size]
            view[:, at // size] = words[0].astype(view.dtype)
        else:
            for i, word in enumerate(words):
                self._words[:, at // 4 + i] = word
        self._known[at[:, None] + np.arange(size)] = True

    def fill(self, at: IntArray, values: NDArray[np.uint8], pc: int) -> None:
        """Store bytes [n] or [replicas, n], one an address."""
        self._check(at, 1, pc)
        self._bytes[:, at] = values
        self._known[at] = True


def _condensed(value: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return value[0] if (value == value[0]).all() else value
