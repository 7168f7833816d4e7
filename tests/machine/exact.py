"""What the instructions should compute, on single bit patterns, in integers and rationals.

Nothing here shares a method with the machine: floats are rounded by counting units of a rational
number, narrow formats by looking the nearest value up in the list of all of them.
"""

import math
import struct
from bisect import bisect_left
from fractions import Fraction
from functools import cache

NAN = 0x7FFFFFFF
MIN_NORMAL = 2.0**-126
MAX_FINITE = float.fromhex("0x1.fffffep127")


def signed(bits: int, width: int = 32) -> int:
    """The two's complement number of a pattern."""
    return bits - (1 << width) if bits >= 1 << (width - 1) else bits


def number(bits: int) -> float:
    """The float32 of a pattern; a Python float holds every float32."""
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def pattern(x: float) -> int:
    """The bits of a float32 value, every NaN as the hardware's."""
    return NAN if math.isnan(x) else int(struct.unpack("<I", struct.pack("<f", x))[0])


def flushed(x: float) -> float:
    """A subnormal float32 becomes a zero of its sign."""
    return math.copysign(0.0, x) if abs(x) < MIN_NORMAL else x


_ROUND = {"RN": round, "RM": math.floor, "RP": math.ceil, "RZ": math.trunc}


def rounded(exact: Fraction, mode: str = "RN", zero: float = 0.0) -> float:
    """A rational number as a float32, rounded once; `zero` gives the sign of an exact zero."""
    if exact == 0:
        return zero
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, -126) - 23)
    result = _ROUND[mode](exact / unit) * unit
    if abs(result) > Fraction(MAX_FINITE):
        inward = mode == "RZ" or mode == ("RM" if exact > 0 else "RP")
        return math.copysign(MAX_FINITE if inward else math.inf, exact)
    return math.copysign(float(result), exact)


def fused(a: float, b: float, c: float, mode: str = "RN") -> float:
    """a*b + c rounded once."""
    ieee = a * b + c  # right for infinities, NaN and zeros, whatever was rounded
    if not all(map(math.isfinite, (a, b, c))):
        return ieee
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    product_sign = math.copysign(1, a) * math.copysign(1, b)
    if product_sign == math.copysign(1, c):
        zero = math.copysign(0.0, c)
    else:
        zero = -0.0 if mode == "RM" else 0.0
    return rounded(exact, mode, zero)


def total(a: float, b: float, mode: str = "RN") -> float:
    """a + b rounded once."""
    return fused(a, 1.0, b, mode)


def product(a: float, b: float, mode: str = "RN") -> float:
    """a * b rounded once."""
    sign = math.copysign(1, a) * math.copysign(1, b)
    return fused(a, b, math.copysign(0.0, sign), mode)


def quotient(a: float, b: float) -> float:
    """a / b rounded to nearest even."""
    sign = math.copysign(1, a) * math.copysign(1, b)
    if math.isnan(a) or math.isnan(b):
        return math.nan
    if math.isinf(a):
        return math.nan if math.isinf(b) else math.copysign(math.inf, sign)
    if math.isinf(b):
        return math.copysign(0.0, sign)
    if b == 0:
        return math.nan if a == 0 else math.copysign(math.inf, sign)
    return rounded(Fraction(a) / Fraction(b), zero=math.copysign(0.0, sign))


def extremum(values: list[float], largest: bool, keep_nan: bool = False) -> float:
    """The largest or smallest; a NaN loses (or wins), -0 is below +0."""
    numbers = [x for x in values if not math.isnan(x)]
    if not numbers or (keep_nan and len(numbers) < len(values)):
        return math.nan
    ordered = sorted(numbers, key=lambda x: (x, math.copysign(1, x)))
    return ordered[-1] if largest else ordered[0]


class Format:
    """A narrow float as the list of its values; `maximum` is the code of the largest finite."""

    def __init__(self, exponent: int, mantissa: int, maximum: int, infinity: bool, nan: int):
        self.sign = 1 << (exponent + mantissa)
        self.maximum, self.infinity, self.nan = maximum, infinity, nan
        bias = (1 << (exponent - 1)) - 1
        ones = 1 << mantissa
        self.values = [
            Fraction(ones * (code >= ones) + code % ones, ones)
            * Fraction(2) ** (max(code // ones, 1) - bias)
            for code in range(maximum + 2)
        ]

    def decode(self, code: int) -> float:
        """The value of a code."""
        magnitude = code & (self.sign - 1)
        if magnitude <= self.maximum:
            value = float(self.values[magnitude])
        else:
            value = math.inf if self.infinity and magnitude == self.maximum + 1 else math.nan
        return -value if code & self.sign else value

    def encode(self, x: float, saturate: bool) -> int:
        """The code of the nearest value, the even one of two as near."""
        if math.isnan(x):
            return self.nan
        sign = self.sign if math.copysign(1, x) < 0 else 0
        beyond = self.maximum if saturate or not self.infinity else self.maximum + 1
        return sign | (beyond if math.isinf(x) else self._nearest(Fraction(abs(x)), beyond))

    def encode_exact(self, exact: Fraction, zero: float) -> int:
        """The code of a rational number; beyond the range that of infinity."""
        if exact == 0:
            return self.sign if math.copysign(1, zero) < 0 else 0
        return self._nearest(abs(exact), self.maximum + 1) | (self.sign if exact < 0 else 0)

    def _nearest(self, magnitude: Fraction, beyond: int) -> int:
        above = bisect_left(self.values, magnitude)
        if above == 0:
            return 0
        if above > self.maximum + 1:
            return beyond
        low, high = magnitude - self.values[above - 1], self.values[above] - magnitude
        code = above if high < low or (high == low and above % 2 == 0) else above - 1
        return beyond if code > self.maximum else code


@cache
def narrow(name: str) -> Format:
    """One of E2M1, E4M3, E5M2, F16, BF16."""
    return {
        "E2M1": lambda: Format(2, 1, 0x7, False, 0x7),
        "E4M3": lambda: Format(4, 3, 0x7E, False, 0x7F),
        "E5M2": lambda: Format(5, 2, 0x7B, True, 0x7F),
        "F16": lambda: Format(5, 10, 0x7BFF, True, 0x7FFF),
        "BF16": lambda: Format(8, 7, 0x7F7F, True, 0x7FFF),
    }[name]()
