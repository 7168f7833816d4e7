"""The floating-point primitives NumPy lacks or gets wrong, exact on arrays of float32.

Each takes a fast path when no lane needs the exact one; which path was taken never changes a
result. NaN payloads are left to `fbits`, as the intermediate representation allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
U32 = NDArray[np.uint32]

CANONICAL_NAN = np.uint32(0x7FFFFFFF)
_MIN_NORMAL = np.float64(2.0**-126)
_DISCARDED = np.uint64((1 << 29) - 1)
_HALFWAY = np.uint64(1 << 28)


def fbits(a: F32) -> U32:
    """The bits of ``a``, every NaN as 0x7fffffff, which is what NVIDIA hardware returns."""
    nan = a != a
    bits: U32 = a.view(np.uint32)
    return np.where(nan, CANONICAL_NAN, bits) if nan.any() else bits


def fma(a: F32, b: F32, c: F32) -> F32:
    """a*b + c with one rounding.

    The product of two float32 is exact in float64; the sum is rounded there to nearest and then
    again to float32. Twice rounded differs from once rounded only where the first result sits on a
    tie of the second, or where the second is subnormal and so drops more bits; those lanes are
    redone with the first sum rounded to odd (Boldo and Melquiond 2008), which is innocuous.
    """
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = np.asarray(product + addend)
    small = np.abs(total) < _MIN_NORMAL
    suspect = np.flatnonzero(((total.view(np.uint64) & _DISCARDED) == _HALFWAY) | small)
    if suspect.size:
        x, y = (
            np.broadcast_to(part, total.shape).reshape(-1)[suspect] for part in (product, addend)
        )
        lanes = total.reshape(-1)
        lanes[suspect] = _round_to_odd(lanes[suspect], x, y)
    return total.astype(np.float32)


def _round_to_odd(
    total: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]
) -> NDArray[np.float64]:
    """x + y rounded to odd, given ``total`` = x + y rounded to nearest."""
    # Knuth's TwoSum: the rounding error of total, itself exact.
    back = total - x
    error = (x - (total - back)) + (y - back)
    bits = total.view(np.int64)
    inexact = (error != 0) & np.isfinite(total) & (bits & 1 == 0)
    outward = (error > 0) == (total > 0)
    return np.where(inexact, bits + np.where(outward, 1, -1), bits).view(np.float64)


def fmax(a: F32, b: F32) -> F32:
    """The larger; a NaN loses to a number and +0 beats -0 (IEEE 754-2019 maximumNumber)."""
    return _extremum(a, b, np.maximum, np.bitwise_and)


def fmin(a: F32, b: F32) -> F32:
    """The smaller; a NaN loses to a number and -0 beats +0 (IEEE 754-2019 minimumNumber)."""
    return _extremum(a, b, np.minimum, np.bitwise_or)


def _extremum(a: F32, b: F32, pick: Callable[..., Any], zero: Callable[..., Any]) -> F32:
    result: F32 = pick(a, b)
    suspect = ~(result != 0)
    suspect |= result != result
    if not suspect.any():
        return result
    equal = a == b
    same = zero(a.view(np.uint32), b.view(np.uint32)).view(np.float32)
    result = np.where(equal, same, result)
    result = np.where(a != a, b, result)
    return np.where(b != b, a, result)


RcpModel = Callable[[F32], F32]


def rcp_exact(a: F32) -> F32:
    """1/a correctly rounded, subnormal inputs and results flushed to a zero of their sign."""
    flushed = np.where(np.abs(a) < np.float32(_MIN_NORMAL), np.copysign(np.float32(0), a), a)
    result = np.float32(1) / flushed
    return np.where(
        np.abs(result) < np.float32(_MIN_NORMAL), np.copysign(np.float32(0), result), result
    )


def _moved(step: int) -> RcpModel:
    def model(a: F32) -> F32:
        exact = rcp_exact(a)
        magnitude = np.abs(exact)
        regular = (magnitude >= np.float32(_MIN_NORMAL)) & np.isfinite(exact)
        moved = (exact.view(np.int32) + np.int32(step)).view(np.float32)
        usable = regular & (np.abs(moved) >= np.float32(_MIN_NORMAL)) & np.isfinite(moved)
        return np.where(usable, moved, exact)

    return model


RCP_MODELS: dict[str, RcpModel] = {"exact": rcp_exact, "+1ulp": _moved(1), "-1ulp": _moved(-1)}
"""Models of MUFU.RCP, documented to be within 1 ulp; the hardware's own table is not public."""
