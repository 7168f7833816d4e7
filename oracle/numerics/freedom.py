"""What is open in a store: the approximate reciprocal, and all that follows from it.

`rcp.approx.ftz.f32` is known to be within one unit in the last place of the correctly rounded
reciprocal, and no more. So each evaluation has up to three results, and the multiplier of a group,

    r = rcp(sf * rcp(g)),   g = 1 / global_scale,   sf = e4m3(scale byte),

up to nine. All else in a store is exact or correctly rounded. Under one global scale r depends on
the scale byte alone, so a table of 256 columns holds every multiplier there can be.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from oracle.formats import FloatArray, e4m3_decode

RESULTS = 3
"""Results one evaluation of the reciprocal may have: an ulp lower, the right one, an ulp higher."""

_MIN_NORMAL = np.finfo(np.float32).smallest_normal
_NARROW = 1.001
"""Normal results of two or three reciprocals lie within 14 ulp of each other, far inside this."""


def flush(x: FloatArray) -> FloatArray:
    """Subnormals become zeros of the same sign."""
    return np.where(np.abs(x) < _MIN_NORMAL, np.copysign(np.float32(0), x), x)


def reciprocals(x: FloatArray) -> FloatArray:
    """Every result of `rcp.approx.ftz` for float32 [...]: [3, ...], from towards zero to away.

    The neighbours are those of the correctly rounded result before it is flushed, so that next to
    the smallest normal number both it and zero are possible. Zero, infinity and NaN are exact.
    """
    with np.errstate(all="ignore"):
        exact = np.float32(1) / flush(np.asarray(x, np.float32))
        open_ended = np.isfinite(exact) & (exact != 0)
        inwards = np.nextafter(exact, np.float32(0))
        outwards = np.nextafter(exact, np.copysign(np.float32(np.inf), exact))
    return flush(
        np.stack(
            [np.where(open_ended, inwards, exact), exact, np.where(open_ended, outwards, exact)]
        )
    )


@dataclass(frozen=True, eq=False)
class Range:
    """All values a quantity may take, by scale byte.

    `values` is [n, 256]. Where `narrow` [256], they are all the same, or all positive, finite and
    within a thousandth of each other: then what is monotone in them is known from `low` and `high`.
    """

    values: FloatArray
    low: FloatArray
    high: FloatArray
    narrow: NDArray[np.bool_]

    @classmethod
    def of(cls, values: FloatArray) -> Range:
        """The range of values [..., 256]."""
        flat = values.reshape(-1, values.shape[-1])
        with np.errstate(invalid="ignore"):
            low, high = flat.min(axis=0), flat.max(axis=0)
            narrow = (low == high) | (low > 0) & np.isfinite(high) & (high < low * _NARROW)
        return cls(flat, low, high, narrow)


@dataclass(frozen=True, eq=False)
class Freedom:
    """What a store under one global scale may compute with.

    `multiplier` [3, 3, 256] are the values of r, by result of rcp(g), of the outer reciprocal, and
    by scale byte; `inverse` [3, 3, 3, 256] those of rcp(r), which four over six decodes with. Both
    are 0 for a scale of zero. `r` and `decoder` are their ranges.
    """

    multiplier: FloatArray
    inverse: FloatArray
    r: Range
    decoder: Range

    @classmethod
    @lru_cache(maxsize=64)
    def under(cls, g: np.float32) -> Freedom:
        """The freedom where 1 / global_scale is `g`; the latest ones are kept."""
        scale = e4m3_decode(np.arange(256, dtype=np.uint8))
        with np.errstate(all="ignore"):
            product = scale * reciprocals(np.array(g, np.float32))[:, None]
        multiplier = np.moveaxis(reciprocals(product), 0, 1)
        multiplier = np.where(scale == 0, np.float32(0), multiplier)
        inverse = np.moveaxis(reciprocals(multiplier), 0, 2)
        inverse = np.where(multiplier[:, :, None] == 0, np.float32(0), inverse)
        return cls(multiplier, inverse, Range.of(multiplier), Range.of(inverse))


def reciprocal_of(global_scale: float) -> np.float32:
    """g = 1 / global_scale, rounded to float32 as an IEEE division is."""
    with np.errstate(all="ignore"):
        quotient: np.float32 = np.float32(1) / np.float32(global_scale)
    return quotient
