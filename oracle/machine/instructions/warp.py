"""Instructions across a warp: SHFL, VOTE, REDUX."""

from __future__ import annotations

from oracle.machine.builder import I1, I32
from oracle.machine.context import SIGN, Context, Modifiers
from oracle.machine.instructions.bits import count_ones
from oracle.machine.instructions.integer import is_predicate, leading_predicates
from oracle.machine.instructions.registry import meaning
from oracle.machine.ir import Value


@meaning("SHFL")
def shfl(c: Context, m: Modifiers) -> None:
    """p, d = in range, the value of another lane: IDX, UP, DOWN or BFLY"""
    mode = m.choose("IDX", "UP", "DOWN", "BFLY")
    outs = leading_predicates(c.instruction.operands)
    target, value, lane, clamp = c.instruction.operands[outs:]
    operands = (c.i32(value), c.i32(lane), c.i32(clamp), c.guard)
    result, inside = c.emit("shuffle", (I32, I1), operands, (mode,))
    c.set_i32(target, result)
    if outs:
        c.set_predicate(c.operand(0), inside)


def _votes(c: Context, predicate: Value) -> tuple[Value, Value]:
    """Ballots of the lanes where the predicate holds, and of all active lanes."""
    yes = c.emit("ballot", (I32,), (predicate, c.guard))[0]
    return yes, c.emit("ballot", (I32,), (c.const(I1, 1), c.guard))[0]


@meaning("VOTE", "VOTEU")
def vote(c: Context, m: Modifiers) -> None:
    """d = the ballot of a predicate, p = whether any or all lanes hold it"""
    mode = m.choose("ANY", "ALL", "EQ")
    *targets, source = c.instruction.operands
    yes, everyone = _votes(c, c.predicate(source))
    none = c.eq(yes, c.const(I32, 0))
    holds = {
        "ANY": c.not_(none),
        "ALL": c.eq(yes, everyone),
        "EQ": c.or_(none, c.eq(yes, everyone)),
    }
    if mode not in holds or len(targets) > 2:
        raise c.refuse("operands are not understood")
    for target in targets:
        if is_predicate(target):
            c.set_predicate(target, holds[mode])
        else:
            c.set_i32(target, yes)


@meaning("REDUX", "CREDUX", operands=(2,))
def redux(c: Context, m: Modifiers) -> None:
    """ud = a of all active lanes of the warp, reduced by OR, AND, XOR, SUM, MIN or MAX"""
    how = m.choose("OR", "XOR", "SUM", "MIN", "MAX", default="AND")
    signed = m.choose("S32", "U32") == "S32" and how in ("MIN", "MAX")
    value = c.i32(c.operand(1))
    # The smallest is the complement of the largest complement; a flipped sign orders as unsigned.
    flips = c.const(I32, (-1 if how == "MIN" else 0) ^ (SIGN if signed else 0))
    value = c.xor(value, flips)
    zero = c.const(I32, 0)
    everyone = _votes(c, c.const(I1, 1))[1]
    largest = everyone
    result = zero
    for place in range(31, -1, -1):
        yes, _ = _votes(c, c.trunc(c.lshr(value, place), I1))
        if how == "SUM":
            result = c.add(result, c.shl(count_ones(c, yes), place))
            continue
        if how in ("MIN", "MAX"):
            yes = c.and_(yes, largest)
            largest = c.select(c.eq(yes, zero), largest, yes)
        bit = {
            "AND": c.eq(yes, everyone),
            "XOR": c.trunc(count_ones(c, yes), I1),
        }.get(how, c.not_(c.eq(yes, zero)))
        result = c.or_(result, c.shl(c.zext(bit, I32), place))
    c.set_i32(c.operand(0), c.xor(result, flips))
