"""A second quantiser, naive on purpose: one group at a time, in exact rational arithmetic.

It shares no code with `oracle.formats` and `oracle.quantize`. Values are Python floats, which hold
every float32; each operation is done on fractions, then rounded to float32 by counting units.
Encoding looks for the nearest of all values. What is no rational number (zeros with a sign,
infinities, NaN) takes the rules of IEEE 754, which Python's own operators follow.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from oracle.quantize import ScaleSearch

E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The magnitudes of codes 0..7; code 8 + c is -E2M1_VALUES[c]."""
E4M3_VALUES = tuple(
    (8 * (exponent > 0) + mantissa) * 2.0 ** (max(exponent, 1) - 7 - 3)
    for exponent in range(16)
    for mantissa in range(8)
)[:-1]
"""The magnitudes of scale bytes 0x00..0x7E."""

EVALUATIONS = ("g", "six", "six inverse", "four", "four inverse")
"""The reciprocals of a store: of g, and of each candidate's product and multiplier."""

_FRACTIONS = {"six": float.fromhex("0x1.555556p-3"), "four": 0.25}  # 1/6 as a float32
_MIN_NORMAL = 2.0**-126
_MAX_FLOAT32 = 2.0**128 - 2.0**104


class Exact(NamedTuple):
    """A group's codes and scale byte."""

    codes: tuple[int, ...]
    scale_byte: int


def float32(value: Fraction) -> float:
    """A rational number rounded to float32, ties to even; what is too large becomes infinite."""
    # The value is between 2^(exponent-1) and 2^(exponent+1): it has 24 or 25 bits of this unit.
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    unit = Fraction(2) ** max(exponent - 24, -149)
    if abs(value) >= unit * 2**24:
        unit *= 2
    rounded = float(round(value / unit) * unit)
    magnitude = abs(rounded) if abs(rounded) <= _MAX_FLOAT32 else math.inf
    return math.copysign(magnitude, value.numerator)


def multiply(a: float, b: float) -> float:
    """a * b in float32."""
    if not math.isfinite(a) or not math.isfinite(b) or a == 0 or b == 0:
        return a * b
    return math.copysign(float32(Fraction(a) * Fraction(b)), a * b)


def multiply_add(a: float, b: float, c: float) -> float:
    """a * b + c in float32, rounded once."""
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    return float32(exact) if exact else a * b + c


def invert(x: float) -> float:
    """1 / x in float32."""
    if x == 0:
        return math.copysign(math.inf, x)
    if not math.isfinite(x):
        return 1 / x
    return math.copysign(float32(1 / Fraction(x)), x)


def approximate_reciprocal(x: float, ulps: int = 0) -> float:
    """`rcp.approx.ftz`: 1/x rounded, then off by `ulps` away from zero, with subnormals flushed."""
    result = invert(_flush(x))
    for _ in range(abs(ulps)):
        if result != 0 and math.isfinite(result):
            result = _next_float32(result, outwards=ulps > 0)
    return _flush(result)


def _flush(x: float) -> float:
    return math.copysign(0.0, x) if abs(x) < _MIN_NORMAL else x


def _next_float32(x: float, outwards: bool) -> float:
    mantissa, exponent = math.frexp(abs(x))
    # frexp's mantissa is in [1/2, 1). Below a power of two the units are half as large.
    at_power = mantissa == 0.5 and not outwards
    unit = 2.0 ** max(exponent - 24 - at_power, -149)
    return math.copysign(abs(x) + (unit if outwards else -unit), x)


def _nearest(magnitude: float, values: Sequence[float]) -> int:
    """The index of the nearest of rising values, of two the even one; beyond all, the last."""
    above = bisect(values, magnitude)
    if above == len(values):
        return above - 1
    to_lower = Fraction(magnitude) - Fraction(values[above - 1])
    to_upper = Fraction(values[above]) - Fraction(magnitude)
    if to_lower == to_upper:
        return above - above % 2
    return above if to_upper < to_lower else above - 1


def encode_e2m1(x: float) -> int:
    """The E2M1 code of a float32."""
    if math.isnan(x):
        return 0x7
    sign = 0x8 if math.copysign(1, x) < 0 else 0
    return sign | _nearest(abs(x), E2M1_VALUES)


def encode_e4m3(x: float) -> int:
    """The E4M3 byte of a float32."""
    if math.isnan(x):
        return 0x7F
    sign = 0x80 if math.copysign(1, x) < 0 else 0
    return sign | _nearest(abs(x), E4M3_VALUES)


def decode_e2m1(code: int) -> float:
    """The value of an E2M1 code."""
    return math.copysign(E2M1_VALUES[code & 0x7], -1 if code & 0x8 else 1)


def decode_e4m3(byte: int) -> float:
    """The value of a scale byte."""
    magnitude = byte & 0x7F
    if magnitude == 0x7F:
        return math.nan
    return math.copysign(E4M3_VALUES[magnitude], -1 if byte & 0x80 else 1)


def quantize_exactly(
    group: Sequence[float],
    global_scale: float,
    search: ScaleSearch = ScaleSearch.MAX_OVER_6,
    ulps: Mapping[str, int] | None = None,
) -> Exact:
    """Quantise one group of float32 values under a float32 global decode scale.

    `ulps` says by how much each of `EVALUATIONS` errs; none of them does by default.
    """
    ulps = ulps or {}
    six, six_multiplier = _candidate(group, global_scale, "six", ulps)
    if search is ScaleSearch.MAX_OVER_6:
        return six
    four, four_multiplier = _candidate(group, global_scale, "four", ulps)
    six_error = _computed_error(group, six, six_multiplier, ulps.get("six inverse", 0))
    four_error = _computed_error(group, four, four_multiplier, ulps.get("four inverse", 0))
    return four if four_error < six_error else six


def candidates_exactly(
    group: Sequence[float], global_scale: float, ulps: Mapping[str, int] | None = None
) -> tuple[Exact, Exact]:
    """The two candidates of four over six, amax/6 and amax/4, before the choice."""
    six, four = (_candidate(group, global_scale, name, ulps or {})[0] for name in _FRACTIONS)
    return six, four


def _candidate(
    group: Sequence[float], global_scale: float, name: str, ulps: Mapping[str, int]
) -> tuple[Exact, float]:
    """A candidate, in which amax lands on 6 or on 4, and its multiplier."""
    g = invert(global_scale)
    amax = max((abs(x) for x in group if not math.isnan(x)), default=math.nan)
    scale_byte = encode_e4m3(multiply(g, multiply(amax, _FRACTIONS[name])))
    scale = decode_e4m3(scale_byte)
    multiplier = 0.0
    if scale != 0:
        product = multiply(scale, approximate_reciprocal(g, ulps.get("g", 0)))
        multiplier = approximate_reciprocal(product, ulps.get(name, 0))
    codes = tuple(encode_e2m1(multiply(x, multiplier)) for x in group)
    return Exact(codes, scale_byte), multiplier


def _computed_error(group: Sequence[float], result: Exact, multiplier: float, ulps: int) -> float:
    """The sum of squared errors as a store computes it, in float32."""
    inverse = 0.0 if multiplier == 0 else approximate_reciprocal(multiplier, ulps)
    differences = [
        multiply_add(decode_e2m1(code), inverse, -x)
        for code, x in zip(result.codes, group, strict=True)
    ]
    total = 0.0
    for even, odd in zip(differences[0::2], differences[1::2], strict=True):
        total = multiply_add(1.0, total, multiply_add(even, even, multiply(odd, odd)))
    return total


def true_error(group: Sequence[float], result: Exact, global_scale: float) -> Fraction:
    """The sum of squared differences between a finite group and what a reader decodes; exact.

    Nothing in it is rounded: it is what four over six means to make small.
    """
    step = Fraction(decode_e4m3(result.scale_byte)) * Fraction(global_scale)
    decoded = (Fraction(decode_e2m1(code)) * step for code in result.codes)
    return sum(
        ((value - Fraction(x)) ** 2 for value, x in zip(decoded, group, strict=True)), Fraction(0)
    )
