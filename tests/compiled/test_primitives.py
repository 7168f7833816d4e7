"""Every primitive alone, as vectors, as scalars and in a single lane, against exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import exact
import numpy as np
import pytest
from handmade_ir import Code, filled, kernel, leave, parameters
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from snippets import FLOATS, WORDS

from oracle.machine.builder import F32, F64, I1, I32, I64
from oracle.machine.compiled import pure
from oracle.machine.compiled.build import Build, host
from oracle.machine.ir import Function, Terminator, Value
from oracle.machine.memory import Memory
from oracle.machine.primitives import RCP_MODELS, RcpModel, rcp_exact

pytest.importorskip("llvmlite", reason="the compiled tier needs llvmlite: pip install -e .[fast]")
from oracle.machine.compiled.runtime import CompiledProgram

LANES = 24
"""Not a multiple of a vector of 16."""
INPUTS = 6
Words = tuple[int, ...]
Primitive = tuple[Callable[..., list[Value]], Callable[[Words], list[int]]]
"""How the results are built from six words, and what they should be."""


def _i64(c: Code, w: Sequence[Value]) -> tuple[Value, Value]:
    return c.join(w[0], w[3]), c.join(w[1], w[4])


def _floats(c: Code, w: Sequence[Value]) -> list[Value]:
    return [c.bitcast(x) for x in w[:3]]


def _double(c: Code, w: Sequence[Value]) -> list[Value]:
    return [c.convert("fpext", x, F64) for x in _floats(c, w)]


def _split(c: Code, value: Value) -> list[Value]:
    return [c.low(value), c.high(value)]


def _flag(c: Code, value: Value) -> list[Value]:
    return [c.zext(value, I32)]


def _integer(name: str) -> Primitive:
    def build(c: Code, w: Sequence[Value]) -> list[Value]:
        a, b = _i64(c, w)
        return [c._binary(name, w[0], w[1]), *_split(c, c._binary(name, a, b))]

    def reference(x: Words) -> list[int]:
        operate = {
            "add": int.__add__, "sub": int.__sub__, "mul": int.__mul__, "and": int.__and__,
            "or": int.__or__, "xor": int.__xor__,
        }[name]  # fmt: skip
        wide = operate(x[0] | x[3] << 32, x[1] | x[4] << 32)
        return [operate(x[0], x[1]), wide, wide >> 32]

    return build, reference


def _shift(name: str) -> Primitive:
    def build(c: Code, w: Sequence[Value]) -> list[Value]:
        a, b = _i64(c, w)
        by = c.and_(w[1], c.word(31))
        far = c.and_(b, c.const(I64, 63))
        return [c._binary(name, w[0], by), *_split(c, c._binary(name, a, far))]

    def reference(x: Words) -> list[int]:
        results = []
        for value, by, width in ((x[0], x[1] & 31, 32), (x[0] | x[3] << 32, x[1] & 63, 64)):
            if name == "shl":
                results.append(value << by)
            else:
                results.append((exact.signed(value, width) if name == "ashr" else value) >> by)
        return [results[0], results[1], results[1] >> 32]

    return build, reference


def _compare(name: str) -> Primitive:
    def build(c: Code, w: Sequence[Value]) -> list[Value]:
        a, b = _i64(c, w)
        return _flag(c, c._binary(name, w[0], w[1], I1)) + _flag(c, c._binary(name, a, b, I1))

    def reference(x: Words) -> list[int]:
        pairs = ((x[0], x[1], 32), (x[0] | x[3] << 32, x[1] | x[4] << 32, 64))
        if name == "slt":
            return [int(exact.signed(a, n) < exact.signed(b, n)) for a, b, n in pairs]
        return [int(a == b if name == "eq" else a < b) for a, b, _ in pairs]

    return build, reference


def _float_compare(name: str) -> Primitive:
    def reference(x: Words) -> list[int]:
        a, b = exact.number(x[0]), exact.number(x[1])
        if name == "funo":
            return [int(math.isnan(a) or math.isnan(b))]
        return [int({"foeq": a == b, "folt": a < b, "fole": a <= b}[name])]

    return (lambda c, w: _flag(c, c.fcompare(name, *_floats(c, w)[:2]))), reference


def _float(name: str, count: int) -> Primitive:
    def reference(x: Words) -> list[int]:
        a, b, c = map(exact.number, x[:3])
        result = {
            "fadd": lambda: exact.total(a, b),
            "fsub": lambda: exact.total(a, -b),
            "fmul": lambda: exact.product(a, b),
            "fma": lambda: exact.fused(a, b, c),
            "fmax": lambda: exact.extremum([a, b], True),
            "fmin": lambda: exact.extremum([a, b], False),
        }[name]()
        return [exact.pattern(result)]

    def build(c: Code, w: Sequence[Value]) -> list[Value]:
        return [c.fbits(c.float(name, *_floats(c, w)[:count]))]

    return build, reference


def _magnitudes(name: str) -> Primitive:
    """fmax and fmin of values that are known to have no sign."""

    def build(c: Code, w: Sequence[Value]) -> list[Value]:
        a, b = (c.bitcast(c.and_(x, c.word(0x7FFFFFFF))) for x in w[:2])
        return [c.fbits(c.float(name, a, b))]

    def reference(x: Words) -> list[int]:
        values = [exact.number(word & 0x7FFFFFFF) for word in x[:2]]
        return [exact.pattern(exact.extremum(values, name == "fmax"))]

    return build, reference


def _double_sum(c: Code, w: Sequence[Value]) -> list[Value]:
    a, b, d = _double(c, w)
    return [c.fbits(c.convert("fptrunc", c.float("fsub", c.float("fmul", a, b), d), F32))]


def _double_sum_reference(x: Words) -> list[int]:
    a, b, d = map(exact.number, x[:3])
    value = a * b - d
    if not math.isfinite(value):
        return [exact.pattern(value)]
    zero = value if value == 0 else 0.0
    return [exact.pattern(exact.rounded(Fraction(value), zero=zero))]


def _to_integer(c: Code, w: Sequence[Value]) -> list[Value]:
    value = c.convert("uitofp", w[0], F64)
    quarter = c.float("fmul", value, c.const(F64, 0x3FD0_0000_0000_0000))
    return _split(c, c.convert("fptoui", quarter, I64))


def _extend(c: Code, w: Sequence[Value]) -> list[Value]:
    bit = c.trunc(w[0], I1)
    return [
        c.zext(bit, I32),
        c.sext(bit, I32),
        *_split(c, c.emit("sext", (I64,), (w[1],))[0]),
        *_split(c, c.emit("zext", (I64,), (w[1],))[0]),
    ]


def _extend_reference(x: Words) -> list[int]:
    bit, wide = x[0] & 1, exact.signed(x[1])
    return [bit, -bit, wide, wide >> 32, x[1], 0]


def _choose(c: Code, w: Sequence[Value]) -> list[Value]:
    p = c.trunc(w[2], I1)
    first, second = _floats(c, w)[:2]
    chosen = c.emit("uniform", (I32,), (w[0], p, w[1]))[0]
    return [c.select(p, w[0], w[1]), c.bitcast(c.select(p, first, second)), chosen]


def _reciprocal_reference(x: Words) -> list[int]:
    a = exact.flushed(exact.number(x[0]))
    return [exact.pattern(exact.flushed(exact.quotient(1.0, a)))]


PRIMITIVES: dict[str, Primitive] = {
    **{name: _integer(name) for name in ("add", "sub", "mul", "and", "or", "xor")},
    **{name: _shift(name) for name in ("shl", "lshr", "ashr")},
    **{name: _compare(name) for name in ("eq", "ult", "slt")},
    **{name: _float_compare(name) for name in ("foeq", "folt", "fole", "funo")},
    **{name: _float(name, 2) for name in ("fadd", "fsub", "fmul", "fmax", "fmin")},
    "fma": _float("fma", 3),
    "fmax of magnitudes": _magnitudes("fmax"),
    "fmin of magnitudes": _magnitudes("fmin"),
    "f64": (_double_sum, _double_sum_reference),
    "uitofp and fptoui": (_to_integer, lambda x: [x[0] >> 2, 0]),
    "extensions": (_extend, _extend_reference),
    "select": (_choose, lambda x: [x[1 - (x[2] & 1)]] * 3),
    "rcp": (lambda c, w: [c.fbits(c.rcp(_floats(c, w)[0]))], _reciprocal_reference),
}
FORMS = ("vector", "uniform", "single")
EVERY = tuple(PRIMITIVES)


def width(names: Sequence[str]) -> int:
    """How many words the results of some primitives are."""
    return sum(len(PRIMITIVES[name][1]((0,) * INPUTS)) for name in names)


def program(form: str, names: Sequence[str] = EVERY) -> Function:
    """A kernel that puts every result of every primitive beside each other, a row a lane.

    The rows of operands are a lane's own ("vector"), or a CTA's ("uniform"), whose values are then
    scalars of the code; "single" makes lanes disagree on where to go first.
    """
    first, c = Code(), Code()
    tid = first.special("tid.x")
    odd = first.eq(first.and_(tid, first.word(1)), first.word(1))
    away = Terminator("jump", 0, target=0x100)
    if form == "single":
        way = first.select(odd, first.word(0x100), first.word(0x200))
        away = Terminator("ret", 0, way)
    row = c.special("ctaid.x" if form == "uniform" else "tid.x")
    base = c.at(c.parameter(0), row, 4 * INPUTS)
    words = [c.load(c.add(base, c.const(I64, 4 * k)))[0] for k in range(INPUTS)]
    results = [value for name in names for value in PRIMITIVES[name][0](c, words)]
    place = c.add(c.mul(c.special("ctaid.x"), c.word(LANES)), c.special("tid.x"))
    out = c.at(c.parameter(1), place, 4 * width(names))
    for k, value in enumerate(results):
        c.pc = 16 * k
        c.store(c.add(out, c.const(I64, 4 * k)), [value])
    return kernel(
        first.end(0, away),
        c.end(0x100, leave()),
        Code().end(0x200, Terminator("jump", 0, target=0x100)),
        returns=(0x100, 0x200),
    )


def results(
    compiled: CompiledProgram, form: str, operands: NDArray[np.uint32],
    names: Sequence[str] = EVERY, rcp: RcpModel = rcp_exact,
) -> NDArray[np.uint32]:  # fmt: skip
    """What the kernel makes of operands [LANES, INPUTS], by lane."""
    memory = Memory()
    ctas = LANES if form == "uniform" else 1
    bases = filled(memory, operands=operands, out=4 * width(names) * LANES * ctas)
    compiled.launch((ctas, 1, 1), (LANES, 1, 1), parameters(*bases), memory, rcp=rcp)
    assert not compiled.reason
    rows = memory.region("out").bytes.view(np.uint32).reshape(ctas, LANES, width(names))
    if form != "uniform":
        return rows[0]
    assert (rows == rows[:, :1]).all()
    return rows[:, 0]


def expected(operands: NDArray[np.uint32], names: Sequence[str] = EVERY) -> NDArray[np.uint32]:
    rows = [
        [value & 0xFFFFFFFF for name in names for value in PRIMITIVES[name][1](tuple(row))]
        for row in operands.tolist()
    ]
    return np.array(rows, np.uint32)


def wrong(
    compiled: CompiledProgram, form: str, operands: NDArray[np.uint32],
    names: Sequence[str] = EVERY,
) -> set[str]:  # fmt: skip
    """The primitives whose results are not those expected."""
    got = results(compiled, form, operands, names)
    differ = (got != expected(operands, names)).any(axis=0)
    owners = [name for name in names for _ in PRIMITIVES[name][1]((0,) * INPUTS)]
    return {name for name, bad in zip(owners, differ, strict=True) if bad}


def edges(count: int) -> NDArray[np.uint32]:
    """Operands [count, LANES, INPUTS] of values at which something changes."""
    noise = np.random.default_rng(3)
    pool = np.array([*WORDS, *FLOATS, *FLOATS], np.uint32)
    return noise.choice(pool, (count, LANES, INPUTS))


@pytest.fixture(scope="module", params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def compiled(form: str) -> CompiledProgram:
    return CompiledProgram(program(form))


def test_every_primitive_without_state_is_tried() -> None:
    tried = {name for name in program("vector").primitives if name in pure.PURE_NAMES}
    assert tried == pure.PURE_NAMES


def test_edges(compiled: CompiledProgram, form: str) -> None:
    for operands in edges(40):
        assert not wrong(compiled, form, operands)


@settings(max_examples=30, deadline=None)
@given(data=st.binary(min_size=4 * LANES * INPUTS, max_size=4 * LANES * INPUTS))
def test_any_bits(compiled: CompiledProgram, form: str, data: bytes) -> None:
    operands = np.frombuffer(data, np.uint32).reshape(LANES, INPUTS)
    assert not wrong(compiled, form, operands)


@pytest.mark.parametrize("step", [1, -1])
def test_moved_reciprocals(compiled: CompiledProgram, form: str, step: int) -> None:
    model = RCP_MODELS[{1: "+1ulp", -1: "-1ulp"}[step]]
    for operands in edges(10):
        got = results(compiled, form, operands, rcp=model)[:, -1]
        for word, bits in zip(operands[:, 0], got, strict=True):
            plain = _reciprocal_reference((int(word),))[0]
            value = exact.number(plain)
            moved = plain + step
            regular = math.isfinite(value) and abs(value) >= exact.MIN_NORMAL
            after = exact.number(moved) if regular else math.nan
            usable = math.isfinite(after) and abs(after) >= exact.MIN_NORMAL
            assert bits == (moved if usable else plain), hex(word)


NEAREST = "  %end = add i64 %begin, %number"
"""A line of the generated loop over CTAs, before anything is computed."""
PLANTED = {
    "a carry lost": ("add", " = add <16 x i32>", " = or <16 x i32>"),
    "a sign dropped": ("extensions", " = sext ", " = zext "),
    "an arithmetic shift made logical": ("ashr", " = ashr ", " = lshr "),
    "a signed comparison made unsigned": ("slt", " = icmp slt ", " = icmp ult "),
    "a comparison that holds for NaN": ("folt", " = fcmp olt ", " = fcmp ult "),
    "a product rounded before it is added": ("fma", "@llvm.fma.v16f32(", "@rounded_twice("),
    "rounding upwards": ("fadd", NEAREST, f"{NEAREST}\n  call void @llvm.set.rounding(i32 2)"),
}
ROUNDED_TWICE = """
define internal <16 x float> @rounded_twice(<16 x float> %a, <16 x float> %b, <16 x float> %c) {
  %product = fmul <16 x float> %a, %b
  %sum = fadd <16 x float> %product, %c
  ret <16 x float> %sum
}
"""


def _spoilt(text: str, old: str, new: str) -> str:
    """The text with a fault; a changed direction of rounding is put right at the end."""
    restored = "well:\n  call void @llvm.set.rounding(i32 1)\n"
    if "set.rounding" in new:
        text = text.replace("well:\n", restored, 1)
    if "rounded_twice" in new:
        text += ROUNDED_TWICE
    return text.replace(old, new)


@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_planted_in_the_back_end_is_caught(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str
) -> None:
    harmed, old, new = PLANTED[fault]
    old, new = (text.replace("16", str(host().lanes)) for text in (old, new))
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(tmp_path))
    healthy = Build.text
    few = program("vector", (harmed,))
    assert old in healthy(Build(few), "group")
    monkeypatch.setattr(Build, "text", lambda self, part: _spoilt(healthy(self, part), old, new))
    spoilt = CompiledProgram(few)
    assert any(wrong(spoilt, "vector", operands, (harmed,)) for operands in edges(20))
    monkeypatch.undo()
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(tmp_path / "healthy"))
    healed = CompiledProgram(few)
    assert not any(wrong(healed, "vector", operands, (harmed,)) for operands in edges(20))
