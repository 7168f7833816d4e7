"""Single-precision arithmetic: FADD, FMUL, FFMA, FMNMX, FSETP, FCHK, MUFU, FRND.

Without FTZ subnormals are kept. RM, RP and RZ are computed from the exact sum in f64. A NaN result
has the one pattern the hardware gives, applied where its bits are looked at.
"""

from __future__ import annotations

import struct

from oracle.machine.builder import F32, F64, I1, I32
from oracle.machine.context import Context, Modifiers
from oracle.machine.instructions.compare import combine
from oracle.machine.instructions.registry import meaning
from oracle.machine.instructions.rounding import INFINITY, MAGNITUDE, flush, to_f32, two_sum
from oracle.machine.ir import Value
from oracle.machine.operands import Imm, Operand

ROUNDINGS = ("RN", "RM", "RP", "RZ")
_SCALES = {"D8": 0.125, "D4": 0.25, "D2": 0.5, "M2": 2.0, "M4": 4.0, "M8": 8.0}


class _Arithmetic:
    """What the modifiers say about an operation: flushing, rounding, saturation."""

    def __init__(self, c: Context, m: Modifiers) -> None:
        self.c = c
        self.ftz = m.take("FTZ")
        self.rounding = m.choose(*ROUNDINGS, default="RN")
        self.saturate = m.take("SAT")

    def read(self, operand: Operand) -> Value:
        value = self.c.f32(operand)
        return flush(self.c, value) if self.ftz else value

    def write(self, target: Operand, value: Value) -> None:
        c = self.c
        if self.ftz:
            value = flush(c, value)
        if self.saturate:
            # A NaN saturates to +0: it loses to the lower bound.
            value = c.float("fmax", value, c.f32_const(0))
            value = c.float("fmin", value, c.f32_const(0x3F80_0000))
        c.set_f32(target, value)

    def sum(self, product: Value, addend: Value) -> Value:
        """product + addend of exact f64 values, rounded once in the asked direction."""
        c = self.c
        total, error = two_sum(c, product, addend)
        rounded = to_f32(c, total, error, self.rounding)
        if self.rounding != "RM":
            return rounded
        # An exact zero of unlike terms is -0 when rounding down.
        zero = c.fcompare("foeq", total, c.const(F64, 0))
        signs = c.or_(self._negative(product), self._negative(addend))
        negative_zero = c.f32_const(0x8000_0000)
        return c.bitcast(
            c.select(c.and_(zero, signs), c.bitcast(negative_zero), c.bitcast(rounded))
        )

    def _negative(self, x: Value) -> Value:
        c = self.c
        return c.slt(c.high(c.bitcast(x)), c.const(I32, 0))

    def wide(self, x: Value) -> Value:
        return self.c.convert("fpext", x, F64)


@meaning("FADD", "UFADD", operands=(3,))
def fadd(c: Context, m: Modifiers) -> None:
    """d = a + b"""
    how = _Arithmetic(c, m)
    a, b = how.read(c.operand(1)), how.read(c.operand(2))
    plain = how.rounding == "RN"
    how.write(c.operand(0), c.float("fadd", a, b) if plain else how.sum(how.wide(a), how.wide(b)))


@meaning("FMUL", "UFMUL", operands=(3,))
def fmul(c: Context, m: Modifiers) -> None:
    """d = a * b, times or divided by 2, 4 or 8 (M2 .. D8)"""
    how = _Arithmetic(c, m)
    scale = m.choose(*_SCALES)
    a, b = how.read(c.operand(1)), how.read(c.operand(2))
    if scale:
        how.write(c.operand(0), _scaled_product(c, how, a, b, _SCALES[scale]))
        return
    if how.rounding == "RN":
        how.write(c.operand(0), c.float("fmul", a, b))
        return
    product = c.float("fmul", how.wide(a), how.wide(b))
    how.write(c.operand(0), to_f32(c, product, c.const(F64, 0), how.rounding))


def _scaled_product(c: Context, how: _Arithmetic, a: Value, b: Value, scale: float) -> Value:
    """a * b * scale; whether it is rounded before it is scaled shows only in subnormals."""
    if how.rounding != "RN":
        raise c.refuse("directed rounding of a scaled product is not understood")
    factor = c.f32_const(struct.unpack("<I", struct.pack("<f", scale))[0])
    twice = c.float("fmul", c.float("fmul", a, b), factor)
    exact = c.float("fmul", c.float("fmul", how.wide(a), how.wide(b)), how.wide(factor))
    once = c.convert("fptrunc", exact, F32)
    same = c.eq(c.fbits(once), c.fbits(twice))
    message = "a scaled product is out of the range in which its rounding is known"
    c.emit("require", (), (same, c.guard), (message,))
    return once


@meaning("FFMA", "UFFMA", operands=(4,))
def ffma(c: Context, m: Modifiers) -> None:
    """d = a * b + c, rounded once"""
    how = _Arithmetic(c, m)
    a, b, addend = (how.read(c.operand(i)) for i in (1, 2, 3))
    if how.rounding == "RN":
        how.write(c.operand(0), c.float("fma", a, b, addend))
        return
    how.write(c.operand(0), how.sum(c.float("fmul", how.wide(a), how.wide(b)), how.wide(addend)))


@meaning("FADD2", "FMUL2", "FFMA2")
def packed(c: Context, m: Modifiers) -> None:
    """FADD, FMUL or FFMA on two f32 in register pairs"""
    ftz, rounding = m.take("FTZ"), m.choose(*ROUNDINGS, default="RN")
    if ftz or rounding != "RN":
        raise c.refuse("flushing or directed rounding of packed arithmetic is not understood")
    operation = {"FADD2": "fadd", "FMUL2": "fmul", "FFMA2": "fma"}
    name = operation[c.instruction.opcode.split(".")[0]]
    results = []
    for word in (0, 1):
        values = [c.f32_of_pair(operand, word) for operand in c.instruction.operands[1:]]
        results.append(c.fbits(c.float(name, *values)))
    for word in (0, 1):
        c.set_i32(c.operand(0), results[word], word)


def _extremum(c: Context, m: Modifiers, count: int) -> None:
    ftz, keep_nan = m.take("FTZ"), m.take("NAN")
    target, *sources, choice = c.instruction.operands
    if len(sources) != count:
        raise c.refuse("operands are not understood")
    values = [c.f32(source) for source in sources]
    if ftz:
        values = [flush(c, value) for value in values]
    minimum = c.predicate(choice)
    known = c.known(minimum)
    result = values[0]
    nan = c.fcompare("funo", result, result)
    for value in values[1:]:
        nan = c.or_(nan, c.fcompare("funo", value, value))
        if known is not None:
            result = c.float("fmin" if known else "fmax", result, value)
        else:
            low, high = c.float("fmin", result, value), c.float("fmax", result, value)
            result = c.bitcast(c.select(minimum, c.fbits(low), c.fbits(high)))
    bits = c.fbits(result)
    if keep_nan:
        bits = c.select(nan, c.const(I32, MAGNITUDE), bits)
    c.set_i32(target, bits)


@meaning("FMNMX", "UFMNMX")
def fmnmx(c: Context, m: Modifiers) -> None:
    """d = p ? min(a, b) : max(a, b); a NaN loses, with NAN it wins; -0 < +0"""
    _extremum(c, m, 2)


@meaning("FMNMX3", "UFMNMX3")
def fmnmx3(c: Context, m: Modifiers) -> None:
    """d = p ? min(a, b, c) : max(a, b, c)"""
    _extremum(c, m, 3)


def float_comparison(c: Context, how: str, a: Value, b: Value) -> Value:
    """One of LT .. GE (false for a NaN), LTU .. GEU (true for a NaN), NUM or NAN."""
    nan = c.fcompare("funo", a, b)
    if how in ("NUM", "NAN"):
        return nan if how == "NAN" else c.not_(nan)
    ordered = {
        "LT": ("folt", a, b),
        "LE": ("fole", a, b),
        "GT": ("folt", b, a),
        "GE": ("fole", b, a),
        "EQ": ("foeq", a, b),
    }
    # An unordered comparison is the opposite of the opposite ordered one.
    opposite = {"LTU": "GE", "LEU": "GT", "GTU": "LE", "GEU": "LT", "NEU": "EQ"}
    if how in ordered:
        return c.fcompare(*ordered[how])
    if how in opposite:
        return c.not_(c.fcompare(*ordered[opposite[how]]))
    equal = c.fcompare("foeq", a, b)
    return c.or_(equal, nan) if how == "EQU" else c.not_(c.or_(equal, nan))


FLOAT_COMPARISONS = (
    *("LTU", "EQU", "LEU", "GTU", "NEU", "GEU", "LT", "EQ", "LE", "GT", "NE", "GE"),
    *("NUM", "NAN"),
)


@meaning("FSETP", "UFSETP")
def fsetp(c: Context, m: Modifiers) -> None:
    """p, q = (a ? b) op r, !(a ? b) op r"""
    ftz = m.take("FTZ")
    how = m.choose(*FLOAT_COMPARISONS)
    operator = m.choose("AND", "OR", "XOR")
    if not how or not operator or len(c.instruction.operands) != 5:
        raise c.refuse("operands are not understood")
    a, b = c.f32(c.operand(2)), c.f32(c.operand(3))
    if ftz:
        a, b = flush(c, a), flush(c, b)
    result = float_comparison(c, how, a, b)
    other = c.predicate(c.operand(4))
    positive = combine(c, operator, result, other)
    negative = combine(c, operator, c.not_(result), other)
    c.set_predicate(c.operand(0), positive)
    c.set_predicate(c.operand(1), negative)


@meaning("FSET")
def fset(c: Context, m: Modifiers) -> None:
    """d = (a ? b) op r as 1.0 (BF) or all ones, else zero"""
    as_float, ftz = m.take("BF"), m.take("FTZ")
    how, operator = m.choose(*FLOAT_COMPARISONS), m.choose("AND", "OR", "XOR")
    if not how or not operator or len(c.instruction.operands) != 4:
        raise c.refuse("operands are not understood")
    a, b = c.f32(c.operand(1)), c.f32(c.operand(2))
    if ftz:
        a, b = flush(c, a), flush(c, b)
    result = combine(c, operator, float_comparison(c, how, a, b), c.predicate(c.operand(3)))
    yes = c.const(I32, 0x3F80_0000 if as_float else -1)
    c.set_i32(c.operand(0), c.select(result, yes, c.const(I32, 0)))


@meaning("FCHK", operands=(3,))
def fchk(c: Context, m: Modifiers) -> None:
    """p = the quotient a/b needs the slow path

    The exact rule of the hardware is not published. Both paths round correctly, so the fast one is
    taken only well inside its range: both exponents within 60 of that of 1.
    """
    m.take("DIVIDE")
    outcome = c.const(I1, 0)
    for position in (1, 2):
        exponent = c.and_(c.lshr(c.float_bits(c.operand(position)), 23), c.const(I32, 0xFF))
        distance = c.sub(exponent, c.const(I32, 127 - 60))
        outcome = c.or_(outcome, c.not_(c.ult(distance, c.const(I32, 121))))
    c.set_predicate(c.operand(0), outcome)


@meaning("MUFU", operands=(2,))
def mufu(c: Context, m: Modifiers) -> None:
    """d = 1/a under the launch's reciprocal model; the other functions have no model here"""
    source = c.operand(1)
    if isinstance(source, Imm) and source.value != source.value and m.take("RSQ"):
        # How a division that has no answer makes its NaN.
        c.set_i32(c.operand(0), c.const(I32, MAGNITUDE))
        return
    if not m.take("RCP"):
        raise c.refuse("only the reciprocal of the multifunction unit is modelled")
    c.set_f32(c.operand(0), c.rcp(c.f32(source)))


@meaning("FRND", operands=(2,))
def frnd(c: Context, m: Modifiers) -> None:
    """d = a rounded to an integer: nearest even, FLOOR, CEIL or TRUNC"""
    mode = m.choose("FLOOR", "CEIL", "TRUNC", default="RN")
    x = flush(c, c.f32(c.operand(1))) if m.take("FTZ") else c.f32(c.operand(1))
    c.set_f32(c.operand(0), to_integer(c, x, mode))


def to_integer(c: Context, x: Value, mode: str) -> Value:
    """An f32 rounded to an integer that is still an f32; the sign of a zero is kept."""
    bits = c.bitcast(x)
    sign = c.and_(bits, c.const(I32, ~MAGNITUDE))
    magnitude = c.and_(bits, c.const(I32, MAGNITUDE))
    size = c.bitcast(magnitude)
    # Adding and removing 2**23 rounds to an integer, to nearest even.
    big = c.f32_const(0x4B00_0000)
    nearest = c.float("fsub", c.float("fadd", size, big), big)
    one = c.f32_const(0x3F80_0000)
    if mode != "RN":
        negative = c.slt(bits, c.const(I32, 0))
        grow = {"TRUNC": c.const(I1, 0), "FLOOR": negative, "CEIL": c.not_(negative)}[mode]
        over = c.and_(c.fcompare("folt", size, nearest), c.not_(grow))
        under = c.and_(c.fcompare("folt", nearest, size), grow)
        smaller, larger = c.float("fsub", nearest, one), c.float("fadd", nearest, one)
        chosen = c.select(over, c.bitcast(smaller), c.bitcast(nearest))
        nearest = c.bitcast(c.select(under, c.bitcast(larger), chosen))
    whole = c.not_(c.ult(magnitude, c.const(I32, 0x4B00_0000)))
    rounded = c.or_(c.bitcast(nearest), sign)
    nan = c.ult(c.const(I32, INFINITY), magnitude)
    return c.bitcast(c.select(c.or_(whole, nan), bits, rounded))
