"""Integer arithmetic: IADD3, VIADD, IMAD, IABS, minima and maxima, LEA.

Subtraction is the addition of a complement and one, inside the sum, so that `RZ - 0` carries. An
addition of three words can carry two; with two carry results the first means "at least one" and
the second "two", and `.X` adds what its two carry operands say.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from oracle.machine.builder import I32, I64
from oracle.machine.context import Context, Modifiers
from oracle.machine.instructions.registry import meaning
from oracle.machine.ir import Value
from oracle.machine.operands import Const, Operand, Reg


def is_predicate(operand: Operand) -> bool:
    """Whether an operand is a predicate register."""
    return isinstance(operand, Reg) and operand.file in ("P", "UP")


def leading_predicates(operands: tuple[Operand, ...]) -> int:
    """How many predicate operands stand at the front."""
    return next((i for i, o in enumerate(operands) if not is_predicate(o)), len(operands))


def _sum(c: Context, terms: list[tuple[Value, int]], carries: list[Value]) -> Value:
    """The i64 sum of i32 terms, each with the one its negation adds, and of carries."""
    ones = sum(one for _, one in terms)
    total = c.const(I64, ones)
    for term, _ in terms:
        total = c.add(c.zext(term, I64), total)
    for carry in carries:
        total = c.add(total, c.zext(carry, I64))
    return total


def _addend(c: Context, operand: Operand) -> tuple[Value, int]:
    if isinstance(operand, Reg | Const) and operand.negate:
        return c.not_(c.i32(replace(operand, negate=False))), 1
    return c.i32(operand), 0


def _carries(c: Context, operands: tuple[Operand, ...]) -> list[Value]:
    carries = [c.predicate(operand) for operand in operands]
    return [carry for carry in carries if c.known(carry) != 0]


@meaning("IADD3", "UIADD3")
def iadd3(c: Context, m: Modifiers) -> None:
    """d[, carry, carry] = a + b + c [+ carry + carry]"""
    _add(c, m, 3)


@meaning("IADD", "UIADD")
def iadd(c: Context, m: Modifiers) -> None:
    """d[, carry] = a + b [+ carry]"""
    _add(c, m, 2)


def _add(c: Context, m: Modifiers, count: int) -> None:
    extended, wide = m.take("X"), m.take("64")
    target, *rest = c.instruction.operands
    outs = leading_predicates(tuple(rest))
    for place in rest[:outs]:
        c.only(place)
    carry_out = [o for o in rest[:outs] if isinstance(o, Reg) and not o.constant]
    sources, carry_in = rest[outs : outs + count], rest[outs + count :]
    if len(sources) != count or bool(carry_in) != extended or len(carry_in) >= count:
        raise c.refuse("operands are not understood")
    if wide:
        if carry_out or extended:
            raise c.refuse("a 64-bit sum with carries is not understood")
        first, *others = (c.i64(source) for source in sources)
        c.set_i64(target, reduce(c.add, others, first))
        return
    carries = _carries(c, tuple(carry_in))
    if not carry_out:
        first, *others = (c.i32(source) for source in sources)
        others += [c.zext(carry, I32) for carry in carries]
        c.set_i32(target, reduce(c.add, others, first))
        return
    total = _sum(c, [_addend(c, source) for source in sources], carries)
    carried = c.high(total)
    c.set_i32(target, c.low(total))
    meanings = (c.not_(c.eq(carried, c.const(I32, 0))), c.ult(c.const(I32, 1), carried))
    for place, value in zip(rest[:outs], meanings, strict=False):
        c.set_predicate(place, value)


@meaning("VIADD", "UVIADD", operands=(3,))
def viadd(c: Context, m: Modifiers) -> None:
    """d = a + b"""
    m.ignore("U32")
    c.set_i32(c.operand(0), c.add(c.i32(c.operand(1)), c.i32(c.operand(2))))


@meaning("IMAD", "UIMAD")
def imad(c: Context, m: Modifiers) -> None:
    """d = a*b + c; MOV, IADD and SHL in the name are hints, WIDE and HI use 64 bits"""
    m.choose("MOV", "IADD", "SHL")
    form = m.choose("WIDE", "HI")
    unsigned, extended = m.take("U32"), m.take("X")
    target, *rest = c.instruction.operands
    outs = leading_predicates(tuple(rest))
    carry_out, (a, b, addend, *carry_in) = rest[:outs], rest[outs:]
    carries = _carries(c, tuple(carry_in))
    if bool(carry_in) != extended or carry_in[1:] or (outs and not form):
        raise c.refuse("operands are not understood")
    if any(c.known(c.predicate(place)) != 1 for place in carry_out[1:]):
        raise c.refuse("a second carry is not understood")
    if not form:
        result = c.add(c.mul(c.i32(a), c.i32(b)), c.i32(addend))
        for carry in carries:
            result = c.add(result, c.zext(carry, I32))
        c.set_i32(target, result)
        return
    extend = c.zext if unsigned else c.sext
    product = c.mul(extend(c.i32(a), I64), extend(c.i32(b), I64))
    addend64 = c.i64(addend)
    total = c.add(product, addend64)
    carried = c.ult(total, product)
    for carry in carries:
        before, total = total, c.add(total, c.zext(carry, I64))
        carried = c.or_(carried, c.ult(total, before))
    if form == "WIDE":
        c.set_i64(target, total)
    else:
        c.set_i32(target, c.high(total))
    if carry_out:
        c.set_predicate(carry_out[0], carried)


@meaning("IABS", "UIABS", operands=(2,))
def iabs(c: Context, m: Modifiers) -> None:
    """d = |a|"""
    value = c.i32(c.operand(1))
    negative = c.slt(value, c.const(I32, 0))
    c.set_i32(c.operand(0), c.select(negative, c.sub(c.const(I32, 0), value), value))


def _smaller(c: Context, unsigned: bool, a: Value, b: Value) -> Value:
    return c.ult(a, b) if unsigned else c.slt(a, b)


@meaning("IMNMX", "VIMNMX", "UIMNMX", "UVIMNMX")
def imnmx(c: Context, m: Modifiers) -> None:
    """d = p ? min(a, b) : max(a, b)"""
    _choose_extremum(c, m, 2)


@meaning("VIMNMX3", "UVIMNMX3")
def vimnmx3(c: Context, m: Modifiers) -> None:
    """d = p ? min(a, b, c) : max(a, b, c)"""
    _choose_extremum(c, m, 3)


def _choose_extremum(c: Context, m: Modifiers, count: int) -> None:
    kind = m.choose("U32", "S32", "U64", "S64", "U16x2", "S16x2", default="S32")
    wide = kind.endswith("64")
    plain = [o for o in c.instruction.operands if not is_predicate(o)]
    predicates = [o for o in c.instruction.operands if is_predicate(o)]
    # Two results come before or after the register, and one more input after the choice; what
    # they are for is not known, so that they must stand for nothing.
    inputs = 2 if wide else 1
    unused, (choice, *more) = predicates[:-inputs], predicates[-inputs:]
    if c.instruction.operands[-inputs:] != tuple(predicates[-inputs:]) or len(unused) not in (0, 2):
        raise c.refuse("operands are not understood")
    idle = all(c.known(c.predicate(o)) == 1 for o in unused)
    idle = idle and all(c.known(c.predicate(o)) == 0 for o in more)
    if len(plain) != count + 1 or not idle:
        raise c.refuse("operands are not understood")
    target, *sources = plain
    minimum = c.predicate(choice)
    unsigned = kind.startswith("U")
    if kind.endswith("x2"):
        words = [c.i32(source) for source in sources]
        halves = [
            _extremum(c, [_half(c, word, place, unsigned) for word in words], unsigned, minimum)
            for place in (0, 16)
        ]
        low = c.and_(halves[0], c.const(I32, 0xFFFF))
        c.set_i32(target, c.or_(low, c.shl(halves[1], 16)))
    elif wide:
        c.set_i64(target, _extremum(c, [c.i64(source) for source in sources], unsigned, minimum))
    else:
        best = _extremum(c, [c.i32(source) for source in sources], unsigned, minimum)
        c.set_i32(target, _clamped(c, m, best))


def _half(c: Context, word: Value, place: int, unsigned: bool) -> Value:
    """16 bits of a word from bit `place` on, extended to 32."""
    shift = c.lshr if unsigned else c.ashr
    return shift(c.shl(word, 16 - place), 16)


def _extremum(c: Context, values: list[Value], unsigned: bool, minimum: Value) -> Value:
    best, *others = values
    for value in others:
        # The larger of the two stays for a maximum, the not-larger for a minimum.
        keep = c.xor(_smaller(c, unsigned, value, best), minimum)
        best = c.select(keep, best, value)
    return best


@meaning("VIADDMNMX", "UVIADDMNMX")
def viaddmnmx(c: Context, m: Modifiers) -> None:
    """d = p ? min(a + b, c) : max(a + b, c)"""
    unsigned = m.choose("U32", "S32") == "U32"
    target, a, b, bound, choice = c.instruction.operands
    total, other = c.add(c.i32(a), c.i32(b)), c.i32(bound)
    keep = c.xor(_smaller(c, unsigned, other, total), c.predicate(choice))
    c.set_i32(target, _clamped(c, m, c.select(keep, total, other)))


def _clamped(c: Context, m: Modifiers, value: Value) -> Value:
    """RELU: nothing below zero."""
    zero = c.const(I32, 0)
    return c.select(c.slt(value, zero), zero, value) if m.take("RELU") else value


@meaning("LEA", "ULEA")
def lea(c: Context, m: Modifiers) -> None:
    """d[, carry] = (a << s) + b; HI shifts {c:a} and takes the high word"""
    high, extended, signed = m.take("HI"), m.take("X"), m.take("SX32")
    target, *rest = c.instruction.operands
    outs = leading_predicates(tuple(rest))
    carry_out, operands = rest[:outs], rest[outs:]
    carry_in = operands[len(operands) - 1 :] if extended else []
    operands = operands[: len(operands) - len(carry_in)]
    if len(operands) != (4 if high and not signed else 3) or carry_out[1:]:
        raise c.refuse("operands are not understood")
    first = c.i32(operands[0])
    amount = c.known(c.i32(operands[-1]))
    if amount is None or amount > 31:
        raise c.refuse("a shift amount that is not a constant below 32 is not understood")
    if signed:
        shifted = c.high(c.shl(c.sext(first, I64), amount))
    elif high:
        shifted = c.high(c.shl(c.join(first, c.i32(operands[2])), amount))
    else:
        shifted = c.shl(first, amount)
    carries = _carries(c, tuple(carry_in))
    if not carry_out:
        result = c.add(shifted, c.i32(operands[1]))
        for carry in carries:
            result = c.add(result, c.zext(carry, I32))
        c.set_i32(target, result)
        return
    total = _sum(c, [(shifted, 0), _addend(c, operands[1])], carries)
    c.set_i32(target, c.low(total))
    c.set_predicate(carry_out[0], c.not_(c.eq(c.high(total), c.const(I32, 0))))
