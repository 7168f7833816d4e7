"""Conversions: narrow floats to and from f32, floats to integers and back."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from exact import Format, flushed, narrow, number, pattern, rounded, signed
from handmade import case, check_cases, with_uniform_twins
from snippets import Family, Snippet, snippet

E2M1, E4M3, E5M2, F16, BF16 = map(narrow, ("E2M1", "E4M3", "E5M2", "F16", "BF16"))
NATIVE_4 = ("sm_100a", "sm_120a")
NATIVE_8 = ("sm_90", *NATIVE_4)


def truncated(bits: int, width: int, is_signed: bool, how: Callable[[float], int]) -> int:
    """A float32 as an integer that saturates; a NaN is 0, or 1 << 63 for 64 bits."""
    x = number(bits)
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed else (0, (1 << width) - 1)
    if math.isnan(x):
        return 0 if width == 32 else 1 << 63
    if math.isinf(x):
        return high if x > 0 else low
    return max(low, min(high, how(x)))


ROUNDINGS = {"rn": round, "rz": math.trunc, "rd": math.floor, "ru": math.ceil}
SASS = {"rn": "", "rz": ".TRUNC", "rd": ".FLOOR", "ru": ".CEIL"}
MODE = {"rn": "RN", "rz": "RZ", "rd": "RM", "ru": "RP"}


def to_integer(name: str, mode: str, width: int, is_signed: bool) -> Snippet:
    """`__float2int_rz` and its siblings."""
    kind = f".{'S' if is_signed else 'U'}{width}" if (width, is_signed) != (32, True) else ""
    form = f"F2I{kind}{SASS[mode]}{'.NTZ' if width == 32 else ''}"
    how = ROUNDINGS[mode]
    body = f"auto r = __float2{name}_{mode}(f(a)); o0 = r; o1 = (u64)r >> 32;"

    def reference(a: int) -> tuple[int, ...]:
        result = truncated(a, width, is_signed, how)
        return (result, result >> 32) if width == 64 else (result,)

    return snippet(f"{name}_{mode}", body, reference, form, 1, kind="float")


def from_integer(name: str, mode: str, width: int, is_signed: bool, forms: str) -> Snippet:
    """`__int2float_rn` and its siblings."""
    source = {("ll", True): "(s64)pair(a, b)", ("ll", False): "pair(a, b)"}.get(
        (name[-2:], is_signed), "(int)a" if is_signed else "a"
    )

    def reference(a: int, b: int = 0) -> int:
        value = (b << 32 | a) if width == 64 else a
        exact = signed(value, width) if is_signed else value
        return pattern(rounded(Fraction(exact), MODE[mode]))

    return snippet(
        f"{name}_to_float_{mode}",
        f"o0 = u(__{name}2float_{mode}({source}));",
        reference,
        forms,
        width // 32,
    )


def packed(name: str, ptx: str, form, forms: str, archs: tuple[str, ...], width: int) -> Snippet:  # type: ignore[no-untyped-def]
    """A PTX conversion of two floats to a narrow pair, the first operand in the high part."""
    if width == 4:
        asm = (
            f'asm("{{.reg .b8 t; {ptx} t, %1, %2; cvt.u32.u8 %0, t;}}"'
            ' : "=r"(o0) : "f"(f(a)), "f"(f(b)));'
        )
    elif width == 8:
        asm = (
            f'unsigned short t; asm("{ptx} %0, %1, %2;" : "=h"(t) : "f"(f(a)), "f"(f(b))); o0 = t;'
        )
    else:
        asm = f'asm("{ptx} %0, %1, %2;" : "=r"(o0) : "f"(f(a)), "f"(f(b)));'
    saturate = "satfinite" in ptx
    return snippet(
        name,
        asm,
        lambda a, b: form.encode(number(a), saturate) << width | form.encode(number(b), saturate),
        forms,
        archs=archs,
        kind="float",
    )


def unpacked(name: str, ptx: str, form, forms: str, archs: tuple[str, ...], width: int) -> Snippet:  # type: ignore[no-untyped-def]
    """A PTX conversion of two narrow codes to fp16, each code tried in each place."""
    source = "{.reg .b8 t; cvt.u8.u32 t, %1;" if width == 4 else "{.reg .b16 t; cvt.u16.u32 t, %1;"
    asm = f'asm("{source} {ptx} %0, t;}}" : "=r"(o0) : "r"(a));'
    mask = (1 << width) - 1

    def reference(a: int) -> int:
        low, high = (F16.encode(form.decode(a >> place & mask), False) for place in (0, width))
        return low | high << 16

    return snippet(name, asm, reference, forms, 1, archs=archs)


FAMILY = Family(
    *(to_integer(name, mode, width, is_signed)
      for name, width, is_signed in (("int", 32, True), ("uint", 32, False), ("ll", 64, True),
                                     ("ull", 64, False))
      for mode in ROUNDINGS),
    snippet("uint_rz_ftz", 'asm("cvt.rzi.ftz.u32.f32 %0, %1;" : "=r"(o0) : "f"(f(a)));',
            lambda a: truncated(pattern(flushed(number(a))), 32, False, math.trunc),
            "F2I.FTZ.U32.TRUNC.NTZ", 1, kind="float"),
    *(from_integer("int", mode, 32, True, forms) for mode, forms in
      (("rn", "I2F I2FP.F32.S32"), ("rz", "I2F.RZ I2FP.F32.S32.RZ"), ("rd", "I2F.RM"),
       ("ru", "I2F.RP"))),
    *(from_integer("uint", mode, 32, False, forms) for mode, forms in
      (("rn", "I2F.U32 I2FP.F32.U32"), ("rz", "I2F.U32.RZ I2FP.F32.U32.RZ"), ("rd", "I2F.U32.RM"),
       ("ru", "I2F.U32.RP"))),
    *(from_integer(name, mode, 64, name == "ll", f"I2F.{kind}{mark}")
      for name, kind in (("ll", "S64"), ("ull", "U64"))
      for mode, mark in (("rn", ""), ("rz", ".RZ"), ("rd", ".RM"), ("ru", ".RP"))),
    snippet("from_bytes",
            "o0 = u((float)(a & 0xff)); o1 = u((float)(a >> 16 & 0xff)); o2 = u((float)(char)a);",
            lambda a: (pattern(float(a & 255)), pattern(float(a >> 16 & 255)),
                       pattern(float(signed(a & 255, 8)))), "I2F.U8 I2FP.F32.U32 I2F.S8", 1),
    snippet("from_shorts", "o0 = u((float)(a & 0xffff)); o1 = u((float)(short)(a >> 16));",
            lambda a: (pattern(float(a & 0xFFFF)), pattern(float(signed(a >> 16, 16)))),
            "I2F.U16 I2F.S16", 1),
    packed("to_f16", "cvt.rn.f16x2.f32", F16, "F2FP.F16.F32.PACK_AB F2FP.PACK_AB",
           ("sm_80", *NATIVE_8), 16),
    packed("to_bf16", "cvt.rn.bf16x2.f32", BF16, "F2FP.BF16.F32.PACK_AB F2FP.BF16.PACK_AB",
           ("sm_80", *NATIVE_8), 16),
    snippet("half_of_float", "o0 = __half_as_ushort(__float2half_rn(f(a)));",
            lambda a: F16.encode(number(a), False), "F2F.F16.F32", 1, kind="float"),
    packed("to_e4m3", "cvt.rn.satfinite.e4m3x2.f32", E4M3,
           "F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C", NATIVE_8, 8),
    packed("to_e5m2", "cvt.rn.satfinite.e5m2x2.f32", E5M2,
           "F2FP.SATFINITE.E5M2.F32.PACK_AB_MERGE_C", NATIVE_8, 8),
    packed("to_e2m1", "cvt.rn.satfinite.e2m1x2.f32", E2M1,
           "F2FP.SATFINITE.E2M1.F32.PACK_AB_MERGE_C", NATIVE_4, 4),
    unpacked("from_e4m3", "cvt.rn.f16x2.e4m3x2", E4M3, "F2FP.F16.E4M3.UNPACK_B", NATIVE_8, 8),
    unpacked("from_e5m2", "cvt.rn.f16x2.e5m2x2", E5M2, "F2FP.F16.E5M2.UNPACK_B", NATIVE_8, 8),
    unpacked("from_e2m1", "cvt.rn.f16x2.e2m1x2", E2M1, "F2FP.F16.E2M1.UNPACK_B", NATIVE_4, 4),
    headers=("cuda_fp16.h",),
)  # fmt: skip

test_forms, test_edges, test_drawn = FAMILY.tests()


@pytest.mark.parametrize(
    ("name", "form", "step"),
    [("to_e2m1", E2M1, 1), ("to_e4m3", E4M3, 1), ("to_e5m2", E5M2, 1), ("to_f16", F16, 37),
     ("to_bf16", BF16, 37)],
)  # fmt: skip
def test_every_boundary(name: str, form: Format, step: int) -> None:
    """Values half way between neighbours (or every so many of them), and right beside."""
    found = []
    for low, high in pairwise(form.values[::step] if step > 1 else form.values):
        middle = pattern(float((low + high) / 2)) if step == 1 else pattern(float(low))
        found += [middle - 1, middle, middle + 1] if middle else [0, 1, 2]
    bits = np.array([sign | x for sign in (0, 1 << 31) for x in found], np.uint32)
    FAMILY.check(name, np.stack([bits, bits[::-1]], axis=1))


@pytest.mark.parametrize("name", ["from_e2m1", "from_e4m3", "from_e5m2"])
def test_every_pair_of_codes(name: str) -> None:
    FAMILY.check(name, np.arange(0, 1 << 16, 7, dtype=np.uint32)[:, None])


def _merged(form, width: int):  # type: ignore[no-untyped-def]
    """A pair packed below what the third operand holds."""
    return lambda a, b, c: (c << 2 * width | form.encode(number(a), True) << width
                            | form.encode(number(b), True))  # fmt: skip


CASES = with_uniform_twins(
    case("F2FP.SATFINITE.E2M1.F32.PACK_AB_MERGE_C R0,R2,R3,R4", _merged(E2M1, 4), 3, kind="float"),
    case("F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C R0,R2,R3,R4", _merged(E4M3, 8), 3, kind="float"),
    case("F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C R0,RZ,-|R2|,RZ",
         lambda a: E4M3.encode(-abs(number(a)), True), 1, kind="float"),
    case("F2FP.BF16.F32.PACK_AB R0,RZ,R2", lambda a: BF16.encode(number(a), False), 1,
         kind="float"),
    case("F2F.BF16.F32 R0,R2", lambda a: BF16.encode(number(a), False), 1, kind="float"),
    case("F2F.F16.F32 R0,|R2|", lambda a: F16.encode(abs(number(a)), False), 1, kind="float"),
    case("F2F.FTZ.BF16.F32 R0,R2", lambda a: BF16.encode(flushed(number(a)), False), 1,
         kind="float"),
    case("UF2I.FTZ.U32.TRUNC.NTZ UR0,UR2",
         lambda a: truncated(pattern(flushed(number(a))), 32, False, math.trunc), 1, outs="UR0",
         kind="float"),
    case("UI2F.U32.RP UR0,UR2", lambda a: pattern(rounded(Fraction(a), "RP")), 1, outs="UR0"),
    case("I2F.U8 R0,R2.B3", lambda a: pattern(float(a >> 24)), 1),
    case("I2F.S16 R0,R2.H1", lambda a: pattern(float(signed(a >> 16, 16))), 1),
    case("I2FP.F32.S32 R0,R2", lambda a: pattern(rounded(Fraction(signed(a)))), 1),
    case("I2FP.F32.U32.RZ R0,R2", lambda a: pattern(rounded(Fraction(a), "RZ")), 1),
)  # fmt: skip

test_handmade, test_handmade_drawn = check_cases(CASES)
