"""Each pure primitive of the intermediate representation alone, as the NumPy back end runs it.

No builder stands between, so that nothing is folded. Every primitive is evaluated over arrays, over
scalars (values that are the same in every lane) and over a mixture, which must not differ.
"""

import math
import struct
from collections.abc import Callable
from fractions import Fraction

import exact
import numpy as np
import pytest
from handmade import run_operations
from hypothesis import given, settings
from hypothesis import strategies as st
from snippets import CALM, FLOATS, WORDS, grid

from oracle.machine.ir import PURE, Op, Type, Value
from oracle.machine.lanes import DTYPES
from oracle.machine.primitives import RCP_MODELS

I1, I32, I64, F32, F64 = Type
Reference = Callable[..., int]
MASK = {I1: 1, I32: (1 << 32) - 1, I64: (1 << 64) - 1}


def double(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


def double_bits(x: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", x))[0])


def evaluate(
    name: str, kinds: tuple[Type, ...], result: Type, columns: list[np.ndarray], attrs: tuple = ()
) -> np.ndarray:
    """The primitive applied to bit patterns, uint64 [n] each (or scalars); bit patterns again."""
    ops = [Op("get", (), (f"R{i}",), (Value(i, kind),), 0) for i, kind in enumerate(kinds)]
    arguments = tuple(op.results[0] for op in ops)
    answer = Value(len(kinds), result)
    ops += [Op(name, arguments, attrs, (answer,), 0), Op("set", (answer,), ("R9",), (), 0)]
    registers = {
        f"R{place}": of_bits(kind, column)
        for place, (kind, column) in enumerate(zip(kinds, columns, strict=True))
    }
    return to_bits(result, run_operations(ops, registers)["R9"])


def of_bits(kind: Type, bits: np.ndarray) -> np.ndarray:
    if kind is I1:
        return bits.astype(bool)
    unsigned = bits.astype(np.uint32 if kind.width == 32 else np.uint64)
    return unsigned.view(DTYPES[kind])


def to_bits(kind: Type, values: np.ndarray) -> np.ndarray:
    values = np.asarray(values)
    assert values.dtype == DTYPES[kind], f"{values.dtype} for {kind}"
    if kind is I1:
        return values.astype(np.uint64)
    return values.view(np.uint32 if kind.width == 32 else np.uint64).astype(np.uint64)


def numbers(function: Callable[..., float]) -> Reference:
    """A function of float32 numbers on patterns."""
    return lambda *bits: exact.pattern(function(*map(exact.number, bits)))


def doubles(function: Callable[..., float]) -> Reference:
    """A function of float64 numbers on patterns."""
    return lambda *bits: double_bits(function(*map(double, bits)))


def exactly(operation: Callable[[Fraction, Fraction], Fraction], ieee: Callable[..., float]):  # type: ignore[no-untyped-def]
    """A float64 operation rounded from the rational result; `ieee` where there is none."""

    def function(x: float, y: float) -> float:
        usual = ieee(x, y)
        if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(usual)):
            return usual
        rational = operation(Fraction(x), Fraction(y))
        return float(rational) if rational else usual

    return function


def f64_cases(name: str) -> Reference:
    add = exactly(lambda x, y: x + y, lambda x, y: x + y)
    subtract = exactly(lambda x, y: x - y, lambda x, y: x - y)
    multiply = exactly(lambda x, y: x * y, lambda x, y: x * y)
    return doubles({"fadd": add, "fsub": subtract, "fmul": multiply}[name])


def of_width(function: Callable[[int, int, int], int], kind: Type) -> Reference:
    return lambda a, b: function(a, b, kind.width) & MASK[kind]


def compared(function: Callable[[float, float], bool], read: Callable[[int], float]) -> Reference:
    return lambda a, b: int(function(read(a), read(b)))


INTEGER = {
    "add": lambda a, b, w: a + b, "sub": lambda a, b, w: a - b, "mul": lambda a, b, w: a * b,
    "and": lambda a, b, w: a & b, "or": lambda a, b, w: a | b, "xor": lambda a, b, w: a ^ b,
}  # fmt: skip
SHIFTS = {
    "shl": lambda a, b, w: a << b % w, "lshr": lambda a, b, w: a >> b % w,
    "ashr": lambda a, b, w: exact.signed(a, w) >> b % w,
}  # fmt: skip
ORDER = {
    "eq": lambda a, b, w: a == b, "ult": lambda a, b, w: a < b,
    "slt": lambda a, b, w: exact.signed(a, w) < exact.signed(b, w),
}  # fmt: skip
FLOAT_ORDER = {
    "foeq": lambda x, y: x == y, "folt": lambda x, y: x < y, "fole": lambda x, y: x <= y,
    "funo": lambda x, y: math.isnan(x) or math.isnan(y),
}  # fmt: skip
Case = tuple[str, tuple[Type, ...], Type, Reference]
CASES: list[Case] = [
    *((n, (k, k), k, of_width(f, k)) for n, f in INTEGER.items() for k in (I32, I64)),
    *((n, (I1, I1), I1, of_width(INTEGER[n], I1)) for n in ("and", "or", "xor")),
    *((n, (k, k), k, of_width(f, k)) for n, f in SHIFTS.items() for k in (I32, I64)),
    *((n, (k, k), I1, of_width(f, k)) for n, f in ORDER.items() for k in (I32, I64)),
    ("eq", (I1, I1), I1, lambda a, b: int(a == b)),
    *(("zext", (a,), b, lambda x: x) for a, b in ((I1, I32), (I1, I64), (I32, I64))),
    ("sext", (I1,), I32, lambda x: -x & MASK[I32]),
    ("sext", (I1,), I64, lambda x: -x & MASK[I64]),
    ("sext", (I32,), I64, lambda x: exact.signed(x) & MASK[I64]),
    ("trunc", (I64,), I32, lambda x: x & MASK[I32]),
    *(("trunc", (k,), I1, lambda x: x & 1) for k in (I32, I64)),
    *(("bitcast", (a,), b, lambda x: x)
      for a, b in ((I32, F32), (F32, I32), (I64, F64), (F64, I64))),
    ("fbits", (F32,), I32, lambda x: exact.pattern(exact.number(x))),
    *((n, (F32, F32), I1, compared(f, exact.number)) for n, f in FLOAT_ORDER.items()),
    *((n, (F64, F64), I1, compared(f, double)) for n, f in FLOAT_ORDER.items()),
    *(("select", (I1, k, k), k, lambda p, a, b: a if p else b) for k in (I32, I64)),
    ("fadd", (F32, F32), F32, numbers(exact.total)),
    ("fsub", (F32, F32), F32, numbers(lambda x, y: exact.total(x, -y))),
    ("fmul", (F32, F32), F32, numbers(exact.product)),
    *((n, (F64, F64), F64, f64_cases(n)) for n in ("fadd", "fsub", "fmul")),
    ("fma", (F32, F32, F32), F32, numbers(exact.fused)),
    ("fmax", (F32, F32), F32, numbers(lambda *x: exact.extremum(list(x), True))),
    ("fmin", (F32, F32), F32, numbers(lambda *x: exact.extremum(list(x), False))),
    ("fpext", (F32,), F64, lambda x: double_bits(exact.number(x))),
    ("fptrunc", (F64,), F32, lambda x: exact.pattern(narrowed(double(x)))),
    ("uitofp", (I32,), F64, lambda x: double_bits(float(x))),
    ("fptoui", (F64,), I64, lambda x: int(double(x))),
    ("rcp", (F32,), F32, numbers(lambda x: exact.flushed(exact.quotient(1.0, exact.flushed(x))))),
]  # fmt: skip
ELSEWHERE = {"const", "get", "set", "ldc", "special", "uniform"}
"""Primitives that read the state, tested with the state."""


def narrowed(x: float) -> float:
    if not math.isfinite(x):
        return x
    return exact.rounded(Fraction(x), zero=x)


DOUBLES = [double_bits(sign * x) for sign in (1, -1) for x in (
    0.0, 5e-324, 2.0**-1022, 2.0**-149, 2.0**-150, 1.0, 1 + 2.0**-52, 1 + 2.0**-24, 1 + 2.0**-23,
    1.5 + 2.0**-24, 2.0**53 + 2, exact.MAX_FINITE, 2.0**128 - 2.0**103, 1.7e308,
    math.inf)]  # fmt: skip
DOUBLES += [double_bits(math.nan), double_bits(3.0)]
EDGES = {
    I1: [0, 1], I32: WORDS, F32: FLOATS, F64: DOUBLES,
    I64: [0, 1, 63, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1,
          0x0123456789ABCDEF],
}  # fmt: skip


def allowed(case: Case, row: tuple[int, ...]) -> bool:
    """Whether the primitive is defined on these operands."""
    name, kinds, _, _ = case
    if name in SHIFTS:
        return row[1] < kinds[0].width
    return name != "fptoui" or 0 <= double(row[0]) < 2.0**64


def same(kind: Type, found: int, expected: int) -> bool:
    """Equal, where one NaN is as good as another."""
    if kind in (F32, F64):
        read = exact.number if kind is F32 else double
        if math.isnan(read(expected)):
            return math.isnan(read(found))
    return found == expected


def check(case: Case, rows: list[tuple[int, ...]]) -> None:
    """Compare with the reference over rows of operands."""
    name, kinds, result, reference = case
    rows = [row for row in rows if allowed(case, row)]
    if not rows:
        return
    columns = [np.array(column, np.uint64) for column in zip(*rows, strict=True)]
    found = evaluate(name, kinds, result, columns)
    for row, answer in zip(rows, found.tolist(), strict=True):
        expected = reference(*row)
        assert same(result, answer, expected), (name, kinds, [*map(hex, row)], hex(answer))
    # Uniform values: all operands, or all but the first.
    first = [column[0] for column in columns]
    alone = evaluate(name, kinds, result, first)
    assert same(result, int(alone), int(found[0]))
    mixed = evaluate(name, kinds, result, [columns[0], *first[1:]])
    for row, answer in zip(rows, np.broadcast_to(mixed, len(rows)).tolist(), strict=True):
        # A shift by the first row's amount is defined for every row.
        assert same(result, answer, reference(row[0], *rows[0][1:]))


def named(case: Case) -> str:
    return f"{case[0]}-{'-'.join(kind.value for kind in case[1])}-{case[2].value}"


@pytest.mark.parametrize("case", CASES, ids=named)
def test_edges(case: Case) -> None:
    kinds = case[1]
    widest = max(len(EDGES[kind]) for kind in kinds)
    places = grid(range(widest), len(kinds), 1500)
    rows = [
        tuple(EDGES[kind][place % len(EDGES[kind])] for kind, place in zip(kinds, row, strict=True))
        for row in places.tolist()
    ]
    check(case, rows)


@settings(max_examples=150, **CALM)
@given(data=st.data(), case=st.sampled_from(CASES))
def test_drawn(data: st.DataObject, case: Case) -> None:
    elements = []
    for place, kind in enumerate(case[1]):
        near = st.sampled_from(EDGES[kind]) | st.integers(0, (1 << kind.width) - 1)
        shift = case[0] in SHIFTS and place == 1
        elements.append(st.integers(0, kind.width - 1) if shift else near)
    check(case, data.draw(st.lists(st.tuples(*elements), min_size=1, max_size=20)))


def test_every_pure_primitive_has_a_case() -> None:
    assert {name for name, _, _, _ in CASES} == PURE - ELSEWHERE


@pytest.mark.parametrize(("model", "ulps"), [("exact", 0), ("+1ulp", 1), ("-1ulp", -1)])
def test_reciprocal_models(model: str, ulps: int) -> None:
    """A model is off by so many units, but for zeros, infinities, NaN and what it would flush."""
    bits = np.array(FLOATS, np.uint32)
    with np.errstate(all="ignore"):
        found = RCP_MODELS[model](bits.view(np.float32)).view(np.uint32)
    for x, answer in zip(bits.tolist(), found.tolist(), strict=True):
        expected = exact.flushed(exact.quotient(1.0, exact.flushed(exact.number(x))))
        if expected and math.isfinite(expected):
            moved = exact.number(exact.pattern(expected) + ulps)
            regular = math.isfinite(moved) and abs(moved) >= exact.MIN_NORMAL
            expected = moved if regular else expected
        assert same(F32, answer, exact.pattern(expected)), hex(x)
