"""Integer comparisons into predicates: ISETP and its uniform and 64-bit forms."""

from __future__ import annotations

from oracle.machine.builder import I1
from oracle.machine.context import Context, Modifiers
from oracle.machine.instructions.registry import meaning
from oracle.machine.ir import Value


def combine(c: Context, operator: str, a: Value, b: Value) -> Value:
    """a AND b, a OR b, or a XOR b of predicates."""
    return {"AND": c.and_, "OR": c.or_, "XOR": c.xor}[operator](a, b)


def _ordered(c: Context, how: str, less: Value, equal: Value) -> Value:
    """A comparison in terms of a < b and a == b."""
    return {
        "LT": less,
        "GE": c.not_(less),
        "EQ": equal,
        "NE": c.not_(equal),
        "LE": c.or_(less, equal),
        "GT": c.not_(c.or_(less, equal)),
    }[how]


@meaning("ISETP", "UISETP")
def isetp(c: Context, m: Modifiers) -> None:
    """p, q = (a ? b) op r, !(a ? b) op r; EX continues a comparison of the low words"""
    how = m.choose("LT", "EQ", "LE", "GT", "NE", "GE", "F", "T")
    kind = m.choose("U32", "U64", "S64", "S32", default="S32")
    operator = m.choose("AND", "OR", "XOR")
    extended = m.take("EX")
    expected = 6 if extended else 5
    if not operator or not how or len(c.instruction.operands) != expected:
        raise c.refuse("operands are not understood")
    read = c.i64 if kind.endswith("64") else c.i32
    a, b = read(c.operand(2)), read(c.operand(3))
    less = c.ult(a, b) if kind.startswith("U") else c.slt(a, b)
    equal = c.eq(a, b)
    if how in ("F", "T"):
        result = c.const(I1, int(how == "T"))
    elif not extended:
        result = _ordered(c, how, less, equal)
    else:
        # The low words decide where the high words are equal.
        low = c.predicate(c.operand(5))
        strict = {"LE": "LT", "GE": "GT"}.get(how, how)
        if how == "NE":
            result = c.or_(c.not_(equal), low)
        elif how == "EQ":
            result = c.and_(equal, low)
        else:
            result = c.or_(_ordered(c, strict, less, equal), c.and_(equal, low))
    other = c.predicate(c.operand(4))
    positive = combine(c, operator, result, other)
    negative = combine(c, operator, c.not_(result), other)
    c.set_predicate(c.operand(0), positive)
    c.set_predicate(c.operand(1), negative)
