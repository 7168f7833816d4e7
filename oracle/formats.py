"""E2M1, E4M3, bf16 and fp16: one table of formats, two verbs each, and a fused multiply-add.

Every format is described once, by a `FloatFormat`. Its scalar methods `encode_spec` and
`decode_spec` are the specification: they follow the definition of the format, one value at a
time. The functions below them (`e2m1_encode`, `e4m3_decode`, ...) do the same to whole arrays,
each by its own shorter route, and are tested equal to the specification.

The rules are those of the hardware conversions (`cvt.rn` and `cvt.rn.satfinite` of PTX): round to
nearest, ties to even; E2M1 and E4M3 saturate; -0 keeps its sign; every NaN becomes one code and
loses its sign, which for E2M1, having no NaN, is the code of +6.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
ByteArray = npt.NDArray[np.uint8]
WordArray = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format of at most 16 bits: sign, exponent, mantissa.

    `max_code` is the code of the largest finite value, `nan_code` what a NaN is encoded to, and
    `infinity_code` the code of +infinity, or None for a format that saturates instead.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    max_code: int
    nan_code: int
    infinity_code: int | None = None

    @property
    def sign_bit(self) -> int:
        """The code of -0."""
        return 1 << (self.exponent_bits + self.mantissa_bits)

    @property
    def min_exponent(self) -> int:
        """The exponent of the smallest normal value, which all subnormals share."""
        bias = (1 << (self.exponent_bits - 1)) - 1
        return 1 - bias

    def decode_spec(self, code: int) -> float:
        """The value of one code; exact, since a float holds every value of these formats."""
        magnitude_code = code & (self.sign_bit - 1)
        if magnitude_code <= self.max_code:
            exponent_field, mantissa = divmod(magnitude_code, 1 << self.mantissa_bits)
            implicit_one = 1 if exponent_field > 0 else 0
            significand = implicit_one + mantissa / (1 << self.mantissa_bits)
            exponent = max(exponent_field - 1, 0) + self.min_exponent
            magnitude = math.ldexp(significand, exponent)
        elif magnitude_code == self.infinity_code:
            magnitude = math.inf
        else:
            magnitude = math.nan
        return -magnitude if code & self.sign_bit else magnitude

    def encode_spec(self, value: float) -> int:
        """The code nearest to `value`, ties to the even code; see the module for the specials."""
        if math.isnan(value):
            return self.nan_code
        sign = self.sign_bit if math.copysign(1.0, value) < 0 else 0
        overflow_code = self.max_code if self.infinity_code is None else self.infinity_code
        magnitude = abs(value)
        if math.isinf(magnitude):
            return sign | overflow_code
        exponent = self.min_exponent
        if magnitude > 0:
            exponent = max(exponent, math.frexp(magnitude)[1] - 1)
        # One unit in the last place is a power of two, so the division is exact, and Python's
        # round() takes ties to even. Codes count units: a carry into the next binade is right.
        units = round(math.ldexp(magnitude, self.mantissa_bits - exponent))
        magnitude_code = units + ((exponent - self.min_exponent) << self.mantissa_bits)
        return sign | (magnitude_code if magnitude_code <= self.max_code else overflow_code)


E2M1 = FloatFormat("e2m1", 2, 1, max_code=0x7, nan_code=0x7)
E4M3 = FloatFormat("e4m3", 4, 3, max_code=0x7E, nan_code=0x7F)
BF16 = FloatFormat("bf16", 8, 7, max_code=0x7F7F, nan_code=0x7FFF, infinity_code=0x7F80)
FP16 = FloatFormat("fp16", 5, 10, max_code=0x7BFF, nan_code=0x7FFF, infinity_code=0x7C00)


def _pattern(value: float) -> np.uint32:
    """The bits of a float32. Patterns of positive floats order as the floats do, NaN on top."""
    return np.float32(value).view(np.uint32)


_MAGNITUDE = np.uint32(0x7FFFFFFF)
_INFINITY = _pattern(math.inf)

# The last float32 that still rounds to each E2M1 code but 7. Boundaries are the midpoints; the
# tie belongs to the even code, so a midpoint above an odd code is already the next code's.
_E2M1_LAST = tuple(
    _pattern((E2M1.decode_spec(code) + E2M1.decode_spec(code + 1)) / 2) - code % 2
    for code in range(E2M1.max_code)
)
_E2M1_VALUES = np.array([E2M1.decode_spec(code) for code in range(16)], np.float32)
_E4M3_VALUES = np.array([E4M3.decode_spec(code) for code in range(256)], np.float32)
_E4M3_MAX = _pattern(E4M3.decode_spec(E4M3.max_code))
_E4M3_MIN_NORMAL = _pattern(2.0**E4M3.min_exponent)


def _bits(x: FloatArray) -> npt.NDArray[np.uint32]:
    return np.asarray(x, np.float32).view(np.uint32)


def e2m1_encode(x: FloatArray) -> ByteArray:
    """Float32 [...] to E2M1 codes [...], 0..15 in a byte; saturates, NaN -> 0x7."""
    bits = _bits(x)
    magnitude = bits & _MAGNITUDE
    codes = np.zeros(bits.shape, np.uint8)
    for last in _E2M1_LAST:
        codes += magnitude > last
    signs = ((bits >> 28) & 0x8).astype(np.uint8)
    signs *= magnitude <= _INFINITY
    return codes | signs


def e2m1_decode(codes: ByteArray) -> FloatArray:
    """E2M1 codes [...], 0..15 in a byte, to float32 [...]; exact."""
    return _E2M1_VALUES[codes]


def e4m3_encode(x: FloatArray) -> ByteArray:
    """Float32 [...] to E4M3 bytes [...]; saturates to 448 (0x7E), NaN -> 0x7F."""
    bits = _bits(x)
    magnitude = bits & _MAGNITUDE
    finite = np.minimum(magnitude, _E4M3_MAX)
    # Normal: drop 20 of 23 mantissa bits, to nearest and ties to even, and change the bias.
    odd = (finite >> 20) & 1
    normal = ((finite + 0x7FFFF + odd) >> 20) - ((127 - 7) << 3)
    # Subnormal: a float32 of 2^14 has units of 2^-9, so adding 2^14 counts in those, rounded.
    subnormal = _bits(finite.view(np.float32) + np.float32(2**14)) - _pattern(2**14)
    codes = np.where(finite < _E4M3_MIN_NORMAL, subnormal, normal) | (bits >> 24) & 0x80
    return np.where(magnitude > _INFINITY, E4M3.nan_code, codes).astype(np.uint8)


def e4m3_decode(codes: ByteArray) -> FloatArray:
    """E4M3 bytes [...] to float32 [...]; exact, 0x7F and 0xFF are NaN."""
    return _E4M3_VALUES[codes]


def bf16_encode(x: FloatArray) -> WordArray:
    """Float32 [...] to bf16 patterns [...]; overflows to infinity, NaN -> 0x7FFF."""
    bits = _bits(x)
    odd = (bits >> 16) & 1
    # Only a NaN's pattern can wrap around here, and it is replaced.
    rounded = (bits + 0x7FFF + odd) >> 16
    is_nan = (bits & _MAGNITUDE) > _INFINITY
    return np.where(is_nan, BF16.nan_code, rounded).astype(np.uint16)


def bf16_decode(codes: WordArray) -> FloatArray:
    """Bf16 patterns [...] to float32 [...]; exact, a NaN keeps sign and payload."""
    return (np.asarray(codes, np.uint16).astype(np.uint32) << 16).view(np.float32)


def fp16_encode(x: FloatArray) -> WordArray:
    """Float32 [...] to fp16 patterns [...]; overflows to infinity, NaN -> 0x7FFF."""
    with np.errstate(all="ignore"):
        rounded = np.asarray(x, np.float32).astype(np.float16).view(np.uint16)
    return np.where(np.isnan(x), np.uint16(FP16.nan_code), rounded)


def fp16_decode(codes: WordArray) -> FloatArray:
    """Fp16 patterns [...] to float32 [...]; exact, a NaN stays one (its payload may change)."""
    with np.errstate(all="ignore"):
        return np.asarray(codes, np.uint16).view(np.float16).astype(np.float32)


@dataclass(frozen=True)
class ScalarFormat:
    """A 16-bit input type of a store: its format and the two verbs on arrays of patterns."""

    format: FloatFormat
    encode: Callable[[FloatArray], WordArray]
    decode: Callable[[WordArray], FloatArray]


DTYPES: dict[str, ScalarFormat] = {
    "bf16": ScalarFormat(BF16, bf16_encode, bf16_decode),
    "fp16": ScalarFormat(FP16, fp16_encode, fp16_decode),
}


def pack_codes(codes: ByteArray) -> ByteArray:
    """E2M1 codes [..., 2n] to bytes [..., n]: the low nibble is the even element.

    Raises ValueError for an odd number of codes.
    """
    if codes.shape[-1] % 2:
        raise ValueError(f"codes are packed in pairs, and {codes.shape[-1]} is odd")
    return codes[..., 0::2] | codes[..., 1::2] << np.uint8(4)


def unpack_codes(packed: ByteArray) -> ByteArray:
    """Bytes [..., n] to E2M1 codes [..., 2n]: the inverse of `pack_codes`."""
    pairs = np.stack([packed & 0xF, packed >> 4], axis=-1)
    return pairs.reshape(*packed.shape[:-1], 2 * packed.shape[-1])


def fma32(a: FloatArray, b: FloatArray, c: FloatArray) -> FloatArray:
    """a * b + c in float32 with a single rounding, as `FFMA`; shapes broadcast.

    A float64 product of float32 values is exact. The float64 sum is not, and rounding it once
    more to float32 could go wrong on what looks like a tie; so it is first rounded to odd: where
    inexact, to that neighbour whose last bit is set. 53 bits leave room for this (Boldo and
    Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
    """
    with np.errstate(all="ignore"):
        product = np.multiply(a, b, dtype=np.float64)
        addend = np.asarray(c, np.float64)
        total = np.asarray(product + addend)
        # Knuth's TwoSum: total + error is the sum, exactly (NaN where the total is not finite).
        back = total - product
        error = (product - (total - back)) + (addend - back)
        bits = total.view(np.int64)
        inexact_even = (np.abs(error) > 0) & (bits & 1 == 0)
        if inexact_even.any():
            outwards = (error > 0) == (total > 0)
            bits = bits + np.where(inexact_even, np.where(outwards, 1, -1), 0)
        return bits.view(np.float64).astype(np.float32)
