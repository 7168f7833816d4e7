"""The choice of four over six, as far as it is known.

A store decodes both candidates with rcp(r), sums the squared errors in float32 and takes the 4
only where its sum is strictly smaller. Each sum depends on three reciprocals: rcp(g), which both
share, r, and rcp(r). Two steps tell which choices are possible:

1. bounds of both sums, from the ends of what r and rcp(r) may be, with the rounding of the sums
   themselves allowed for; where they do not overlap, the choice is settled;
2. elsewhere every combination of results is tried, in float32 and in the order of the definition.

Groups that stay open after the second step are near ties: a conforming store may take either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oracle.formats import ByteArray, FloatArray, WordArray, e2m1_decode, e2m1_encode, fma32
from oracle.numerics.freedom import RESULTS, Freedom

Mask = NDArray[np.bool_]

# A sum has 12 roundings on the way of any element, each of half an ulp, 2^-24: together less than
# this. It holds between the bounds below, where nothing that matters is subnormal or overflows.
_ROUNDING = 2.0**-20
_LEAST, _MOST = 2.0**-100, 2.0**120
_BIT: WordArray = np.array([1 << code for code in range(16)], np.uint16)


@dataclass(frozen=True, eq=False)
class Candidate:
    """One fraction's result for n groups: its scale bytes [n], the codes [n, 16] that the least and
    the greatest multiplier give, and the sets of codes [n, 16] as masks."""

    scale_bytes: ByteArray
    low: ByteArray
    high: ByteArray
    masks: WordArray


def squared_error(groups: FloatArray, codes: ByteArray, inverse: FloatArray) -> FloatArray:
    """The sum over groups [n, 16] of (e2m1(code) * inverse - x)^2 as a store computes it: [n].

    Differences are fused, squares of two neighbours are added with one rounding, and the pairs
    from first to last.
    """
    difference = fma32(e2m1_decode(codes), inverse[:, None], -groups)
    total = np.zeros(len(groups), np.float32)
    for pair in range(0, groups.shape[-1], 2):
        even, odd = difference[:, pair], difference[:, pair + 1]
        total = total + fma32(even, even, odd * odd)
    return total


def settle(groups: FloatArray, candidates: Sequence[Candidate], freedom: Freedom) -> Mask:
    """Which candidate may be taken as far as bounds tell: [n, 2], both where they do not.

    Two candidates of one scale byte have the same multiplier, so the same sum, and the 6 stays.
    """
    six, four = candidates
    six_low, six_high = _bounds(groups, six, freedom)
    four_low, four_high = _bounds(groups, four, freedom)
    same = six.scale_bytes == four.scale_bytes
    return np.stack([~(four_high < six_low) | same, ~(four_low >= six_high) & ~same], axis=-1)


def _bounds(
    groups: FloatArray, candidate: Candidate, freedom: Freedom
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bounds [n] of a candidate's sum of squared errors; minus and plus infinity where unknown."""
    scale_bytes, decoder = candidate.scale_bytes, freedom.decoder
    x = groups.astype(np.float64)
    ends = [end[scale_bytes][:, None].astype(np.float64) for end in (decoder.low, decoder.high)]
    least, most = _differences(x, candidate.low, *ends)
    several = np.flatnonzero((candidate.low != candidate.high).any(axis=-1))
    if several.size:
        ends = [end[several] for end in ends]
        other_least, other_most = _differences(x[several], candidate.high[several], *ends)
        least[several] = np.minimum(least[several], other_least)
        most[several] = np.maximum(most[several], other_most)
    low = np.einsum("ij,ij->i", least, least) * (1 - _ROUNDING)
    high = np.einsum("ij,ij->i", most, most) * (1 + _ROUNDING)
    known = freedom.r.narrow[scale_bytes] & decoder.narrow[scale_bytes]
    known &= (high > _LEAST) & (high < _MOST)
    return np.where(known, low, -np.inf), np.where(known, high, np.inf)


def _differences(
    x: NDArray[np.float64], codes: ByteArray, low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least and greatest |e2m1(code) * inverse - x| with the inverse from `low` to `high`."""
    value = e2m1_decode(codes).astype(np.float64)
    # A code times a decoder has few bits and is exact: only the difference is rounded.
    one, other = value * low - x, value * high - x
    crosses = one * other < 0
    np.abs(one, out=one)
    np.abs(other, out=other)
    least = np.minimum(one, other)
    least[crosses] = 0
    return least, np.maximum(one, other, out=other)


def try_all(groups: FloatArray, scale_bytes: ByteArray, freedom: Freedom) -> WordArray:
    """The sets of codes [n, 2, 16] that go with taking the 6 and with taking the 4.

    `scale_bytes` [n, 2] are those of the two. A set holds the codes of those multipliers that can
    lead to this choice, and is empty where it is never made.
    """
    masks = np.zeros((len(groups), 2, groups.shape[-1]), np.uint16)
    for shared in range(RESULTS):
        six_codes, six_sums = _outcomes(groups, scale_bytes[:, 0], freedom, shared)
        four_codes, four_sums = _outcomes(groups, scale_bytes[:, 1], freedom, shared)
        # The 4 is taken where its sum is smaller; a comparison with a NaN is false and keeps the 6.
        six_sums = np.where(np.isnan(six_sums), -np.inf, six_sums)
        four_sums = np.where(np.isnan(four_sums), np.inf, four_sums)
        kept = six_sums.min(axis=1) <= four_sums.max(axis=(0, 1))
        taken = four_sums.min(axis=1) < six_sums.max(axis=(0, 1))
        for result in range(RESULTS):
            masks[:, 0] |= _BIT[six_codes[result]] * kept[result][:, None]
            masks[:, 1] |= _BIT[four_codes[result]] * taken[result][:, None]
    return masks


def _outcomes(
    groups: FloatArray, scale_bytes: ByteArray, freedom: Freedom, shared: int
) -> tuple[ByteArray, FloatArray]:
    """What one result of rcp(g) leaves of a candidate: codes [3, n, 16] by r, and sums [3, 3, n]
    of squared errors by r and rcp(r)."""
    codes = np.empty((RESULTS, *groups.shape), np.uint8)
    sums = np.empty((RESULTS, RESULTS, len(groups)), np.float32)
    for result in range(RESULTS):
        multiplier = freedom.multiplier[shared, result, scale_bytes]
        codes[result] = e2m1_encode(groups * multiplier[:, None])
        for decoder in range(RESULTS):
            inverse = freedom.inverse[shared, result, decoder, scale_bytes]
            sums[result, decoder] = squared_error(groups, codes[result], inverse)
    return codes, sums
