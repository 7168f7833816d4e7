"""Loads and stores: global, shared, local and constant memory."""

from __future__ import annotations

from oracle.machine.builder import I32
from oracle.machine.context import Context, Modifiers
from oracle.machine.instructions.registry import meaning
from oracle.machine.ir import Value
from oracle.machine.operands import Const, Operand

_HINTS = (
    *("CONSTANT", "STRONG", "WEAK", "GPU", "SYS", "SM", "CTA", "EF", "EL", "EU", "LU", "NA"),
    *("LTC64B", "LTC128B", "LTC256B", "PRIVATE"),
)
_NARROW = {"U8": 1, "S8": 1, "U16": 2, "S16": 2}


def _size(m: Modifiers) -> tuple[int, bool]:
    """Bytes accessed, and whether a narrow value is sign-extended."""
    narrow = m.choose(*_NARROW)
    if narrow:
        return _NARROW[narrow], narrow[0] == "S"
    return int(m.choose("32", "64", "128", default="32")) // 8, False


def _load(c: Context, m: Modifiers, space: str, address: Value) -> None:
    size, signed = _size(m)
    results = (I32,) * max(1, size // 4)
    words = c.emit("load", results, (address, c.guard), (space, size))
    _set_loaded(c, c.operand(0), words, size, signed)


def _set_loaded(
    c: Context, target: Operand, words: tuple[Value, ...], size: int, signed: bool
) -> None:
    for position, word in enumerate(words):
        if signed:
            word = c.ashr(c.shl(word, 32 - 8 * size), 32 - 8 * size)
        c.set_i32(target, word, position)


def _store(c: Context, m: Modifiers, space: str, address: Value) -> None:
    size, _ = _size(m)
    words = c.words(c.operand(1), max(1, size // 4))
    c.emit("store", (), (address, c.guard, *words), (space, size))


@meaning("LDG", "LD", operands=(2,))
def ldg(c: Context, m: Modifiers) -> None:
    """d = global memory; a generic address outside of it is unmapped here"""
    m.ignore(*_HINTS)
    m.take("E")
    _load(c, m, "global", c.address(c.operand(1), wide=True))


@meaning("STG", operands=(2,))
def stg(c: Context, m: Modifiers) -> None:
    """global memory = a"""
    m.ignore(*_HINTS)
    m.take("E")
    _store(c, m, "global", c.address(c.operand(0), wide=True))


@meaning("LDS", operands=(2,))
def lds(c: Context, m: Modifiers) -> None:
    """d = shared memory"""
    _load(c, m, "shared", c.address(c.operand(1), wide=False))


@meaning("STS", operands=(2,))
def sts(c: Context, m: Modifiers) -> None:
    """shared memory = a"""
    _store(c, m, "shared", c.address(c.operand(0), wide=False))


@meaning("LDL", operands=(2,))
def ldl(c: Context, m: Modifiers) -> None:
    """d = the lane's local memory"""
    m.ignore("LU")
    _load(c, m, "local", c.address(c.operand(1), wide=False))


@meaning("STL", operands=(2,))
def stl(c: Context, m: Modifiers) -> None:
    """the lane's local memory = a"""
    _store(c, m, "local", c.address(c.operand(0), wide=False))


@meaning("LDC", "LDCU", "ULDC", operands=(2,))
def ldc(c: Context, m: Modifiers) -> None:
    """d = constant memory"""
    size, signed = _size(m)
    source = c.operand(1)
    if not isinstance(source, Const) or (size < 4 and source.base is not None):
        raise c.refuse("operands are not understood")
    c.only(source)
    if size >= 4:
        words = tuple(c.constant(source, source.offset + 4 * i) for i in range(size // 4))
    else:
        word = c.constant(source, source.offset & ~3)
        place = 8 * (source.offset & 3)
        words = (c.and_(c.lshr(word, place), c.const(I32, (1 << 8 * size) - 1)),)
    _set_loaded(c, c.operand(0), words, size, signed)
