"""Packed half precision: HADD2, HMUL2, HFMA2, HMNMX2, VHMNMX and HSETP2, in fp16 and bf16.

Each half is widened exactly, computed, and rounded once. Sums and products of two halves fit f32
closely enough that rounding twice is innocuous (24 >= 2*11 + 2 bits); a fused multiply-add goes
through f64 with its last bit made sticky.
"""

from __future__ import annotations

from oracle.machine.builder import F32, F64, I32
from oracle.machine.context import Context, Modifiers
from oracle.machine.instructions.compare import combine
from oracle.machine.instructions.floating import FLOAT_COMPARISONS, float_comparison
from oracle.machine.instructions.registry import meaning
from oracle.machine.instructions.rounding import FORMATS, Narrow, decode, encode, two_sum
from oracle.machine.ir import Value
from oracle.machine.operands import Const, Imm, Operand, Reg

_PARTS = {(): (0, 16), ("H1_H0",): (0, 16), ("H0_H0",): (0, 0), ("H1_H1",): (16, 16)}
_HALF = 0xFFFF


def _format(m: Modifiers) -> Narrow:
    return FORMATS["BF16" if m.take("BF16_V2") else "F16"]


def _operands(c: Context, first: int) -> list[tuple[Value, Value]]:
    """(low, high) i32 halves of each operand from a position on; two immediates are one operand."""
    found: list[tuple[Value, Value]] = []
    rest = list(c.instruction.operands[first:])
    while rest:
        operand = rest.pop(0)
        if isinstance(operand, Imm) and rest and isinstance(rest[0], Imm):
            rest.pop(0)
            bits = c.instruction.immediate_bits
            found.append((c.const(I32, bits & _HALF), c.const(I32, bits >> 16)))
        elif isinstance(operand, Reg | Const | Imm):
            found.append(_halves(c, operand))
    return found


def _halves(c: Context, operand: Reg | Const | Imm) -> tuple[Value, Value]:
    """The halves an operand selects, |x| and -x applied."""
    parts = _PARTS.get(tuple(getattr(operand, "suffixes", ())))
    if parts is None:
        raise c.refuse(f"operand {operand} is not understood")
    c.only(operand, "negate", "absolute", suffixes=getattr(operand, "suffixes", ()))
    word = c.i32_part(operand)
    halves = []
    for place in parts:
        half = c.and_(c.lshr(word, place), c.const(I32, _HALF))
        if getattr(operand, "absolute", False):
            half = c.and_(half, c.const(I32, 0x7FFF))
        if getattr(operand, "negate", False):
            half = c.xor(half, c.const(I32, 0x8000))
        halves.append(half)
    return halves[0], halves[1]


def _set(c: Context, halves: list[Value]) -> None:
    target = c.operand(0)
    if isinstance(target, Reg) and target.suffixes:
        raise c.refuse("a result of one half is not understood")
    c.set_i32(target, c.or_(halves[0], c.shl(halves[1], 16)))


def _binary(c: Context, m: Modifiers, name: str) -> None:
    form = _format(m)
    if m.take("F32"):
        # The result is the f32 sum of the low halves.
        (a, _), (b, _) = _operands(c, 1)
        c.set_f32(c.operand(0), c.float(name, decode(c, a, form), decode(c, b, form)))
        return
    a_pair, b_pair = _operands(c, 1)
    halves = [
        encode(c, c.float(name, decode(c, a, form), decode(c, b, form)), form, False)
        for a, b in zip(a_pair, b_pair, strict=True)
    ]
    _set(c, halves)


@meaning("HADD2")
def hadd2(c: Context, m: Modifiers) -> None:
    """d = a + b, half by half"""
    _binary(c, m, "fadd")


@meaning("HMUL2")
def hmul2(c: Context, m: Modifiers) -> None:
    """d = a * b, half by half"""
    _binary(c, m, "fmul")


@meaning("HFMA2", "UHFMA2")
def hfma2(c: Context, m: Modifiers) -> None:
    """d = a * b + c, half by half; with a zero product this is a move or an absolute value"""
    form = _format(m)
    m.take("MMA")
    a_pair, b_pair, c_pair = _operands(c, 1)
    halves = []
    for a, b, addend in zip(a_pair, b_pair, c_pair, strict=True):
        halves.append(_fused(c, form, a, b, addend))
    _set(c, halves)


def _fused(c: Context, form: Narrow, a: Value, b: Value, addend: Value) -> Value:
    if c.known(a) == 0x8000 and c.known(b) == 0:
        # -0 + x is x for every x but a NaN.
        known = c.known(addend)
        if known is not None and known & 0x7FFF <= form.infinity_code:
            return addend
        return c.select(_is_nan(c, form, addend), c.const(I32, form.nan), addend)
    x, y, z = (c.convert("fpext", decode(c, half, form), F64) for half in (a, b, addend))
    total, error = two_sum(c, c.float("fmul", x, y), z)
    return encode(c, _sticky_f32(c, total, error), form, False)


def _sticky_f32(c: Context, total: Value, error: Value) -> Value:
    """total + error as an f32 rounded to odd, so that a further rounding is the only one."""
    nearest = c.convert("fptrunc", total, F32)
    off = c.float("fsub", c.convert("fpext", nearest, F64), total)
    zero = c.const(F64, 0)
    exact = c.and_(c.fcompare("foeq", off, zero), c.fcompare("foeq", error, zero))
    # The true value lies beyond `nearest` where the total does, or the error where they agree.
    tie = c.fcompare("foeq", off, zero)
    greater = c.or_(c.fcompare("folt", off, zero), c.and_(tie, c.fcompare("folt", zero, error)))
    bits = c.bitcast(nearest)
    even = c.eq(c.and_(bits, c.const(I32, 1)), c.const(I32, 0))
    positive = c.not_(c.slt(bits, c.const(I32, 0)))
    step = c.select(c.eq(greater, positive), c.const(I32, 1), c.const(I32, -1))
    finite = c.fcompare("foeq", off, off)
    move = c.and_(c.and_(c.not_(exact), even), finite)
    return c.bitcast(c.select(move, c.add(bits, step), bits))


def _extremum_of_halves(c: Context, m: Modifiers, count: int) -> None:
    form, keep_nan = _format(m), m.take("NAN")
    if len(c.instruction.operands) < count + 2:
        raise c.refuse("operands are not understood")
    minimum = c.predicate(c.instruction.operands[-1])
    pairs = [_halves(c, o) for o in c.instruction.operands[1:-1] if isinstance(o, Reg | Const)]
    if len(pairs) != count:
        raise c.refuse("operands are not understood")
    halves = []
    for values in zip(*pairs, strict=True):
        best = values[0]
        for value in values[1:]:
            best = _better(c, form, minimum, best, value)
        if keep_nan:
            for value in values:
                best = c.select(_is_nan(c, form, value), c.const(I32, form.nan), best)
        halves.append(best)
    _set(c, halves)


def _is_nan(c: Context, form: Narrow, half: Value) -> Value:
    return c.ult(c.const(I32, form.infinity_code), c.and_(half, c.const(I32, 0x7FFF)))


def _better(c: Context, form: Narrow, minimum: Value, a: Value, b: Value) -> Value:
    """The smaller or larger half; a NaN loses to a number, -0 is below +0."""

    def order(half: Value) -> Value:
        signed = c.ashr(c.shl(half, 16), 16)
        return c.xor(signed, c.and_(c.ashr(signed, 31), c.const(I32, 0x7FFF)))

    keep = c.xor(c.slt(order(b), order(a)), minimum)
    result = c.select(keep, a, b)
    a_nan, b_nan = _is_nan(c, form, a), _is_nan(c, form, b)
    result = c.select(a_nan, b, result)
    result = c.select(b_nan, a, result)
    return c.select(c.and_(a_nan, b_nan), c.const(I32, form.nan), result)


@meaning("HMNMX2")
def hmnmx2(c: Context, m: Modifiers) -> None:
    """d = p ? min(a, b) : max(a, b), half by half; a NaN loses, with NAN it wins"""
    _extremum_of_halves(c, m, 2)


@meaning("VHMNMX")
def vhmnmx(c: Context, m: Modifiers) -> None:
    """d = p ? min(a, b, c) : max(a, b, c), half by half"""
    _extremum_of_halves(c, m, 3)


@meaning("HSETP2")
def hsetp2(c: Context, m: Modifiers) -> None:
    """p, q = the comparisons of the low and of the high halves"""
    operands = c.instruction.operands
    results = _comparisons(c, m, _format(m), operands[2:-1], operands[-1])
    for place, result in zip(operands[:2], results, strict=True):
        c.set_predicate(place, result)


@meaning("HSET2")
def hset2(c: Context, m: Modifiers) -> None:
    """d = the comparisons of the halves, each as 1.0 (BF) or all ones, else zero"""
    form, as_float = _format(m), m.take("BF")
    operands = c.instruction.operands
    yes = c.const(I32, form.bias << form.mantissa if as_float else _HALF)
    results = _comparisons(c, m, form, operands[1:-1], operands[-1])
    _set(c, [c.select(result, yes, c.const(I32, 0)) for result in results])


def _comparisons(
    c: Context, m: Modifiers, form: Narrow, compared: tuple[Operand, ...], other: Operand
) -> list[Value]:
    """The comparison of the low halves and that of the high ones, each joined with `other`."""
    how, operator = m.choose(*FLOAT_COMPARISONS), m.choose("AND", "OR", "XOR")
    if not how or not operator:
        raise c.refuse("operands are not understood")
    joined = c.predicate(other)
    halves = zip(*_compared(c, compared), strict=True)
    results = [float_comparison(c, how, decode(c, a, form), decode(c, b, form)) for a, b in halves]
    return [combine(c, operator, result, joined) for result in results]


def _compared(c: Context, operands: tuple[Operand, ...]) -> list[tuple[Value, Value]]:
    pairs = [_halves(c, o) for o in operands if isinstance(o, Reg | Const)]
    if len(pairs) == 1 and len(operands) == 3:
        bits = c.instruction.immediate_bits
        pairs.append((c.const(I32, bits & _HALF), c.const(I32, bits >> 16)))
    if len(pairs) != 2:
        raise c.refuse("operands are not understood")
    return pairs
