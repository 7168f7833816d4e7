"""The builder's simplifications are identities: folded or not, an expression has one value.

Random expressions are built with the builder, and evaluated straight from their definition in
Python integers; the two must agree for every value of the variables. The shapes drawn are those
that SASS leaves behind: halves joined and split, additions of negations, shifts by constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from handmade import run_operations
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from snippets import CALM, WORDS

from oracle.machine.builder import F32, F64, I1, I32, I64, Builder
from oracle.machine.ir import Type, Value
from oracle.machine.lanes import DTYPES

Values = dict[str, int]


@dataclass(frozen=True)
class Expression:
    """What to build, and what it is worth: bits of the type's width."""

    kind: Type
    build: Callable[[Builder, dict[str, Value]], Value]
    worth: Callable[[Values], int]
    text: str


def signed(x: int, width: int) -> int:
    return x - (1 << width) if x >> width - 1 else x


def cut(kind: Type, x: int) -> int:
    return x & (1 << kind.width) - 1


def constant(kind: Type, bits: int) -> Expression:
    return Expression(
        kind, lambda b, v: b.const(kind, bits), lambda v: cut(kind, bits), f"{bits:#x}"
    )


def variable(kind: Type, name: str) -> Expression:
    return Expression(kind, lambda b, v: v[name], lambda v: v[name], name)


def binary(method: str, function: Callable[[int, int, int], int], kind: Type | None = None):  # type: ignore[no-untyped-def]
    def make(x: Expression, y: Expression) -> Expression:
        result = kind or x.kind
        return Expression(
            result,
            lambda b, v: getattr(b, method)(x.build(b, v), y.build(b, v)),
            lambda v: cut(result, function(x.worth(v), y.worth(v), x.kind.width)),
            f"{method}({x.text}, {y.text})",
        )

    return make


def unary(method: str, function: Callable[[int], int], result: Type, *extra: object):  # type: ignore[no-untyped-def]
    def make(x: Expression) -> Expression:
        return Expression(
            result,
            lambda b, v: getattr(b, method)(x.build(b, v), *extra),
            lambda v: cut(result, function(x.worth(v))),
            f"{method}({x.text})",
        )

    return make


def shifted(method: str, amount: int):  # type: ignore[no-untyped-def]
    def make(x: Expression) -> Expression:
        n, width = amount % x.kind.width, x.kind.width
        how = {
            "shl": lambda a: a << n,
            "lshr": lambda a: a >> n,
            "ashr": lambda a: signed(a, width) >> n,
        }[method]
        return Expression(
            x.kind,
            lambda b, v: getattr(b, method)(x.build(b, v), n),
            lambda v: cut(x.kind, how(x.worth(v))),
            f"{method}({x.text}, {n})",
        )

    return make


def chosen(p: Expression, x: Expression, y: Expression) -> Expression:
    return Expression(
        x.kind,
        lambda b, v: b.select(p.build(b, v), x.build(b, v), y.build(b, v)),
        lambda v: x.worth(v) if p.worth(v) else y.worth(v),
        f"select({p.text}, {x.text}, {y.text})",
    )


ARITHMETIC = {
    "add": lambda a, b, w: a + b, "sub": lambda a, b, w: a - b, "mul": lambda a, b, w: a * b,
}  # fmt: skip
LOGIC = {
    "and_": lambda a, b, w: a & b, "or_": lambda a, b, w: a | b, "xor": lambda a, b, w: a ^ b,
}  # fmt: skip
ORDER = {
    "eq": lambda a, b, w: a == b, "ult": lambda a, b, w: a < b,
    "slt": lambda a, b, w: signed(a, w) < signed(b, w),
}  # fmt: skip
CONSTANTS = (0, 1, 2, 8, 31, 32, 0x80000000, 0xFFFFFFFF, 0x100000000, (1 << 64) - 1)


def expressions(kind: Type, depth: int) -> st.SearchStrategy[Expression]:
    """Expressions of a type, of at most some depth."""
    names = {I1: ("p", "q"), I32: ("a", "b", "c"), I64: ("x", "y")}[kind]
    leaves = st.sampled_from([variable(kind, name) for name in names]) | st.sampled_from(
        [constant(kind, bits) for bits in CONSTANTS]
    )
    if depth == 0:
        return leaves
    same, words = expressions(kind, depth - 1), expressions(I32, depth - 1)
    inner = [leaves]
    operations = LOGIC if kind is I1 else {**ARITHMETIC, **LOGIC}
    inner += [st.builds(binary(name, f), same, same) for name, f in operations.items()]
    inner.append(st.builds(unary("not_", lambda a: ~a, kind), same))
    inner.append(st.builds(chosen, expressions(I1, depth - 1), same, same))
    if kind is I1:
        for wide in (words, expressions(I64, depth - 1)):
            inner += [st.builds(binary(name, f, I1), wide, wide) for name, f in ORDER.items()]
            inner.append(st.builds(unary("trunc", lambda a: a, I1, I1), wide))
        return st.one_of(inner)
    shifts = st.builds(shifted, st.sampled_from(("shl", "lshr", "ashr")), st.integers(0, 63))
    inner.append(st.builds(lambda shift, x: shift(x), shifts, same))
    flags = expressions(I1, depth - 1)
    inner.append(st.builds(unary("zext", lambda a: a, kind, kind), flags))
    inner.append(st.builds(unary("sext", lambda a: -a, kind, kind), flags))
    if kind is I64:
        join = binary("join", lambda a, b, w: b << 32 | a, I64)
        inner += [st.builds(join, words, words)] * 2
        inner.append(st.builds(unary("zext", lambda a: a, I64, I64), words))
        inner.append(st.builds(unary("sext", lambda a: signed(a, 32), I64, I64), words))
        inner.append(st.builds(unary("bitcast", lambda a: a, F64), same).map(_back(I64)))
    else:
        pairs = expressions(I64, depth - 1)
        joined = st.builds(binary("join", lambda a, b, w: b << 32 | a, I64), words, words)
        inner += [
            st.builds(unary("low", lambda a: a, I32), joined),
            st.builds(unary("high", lambda a: a >> 32, I32), joined),
            st.builds(unary("low", lambda a: a, I32), pairs),
            st.builds(unary("high", lambda a: a >> 32, I32), pairs),
            st.builds(unary("trunc", lambda a: a, I32, I32), pairs),
            st.builds(unary("bitcast", lambda a: a, F32), same).map(_back(I32)),
        ]
    return st.one_of(inner)


def _back(kind: Type):  # type: ignore[no-untyped-def]
    return unary("bitcast", lambda a: a, kind)


_VALUES = st.fixed_dictionaries(
    {
        **{name: st.integers(0, 1) for name in "pq"},
        **{name: st.sampled_from(WORDS) | st.integers(0, 0xFFFFFFFF) for name in "abc"},
        **{name: st.sampled_from(CONSTANTS) | st.integers(0, (1 << 64) - 1) for name in "xy"},
    }
)
KINDS = {"p": I1, "q": I1, "a": I32, "b": I32, "c": I32, "x": I64, "y": I64}


def worth(expression: Expression, values: Values) -> int:
    """What the operations that the builder emitted compute."""
    builder = Builder()
    variables = {name: builder.emit("get", (kind,), (), (name,))[0] for name, kind in KINDS.items()}
    root = expression.build(builder, variables)
    builder.emit("set", (), (root,), ("result",))
    registers = {name: np.full(32, value, DTYPES[KINDS[name]]) for name, value in values.items()}
    return int(np.broadcast_to(run_operations(builder.ops, registers)["result"], 32)[0])


DRAWN = settings(max_examples=150, **CALM)
SAME_EACH_TIME = settings(
    max_examples=600, **CALM, derandomize=True, database=None, phases=[Phase.generate]
)


def check_expressions(kind: Type, how: settings) -> None:
    """Compare the values of drawn expressions with what they are worth."""

    @how
    @given(expression=expressions(kind, 3), values=_VALUES)
    def check(expression: Expression, values: Values) -> None:
        assert worth(expression, values) == expression.worth(values), expression.text

    check()


@pytest.mark.parametrize("kind", [I1, I32, I64], ids=lambda kind: kind.value)
def test_any_expression(kind: Type) -> None:
    check_expressions(kind, DRAWN)


Method = Callable[..., object]


def swapped_halves(old: Method) -> Method:
    def wrong(self: Builder, a: Value) -> object:
        found = old(self, a)
        return found[::-1] if isinstance(found, tuple) else found

    return wrong


def halved_twice(old: Method) -> Method:
    def wrong(self: Builder, name: str, a: Value, n: int | Value) -> object:
        return old(self, "lshr" if name == "ashr" else name, a, n)

    return wrong


def either_way(old: Method) -> Method:
    def wrong(self: Builder, a: Value, b: Value) -> object:
        return old(self, b, a) if self.known(a) is not None else old(self, a, b)

    return wrong


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("_halves", swapped_halves),
        ("_shift", halved_twice),
        ("sub", either_way),
        ("slt", either_way),
    ],
)
def test_a_rule_that_is_no_identity_is_noticed(
    method: str, fault: Callable[[Method], Method], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Builder, method, fault(getattr(Builder, method)))
    assert any(fails(kind) for kind in (I32, I64, I1))


def fails(kind: Type) -> bool:
    try:
        check_expressions(kind, SAME_EACH_TIME)
    except AssertionError:
        return True
    return False


def emitted(build: Callable[[Builder, Value, Value], object]) -> list[str]:
    """Names of the operations emitted besides the two variables and constants."""
    builder = Builder()
    a, b = (builder.emit("get", (I32,), (), (name,))[0] for name in "ab")
    build(builder, a, b)
    return [op.name for op in builder.ops if op.name not in ("get", "const")]


def test_idioms_become_what_they_mean() -> None:
    assert emitted(lambda c, a, b: c.mul(a, c.const(I32, 8))) == ["shl"]
    assert emitted(lambda c, a, b: c.add(c.mul(a, c.const(I32, 1)), c.const(I32, 0))) == []
    assert emitted(lambda c, a, b: c.add(a, c.sub(c.const(I32, 0), b))) == ["sub", "sub"]
    assert emitted(lambda c, a, b: c.high(c.join(a, b))) == ["zext", "zext", "shl", "or"]
    assert emitted(lambda c, a, b: c.not_(c.not_(a))) == ["xor"]
    assert emitted(lambda c, a, b: [c.add(a, b), c.add(a, b)]) == ["add"]


def test_a_nan_is_made_canonical_wherever_its_bits_are_seen() -> None:
    """fbits disappears before a float operation, and only there."""
    builder = Builder()
    bits = builder.const(I32, 0xFFC00001)
    assert builder.known(builder.fbits(builder.bitcast(bits))) == 0x7FFFFFFF
    a = builder.emit("get", (I32,), (), ("a",))[0]
    total = builder.float("fadd", builder.bitcast(a), builder.bitcast(a))
    seen = builder.fbits(total)
    assert builder.bitcast(seen) is total
    assert builder.and_(seen, builder.const(I32, -1)) is seen
    assert builder.bitcast(builder.bitcast(a)) is a
