"""Logic and shifts: LOP3, PLOP3, SHF, and counting and reversing bits."""

from __future__ import annotations

from collections.abc import Sequence

from oracle.machine.builder import I32, I64
from oracle.machine.context import Context, Modifiers
from oracle.machine.instructions.integer import is_predicate, leading_predicates
from oracle.machine.instructions.registry import meaning
from oracle.machine.ir import Value


def truth_table(c: Context, table: int, inputs: Sequence[Value]) -> Value:
    """The function of up to three inputs whose value for a, b, c is bit a*4 + b*2 + c.

    Expanded input by input (Shannon), with the cases of equal, opposite and constant halves
    written as the operation they are.
    """
    kind = inputs[0].type
    ones, zeros = c.const(kind, -1), c.const(kind, 0)

    def expand(bits: int, rest: Sequence[Value]) -> Value:
        if not rest:
            return ones if bits else zeros
        half = 1 << (len(rest) - 1)
        full = (1 << half) - 1
        low, high = bits & full, bits >> half
        first, others = rest[0], rest[1:]
        if low == high:
            return expand(low, others)
        if low == high ^ full:
            return c.xor(first, expand(low, others))
        if low == 0:
            return c.and_(first, expand(high, others))
        if high == 0:
            return c.and_(c.not_(first), expand(low, others))
        if high == full:
            return c.or_(first, expand(low, others))
        if low == full:
            return c.or_(c.not_(first), expand(high, others))
        one, other = expand(high, others), expand(low, others)
        return c.or_(c.and_(first, one), c.and_(c.not_(first), other))

    return expand(table, inputs)


def _table(c: Context, position: int) -> int:
    table = c.known(c.i32(c.operand(position)))
    if table is None or table > 0xFF:
        raise c.refuse("the truth table is not an 8-bit constant")
    return table


@meaning("LOP3", "ULOP3")
def lop3(c: Context, m: Modifiers) -> None:
    """d = table(a, b, c), bit by bit; p = (d != 0) or r, with PAND: and r"""
    m.take("LUT")
    both = m.take("PAND")
    outs = leading_predicates(c.instruction.operands)
    if len(c.instruction.operands) != outs + 6 or outs > 1:
        raise c.refuse("operands are not understood")
    table = _table(c, outs + 4)
    inputs = [c.i32(c.operand(outs + i)) for i in (1, 2, 3)]
    result = truth_table(c, table, inputs)
    if outs:
        nonzero = c.not_(c.eq(result, c.const(I32, 0)))
        other = c.predicate(c.operand(outs + 5))
        c.set_predicate(c.operand(0), c.and_(nonzero, other) if both else c.or_(nonzero, other))
    c.set_i32(c.operand(outs), result)


@meaning("PLOP3", "UPLOP3")
def plop3(c: Context, m: Modifiers) -> None:
    """p = table(a, b, c), q = second table(a, b, c)"""
    m.take("LUT")
    if len(c.instruction.operands) != 7 or not all(
        is_predicate(c.operand(i)) for i in (0, 1, 2, 3, 4)
    ):
        raise c.refuse("operands are not understood")
    inputs = [c.predicate(c.operand(i)) for i in (2, 3, 4)]
    first = truth_table(c, _table(c, 5), inputs)
    second = truth_table(c, _table(c, 6), inputs)
    c.set_predicate(c.operand(0), first)
    c.set_predicate(c.operand(1), second)


@meaning("SHF", "USHF", operands=(4,))
def shf(c: Context, m: Modifiers) -> None:
    """d = a word of {c:a} shifted by b: L left, R right; HI the high word, else the low one

    The amount of a 32-bit type stops at 32, of a 64-bit type at 64; W takes it modulo the width.
    """
    right = m.choose("L", "R") == "R"
    kind = m.choose("U32", "S32", "U64", "S64")
    high, wrap = m.take("HI"), m.take("W")
    if not kind:
        raise c.refuse("the type is not understood")
    width, arithmetic = int(kind[1:]), right and kind[0] == "S"
    low_word, amount, high_word = c.i32(c.operand(1)), c.i32(c.operand(2)), c.i32(c.operand(3))
    if wrap:
        amount = c.and_(amount, c.const(I32, width - 1))
    c.set_i32(c.operand(0), _funnel(c, right, arithmetic, high, width, low_word, amount, high_word))


def _funnel(
    c: Context,
    right: bool,
    arithmetic: bool,
    high: bool,
    width: int,
    low_word: Value,
    amount: Value,
    high_word: Value,
) -> Value:
    known = c.known(amount)
    small = known is not None and known < 32
    if small and known is not None:
        # The word that one side alone determines needs no 64-bit shift.
        if right and high:
            return (c.ashr if arithmetic else c.lshr)(high_word, known)
        if not right and not high:
            return c.shl(low_word, known)
    pair = c.join(low_word, high_word)
    wide = c.zext(amount, I64)
    limit = c.ult(wide, c.const(I64, width))
    wide = c.select(limit, wide, c.const(I64, width))
    over = c.eq(wide, c.const(I64, 64))
    safe = c.and_(wide, c.const(I64, 63))
    if arithmetic:
        shifted = c.select(over, c.ashr(pair, 63), c.ashr(pair, safe))
    else:
        shifted = c.lshr(pair, safe) if right else c.shl(pair, safe)
        shifted = c.select(over, c.const(I64, 0), shifted)
    return c.high(shifted) if high else c.low(shifted)


@meaning("POPC", "UPOPC", operands=(2,))
def popc(c: Context, m: Modifiers) -> None:
    """d = number of ones of a"""
    c.set_i32(c.operand(0), count_ones(c, c.i32(c.operand(1))))


def count_ones(c: Context, x: Value) -> Value:
    """The number of ones of an i32."""
    # Sums of neighbouring bits, pairs, nibbles, then all bytes by one multiplication.
    x = c.sub(x, c.and_(c.lshr(x, 1), c.const(I32, 0x55555555)))
    pairs = c.const(I32, 0x33333333)
    x = c.add(c.and_(x, pairs), c.and_(c.lshr(x, 2), pairs))
    x = c.and_(c.add(x, c.lshr(x, 4)), c.const(I32, 0x0F0F0F0F))
    return c.lshr(c.mul(x, c.const(I32, 0x01010101)), 24)


@meaning("FLO", "UFLO")
def flo(c: Context, m: Modifiers) -> None:
    """d = position of the highest one, ~0 where there is none; SH counts from the top"""
    unsigned, from_top = m.take("U32"), m.take("SH")
    outs = leading_predicates(c.instruction.operands[1:])
    if len(c.instruction.operands) != 2 + outs or outs > 1:
        raise c.refuse("operands are not understood")
    x = c.i32(c.operand(1 + outs))
    if not unsigned:
        x = c.xor(x, c.ashr(x, 31))
    zero = c.eq(x, c.const(I32, 0))
    place = c.const(I32, 0)
    for step in (16, 8, 4, 2, 1):
        upper = c.not_(c.ult(x, c.const(I32, 1 << step)))
        place = c.select(upper, c.add(place, c.const(I32, step)), place)
        x = c.select(upper, c.lshr(x, step), x)
    if from_top:
        place = c.sub(c.const(I32, 31), place)
    c.set_i32(c.operand(0), c.select(zero, c.const(I32, -1), place))
    if outs:
        c.set_predicate(c.operand(1), c.not_(zero))


@meaning("BREV", "UBREV", operands=(2,))
def brev(c: Context, m: Modifiers) -> None:
    """d = a with its bits in reverse order"""
    x = c.i32(c.operand(1))
    for step, bits in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        mask = c.const(I32, bits)
        x = c.or_(c.and_(c.lshr(x, step), mask), c.shl(c.and_(x, mask), step))
    c.set_i32(c.operand(0), c.or_(c.lshr(x, 16), c.shl(x, 16)))


@meaning("SGXT", "USGXT", operands=(3,))
def sgxt(c: Context, m: Modifiers) -> None:
    """d = the low b bits of a, sign-extended; U32: zero-extended; W wraps b at 32"""
    unsigned, wrap = m.take("U32"), m.take("W")
    amount = c.known(c.i32(c.operand(2)))
    if amount is None:
        raise c.refuse("a width that is not a constant is not understood")
    amount = amount % 32 if wrap else min(amount, 32)
    x = c.i32(c.operand(1))
    if amount == 0:
        c.set_i32(c.operand(0), c.const(I32, 0))
        return
    shift = c.lshr if unsigned else c.ashr
    c.set_i32(c.operand(0), shift(c.shl(x, 32 - amount), 32 - amount))


@meaning("BMSK", "UBMSK", operands=(3,))
def bmsk(c: Context, m: Modifiers) -> None:
    """d = b ones from bit a on"""
    wrap = m.choose("W", "C") == "W"
    position, width = c.i32(c.operand(1)), c.i32(c.operand(2))
    limit = c.const(I32, 31)
    if wrap:
        position, width = c.and_(position, limit), c.and_(width, limit)
    below = c.const(I32, 32)

    def ones(count: Value) -> Value:
        short = c.ult(count, below)
        mask = c.sub(c.shl(c.const(I32, 1), c.and_(count, limit)), c.const(I32, 1))
        return c.select(short, mask, c.const(I32, -1))

    inside = c.ult(position, below)
    shifted = c.shl(ones(width), c.and_(position, limit))
    c.set_i32(c.operand(0), c.select(inside, shifted, c.const(I32, 0)))
