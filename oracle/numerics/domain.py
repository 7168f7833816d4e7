"""The groups that writers are judged on: batches of inputs for both sides, each with its scales.

Ordinary values decide little: outside of ties every reciprocal within an ulp gives the same bytes.
So most batches are made of ties. `tie_groups` has, for every amax of a dtype that has a scale byte
of its own, every value whose product with the multiplier is a midpoint of E2M1, and its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracle.formats import DTYPES, FloatArray, WordArray, e4m3_decode, e4m3_encode
from oracle.numerics.capture import Inputs
from oracle.numerics.freedom import reciprocal_of
from oracle.quantize import GROUP, ScaleSearch

E2M1_TIES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
"""The midpoints between neighbouring magnitudes of E2M1."""
FRACTIONS = {
    ScaleSearch.MAX_OVER_6: (1 / 6, 1 / 6),
    ScaleSearch.FOUR_OVER_SIX: (1 / 6, 1 / 4),
}
"""The fraction of amax that the ties of K and of V belong to, so that each candidate has some."""

TIE_SCALES = (1.0, 0.25, 2.0**-7, 8.0, 2.0**-20, 0.0137, 3 / 448, 1.5, 5 / 448, 1 / 3)
"""Global scales of tie-aligned batches: powers of two, where ties are exact, and others."""
ODD_SCALES = (0.0, -1.0, 1e-40, 2.0**-126, 3e38, math.inf, -math.inf, math.nan)
"""Global scales no calibration gives, for which the arithmetic is defined all the same."""

_SIGN = np.uint16(0x8000)
# Beyond these a scale is zero or saturates, and one amax is like the next; a binade of each stays.
_LEAST_SCALED, _MOST_SCALED = 2.0**-11, 2 * 448.0


class Batch(NamedTuple):
    """Inputs with a word on what they are."""

    label: str
    inputs: Inputs


def tie_groups(dtype: str, global_scale: float, fraction: float) -> WordArray:
    """Two groups, [2n, 16], for each of the n values of amax that have a scale byte of their own.

    With s the group's scale, they hold amax, each tie of E2M1 times s * global_scale, rounded to
    the dtype, the values next to it on either side, and the negative of each tie.
    """
    verbs = DTYPES[dtype]
    positive = np.arange(1, verbs.format.max_code + 1, dtype=np.uint16)
    with np.errstate(over="ignore"):
        scaled = reciprocal_of(global_scale) * (verbs.decode(positive) * np.float32(fraction))
    ordinary = (scaled >= _LEAST_SCALED) & (scaled <= _MOST_SCALED)
    largest, count = positive[ordinary, None], int(ordinary.sum())
    scale = e4m3_decode(e4m3_encode(scaled[ordinary])).astype(np.float64)
    ties = scale[:, None] * float(np.float32(global_scale)) * np.array(E2M1_TIES)
    at = np.minimum(verbs.encode(ties.astype(np.float32)), largest)
    below = np.maximum(at, 1) - np.uint16(1)
    above = np.minimum(at + np.uint16(1), largest)
    around = np.stack([below, at, above], axis=-1).reshape(count, -1)
    zeros = np.zeros((count, 2 * GROUP - 2 - 4 * len(E2M1_TIES)), np.uint16)
    halves = np.concatenate([around, at | _SIGN, zeros], axis=-1).reshape(count, 2, -1)
    first = np.broadcast_to(largest[:, None], (count, 2, 1))
    return np.concatenate([first, halves], axis=-1).reshape(-1, GROUP)


def tie_batches(
    dtype: str, search: ScaleSearch, scales: Sequence[float] = TIE_SCALES
) -> Iterator[Batch]:
    """All tie-aligned groups of each global scale; V has the scale that comes after K's."""
    for index, k_scale in enumerate(scales):
        v_scale = scales[(index + 1) % len(scales)]
        k_fraction, v_fraction = FRACTIONS[search]
        key = tie_groups(dtype, k_scale, k_fraction)
        value = tie_groups(dtype, v_scale, v_fraction)
        count = min(len(key), len(value))
        # A dtype's range cuts off some scales: the shorter side is filled up from its beginning.
        longest = max(len(key), len(value))
        if count:
            key, value = np.resize(key, (longest, GROUP)), np.resize(value, (longest, GROUP))
            yield Batch("ties", Inputs(key, value, k_scale, v_scale))


def drawn_batches(dtype: str, count: int, seed: int = 0) -> Iterator[Batch]:
    """About `count` groups a side of random values, in batches of several kinds."""
    rng = np.random.default_rng(seed)
    verbs = DTYPES[dtype]
    ordinary = max(1, count // 8)
    for rule in (1.0, 0.0137, "amax/448", "amax/2688"):
        key, value = (
            verbs.encode(rng.standard_normal((ordinary, GROUP), np.float32)) for _ in "KV"
        )
        k_scale, v_scale = (_scale(rule, verbs.decode(side)) for side in (key, value))
        yield Batch("normal", Inputs(key, value, k_scale, v_scale))
    key, value = (_halves(rng, dtype, ordinary) for _ in "KV")
    yield Batch("halves", Inputs(key, value, 1.0, 0.5))
    key, value = (_any_size(rng, dtype, 2 * ordinary) for _ in "KV")
    yield Batch("any size", Inputs(key, value, 0.0137, 2.0**-6))
    wild = max(2, ordinary // len(ODD_SCALES))
    for index, scale in enumerate(ODD_SCALES):
        key, value = (rng.integers(0, 1 << 16, (wild, GROUP), np.uint16) for _ in "KV")
        key[::2] = _any_size(rng, dtype, len(key[::2]))
        yield Batch("any bits", Inputs(key, value, scale, ODD_SCALES[index - 1]))
        yield Batch("any bits", Inputs(value, key, 1.0, scale))


def many_scales(count: int, seed: int = 0) -> list[float]:
    """Positive global scales as calibrations give them: `TIE_SCALES`, powers of two, n/448 and
    n/2688, and any others."""
    rng = np.random.default_rng(seed)
    regular = [2.0**exponent for exponent in range(-24, 11)]
    regular += [n / divisor for n in range(1, 33) for divisor in (448, 2688)]
    drawn = np.exp2(rng.uniform(-12, 4, max(count, 1)))
    scales = [*TIE_SCALES, *regular, *drawn.tolist()]
    return list(dict.fromkeys(float(np.float32(scale)) for scale in scales))[:count]


def _scale(rule: float | str, values: FloatArray) -> float:
    if isinstance(rule, float):
        return rule
    return float(np.abs(values).max() / np.float32(rule.removeprefix("amax/")))


def _halves(rng: np.random.Generator, dtype: str, count: int) -> WordArray:
    """Multiples of one half: products fall on ties, and errors of two candidates coincide."""
    values = rng.integers(-24, 25, (count, GROUP)).astype(np.float32) / np.float32(2)
    return DTYPES[dtype].encode(values)


def _any_size(rng: np.random.Generator, dtype: str, count: int) -> WordArray:
    """Normal values times a power of two for each group: every scale byte, and what saturates."""
    exponents: NDArray[np.float32] = rng.integers(-18, 14, (count, 1)).astype(np.float32)
    values = rng.standard_normal((count, GROUP), np.float32) * np.exp2(exponents)
    return DTYPES[dtype].encode(values)
