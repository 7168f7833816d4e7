"""What a store case stores: kinds of values, as 16-bit patterns drawn from a seed.

Elements are drawn token by token, and what is one for each group apart from them, so that a case
without its last tokens keeps the values of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from oracle.formats import DTYPES, FloatArray, WordArray, e2m1_decode
from oracle.quantize import GROUP

Shape = tuple[int, int, int]
"""Tokens, heads and head size: [T, H, D]."""

_SIX = 0x7
"""The E2M1 code of +6, the largest magnitude, which fixes the scale of a group."""
_FEW_BINADES = 4
_MANY_BINADES = 12
"""Normal values times 2 to this power stay far inside fp16, whose largest is 65504."""
_SPECIAL = np.array(
    [0.0, -0.0, 1.0, -3.0, np.inf, -np.inf, np.nan, 1e-7, -1e-7, 6e4, -6e4], np.float32
)


class Noise(NamedTuple):
    """What elements are drawn from, and what groups are drawn from."""

    elements: np.random.Generator
    groups: np.random.Generator


def _grid(noise: Noise, shape: Shape) -> FloatArray:
    """E2M1 values times a power of two for each group, whose first is the largest: exact."""
    codes = noise.elements.integers(0, 16, shape, np.uint8)
    codes[..., ::GROUP] = _SIX
    return e2m1_decode(codes) * _powers(noise, shape, _FEW_BINADES)


def _normal(noise: Noise, shape: Shape) -> FloatArray:
    """Normally distributed, as keys and values about are."""
    return noise.elements.standard_normal(shape, np.float32)


def _spread(noise: Noise, shape: Shape) -> FloatArray:
    """Normally distributed in each group, over many binades between groups."""
    return _normal(noise, shape) * _powers(noise, shape, _MANY_BINADES)


def _special(noise: Noise, shape: Shape) -> FloatArray:
    """In each group two of: zeros, infinities, NaN, tiny and huge values, and ordinary ones."""
    two = noise.groups.choice(_SPECIAL, (*_of_groups(shape), 2))
    second = noise.elements.integers(0, 2, shape, np.uint8).astype(bool)
    first, other = (np.repeat(two[..., i], GROUP, axis=-1) for i in (0, 1))
    return np.where(second, other, first)


def _powers(noise: Noise, shape: Shape, binades: int) -> FloatArray:
    exponents = noise.groups.integers(-binades, binades + 1, _of_groups(shape))
    return np.repeat(np.exp2(exponents.astype(np.float32)), GROUP, axis=-1)


def _of_groups(shape: Shape) -> Shape:
    tokens, heads, size = shape
    return tokens, heads, size // GROUP


RAW = "raw"
"""Uniform 16-bit patterns: every number, infinity and NaN that the dtype has."""
_DRAWN: Mapping[str, Callable[[Noise, Shape], FloatArray]] = {
    "grid": _grid,
    "normal": _normal,
    "spread": _spread,
    "special": _special,
}
KINDS = (*_DRAWN, RAW)
"""Kinds of values, the simplest first."""


def patterns(kind: str, dtype: str, shape: Shape, seed: int, side: int) -> WordArray:
    """Bit patterns [T, H, D] of one kind for one side (0 for K, 1 for V)."""
    noise = Noise(*(np.random.default_rng((seed, side, part)) for part in (0, 1)))
    if kind == RAW:
        return noise.elements.integers(0, 1 << 16, shape, np.uint16)
    with np.errstate(all="ignore"):
        return DTYPES[dtype].encode(_DRAWN[kind](noise, shape))
