"""Packed half precision in fp16 and bf16: sums, products, fused ones, extrema, comparisons."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from exact import extremum, narrow, pattern
from exact import total as single_total
from handmade import case, check_cases, with_uniform_twins
from snippets import Family, Snippet, snippet

BF16, F16 = narrow("BF16"), narrow("F16")
TYPES = {"f16": ("__half2", F16, ""), "bf16": ("__nv_bfloat162", BF16, ".BF16_V2")}
OPERATION = Callable[..., int]


def halves(word: int) -> tuple[int, int]:
    return word & 0xFFFF, word >> 16


def on_halves(function: Callable[..., int]) -> Callable[..., int]:
    """A function of 16-bit codes on both halves of words."""

    def both(*words: int) -> int:
        low, high = (function(*codes) for codes in zip(*map(halves, words), strict=True))
        return low | high << 16

    return both


def fused(form, a: int, b: int, c: int) -> int:  # type: ignore[no-untyped-def]
    """a*b + c of codes, rounded once from the exact rational."""
    x, y, z = map(form.decode, (a, b, c))
    if not all(map(math.isfinite, (x, y, z))):
        return form.encode(x * y + z, False)
    same = math.copysign(1, x) * math.copysign(1, y) == math.copysign(1, z)
    return form.encode_exact(Fraction(x) * Fraction(y) + Fraction(z), z if same else 0.0)


def total(form, a: int, b: int) -> int:  # type: ignore[no-untyped-def]
    return fused(form, a, form.encode(1.0, False), b)


def product(form, a: int, b: int) -> int:  # type: ignore[no-untyped-def]
    return fused(form, a, b, (a ^ b) & 0x8000)


def extreme(form, largest: bool, *codes: int, keep: bool = False) -> int:  # type: ignore[no-untyped-def]
    return form.encode(extremum([form.decode(code) for code in codes], largest, keep), False)


HELPERS = """
template <class T> __device__ __forceinline__ T as(u32 x) { return *reinterpret_cast<T*>(&x); }
template <class T> __device__ __forceinline__ u32 bits(T x) { return *reinterpret_cast<u32*>(&x); }
"""


def compared(dtype: str, how: str, compare: Callable[[float, float], bool]) -> list[Snippet]:
    """A comparison into two predicates, and into the halves of a word as ones and as 1.0."""
    form, mark = TYPES[dtype][1:]

    def each(a: int, b: int) -> list[bool]:
        pairs = zip(halves(a), halves(b), strict=True)
        return [compare(form.decode(x), form.decode(y)) for x, y in pairs]

    def flags(a: int, b: int) -> tuple[int, ...]:
        return tuple(1 if holds else 2 for holds in each(a, b))

    def words(a: int, b: int) -> tuple[int, int]:
        low, high = each(a, b)
        one = form.encode(1.0, False)
        return 0xFFFF * low | 0xFFFF0000 * high, one * low | (one << 16) * high

    value = TYPES[dtype][0]
    modern = ("sm_90", "sm_100a", "sm_120a")
    return [
        snippet(f"flags_{how}_{dtype}",
                f'asm("{{.reg .pred p, q; setp.{how}.{dtype}x2 p|q, %2, %3; selp.u32 %0, 1, 2, p;"'
                ' "selp.u32 %1, 1, 2, q;}" : "=r"(o0), "=r"(o1) : "r"(a), "r"(b));',
                flags, f"HSETP2{mark}.{how.upper()}.AND", archs=modern, kind="half"),
        snippet(f"words_{how}_{dtype}",
                f"o0 = __h{how}2_mask(as<{value}>(a), as<{value}>(b));"
                f"o1 = bits(__h{how}2(as<{value}>(a), as<{value}>(b)));",
                words, f"HSET2{mark}.BF.{how.upper()}.AND" + f" HSET2{mark}.{how.upper()}.AND"
                * (dtype == "f16"), archs=modern, kind="half"),
    ]  # fmt: skip


def half_snippets(dtype: str) -> list[Snippet]:
    cuda, form, mark = TYPES[dtype]
    a, b, c = (f"as<{cuda}>({name})" for name in "abc")

    def one(name: str, call: str, function: Callable[..., int], forms: str, arity: int,
            **more: object) -> Snippet:  # fmt: skip
        return snippet(
            f"{name}_{dtype}",
            f"o0 = bits({call});",
            on_halves(function),
            forms,
            arity,
            kind="half",
            **more,
        )

    return [
        one(
            "add",
            f"__hadd2_rn({a}, {b})",
            lambda x, y: total(form, x, y),
            f"HFMA2.MMA{mark} HFMA2{mark}" + " HADD2" * (dtype == "f16"),
            2,
        ),
        one(
            "subtract",
            f"__hsub2_rn({a}, {b})",
            lambda x, y: total(form, x, y ^ 0x8000),
            f"HFMA2.MMA{mark} HFMA2{mark}" + " HADD2" * (dtype == "f16"),
            2,
        ),
        one(
            "multiply",
            f"__hmul2_rn({a}, {b})",
            lambda x, y: product(form, x, y),
            f"HFMA2.MMA{mark} HFMA2{mark}" + " HMUL2" * (dtype == "f16"),
            2,
        ),
        one(
            "fused",
            f"__hfma2({a}, {b}, {c})",
            lambda x, y, z: fused(form, x, y, z),
            f"HFMA2{mark} HFMA2.MMA{mark}",
            3,
        ),
        one(
            "maximum", f"__hmax2({a}, {b})", lambda *x: extreme(form, True, *x), f"HMNMX2{mark}", 2
        ),
        one(
            "minimum", f"__hmin2({a}, {b})", lambda *x: extreme(form, False, *x), f"HMNMX2{mark}", 2
        ),
        one(
            "maximum_nan",
            f"__hmax2_nan({a}, {b})",
            lambda *x: extreme(form, True, *x, keep=True),
            f"HMNMX2{mark}.NAN",
            2,
        ),
        one(
            "magnitude",
            f"__hmax2(__habs2({a}), __habs2({b}))",
            lambda x, y: extreme(form, True, x & 0x7FFF, y & 0x7FFF),
            f"HMNMX2{mark}",
            2,
        ),
        one(
            "maximum_of_3",
            f"__hmax2(__hmax2({a}, {b}), {c})",
            lambda *x: extreme(form, True, *x),
            f"HMNMX2{mark} VHMNMX{mark}",
            3,
        ),
        *compared(dtype, "lt", lambda x, y: x < y),
        *compared(dtype, "geu", lambda x, y: not x < y),
    ]


FAMILY = Family(
    *half_snippets("f16"),
    *half_snippets("bf16"),
    snippet("widen_f16", "__half2 x = as<__half2>(a); o0 = u(__low2float(x));"
            " o1 = u(__high2float(x));",
            lambda a: tuple(pattern(F16.decode(x)) for x in halves(a)), "HADD2.F32", 1,
            kind="half"),
    snippet("widen_bf16",
            "__nv_bfloat162 x = as<__nv_bfloat162>(a); o0 = u(__low2float(x));"
            " o1 = u(__high2float(x));",
            lambda a: (a << 16, a & 0xFFFF0000), "SHF.L.U32 PRMT", 1),
    headers=("cuda_fp16.h", "cuda_bf16.h"),
    helpers=HELPERS,
)  # fmt: skip

test_forms, test_edges, test_drawn = FAMILY.tests()


@pytest.mark.parametrize("name", ["widen_f16", "widen_bf16"])
def test_every_code_widened(name: str) -> None:
    codes = np.arange(1 << 16, dtype=np.uint32)
    FAMILY.check(name, (codes[::2] | codes[1::2] << 16)[:, None])


def _mixed(form, function: Callable[..., int], *picks: Callable[[int], tuple[int, int]]):  # type: ignore[no-untyped-def]
    """A function of codes on operands whose halves `picks` choose."""

    def both(*words: int) -> int:
        operands = [pick(word) for pick, word in zip(picks, words, strict=True)]
        low, high = (function(form, *codes) for codes in zip(*operands, strict=True))
        return low | high << 16

    return both


def low(word: int) -> tuple[int, int]:
    return word & 0xFFFF, word & 0xFFFF


def high(word: int) -> tuple[int, int]:
    return word >> 16, word >> 16


def size(word: int) -> tuple[int, int]:
    return word & 0x7FFF, word >> 16 & 0x7FFF


def quiet(form, code: int) -> int:  # type: ignore[no-untyped-def]
    """A code that has passed through an operation: a NaN is the one NaN."""
    return form.nan if math.isnan(form.decode(code)) else code


def largest(form, *codes: int) -> int:  # type: ignore[no-untyped-def]
    return extreme(form, True, *codes)


def unordered_less(form, x: int, y: int) -> bool:  # type: ignore[no-untyped-def]
    return not form.decode(x) >= form.decode(y)


CASES = with_uniform_twins(
    case("HFMA2 R0,-RZ,RZ,1.875,0", lambda a: 0x3F800000, 1, immediate=0x3F800000),
    case("HFMA2.MMA R0,-RZ,RZ,0,5.9604644775390625e-08", lambda a: 1, 1, immediate=1),
    case("HFMA2 R0,R2,0.5,-2,R3", lambda a, b: fused(F16, a & 0xFFFF, 0xC000, b & 0xFFFF)
         | fused(F16, a >> 16, 0x3800, b >> 16) << 16, kind="half", immediate=0x3800C000),
    case("HFMA2.BF16_V2 R0,-RZ.H0_H0,RZ.H0_H0,|R2|", _mixed(BF16, quiet, size), 1, kind="half"),
    case("HFMA2.BF16_V2 R0,R2.H1_H1,R3,R4.H0_H0", _mixed(BF16, fused, high, halves, low), 3,
         kind="half"),
    case("HADD2 R0,-R2,-RZ.H0_H0", _mixed(F16, lambda form, x: quiet(form, x ^ 0x8000), halves), 1,
         kind="half"),
    case("HADD2.BF16_V2 R0,R2,R3.H1_H1", _mixed(BF16, total, halves, high), kind="half"),
    case("HMUL2.BF16_V2 R0,R2.H0_H0,|R3|", _mixed(BF16, product, low, size), kind="half"),
    case("HADD2.F32 R0,-RZ,R2.H1_H1", lambda a: pattern(F16.decode(a >> 16)), 1, kind="half"),
    case("HADD2.F32 R0,R2.H0_H0,-R3.H1_H1",
         lambda a, b: pattern(single_total(F16.decode(a & 0xFFFF), -F16.decode(b >> 16))),
         kind="half"),
    case("HMNMX2 R0,R2.H1_H1,|R3|,!PT", _mixed(F16, largest, high, size), kind="half"),
    case("HMNMX2.NAN R0,R2,R3,PT",
         _mixed(F16, lambda form, *x: extreme(form, False, *x, keep=True), halves, halves),
         kind="half"),
    case("HMNMX2.BF16_V2 R0,R2,R3,P0",
         lambda a, b, p: on_halves(lambda *x: extreme(BF16, not p, *x))(a, b), predicates=1,
         kind="half"),
    case("VHMNMX R0,|R2|,|R3|,|R4|,!PT", _mixed(F16, largest, size, size, size), 3, kind="half"),
    case("VHMNMX.BF16_V2 R0,R2,R3,R4,!PT", _mixed(BF16, largest, halves, halves, halves), 3,
         kind="half"),
    case("HSETP2.LTU.OR P2,P3,R2,R3,P0", lambda a, b, p: tuple(
        unordered_less(F16, x, y) or p for x, y in zip(halves(a), halves(b), strict=True)),
         outs="P2 P3", predicates=1, kind="half"),
    case("HSETP2.BF16_V2.GTU.XOR P2,P3,R2,R3.H0_H0,P0", lambda a, b, p: tuple(
        unordered_less(BF16, y, x) != p for x, y in zip(halves(a), low(b), strict=True)),
         outs="P2 P3", predicates=1, kind="half"),
    case("HSETP2.LT.AND P2,PT,|R2|.H0_H0,8,4,PT", lambda a: F16.decode(a & 0x7FFF) < 4.0, 1,
         outs="P2", kind="half", immediate=0x48004400),
    case("HSET2.BF.NAN.AND R0,R2,R3,P0", lambda a, b, p: sum(
        0x3C00 << 16 * place for place, (x, y) in enumerate(zip(halves(a), halves(b), strict=True))
        if p and any(math.isnan(F16.decode(code)) for code in (x, y))), predicates=1, kind="half"),
)  # fmt: skip

test_handmade, test_handmade_drawn = check_cases(CASES)
