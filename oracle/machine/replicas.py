"""Memory whose bytes say where they are from: one image of it for each of a few replicas.

A launch is run in all replicas at once. Everything is the same in each but the coded bytes, so a
value that differs between replicas comes from them, and what it is in each replica spells the
nibble it was: nibble n of the region (byte n // 2, the low half first) holds digit r of n in base
16 in replica r, and in the last replica the complement of digit 0, so that no nibble is the same
in all replicas.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oracle.errors import UsageError

DIGITS = 6
REPLICAS = DIGITS + 1
NOWHERE = -1
"""What stands for a nibble that is no coded one."""


def images(size: int) -> NDArray[np.uint8]:
    """The images [REPLICAS, size] of a region of `size` bytes."""
    if size > 1 << (4 * DIGITS - 1):
        raise UsageError(f"{size} bytes are more than provenance can be spelled for")
    low = 2 * np.arange(size, dtype=np.uint32)
    rows = [_digit(low, r) | _digit(low + 1, r) << 4 for r in range(DIGITS)]
    return np.stack([*rows, ~rows[0] & 0xFF]).astype(np.uint8)


def _digit(number: NDArray[np.uint32], place: int) -> NDArray[np.uint32]:
    return number >> np.uint32(4 * place) & np.uint32(15)


def spelled(nibbles: NDArray[np.integer]) -> NDArray[np.int64]:
    """The nibble numbers that values [REPLICAS, ...] of one nibble spell, NOWHERE where none."""
    digits = nibbles.astype(np.int64)
    total = sum(digits[r] << 4 * r for r in range(DIGITS))
    return np.where(digits[DIGITS] == 15 - digits[0], total, NOWHERE)
