"""Faults planted in single primitives: the instruction tests must notice every one of them."""

import importlib
from collections.abc import Callable

import numpy as np
import pytest
import test_floating
import test_scheduler
from handmade import Case
from test_refusals import WITH_CASES

from oracle.machine import lanes, primitives
from oracle.machine.ir import Op, Type
from oracle.machine.state import State

Expression = Callable[[Op, str], str]
CASES = {name: importlib.import_module(f"test_{name}").CASES for name in WITH_CASES}


def noticed(family: str, *opcodes: str) -> bool:
    """Whether a case of these opcodes fails over its edge values."""
    chosen: list[Case] = [c for c in CASES[family] if c.form.split(".")[0] in opcodes]
    assert chosen
    for case in chosen:
        try:
            case.check_edges()
        except AssertionError:
            return True
    return False


def plant(monkeypatch: pytest.MonkeyPatch, name: str, wrong: Expression) -> None:
    """Change the Python text that one primitive becomes."""
    right = lanes._Writer._expression

    def expression(self: lanes._Writer, op: Op) -> str:
        text = right(self, op)
        return wrong(op, f"({text})") if op.name == name else text

    monkeypatch.setattr(lanes._Writer, "_expression", expression)


def wide(op: Op) -> bool:
    return op.results[0].type is Type.I64


def toward_zero(x: np.ndarray) -> np.ndarray:
    """A float64 as float32, rounded the wrong way."""
    nearest = np.asarray(x).astype(np.float32)
    too_far = np.abs(nearest.astype(np.float64)) > np.abs(x)
    return np.where(too_far, np.nextafter(nearest, np.float32(0)), nearest)


FAULTS: dict[str, tuple[str, Expression, str, tuple[str, ...]]] = {
    "a carry into the upper word is dropped": (
        "add", lambda op, text: f"{text} & uint64(0xffffffff)" if wide(op) else text,
        "integer", ("IADD3",)),
    "a product loses its upper word": (
        "mul", lambda op, text: f"{text} & uint64(0xffffffff)" if wide(op) else text,
        "integer", ("IMAD",)),
    "a word is extended with zeros instead of its sign": (
        "sext", lambda op, text: text.replace(".view(int32).astype(int64).view(uint64)",
                                              ".astype(uint64)"), "integer", ("LEA",)),
    "a carry out is taken for equal sums too": (
        "ult", lambda op, text: text.replace("<", "<="), "integer", ("IMAD",)),
    "signs are ignored": (
        "slt", lambda op, text: text.replace("(int", "(uint"), "compare", ("ISETP",)),
    "equality is inverted": ("eq", lambda op, text: f"~{text}", "compare", ("ISETP",)),
    "an arithmetic shift shifts zeros in": (
        "ashr", lambda op, text: text.replace("(int", "(uint"),
        "bits", ("SHF",)),
    "a left shift is rotated": (
        "shl", lambda op, text: text.replace("<<", ">>"), "bits", ("SHF",)),
    "a choice is swapped": (
        "select", lambda op, text: text.replace("where(", "swapped("), "moves", ("SEL",)),
    "exclusive or is or": ("xor", lambda op, text: text.replace("^", "|"), "bits", ("LOP3",)),
    "a NaN keeps its payload": (
        "fbits", lambda op, text: text.replace("fbits(", "(").replace("))", ").view(uint32))"),
        "floating", ("FADD",)),
    "a sum is rounded toward zero": (
        "fadd", lambda op, text: text if wide(op) or op.results[0].type is Type.F64 else
        f"toward_zero({text[1:-1].replace(' + ', '.astype(float64) + ')}.astype(float64))",
        "floating", ("FADD",)),
    "narrowing rounds toward zero": (
        "fptrunc", lambda op, text: f"toward_zero{text.replace('.astype(float32)', '')}",
        "convert", ("I2FP",)),
    "an unsigned word is read as signed": (
        "uitofp", lambda op, text: text.replace(".astype(", ".view(int32).astype("),
        "convert", ("UI2F",)),
    "less or equal is less": (
        "fole", lambda op, text: text.replace("<=", "<"), "float_compare", ("FSETP",)),
    "a NaN is not unordered": (
        "funo", lambda op, text: f"{text} & False", "float_compare", ("FSETP",)),
    "a subtraction is the other way round": (
        "fsub", lambda op, text: f"-{text}", "convert", ("I2FP",)),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_generated_code(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, wrong, family, opcodes = FAULTS[fault]
    monkeypatch.setitem(lanes._GLOBALS, "toward_zero", toward_zero)
    monkeypatch.setitem(lanes._GLOBALS, "swapped", lambda p, a, b: np.where(p, b, a))
    plant(monkeypatch, name, wrong)
    assert noticed(family, *opcodes)


def rounded_twice(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return a * b + c


def rounded_through_float64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    wide_sum = a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)
    return np.asarray(wide_sum).astype(np.float32)


def test_fused_multiply_add_that_rounds_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(lanes._GLOBALS, "fma", rounded_twice)
    assert noticed("floating", "FFMA")


def test_fused_multiply_add_through_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(lanes._GLOBALS, "fma", rounded_through_float64)
    with pytest.raises(AssertionError):
        test_floating.FUSED.check(test_floating.HARD)


def test_an_exact_sum_rounded_to_the_wrong_odd(monkeypatch: pytest.MonkeyPatch) -> None:
    right = primitives._round_to_odd
    monkeypatch.setattr(primitives, "_round_to_odd", lambda t, x, y: right(t, -x, -y))
    with pytest.raises(AssertionError):
        test_floating.FUSED.check(test_floating.HARD)


@pytest.mark.parametrize(("name", "wrong"), [("fmax", np.maximum), ("fmin", np.minimum)])
def test_extrema_in_which_a_nan_wins(
    name: str, wrong: np.ufunc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(lanes._GLOBALS, name, wrong)
    assert noticed("floating", "FMNMX")


@pytest.mark.parametrize("model", ["+1ulp", "-1ulp"])
def test_a_reciprocal_off_by_one(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = primitives.RCP_MODELS[model]
    monkeypatch.setattr(
        State, "rcp", property(lambda self: wrong, lambda self, _: None), raising=False
    )
    with pytest.raises(AssertionError):
        test_floating.RECIPROCAL.check_edges()


def flows_fail(*names: str) -> bool:
    for name in names:
        try:
            test_scheduler.test_flow(name)
        except AssertionError:
            return True
    return False


def test_a_shuffle_from_the_wrong_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    right = State.shuffle

    def wrong(self, mode, pc, value, operand, clamp, guard):  # type: ignore[no-untyped-def]
        return right(self, "IDX", pc, value, operand, clamp, guard)

    monkeypatch.setattr(State, "shuffle", wrong)
    assert flows_fail("scope")


def test_a_ballot_of_lanes_that_are_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    right = State.ballot
    monkeypatch.setattr(State, "ballot", lambda self, p, guard: right(self, guard, guard))
    assert flows_fail("guarded_wait", "uniform_vote")
