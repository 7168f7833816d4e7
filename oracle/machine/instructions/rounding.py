"""Conversions between floating formats, expanded into primitives.

Shared by the instructions that round: narrow formats (E2M1, E4M3, E5M2, fp16, bf16) to and from
f32, and the directed roundings of f32 arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

from oracle.machine.builder import F32, F64, I32, I64
from oracle.machine.context import SIGN, Context
from oracle.machine.ir import Value

MAGNITUDE = ~SIGN & 0xFFFF_FFFF
INFINITY = 0x7F80_0000


@dataclass(frozen=True)
class Narrow:
    """A format of 1 sign, `exponent` and `mantissa` bits.

    `largest` is the code of the largest finite magnitude, `infinity` that of infinity (None: the
    format has none and always saturates), `nan` the code a conversion gives for any NaN.
    """

    name: str
    exponent: int
    mantissa: int
    largest: int
    infinity: int | None
    nan: int

    @property
    def bias(self) -> int:
        """Exponent bias."""
        return (1 << (self.exponent - 1)) - 1

    @property
    def infinity_code(self) -> int:
        """The code above which everything is a NaN; only for formats that have infinity."""
        assert self.infinity is not None, f"{self.name} has no infinity"
        return self.infinity

    @property
    def sign_shift(self) -> int:
        """Position of the sign bit."""
        return self.exponent + self.mantissa


FORMATS = {
    f.name: f
    for f in (
        Narrow("E2M1", 2, 1, 0x7, None, 0x7),
        Narrow("E4M3", 4, 3, 0x7E, None, 0x7F),
        Narrow("E5M2", 5, 2, 0x7B, 0x7C, 0x7F),
        Narrow("F16", 5, 10, 0x7BFF, 0x7C00, 0x7FFF),
        Narrow("BF16", 8, 7, 0x7F7F, 0x7F80, 0x7FFF),
    )
}


def _power_of_two(c: Context, exponent: int) -> Value:
    return c.f32_const((exponent + 127) << 23)


def encode(c: Context, x: Value, form: Narrow, saturate: bool) -> Value:
    """The i32 code of an f32, rounded to nearest even; beyond the range: infinity, or saturated."""
    bits = c.bitcast(x)
    magnitude = c.and_(bits, c.const(I32, MAGNITUDE))
    dropped = 23 - form.mantissa
    # Normal results: round the bits at the last kept one; a carry into the exponent is right.
    odd = c.and_(c.lshr(magnitude, dropped), c.const(I32, 1))
    rounded = c.add(magnitude, c.add(odd, c.const(I32, (1 << (dropped - 1)) - 1)))
    code = c.sub(c.lshr(rounded, dropped), c.const(I32, (127 - form.bias) << form.mantissa))
    if form.bias != 127:
        # Subnormal results: adding a power whose last place is their step makes f32 round there.
        smallest = 1 - form.bias
        anchor = smallest - form.mantissa + 23
        summed = c.float("fadd", c.bitcast(magnitude), _power_of_two(c, anchor))
        step = c.and_(c.bitcast(summed), c.const(I32, (1 << (form.mantissa + 1)) - 1))
        tiny = c.ult(magnitude, c.const(I32, (smallest + 127) << 23))
        code = c.select(tiny, step, code)
    over = c.slt(c.const(I32, form.largest), code)
    highest = form.largest if saturate or form.infinity is None else form.infinity
    code = c.select(over, c.const(I32, highest), code)
    sign = c.shl(c.lshr(bits, 31), form.sign_shift)
    nan = c.ult(c.const(I32, INFINITY), magnitude)
    return c.select(nan, c.const(I32, form.nan), c.or_(code, sign))


def decode(c: Context, code: Value, form: Narrow) -> Value:
    """The f32 of an i32 code whose bits above the format are ignored."""
    if form.name == "BF16":
        return c.bitcast(c.shl(code, 16))
    magnitude = c.and_(code, c.const(I32, (1 << form.sign_shift) - 1))
    sign = c.and_(c.shl(code, 31 - form.sign_shift), c.const(I32, SIGN))
    # As an f32 with the same fields the number is 2**(127 - bias) too small, subnormals included.
    scaled = c.bitcast(c.shl(magnitude, 23 - form.mantissa))
    bits = c.bitcast(c.float("fmul", scaled, _power_of_two(c, 127 - form.bias)))
    if form.infinity is not None:
        special = c.not_(c.ult(magnitude, c.const(I32, form.infinity)))
        wide = c.or_(c.shl(magnitude, 23 - form.mantissa), c.const(I32, INFINITY))
        bits = c.select(special, wide, bits)
    elif form.name == "E4M3":
        nan = c.eq(magnitude, c.const(I32, form.nan))
        bits = c.select(nan, c.const(I32, MAGNITUDE), bits)
    return c.bitcast(c.or_(bits, sign))


def flush(c: Context, x: Value) -> Value:
    """FTZ: a subnormal f32 becomes a zero of its sign."""
    bits = c.bitcast(x)
    subnormal = c.eq(c.and_(bits, c.const(I32, INFINITY)), c.const(I32, 0))
    return c.bitcast(c.select(subnormal, c.and_(bits, c.const(I32, SIGN)), bits))


def two_sum(c: Context, x: Value, y: Value) -> tuple[Value, Value]:
    """x + y in f64 and its exact rounding error (Knuth)."""
    total = c.float("fadd", x, y)
    back = c.float("fsub", total, x)
    left = c.float("fsub", x, c.float("fsub", total, back))
    right = c.float("fsub", y, back)
    return total, c.float("fadd", left, right)


def to_f32(c: Context, total: Value, error: Value, mode: str) -> Value:
    """The f64 sum `total` + `error` as an f32 rounded once: RN (error 0), RM, RP or RZ."""
    nearest = c.convert("fptrunc", total, F32)
    if mode == "RN":
        return nearest
    off = c.float("fsub", c.convert("fpext", nearest, F64), total)
    zero = c.const(F64, 0)
    tie = c.fcompare("foeq", off, zero)
    above = c.or_(c.fcompare("folt", zero, off), c.and_(tie, c.fcompare("folt", error, zero)))
    below = c.or_(c.fcompare("folt", off, zero), c.and_(tie, c.fcompare("folt", zero, error)))
    bits = c.bitcast(nearest)
    negative = c.slt(bits, c.const(I32, 0))
    one = c.const(I32, 1)
    down = c.and_(above, c.not_(negative) if mode == "RZ" else c.const(below.type, 1))
    up = c.and_(below, negative if mode == "RZ" else c.const(below.type, 1))
    if mode == "RM":
        up = c.const(below.type, 0)
    elif mode == "RP":
        down = c.const(below.type, 0)
    away = c.or_(c.and_(down, negative), c.and_(up, c.not_(negative)))
    inward = c.or_(c.and_(down, c.not_(negative)), c.and_(up, negative))
    moved = c.select(away, c.add(bits, one), c.select(inward, c.sub(bits, one), bits))
    return c.bitcast(moved)


def integer_to_f64(c: Context, value: Value, signed: bool) -> tuple[Value, Value]:
    """An i32 or i64 as an f64 and what rounding to f64 lost."""
    zero = c.const(F64, 0)
    if value.type is I32:
        if not signed:
            return c.convert("uitofp", value, F64), zero
        # An offset makes it unsigned, and both steps are exact.
        shifted = c.convert("uitofp", c.xor(value, c.const(I32, SIGN)), F64)
        return c.float("fsub", shifted, c.bitcast(c.const(I64, 0x41E0_0000_0000_0000))), zero
    high = value if not signed else c.xor(value, c.const(I64, 1 << 63))
    scale = c.bitcast(c.const(I64, 0x41F0_0000_0000_0000))
    upper = c.float("fmul", c.convert("uitofp", c.high(high), F64), scale)
    if signed:
        upper = c.float("fsub", upper, c.bitcast(c.const(I64, 0x43E0_0000_0000_0000)))
    return two_sum(c, upper, c.convert("uitofp", c.low(value), F64))
