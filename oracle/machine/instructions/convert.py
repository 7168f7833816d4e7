"""Conversions: F2FP (packed narrow formats), F2F, F2I, I2F, I2FP.

A conversion to an integer saturates; a NaN becomes 0 under NTZ and the smallest (or for an
unsigned type, the value with only the top bit set) without it, as cvt and its compiled forms do.
"""

from __future__ import annotations

from oracle.machine.builder import F64, I64
from oracle.machine.context import Context, Modifiers
from oracle.machine.instructions.floating import ROUNDINGS, to_integer
from oracle.machine.instructions.registry import meaning
from oracle.machine.instructions.rounding import (
    FORMATS,
    decode,
    encode,
    flush,
    integer_to_f64,
    to_f32,
)
from oracle.machine.ir import Value

_INTEGERS = ("U8", "S8", "U16", "S16", "U32", "S32", "U64", "S64")


@meaning("F2FP", "UF2FP")
def f2fp(c: Context, m: Modifiers) -> None:
    """Pack two f32 into a narrow format, or unpack narrow codes into two halves"""
    saturate, relu = m.take("SATFINITE"), m.take("RELU")
    rounding = m.choose(*ROUNDINGS, default="RN")
    shape = m.choose("PACK_AB_MERGE_C", "PACK_AB", "PACK_B", "UNPACK_B_MERGE_C", "UNPACK_B")
    if relu or rounding != "RN" or not shape:
        raise c.refuse("this conversion is not modelled")
    count = {"PACK_AB_MERGE_C": 4, "UNPACK_B": 2}.get(shape, 3)
    if len(c.instruction.operands) != count:
        raise c.refuse("operands are not understood")
    if shape.startswith("UNPACK"):
        _unpack(c, m, shape)
        return
    # Before sm_90 the spelling leaves out what is the default: F16 from F32.
    m.take("F32")
    narrow = FORMATS[m.choose(*FORMATS, default="F16")]
    width = narrow.sign_shift + 1
    high, low = c.f32(c.operand(1)), c.f32(c.operand(2))
    packed = c.or_(
        c.shl(encode(c, high, narrow, saturate), width), encode(c, low, narrow, saturate)
    )
    if shape == "PACK_AB_MERGE_C":
        # The pair goes below what c already holds, moved up to make room.
        packed = c.or_(packed, c.shl(c.i32(c.operand(3)), 2 * width))
    elif width != 16:
        raise c.refuse("this conversion is not modelled")
    c.set_i32(c.operand(0), packed)


def _unpack(c: Context, m: Modifiers, shape: str) -> None:
    target = FORMATS.get(m.choose("F16", "BF16"))
    source = FORMATS.get(m.choose("E2M1", "E4M3", "E5M2"))
    if target is None or source is None or shape != "UNPACK_B":
        raise c.refuse("these formats are not modelled")
    codes = c.i32(c.operand(1))
    width = source.sign_shift + 1
    halves = [encode(c, decode(c, c.lshr(codes, i * width), source), target, False) for i in (0, 1)]
    c.set_i32(c.operand(0), c.or_(halves[0], c.shl(halves[1], 16)))


@meaning("F2F", operands=(2,))
def f2f(c: Context, m: Modifiers) -> None:
    """d = a in another format: f32 to fp16 or bf16"""
    ftz, rounding = m.take("FTZ"), m.choose(*ROUNDINGS, default="RN")
    target = FORMATS.get(m.choose("F16", "BF16"))
    if target is None or not m.take("F32") or rounding != "RN":
        raise c.refuse("this conversion is not modelled")
    value = c.f32(c.operand(1))
    c.set_i32(c.operand(0), encode(c, flush(c, value) if ftz else value, target, False))


@meaning("F2I", "UF2I", operands=(2,))
def f2i(c: Context, m: Modifiers) -> None:
    """d = an f32 as an integer, saturating"""
    ftz, zero_nan = m.take("FTZ"), m.take("NTZ")
    mode = m.choose("TRUNC", "FLOOR", "CEIL", "RN", default="RN")
    kind = m.choose(*_INTEGERS, default="S32")
    m.take("F32")
    width, signed = int(kind[1:]), kind[0] == "S"
    if width < 32:
        raise c.refuse("conversions to narrow integers are not modelled")
    x = c.f32(c.operand(1))
    x = flush(c, x) if ftz else x
    whole = c.convert("fpext", to_integer(c, x, mode), F64)
    size = c.bitcast(c.and_(c.bitcast(whole), c.const(I64, (1 << 63) - 1)))
    negative = c.fcompare("folt", whole, c.const(F64, 0))
    number = c.fcompare("folt", size, c.bitcast(c.const(I64, 0x43F0_0000_0000_0000)))
    capped = c.bitcast(c.select(number, c.bitcast(size), c.const(I64, 0)))
    count = c.convert("fptoui", capped, I64)
    highest = (1 << (width - signed)) - 1
    lowest = c.const(I64, highest + 1 if signed else 0)
    inside = c.and_(number, c.not_(c.ult(c.const(I64, highest), count)))
    positive = c.select(inside, count, c.const(I64, highest))
    below = c.sub(c.const(I64, 0), count) if signed else c.const(I64, 0)
    result = c.select(negative, c.select(inside, below, lowest), positive)
    nan = c.const(I64, 0 if zero_nan else 1 << (width - 1))
    result = c.select(c.fcompare("funo", x, x), nan, result)
    if width == 64:
        c.set_i64(c.operand(0), result)
    else:
        c.set_i32(c.operand(0), c.low(result))


@meaning("I2F", "UI2F", "I2FP", "UI2FP", operands=(2,))
def i2f(c: Context, m: Modifiers) -> None:
    """d = an integer as an f32"""
    m.take("F32")
    rounding = m.choose(*ROUNDINGS, default="RN")
    kind = m.choose(*_INTEGERS, default="S32")
    width, signed = int(kind[1:]), kind[0] == "S"
    value = c.i64(c.operand(1)) if width == 64 else _integer(c, width, signed)
    total, error = integer_to_f64(c, value, signed)
    if width == 64 and rounding == "RN":
        # Rounded once: keep a sticky bit of what the f64 lost before narrowing.
        bits = c.bitcast(total)
        lost = c.not_(c.fcompare("foeq", error, c.const(F64, 0)))
        even = c.eq(c.and_(bits, c.const(I64, 1)), c.const(I64, 0))
        outward = c.eq(
            c.fcompare("folt", c.const(F64, 0), error), c.fcompare("folt", c.const(F64, 0), total)
        )
        step = c.select(outward, c.const(I64, 1), c.const(I64, -1))
        total = c.bitcast(c.select(c.and_(lost, even), c.add(bits, step), bits))
    c.set_f32(c.operand(0), to_f32(c, total, error, rounding))


def _integer(c: Context, width: int, signed: bool) -> Value:
    operand = c.operand(1)
    suffixes = getattr(operand, "suffixes", ())
    c.only(operand, suffixes=suffixes)
    value = c.i32_part(operand)
    if width == 32:
        if suffixes:
            raise c.refuse("operand suffix is not understood")
        return value
    place = suffixes[0] if suffixes else ("B0" if width == 8 else "H0")
    shift = {"B0": 0, "B1": 8, "B2": 16, "B3": 24, "H0": 0, "H1": 16, "H0_H0": 0, "H1_H1": 16}.get(
        place
    )
    if shift is None or len(suffixes) > 1:
        raise c.refuse("operand suffix is not understood")
    moved = c.shl(value, 32 - width - shift)
    return (c.ashr if signed else c.lshr)(moved, 32 - width)
