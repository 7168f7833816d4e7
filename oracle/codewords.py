"""Words that name a coordinate and survive the constraints a store kernel puts on its input.

A probe runs a subject several times; in pass p every byte of interest carries symbol p of the word
of its coordinate, so the bytes seen at one address over all passes spell the coordinate. The words
are Reed-Solomon codes over a prime field: the base-q digits of the coordinate are the coefficients
of a polynomial, the symbols its values at 0, 1, 2, ... Two words of a polynomial with d digits
agree in at most d-1 places, so any d symbols name the coordinate, and a probe may give up some.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from oracle.errors import UsageError

PADDING_SCALE = 0x22
"""The scale of a token that must not be stored; no word has it. It is also what a reader would take
for a scale if it looked among data bytes that all hold 1.0."""

PADDING_BYTE = 0x77
"""Two codes of +6, which such a token carries in all passes but two; no word has it twice."""

SCALE_CODES = np.array(
    [c for c in range(0x06, 0x79) if c not in (PADDING_SCALE, PADDING_BYTE)], dtype=np.uint8
)
"""113 positive E4M3 codes a scale byte may carry."""

GUARD_CODE = 0x7
"""E2M1 +6: the largest magnitude, which fixes a group's scale. No symbol uses it."""
OFF_GRID_CODE = 0x1
"""E2M1 +0.5: not a multiple of 6/4 of a code, so the four-over-six search keeps max/6."""
ELEMENT_CODES = np.array([1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14, 15], dtype=np.uint8)
"""13 E2M1 codes an element may carry: all but the zeros, whose sign a kernel may drop, and +6."""

MAX_PASSES = 8
"""Passes whose bytes fit one 64-bit key."""

Symbols = NDArray[np.uint8]
Keys = NDArray[np.uint64]


def digits(count: int, prime: int) -> int:
    """How many base-`prime` digits tell `count` coordinates apart."""
    needed = 1
    while prime**needed < count:
        needed += 1
    return needed


def words(count: int, prime: int, length: int, first: int = 0) -> NDArray[np.int16]:
    """Symbols [length, count] of the words of coordinates 0 .. count-1.

    The polynomials are evaluated at `first` .. `first + length - 1`. Raises UsageError where the
    field has too few points.
    """
    if length > prime or digits(count, prime) > length:
        raise UsageError(f"{count} coordinates are too many for one probe: ask for a smaller cache")
    # 16-bit integers divide by a constant an order of magnitude faster than 64-bit ones.
    field = np.int16(prime)
    index = np.arange(count, dtype=np.int32)
    coefficients = []
    for _ in range(digits(count, prime)):
        quotient = index // np.int32(prime)
        coefficients.append((index - quotient * np.int32(prime)).astype(np.int16))
        index = quotient
    symbols = np.empty((length, count), dtype=np.int16)
    for row in range(length):
        value = np.zeros(count, dtype=np.int16)
        for coefficient in reversed(coefficients):
            value = value * np.int16(first + row) + coefficient
            value -= value // field * field
        symbols[row] = value
    return symbols


def keys(symbols: NDArray[np.uint8], bits: int) -> Keys:
    """Symbols [passes, n] packed into one number each, `bits` a symbol: uint64 [n]."""
    packed = np.zeros(symbols.shape[1], dtype=np.uint64)
    for row, values in enumerate(symbols):
        packed |= values.astype(np.uint64) << np.uint64(bits * row)
    return packed


class Book:
    """Finds the coordinate whose word has a given key."""

    def __init__(self, known: Keys) -> None:
        self._known = known

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        return np.argsort(self._known, kind="stable")

    @cached_property
    def _sorted(self) -> Keys:
        return self._known[self._order]

    def find(self, seen: Keys, guess: NDArray[np.int64]) -> NDArray[np.int64]:
        """The coordinate of each key, -1 where it is nobody's.

        `guess` is a coordinate to compare first: most bytes are where one expects them, and a
        comparison costs far less than a search. It never changes the answer.
        """
        found = np.where(self._known[guess] == seen, guess, -1)
        rest = np.flatnonzero(found < 0)
        if rest.size:
            wanted = seen[rest]
            place = np.minimum(np.searchsorted(self._sorted, wanted), self._sorted.size - 1)
            found[rest] = np.where(self._sorted[place] == wanted, self._order[place], -1)
        return found
