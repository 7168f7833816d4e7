"""Moves and choices: MOV, SEL, FSEL, R2UR, CS2R, PRMT, and the special registers."""

from __future__ import annotations

from oracle.machine.builder import I1, I32, I64
from oracle.machine.context import WHOLE_FILE, Context, Modifiers
from oracle.machine.instructions.integer import leading_predicates
from oracle.machine.instructions.registry import meaning
from oracle.machine.ir import Value
from oracle.machine.operands import Operand, Special

_COORDINATES = {
    "SR_TID.X": "tid.x",
    "SR_TID.Y": "tid.y",
    "SR_TID.Z": "tid.z",
    "SR_CTAID.X": "ctaid.x",
    "SR_CTAID.Y": "ctaid.y",
    "SR_CTAID.Z": "ctaid.z",
    "SR_LANEID": "laneid",
    "SR_LTMASK": "lt_mask",
}
# A CTA's place in its cluster and the cluster's size: no launch here has clusters of more than one.
# SWINHI is the upper word of a generic address of shared memory, whose place is arbitrary.
_CONSTANTS = {"SRZ": 0, "SR_CgaCtaId": 0, "SR_CgaSize": 1, "SR_SWINHI": 0}


@meaning("MOV", "UMOV", "MOV32I", operands=(2,))
def mov(c: Context, m: Modifiers) -> None:
    """d = a; SPILL and FILL keep a uniform register in a vector one"""
    m.ignore("SPILL")
    if m.take("64"):
        c.set_i64(c.operand(0), c.i64(c.operand(1)))
        return
    c.set_i32(c.operand(0), c.i32(c.operand(1)))


@meaning("R2UR")
def r2ur(c: Context, m: Modifiers) -> None:
    """ud = a, taken from the warp; every lane here keeps its own, which must agree"""
    m.ignore("FILL", "OR")
    target, *rest = c.instruction.operands
    outs = leading_predicates(tuple(rest))
    if any(not getattr(o, "constant", False) for o in rest[:outs]) or len(rest) != outs + 1:
        raise c.refuse("operands are not understood")
    c.set_i32(target, c.i32(rest[outs]))


@meaning("SEL", "USEL", operands=(4,))
def sel(c: Context, m: Modifiers) -> None:
    """d = p ? a : b"""
    choice = c.predicate(c.operand(3))
    if m.take("64"):
        c.set_i64(c.operand(0), c.select(choice, c.i64(c.operand(1)), c.i64(c.operand(2))))
        return
    c.set_i32(c.operand(0), c.select(choice, c.i32(c.operand(1)), c.i32(c.operand(2))))


@meaning("FSEL", "UFSEL", operands=(4,))
def fsel(c: Context, m: Modifiers) -> None:
    """d = p ? a : b, bits unchanged but for |x| and -x"""
    a, b = c.float_bits(c.operand(1)), c.float_bits(c.operand(2))
    c.set_i32(c.operand(0), c.select(c.predicate(c.operand(3)), a, b))


@meaning("S2R", "S2UR", operands=(2,))
def s2r(c: Context, m: Modifiers) -> None:
    """d = a coordinate of the lane"""
    source = c.operand(1)
    if not isinstance(source, Special) or source.name not in (*_COORDINATES, *_CONSTANTS):
        raise c.refuse("this special register is not modelled")
    if source.name in _CONSTANTS:
        c.set_i32(c.operand(0), c.const(I32, _CONSTANTS[source.name]))
        return
    c.set_i32(c.operand(0), c.emit("special", (I32,), (), (_COORDINATES[source.name],))[0])


@meaning("CS2R", operands=(2,))
def cs2r(c: Context, m: Modifiers) -> None:
    """d = 0, or with 32 what S2R gives"""
    source = c.operand(1)
    if m.take("32"):
        s2r(c, m)
    elif isinstance(source, Special) and source.name == "SRZ":
        c.set_i64(c.operand(0), c.const(I64, 0))
    else:
        raise c.refuse("this special register is not modelled")


@meaning("PRMT", "UPRMT", operands=(4,))
def prmt(c: Context, m: Modifiers) -> None:
    """d = four bytes of {c:a}, chosen by the nibbles of b; bit 3 of a nibble spreads the sign"""
    a, selector, high = c.i32(c.operand(1)), c.i32(c.operand(2)), c.i32(c.operand(3))
    known = c.known(selector)
    if known is not None:
        c.set_i32(c.operand(0), _permute_known(c, a, high, known))
        return
    pair = c.join(a, high)
    result = c.const(I32, 0)
    for place in range(4):
        nibble = c.lshr(selector, 4 * place)
        index = c.zext(c.and_(nibble, c.const(I32, 7)), I64)
        byte = c.and_(c.low(c.lshr(pair, c.shl(index, 3))), c.const(I32, 0xFF))
        spread = c.sub(c.const(I32, 0), c.lshr(byte, 7))
        signed = c.not_(c.eq(c.and_(nibble, c.const(I32, 8)), c.const(I32, 0)))
        byte = c.and_(c.select(signed, spread, byte), c.const(I32, 0xFF))
        result = c.or_(result, c.shl(byte, 8 * place))
    c.set_i32(c.operand(0), result)


def _permute_known(c: Context, a: Value, high: Value, selector: int) -> Value:
    """PRMT with a known selector: bytes that stay neighbours move together."""
    nibbles = [selector >> (4 * place) & 15 for place in range(4)]
    result = c.const(I32, 0)
    place = 0
    while place < 4:
        nibble = nibbles[place]
        word, byte = (high if nibble & 4 else a), nibble & 3
        if nibble & 8:
            sign = c.lshr(c.ashr(c.shl(word, 8 * (3 - byte)), 31), 24)
            result = c.or_(result, c.shl(sign, 8 * place))
            place += 1
            continue
        length = 1
        while (
            place + length < 4 and byte + length < 4 and nibbles[place + length] == nibble + length
        ):
            length += 1
        mask = c.const(I32, ((1 << (8 * length)) - 1) << (8 * place))
        moved = (
            c.shl(word, 8 * (place - byte)) if place > byte else c.lshr(word, 8 * (byte - place))
        )
        result = c.or_(result, c.and_(moved, mask))
        place += length
    return result


def _without_whole_file(c: Context) -> list[Operand]:
    """The operands but PR, which must be there (perhaps in the guard's place)."""
    whole = Special(WHOLE_FILE)
    operands = [o for o in c.instruction.operands if o != whole]
    if (len(operands) < len(c.instruction.operands)) == (c.instruction.predicate == WHOLE_FILE):
        raise c.refuse("operands are not understood")
    return operands


@meaning("P2R")
def p2r(c: Context, m: Modifiers) -> None:
    """d = the predicates P0..P6 as bits, where the mask has ones; the other bits of b"""
    target, base, mask = _without_whole_file(c)
    _set_predicates(c, "P", target, base, mask)


@meaning("UP2UR")
def up2ur(c: Context, m: Modifiers) -> None:
    """ud = the predicates UP0..UP6 as bits, as P2R"""
    target, whole, base, mask = c.instruction.operands
    if whole != Special("UPR"):
        raise c.refuse("operands are not understood")
    _set_predicates(c, "UP", target, base, mask)


def _set_predicates(c: Context, file: str, target: Operand, base: Operand, mask: Operand) -> None:
    bits = c.const(I32, 0x80)
    for index in range(7):
        bits = c.or_(bits, c.shl(c.zext(c.read(f"{file}{index}"), I32), index))
    chosen = c.i32(mask)
    c.set_i32(target, c.or_(c.and_(bits, chosen), c.and_(c.i32(base), c.not_(chosen))))


_BYTES = ("B0", "B1", "B2", "B3")


@meaning("R2P")
def r2p(c: Context, m: Modifiers) -> None:
    """P0..P6 = bits of a, or of one byte of it, where the mask has ones"""
    source, mask = _without_whole_file(c)
    (suffix,) = getattr(source, "suffixes", ()) or ("B0",)
    if suffix not in _BYTES:
        raise c.refuse("operand suffix is not understood")
    chosen = c.known(c.i32(mask))
    if chosen is None:
        raise c.refuse("the mask is not a constant")
    c.only(source, suffixes=_BYTES)
    value = c.lshr(c.i32_part(source), 8 * _BYTES.index(suffix))
    for index in range(7):
        if chosen >> index & 1:
            c.write(f"P{index}", c.trunc(c.lshr(value, index), I1))
