"""Single precision: sums, products, fused ones, extrema, comparisons, division, integers."""

import math
from collections.abc import Callable
from functools import partial
from itertools import product as every

import numpy as np
import pytest
from exact import (
    NAN,
    extremum,
    flushed,
    fused,
    number,
    pattern,
    product,
    quotient,
    total,
)
from handmade import Case, case, check_cases, with_uniform_twins
from snippets import FLOATS, Family, Snippet, grid, snippet

from oracle.machine.memory import MachineFault

MODES = {"RN": "rn", "RZ": "rz", "RM": "rm", "RP": "rp"}
Arithmetic = Callable[..., float]


def on_bits(function: Arithmetic) -> Callable[..., int]:
    """A function of floats as one of patterns, its NaN canonical."""
    return lambda *bits: pattern(function(*map(number, bits)))


def flushing(function: Arithmetic) -> Arithmetic:
    """With subnormal operands and results flushed."""
    return lambda *x: flushed(function(*map(flushed, x)))


def saturated(function: Arithmetic) -> Arithmetic:
    """With the result clamped to [0, 1], a NaN to 0."""

    def clamped(*x: float) -> float:
        y = function(*x)
        return 0.0 if math.isnan(y) or y <= 0 else min(y, 1.0)

    return clamped


def ptx(operation: str, arity: int) -> str:
    """One PTX instruction on floats."""
    names = ", ".join(f"%{place + 1}" for place in range(arity))
    inputs = ", ".join(f'"f"(f({name}))' for name in "abcd"[:arity])
    return f'float r; asm("{operation} %0, {names};" : "=f"(r) : {inputs}); o0 = u(r);'


def float_snippet(
    name: str, body: str, function: Arithmetic, forms: str, arity: int = 2, **more: object
) -> Snippet:
    return snippet(name, body, on_bits(function), forms, arity, kind="float", **more)


def directed(name: str, opcode: str, arity: int, function: Arithmetic) -> list[Snippet]:
    found = []
    for mode, ftz in every(MODES, (False, True)):

        def how(*x: float, mode: str = mode) -> float:
            return function(*x, mode)

        spelled = f"{name}.{MODES[mode]}{'.ftz' if ftz else ''}.f32"
        form = opcode + ".FTZ" * ftz + f".{mode}" * (mode != "RN")
        found.append(
            float_snippet(
                spelled.replace(".", "_"),
                ptx(spelled, arity),
                flushing(how) if ftz else how,
                form,
                arity,
            )
        )
    return found


def integral(rounding: Callable[[float], int]) -> Arithmetic:
    return lambda x: math.copysign(rounding(x), x) if math.isfinite(x) else x


BLACKWELL = ("sm_100a", "sm_120a")
PAIR = (
    'asm("{{.reg .b64 p, q, r, t; mov.b64 p, {{%2, %3}}; mov.b64 q, {{%4, %5}};'
    ' {} mov.b64 {{%0, %1}}, t;}}" : "=r"(o0), "=r"(o1) : "r"(a), "r"(b), "r"(c), "r"(d));'
)


def pairwise(function: Arithmetic) -> Callable[..., tuple[int, int]]:
    return lambda a, b, c, d: (on_bits(function)(a, c), on_bits(function)(b, d))


FAMILY = Family(
    *directed("add", "FADD", 2, total),
    *directed("mul", "FMUL", 2, product),
    *directed("fma", "FFMA", 3, fused),
    float_snippet("add_saturated", ptx("add.sat.f32", 2), saturated(total), "FADD.SAT"),
    float_snippet("mul_saturated", ptx("mul.sat.f32", 2), saturated(product), "FMUL.SAT"),
    float_snippet("fma_saturated", ptx("fma.rn.sat.f32", 3), saturated(fused), "FFMA.SAT", 3),
    float_snippet("subtract", "o0 = u(f(a) - fabsf(f(b)));", lambda x, y: total(x, -abs(y)),
                  "FADD"),
    float_snippet("negated_fma", "o0 = u(__fmaf_rn(-f(a), f(b), -f(c)));",
                  lambda x, y, z: fused(-x, y, -z), "FFMA", 3),
    float_snippet("scale", "o0 = u(f(a) * 0.1f);", lambda x: product(x, number(0x3DCCCCCD)),
                  "FMUL", 1),
    float_snippet("maximum", ptx("max.f32", 2), lambda *x: extremum(x, True), "FMNMX"),
    float_snippet("minimum", ptx("min.f32", 2), lambda *x: extremum(x, False), "FMNMX"),
    float_snippet("maximum_ftz", ptx("max.ftz.f32", 2), flushing(lambda *x: extremum(x, True)),
                  "FMNMX.FTZ"),
    float_snippet("maximum_nan", ptx("max.NaN.f32", 2), lambda *x: extremum(x, True, True),
                  "FMNMX.NAN"),
    float_snippet("minimum_nan", ptx("min.NaN.f32", 2), lambda *x: extremum(x, False, True),
                  "FMNMX.NAN"),
    float_snippet("maximum_magnitude", "o0 = u(fmaxf(fabsf(f(a)), fabsf(f(b))));",
                  lambda *x: extremum(map(abs, x), True), "FMNMX"),
    float_snippet("maximum_of_3", ptx("max.f32", 3), lambda *x: extremum(x, True), "FMNMX3", 3,
                  archs=BLACKWELL[:1]),
    float_snippet("minimum_of_3", ptx("min.NaN.f32", 3), lambda *x: extremum(x, False, True),
                  "FMNMX3.NAN", 3, archs=BLACKWELL[:1]),
    float_snippet("reciprocal", ptx("rcp.approx.ftz.f32", 1),
                  lambda x: flushed(quotient(1.0, flushed(x))), "MUFU.RCP", 1),
    float_snippet("divide", "o0 = u(__fdiv_rn(f(a), f(b)));", quotient,
                  "FCHK MUFU.RCP FFMA.RZ FFMA.RP FFMA.RM CALL.REL.NOINC RET.REL.NODEC"),
    float_snippet("reciprocal_rounded", "o0 = u(__frcp_rn(f(a)));",
                  lambda x: quotient(1.0, x), "MUFU.RCP", 1),
    float_snippet("nearest", "o0 = u(rintf(f(a)));", integral(round), "FRND", 1),
    float_snippet("floor", "o0 = u(floorf(f(a)));", integral(math.floor), "FRND.FLOOR", 1),
    float_snippet("ceiling", "o0 = u(ceilf(f(a)));", integral(math.ceil), "FRND.CEIL", 1),
    float_snippet("truncate", "o0 = u(truncf(f(a)));", integral(math.trunc), "FRND.TRUNC", 1),
    float_snippet("nearest_ftz", ptx("cvt.rni.ftz.f32.f32", 1), flushing(integral(round)),
                  "FRND.FTZ", 1),
    float_snippet("floor_ftz", ptx("cvt.rmi.ftz.f32.f32", 1), flushing(integral(math.floor)),
                  "FRND.FTZ.FLOOR", 1),
    snippet("add_pairs", PAIR.format("add.rn.f32x2 t, p, q;"), pairwise(total), "FADD2", 4,
            kind="float", archs=BLACKWELL[:1]),
    snippet("multiply_pairs", PAIR.format("mul.rn.f32x2 t, p, q;"), pairwise(product), "FMUL2", 4,
            kind="float", archs=BLACKWELL[:1]),
    snippet("fused_pairs", PAIR.format("fma.rn.f32x2 t, p, q, q;"),
            pairwise(lambda x, y: fused(x, y, y)), "FFMA2", 4, kind="float",
            archs=BLACKWELL[:1]),
)  # fmt: skip

test_forms, test_edges, test_drawn = FAMILY.tests()


def _direct(text: str, function: Arithmetic, words: int, **more: object) -> Case:
    return case(text, on_bits(function), words, kind="float", **more)  # type: ignore[arg-type]


def test_scaled_products() -> None:
    """FMUL.D8 .. FMUL.M8, where it does not matter whether the product is rounded before."""
    operands = grid(FLOATS, 2)
    sizes = [abs(number(a) * number(b)) for a, b in operands.tolist()]
    known = [not (0 < x < 2.0**-120 or 2.0**120 < x < math.inf) for x in sizes]
    for mark, factor in SCALES.items():
        scaled = partial(lambda x, y, factor: product(product(x, y), factor), factor=factor)
        _direct(f"FMUL.{mark} R0,R2,R3", scaled, 2).check(operands[known])


def test_scaled_product_below_the_normal_range() -> None:
    """There a fault says that the rounding is not known, unless both ways give the same."""
    half = case("FMUL.D4 R0,R2,R3", lambda a, b: a >> 2)
    one = 0x3F800000
    half.check(np.array([[8, one], [16, one]], np.uint32))
    with pytest.raises(MachineFault, match="scaled product"):
        half.check(np.array([[0x0087ED4D, 0x3F8C2CE6]], np.uint32))


SCALES = {"D8": 0.125, "D4": 0.25, "D2": 0.5, "M2": 2.0, "M4": 4.0, "M8": 8.0}
FORMS = {f"FMUL.{mark}" for mark in SCALES}
"""Forms that are tested neither by a snippet nor by a case."""


def _needs_care(a: int, b: int) -> bool:
    """Whether a or b is too far from 1 for the short division."""
    return not all(2.0**-60 <= abs(number(x)) < 2.0**61 for x in (a, b))


RECIPROCAL = _direct("MUFU.RCP R0,R2", lambda x: flushed(quotient(1.0, flushed(x))), 1)
FUSED = _direct("FFMA R0,R2,R3,R4", fused, 3)
HARD = np.array(
    [
        # The sum in float64 rounds to what looks like a tie of float32, from below or above.
        (0x39800001, 0x397FFFFE, 0x3F800001),
        (0x39800001, 0x39800001, 0x3F800000),
        (0x39800001, 0x397FFFFE, 0xBF800001),
        # The same below the normal range, where more bits are dropped.
        (0x20000001, 0x1FFFFFFE, 0x00000003),
        (0x20000001, 0x1FFFFFFE, 0x80000003),
        (0x5F800001, 0x1F7FFFFE, 0x4B800001),
    ],
    np.uint32,
)


def test_fused_where_rounding_twice_goes_wrong() -> None:
    FUSED.check(HARD)


CASES = with_uniform_twins(
    case("FMNMX R0,R2,-R3,P0",
         lambda a, b, p: pattern(extremum([number(a), -number(b)], not p)), predicates=1,
         kind="float"),
    case("FMNMX.FTZ.NAN R0,R2,R3,!PT",
         lambda a, b: pattern(flushed(extremum([number(a), number(b)], True, True))), kind="float"),
    case("FMNMX3 R0,|R2|,|R3|,|R4|,P0",
         lambda a, b, c, p: pattern(extremum([abs(number(x)) for x in (a, b, c)], not p)), 3,
         predicates=1, kind="float"),
    _direct("FADD R0,-R2,-RZ", lambda x: total(-x, -0.0), 1),
    _direct("FADD.FTZ R0,|R2|,-RZ", flushing(lambda x: total(abs(x), -0.0)), 1),
    _direct("FADD R0,R2,0.5", lambda x: total(x, 0.5), 1),
    _direct("FADD.RP R0,R2,-INF ", lambda x: total(x, -math.inf, "RP"), 1),
    _direct("FMUL R0,R2,1.84467440737095516160e+19", lambda x: product(x, 2.0**64), 1),
    RECIPROCAL,
    FUSED,
    _direct("FFMA R0,R2,R3,-1", lambda x, y: fused(x, y, -1.0), 2),
    _direct("FFMA R0,-R2,R3.reuse,RZ", lambda x, y: fused(-x, y, 0.0), 2),
    _direct("UFADD UR0,UR2,-UR3", lambda x, y: total(x, -y), 2, outs="UR0"),
    _direct("UFMUL UR0,UR2,UR3", product, 2, outs="UR0"),
    _direct("UFFMA UR0,UR2,UR3,UR4", fused, 3, outs="UR0"),
    _direct("UFMNMX UR0,UR2,UR3,!UPT", lambda x, y: extremum([x, y], True), 2, outs="UR0"),
    case("UFSEL UR0,UR2,-UR3,UP0", lambda a, b, p: a if p else b ^ 0x80000000, predicates=1,
         outs="UR0"),
    case("FCHK P2,R2,R3", _needs_care, outs="P2", kind="float"),
    case("MUFU.RSQ R0,-QNAN ", lambda a: NAN, 1),
)  # fmt: skip

test_handmade, test_handmade_drawn = check_cases(CASES)
