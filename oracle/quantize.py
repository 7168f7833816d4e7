"""A group of 16 values and a global scale -> 16 E2M1 codes and one E4M3 scale byte, and back.

The arithmetic is that of the NVFP4 store kernel, every operation rounded to float32:

    g    = 1 / global_scale
    amax = max |x_i|                        a NaN loses against a number
    sf   = e4m3(g * (amax * fl32(1/6)))     6 is the largest E2M1 value
    r    = 0 if sf == 0 else rcp(sf * rcp(g))
    code = e2m1(x_i * r)

Four over six tries 1/4 beside 1/6, so that amax lands on 4 instead, where the grid is finer, and
keeps the candidate that reproduces the group better.

`rcp` is the hardware's approximate reciprocal, good to one unit in the last place. Which way it
errs is not documented, and products on an E2M1 tie depend on it; hence it is a parameter.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oracle.formats import (
    ByteArray,
    FloatArray,
    e2m1_decode,
    e2m1_encode,
    e4m3_decode,
    e4m3_encode,
    fma32,
)

GROUP = 16
"""Consecutive elements of one head that share a scale byte."""

Reciprocal = Callable[[FloatArray], FloatArray]
"""A model of `rcp.approx.ftz.f32`: float32 [...] -> float32 [...]."""

_ONE_SIXTH = np.float32(1 / 6)  # 0x3E2AAAAB
_ONE_FOURTH = np.float32(1 / 4)
_MIN_NORMAL = np.finfo(np.float32).smallest_normal
_MAGNITUDE = 0x7FFFFFFF
_INFINITY = 0x7F800000
_CHUNK = 4096  # groups at a time: temporaries then stay in the second-level cache


class ScaleSearch(Enum):
    """How the scale byte of a group is chosen."""

    MAX_OVER_6 = "max6"
    FOUR_OVER_SIX = "4over6"


def _flush(x: FloatArray) -> FloatArray:
    """Subnormals become zeros of the same sign."""
    return np.where(np.abs(x) < _MIN_NORMAL, np.copysign(np.float32(0), x), x)


def rcp_exact(x: FloatArray) -> FloatArray:
    """1/x correctly rounded; subnormal inputs and results are flushed to zero, signs are kept."""
    with np.errstate(all="ignore"):
        return _flush(np.float32(1) / _flush(x))


def _rcp_off_by(x: FloatArray, ulps: int) -> FloatArray:
    result = rcp_exact(x)
    approximate = np.isfinite(result) & (result != 0)
    moved = (result.view(np.int32) + np.int32(ulps)).view(np.float32)
    return _flush(np.where(approximate, moved, result))


def rcp_plus_ulp(x: FloatArray) -> FloatArray:
    """As `rcp_exact`, then one unit in the last place away from zero; 0, inf and NaN stay."""
    return _rcp_off_by(x, +1)


def rcp_minus_ulp(x: FloatArray) -> FloatArray:
    """As `rcp_exact`, then one unit in the last place towards zero; 0, inf and NaN stay."""
    return _rcp_off_by(x, -1)


RECIPROCALS: dict[str, Reciprocal] = {
    "exact": rcp_exact,
    "+1ulp": rcp_plus_ulp,
    "-1ulp": rcp_minus_ulp,
}


class _Quantized(NamedTuple):
    """A candidate for n groups: codes [n, 16], scale bytes [n], and the multiplier r [n]."""

    codes: ByteArray
    scale_bytes: ByteArray
    multiplier: FloatArray


def _amax(groups: FloatArray) -> FloatArray:
    """max |x| of each group [n, 16] -> [n]; NaN only where the whole group is NaN, as `fmaxf`."""
    # As integers, because the order of patterns is the order of magnitudes, and a maximum over
    # floats would let a signalling NaN win.
    magnitude = groups.view(np.int32) & _MAGNITUDE
    amax: npt.NDArray[np.int32] = magnitude.max(axis=-1)
    if (amax > _INFINITY).any():
        # -1 loses against every number, and is itself the pattern of a NaN.
        amax = np.where(magnitude > _INFINITY, np.int32(-1), magnitude).max(axis=-1)
    return amax.view(np.float32)


def _candidate(
    groups: FloatArray, amax: FloatArray, inverse: np.float32, g: FloatArray, rcp: Reciprocal
) -> _Quantized:
    """Quantise groups [n, 16] such that amax lands on 1/inverse."""
    scale_bytes = e4m3_encode(g * (amax * inverse))
    scale = e4m3_decode(scale_bytes)
    multiplier = np.where(scale == 0, np.float32(0), rcp(scale * rcp(g)))
    return _Quantized(e2m1_encode(groups * multiplier[:, None]), scale_bytes, multiplier)


def _squared_error(groups: FloatArray, candidate: _Quantized, rcp: Reciprocal) -> FloatArray:
    """The sum over each group of (e2m1(x r) * rcp(r) - x)^2, or of x^2 where r is 0: [n].

    The definition leaves the rounding of this sum open. This is the order of vLLM's compiled
    kernel: differences are fused, the squares of two neighbours are added with one rounding, and
    the pairs are summed from the first to the last. Another order decides otherwise where the two
    errors all but coincide: for about one group in 10^5 at power-of-two scales.
    """
    multiplier = candidate.multiplier
    inverse = np.where(multiplier == 0, np.float32(0), rcp(multiplier))
    difference = fma32(e2m1_decode(candidate.codes), inverse[:, None], -groups)
    total = np.zeros(len(groups), np.float32)
    for even, odd in zip(difference.T[0::2], difference.T[1::2], strict=True):
        total = total + fma32(even, even, odd * odd)
    return total


def _four_wins(error_of_4: FloatArray, error_of_6: FloatArray) -> npt.NDArray[np.bool_]:
    """Only a strictly smaller error justifies the smaller range; a NaN never does."""
    return error_of_4 < error_of_6


def _max_over_6(groups: FloatArray, g: FloatArray, rcp: Reciprocal) -> _Quantized:
    return _candidate(groups, _amax(groups), _ONE_SIXTH, g, rcp)


def _four_over_six(groups: FloatArray, g: FloatArray, rcp: Reciprocal) -> _Quantized:
    amax = _amax(groups)
    six = _candidate(groups, amax, _ONE_SIXTH, g, rcp)
    four = _candidate(groups, amax, _ONE_FOURTH, g, rcp)
    wins = _four_wins(_squared_error(groups, four, rcp), _squared_error(groups, six, rcp))
    return _Quantized(
        np.where(wins[:, None], four.codes, six.codes),
        np.where(wins, four.scale_bytes, six.scale_bytes),
        np.where(wins, four.multiplier, six.multiplier),
    )


_SEARCHES = {
    ScaleSearch.MAX_OVER_6: _max_over_6,
    ScaleSearch.FOUR_OVER_SIX: _four_over_six,
}


def quantize(
    x: FloatArray,
    global_scale: float,
    search: ScaleSearch = ScaleSearch.MAX_OVER_6,
    rcp: Reciprocal = rcp_exact,
) -> tuple[ByteArray, ByteArray]:
    """Float32 groups [..., 16] -> (E2M1 codes [..., 16], 0..15 in a byte; E4M3 bytes [...]).

    `global_scale` is the global decode scale (vLLM's k_scale or v_scale), rounded to float32.
    A NaN element becomes code 0x7 and does not count for the scale. Raises ValueError unless `x`
    is float32 with a last axis of 16.
    """
    if x.dtype != np.float32 or x.ndim == 0 or x.shape[-1] != GROUP:
        raise ValueError(f"expected float32 groups [..., {GROUP}], got {x.dtype} {list(x.shape)}")
    groups = x.reshape(-1, GROUP)
    codes = np.empty(groups.shape, np.uint8)
    scale_bytes = np.empty(len(groups), np.uint8)
    with np.errstate(all="ignore"):
        g = np.float32(1) / np.array([global_scale], np.float32)
        for start in range(0, len(groups), _CHUNK):
            part = slice(start, start + _CHUNK)
            codes[part], scale_bytes[part], _ = _SEARCHES[search](groups[part], g, rcp)
    return codes.reshape(x.shape), scale_bytes.reshape(x.shape[:-1])


def dequantize(codes: ByteArray, scale_bytes: ByteArray, global_scale: float) -> FloatArray:
    """e2m1(code) * e4m3(scale byte) * global_scale: codes [..., 16], bytes [...] -> [..., 16].

    The first product is exact in float32, so that the order is the one with a single rounding.
    """
    with np.errstate(all="ignore"):
        scaled = e2m1_decode(codes) * e4m3_decode(scale_bytes)[..., None]
        return scaled * np.float32(global_scale)
