"""The primitives without effects, as LLVM instructions on one lane or on a vector of lanes.

No instruction carries a fast-math flag, so LLVM neither contracts nor reorders floating-point
operations; what a NaN's bits are is decided by `fbits` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oracle.machine.compiled.text import Text, Typed, constant
from oracle.machine.ir import Op, Type, Value

MIN_NORMAL = 0x0080_0000
INFINITY = 0x7F80_0000
MAGNITUDE = 0x7FFF_FFFF

_BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor",
    "fadd": "fadd", "fsub": "fsub", "fmul": "fmul",
}  # fmt: skip
_SHIFT = {"shl": "shl", "lshr": "lshr", "ashr": "ashr"}
_COMPARE = {
    "eq": "icmp eq", "ult": "icmp ult", "slt": "icmp slt",
    "foeq": "fcmp oeq", "folt": "fcmp olt", "fole": "fcmp ole", "funo": "fcmp uno",
}  # fmt: skip
_CONVERT = {
    "zext": "zext", "sext": "sext", "trunc": "trunc", "bitcast": "bitcast", "fpext": "fpext",
    "fptrunc": "fptrunc", "uitofp": "uitofp",
}  # fmt: skip

PURE_NAMES = frozenset(
    [*_BINARY, *_SHIFT, *_COMPARE, *_CONVERT, "select", "fbits", "fma", "fmax", "fmin", "fptoui"]
)


def suffix(text: Text, scalar: str, varying: bool) -> str:
    """How an overloaded intrinsic names a type."""
    return f"v{text.lanes}{scalar}" if varying else scalar


def emit_pure(text: Text, op: Op, args: list[Typed], signless: Callable[[Value], bool]) -> Typed:
    """The result of one primitive. `signless` tells f32 values known to have no sign bit."""
    varying = any(arg.varying for arg in args)
    if varying:
        args = [text.spread(arg) for arg in args]
    kind = op.results[0].type
    return Typed(_name_of(text, op, args, varying, signless), kind, varying)


def _name_of(
    text: Text, op: Op, args: list[Typed], varying: bool, signless: Callable[[Value], bool]
) -> str:
    kind = op.results[0].type
    operand = text.type(args[0].kind, varying)
    names = [arg.name for arg in args]
    if op.name in _BINARY:
        return text.value(f"{_BINARY[op.name]} {operand} {names[0]}, {names[1]}")
    if op.name in _SHIFT:
        return text.value(f"{_SHIFT[op.name]} {operand} {names[0]}, {_amount(text, args[1])}")
    if op.name in _COMPARE:
        return text.value(f"{_COMPARE[op.name]} {operand} {names[0]}, {names[1]}")
    if op.name in _CONVERT:
        return text.value(f"{_CONVERT[op.name]} {operand} {names[0]} to {text.type(kind, varying)}")
    if op.name == "select":
        parts = ", ".join(text.typed(arg) for arg in args)
        return text.value(f"select {parts}")
    if op.name == "fbits":
        return _fbits(text, names[0], varying)
    if op.name == "fma":
        parts = ", ".join(text.typed(arg) for arg in args)
        return text.value(f"call {operand} @llvm.fma.{suffix(text, 'f32', varying)}({parts})")
    if op.name == "fptoui":
        # Lanes that a select discards may be out of range: a defined value, whatever it is.
        name = f"{suffix(text, 'i64', varying)}.{suffix(text, 'f64', varying)}"
        result = text.type(kind, varying)
        return text.value(f"call {result} @llvm.fptoui.sat.{name}({operand} {names[0]})")
    if op.name in ("fmax", "fmin"):
        plain = all(signless(arg) for arg in op.args)
        return _extremum(text, op.name, names[0], names[1], varying, plain)
    raise AssertionError(f"no compiled form for primitive {op.name}")


def _amount(text: Text, amount: Typed) -> str:
    """A shift amount; in lanes whose result is discarded it need not be below the width."""
    limit = Typed(constant(amount.kind, amount.kind.width - 1), amount.kind, False)
    if amount.varying:
        limit = text.spread(limit)
    return text.value(f"and {text.typed(amount)}, {limit.name}")


def _splat(text: Text, kind: Type, bits: int, varying: bool) -> str:
    return constant_of(text, kind, bits, varying).name


def constant_of(text: Text, kind: Type, bits: int, varying: bool) -> Typed:
    """A constant, in every lane if it is to be varying."""
    value = Typed(constant(kind, bits), kind, False)
    return text.spread(value) if varying else value


def _fbits(text: Text, name: str, varying: bool) -> str:
    real, word = text.type(Type.F32, varying), text.type(Type.I32, varying)
    nan = text.value(f"fcmp uno {real} {name}, {name}")
    bits = text.value(f"bitcast {real} {name} to {word}")
    canonical = _splat(text, Type.I32, MAGNITUDE, varying)
    condition = text.type(Type.I1, varying)
    return text.value(f"select {condition} {nan}, {word} {canonical}, {word} {bits}")


def _extremum(text: Text, name: str, a: str, b: str, varying: bool, signless: bool) -> str:
    """maximumNumber or minimumNumber of a and b; `signless`: neither has its sign bit set."""
    real, condition = text.type(Type.F32, varying), text.type(Type.I1, varying)
    order = "ogt" if name == "fmax" else "olt"
    better = text.value(f"fcmp {order} {real} {a}, {b}")
    result = text.value(f"select {condition} {better}, {real} {a}, {real} {b}")
    if not signless:
        # Equal numbers have equal bits, but for zeros: the bits of both decide between those.
        word = text.type(Type.I32, varying)
        bits = [text.value(f"bitcast {real} {x} to {word}") for x in (a, b)]
        joined = text.value(f"{'and' if name == 'fmax' else 'or'} {word} {bits[0]}, {bits[1]}")
        both = text.value(f"bitcast {word} {joined} to {real}")
        equal = text.value(f"fcmp oeq {real} {a}, {b}")
        result = text.value(f"select {condition} {equal}, {real} {both}, {real} {result}")
    # A NaN in a has already lost; one in b loses here.
    nan = text.value(f"fcmp uno {real} {b}, {b}")
    return text.value(f"select {condition} {nan}, {real} {a}, {real} {result}")


def reciprocal(text: Text, lanes: int, name: str) -> list[str]:
    """The definition of a function that gives the reciprocal of one f32, or of a vector of them.

    Its second argument moves the correctly rounded result by -1, 0 or 1 units in the last place;
    subnormal arguments and results are zeros of their sign.
    """
    body = Text(lanes)
    varying = lanes > 1
    real, word = body.type(Type.F32, varying), body.type(Type.I32, varying)
    condition = body.type(Type.I1, varying)

    def const(bits: int) -> str:
        return _splat(body, Type.I32, bits, varying)

    def flushed(value: str) -> str:
        bits = body.value(f"bitcast {real} {value} to {word}")
        size = body.value(f"and {word} {bits}, {const(MAGNITUDE)}")
        small = body.value(f"icmp ult {word} {size}, {const(MIN_NORMAL)}")
        sign = body.value(f"and {word} {bits}, {const(0x8000_0000)}")
        chosen = body.value(f"select {condition} {small}, {word} {sign}, {word} {bits}")
        return body.value(f"bitcast {word} {chosen} to {real}")

    one = _splat(body, Type.F32, 0x3F80_0000, varying)
    exact = flushed(body.value(f"fdiv {real} {one}, {flushed('%a')}"))
    body.line("%unmoved = icmp eq i32 %step, 0")
    body.line("br i1 %unmoved, label %plain, label %moved")
    body.label("plain")
    body.line(f"ret {real} {exact}")
    body.label("moved")
    bits = body.value(f"bitcast {real} {exact} to {word}")
    step = body.everywhere("i32", "%step") if varying else "%step"
    next_bits = body.value(f"add {word} {bits}, {step}")
    usable = "true"
    for pattern in (bits, next_bits):
        # Normal: the smallest normal number goes to 0 here, the largest to just below the limit.
        size = body.value(f"and {word} {pattern}, {const(MAGNITUDE)}")
        shifted = body.value(f"sub {word} {size}, {const(MIN_NORMAL)}")
        normal = body.value(f"icmp ult {word} {shifted}, {const(INFINITY - MIN_NORMAL)}")
        usable = normal if usable == "true" else body.value(f"and {condition} {usable}, {normal}")
    chosen = body.value(f"select {condition} {usable}, {word} {next_bits}, {word} {bits}")
    result = body.value(f"bitcast {word} {chosen} to {real}")
    body.line(f"ret {real} {result}")
    head = f"define internal {real} @{name}({real} %a, i32 %step) alwaysinline {{"
    return [head, "entry:", *body.lines, "}"]


def signless_values(ops: list[Op], known: Mapping[Value, int]) -> set[Value]:
    """The f32 values of a block that have no sign bit, whatever its registers hold."""
    words: set[Value] = set()
    found: set[Value] = set()
    for op in ops:
        if op.name == "and" and any(known.get(arg, -1) >> 31 == 0 for arg in op.args):
            words.update(op.results)
        elif (op.name == "bitcast" and op.args[0] in words) or (
            op.name in ("fmax", "fmin") and all(arg in found for arg in op.args)
        ):
            found.update(op.results)
        elif op.name == "fbits" and op.args[0] in found:
            words.update(op.results)
    return found
