"""The operands of SASS instructions, parsed from the text nvdisasm prints.

One grammar covers every form seen in store and attention kernels from sm_80 to sm_120. Parsing
never fails: what it does not understand becomes `Unknown`, which the machine refuses by name when
it loads the kernel. The `.reuse` hint says nothing about values and is dropped.

    R5  -R4  ~R4  |R4|  R4.H0_H0  R2.64  UR4  P0  !UP1  B0  SB0      Reg
    0x10  -0x1  0.5  -QNAN                                           Imm
    c[0x0][0x380]  -c[0x0][UR4+0x8].H0_H0  cx[UR4][0x10]             Const
    [R4+UR6+-0x10]  desc[UR4][R2.64+0x10]  tmem[UR14+0x20]           Address
    SR_TID.X  SRZ  PR  UPR                                           Special
    any other identifier                                             Label
"""

import math
import re
from dataclasses import dataclass
from functools import lru_cache

ZERO = 255
"""Index of RZ and URZ, which read as zero and drop what is written to them."""

TRUE = 7
"""Index of PT and UPT, which read as true and drop what is written to them."""


@dataclass(frozen=True, slots=True)
class Reg:
    """A register of file R, UR, P, UP, B (reconvergence barrier) or SB (scoreboard).

    `negate` is -x, `invert` ~x, `absolute` |x| (applied before `negate`), `logical_not` !p.
    `suffixes` select a part or a type ("H0_H0", "B1", "F32x2"); "64" among them is `wide`.
    """

    file: str
    index: int
    negate: bool = False
    invert: bool = False
    absolute: bool = False
    logical_not: bool = False
    suffixes: tuple[str, ...] = ()

    @property
    def wide(self) -> bool:
        """Whether the operand is the 64-bit pair that starts at this register."""
        return "64" in self.suffixes

    @property
    def constant(self) -> bool:
        """Whether this is RZ, URZ, PT or UPT, which no write changes."""
        return self.index == (TRUE if self.file in ("P", "UP") else ZERO)


@dataclass(frozen=True, slots=True)
class Imm:
    """An immediate: an int where it is printed in hexadecimal, else a float (NaN: sign kept).

    The bits of a float immediate stand in the encoding (`Instruction.immediate_bits`); text alone
    does not tell its width, nor a NaN's payload.
    """

    text: str
    value: int | float


@dataclass(frozen=True, slots=True)
class Const:
    """A word of constant memory: bank, optional register, byte offset, then modifiers as in Reg.

    `bank` is a number, or the uniform register that holds a bank's descriptor (`cx[UR4][...]`).
    """

    bank: int | Reg
    base: Reg | None
    offset: int
    negate: bool = False
    invert: bool = False
    absolute: bool = False
    suffixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Address:
    """A memory operand: the sum of up to one R (`base`), one UR (`uniform`) and `offset` bytes.

    `space` is "" for a plain bracket, else the keyword before it (gdesc, idesc or tmem);
    `descriptor` is the uniform register of `desc[...]`; `suffixes` follow the bracket.
    """

    space: str
    descriptor: Reg | None
    base: Reg | None
    uniform: Reg | None
    offset: int
    suffixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Special:
    """A special register (SR_TID.X, SRZ) or a whole predicate file (PR, UPR)."""

    name: str


@dataclass(frozen=True, slots=True)
class Label:
    """An identifier: the function a call goes to or a return belongs to, or a rare keyword."""

    name: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Text that is none of the above."""

    text: str


Operand = Reg | Imm | Const | Address | Special | Label | Unknown

_SUFFIXES = r"((?:\.[A-Za-z0-9_]+)*)"
_REGISTER = re.compile(
    r"([-~!]?)(\|?)(UR|UP|SB|R|P|B)(Z|T|[0-9]{1,3})" + _SUFFIXES + r"(\|?)" + _SUFFIXES
)
_CONSTANT = re.compile(
    r"([-~]?)(\|?)(?:c\[(0x[0-9a-f]+)\]|cx?\[(UR[0-9]+|URZ)\])\[([^\[\]]+)\](\|?)" + _SUFFIXES
)
_BRACKET = re.compile(r"(|desc|gdesc|idesc|tmem)\[([^\[\]]+)\](?:\[([^\[\]]*)\])?" + _SUFFIXES)
_SEPARATOR = re.compile(r",(?![^{]*\})")
_HEXADECIMAL = re.compile(r"([+-]?)0x([0-9a-f]{1,16})")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"([+-]?)(INF|QNAN|SNAN|NAN)")
_SPECIAL = re.compile(r"SR_[A-Za-z0-9_.]+|SRZ|PR|UPR")
_LABEL = re.compile(r"[A-Za-z_$.][A-Za-z0-9_$.@]*")


def split_operands(text: str) -> list[str]:
    """The operands of an instruction: `text` cut at its commas outside braces."""
    pieces = _SEPARATOR.split(text) if "{" in text else text.split(",")
    return [piece.strip() for piece in pieces] if text else []


@lru_cache(maxsize=1 << 16)
def parse_operand(text: str) -> Operand:
    """The operand that `text` spells; Unknown where it is not understood. Raises nothing."""
    return (
        _register(text)
        or _immediate(text)
        or _constant(text)
        or _address(text)
        or (Special(text) if _SPECIAL.fullmatch(text) else None)
        or (Label(text) if _LABEL.fullmatch(text) else None)
        or Unknown(text)
    )


def _suffixes(*texts: str) -> tuple[str, ...]:
    names = ".".join(texts).split(".")
    return tuple(name for name in names if name and name != "reuse")


def _index(file: str, spelled: str) -> int | None:
    """The index spelled after a register file's letters, None where the file has none such."""
    constant, spelling = (ZERO, "Z") if file in ("R", "UR") else (TRUE, "T")
    if spelled == spelling and file not in ("B", "SB"):
        return constant
    limit = 16 if file in ("B", "SB") else constant
    return int(spelled) if spelled.isdigit() and int(spelled) < limit else None


def _register(text: str) -> Reg | None:
    match = _REGISTER.fullmatch(text)
    if match is None:
        return None
    sign, bar, file, spelled, inner, closing, outer = match.groups()
    index = _index(file, spelled)
    if index is None or bar != closing or (not bar and outer):
        return None
    return Reg(
        file,
        index,
        negate=sign == "-",
        invert=sign == "~",
        absolute=bool(bar),
        logical_not=sign == "!",
        suffixes=_suffixes(inner, outer),
    )


def _immediate(text: str) -> Imm | None:
    if match := _HEXADECIMAL.fullmatch(text):
        value = int(match[2], 16)
        return Imm(text, -value if match[1] == "-" else value)
    if _DECIMAL.fullmatch(text):
        return Imm(text, float(text))
    if match := _NOT_FINITE.fullmatch(text):
        magnitude = math.inf if match[2] == "INF" else math.nan
        return Imm(text, math.copysign(magnitude, -1.0 if match[1] == "-" else 1.0))
    return None


def _constant(text: str) -> Const | None:
    match = _CONSTANT.fullmatch(text)
    if match is None:
        return None
    sign, bar, number, register, inside, closing, suffixes = match.groups()
    terms = _terms(inside)
    if terms is None or bar != closing:
        return None
    base, uniform, offset = terms
    if base and uniform:
        return None
    return Const(
        bank=int(number, 16) if number else _register(register) or 0,
        base=base or uniform,
        offset=offset,
        negate=sign == "-",
        invert=sign == "~",
        absolute=bool(bar),
        suffixes=_suffixes(suffixes),
    )


def _address(text: str) -> Address | None:
    match = _BRACKET.fullmatch(text)
    if match is None:
        return None
    space, first, second, suffixes = match.groups()
    descriptor = None
    if (space == "desc") != (second is not None):
        return None
    if second is not None:
        descriptor = _register(first)
        if descriptor is None or descriptor.file != "UR":
            return None
        space, first = "", second
    terms = _terms(first)
    return Address(space, descriptor, *terms, _suffixes(suffixes)) if terms else None


def _terms(text: str) -> tuple[Reg | None, Reg | None, int] | None:
    """(R, UR, byte offset) of a sum such as `R4.64+UR6+-0x10`; None where it is anything else."""
    base = uniform = None
    offset = 0
    for piece in text.split("+"):
        if match := _HEXADECIMAL.fullmatch(piece):
            offset += int(match[2], 16) * (-1 if match[1] == "-" else 1)
            continue
        register = _register(piece)
        if register is None or register.negate or register.absolute:
            return None
        if register.file == "R" and base is None:
            base = register
        elif register.file == "UR" and uniform is None:
            uniform = register
        else:
            return None
    return base, uniform, offset
