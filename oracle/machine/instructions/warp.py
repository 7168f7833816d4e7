"""Instructions across a warp: SHFL, VOTE, REDUX, ELECT."""

from __future__ import annotations

from oracle.machine.builder import I1, I32
from oracle.machine.context import Context, Modifiers
from oracle.machine.instructions.integer import leading_predicates
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
    operands = list(c.instruction.operands)
    source = c.predicate(operands.pop())
    yes, everyone = _votes(c, source)
    outs = leading_predicates(tuple(operands))
    none = c.eq(yes, c.const(I32, 0))
    holds = {
        "ANY": c.not_(none),
        "ALL": c.eq(yes, everyone),
        "EQ": c.or_(none, c.eq(yes, everyone)),
    }
    if mode not in holds or len(operands) > 2:
        raise c.refuse("operands are not understood")
    for operand in operands[outs:]:
        c.set_i32(operand, yes)
    for operand in operands[:outs]:
        c.set_predicate(operand, holds[mode])
