"""The typed intermediate representation every instruction is lowered to.

A SASS instruction is written once, as a handful of *primitives* over five types: ``i1``, ``i32``,
``i64``, ``f32`` and ``f64``. Back ends know the primitives and nothing of SASS, so a second back
end needs no second reading of the instruction set.

The unit is the basic block. Inside a block values are in static single assignment form; between
blocks state lives in the register file, reached by ``get`` and ``set``. Rules a back end may rely
on: shift amounts are below the width; integer arithmetic wraps; floating operations round to
nearest even, are never contracted or reordered, keep subnormals, and return *some* NaN for a NaN
(``fbits`` is where a NaN gets the one bit pattern NVIDIA hardware produces).

| primitive | signature | meaning |
|---|---|---|
| const | attr: bits | a constant of the result's type |
| get, set | attr: register | a register at block entry; its value at block exit |
| add sub mul | (a, b) | wrapping, i32 or i64 |
| and or xor | (a, b) | bitwise, i1, i32 or i64 |
| shl lshr ashr | (a, n) | n below the width |
| zext sext trunc | (a) | between i1, i32 and i64 |
| bitcast | (a) | i32 <-> f32, i64 <-> f64, bits unchanged |
| fbits | (a) | f32 -> i32, every NaN becomes 0x7fffffff |
| eq ult slt | (a, b) | integer comparison -> i1 |
| foeq folt fole funo | (a, b) | ordered =, <, <=; unordered -> i1 |
| select | (p, a, b) | p ? a : b |
| fadd fsub fmul | (a, b) | f32 or f64 |
| fma | (a, b, c) | a*b+c rounded once, f32 |
| fmax fmin | (a, b) | IEEE 754-2019 maximumNumber: a NaN loses, -0 < +0, f32 |
| fpext fptrunc | (a) | f32 -> f64 exact; f64 -> f32 nearest even |
| uitofp | (a) | i32 -> f64, exact |
| fptoui | (a) | f64 in [0, 2**64) -> i64, toward zero |
| rcp | (a) | f32, the launch's reciprocal model |
| ldc | attrs: bank; (offset i32) | a 32-bit word of constant memory |
| special | attr: name | a coordinate of the lane (tid.x, ctaid.x, laneid, ...) |
| load | attrs: space, size; (address i64, guard) | 1, 2, 4, 8 or 16 bytes as i32 words |
| store | attrs: space, size; (address i64, guard, words...) | |
| shuffle | attr: mode; (value, lane, clamp, guard) | i32 and an in-range i1, across a warp |
| ballot | (p, guard) | i32, bit per active lane of the warp |
| converge | attr: convergence register | the active lanes will meet again at a reconverge |
| abandon | attr: convergence register; (p) | lanes where p holds leave that scope |
| require | attr: message; (p, guard) | a fault where p is false: the result would be undefined |
| uniform | (value, guard, old) | of a warp: the value of the lanes where guard holds, or old |

Only a launch of whole CTAs warp by warp (`oracle.machine.cta`) has the cooperative primitives:

| primitive | signature | meaning |
|---|---|---|
| elect | (guard) | i1, one lane of the active ones |
| atomic | attrs: space, operation; (address i64, value, guard) | i32 before the operation |
| matrix | attr: shape; (address i64, guard) | i32 words: elements of 4 bits, each in a byte |
| multiply | attrs: nibbles, bytes; (codes, scales, guard) | i32: four products, observed |
| mbarrier | attr: operation; (address i64, operand, guard) | initialise, arrive or expect |
| phase | attr: wait; (address i64, parity, guard) | i1, whether the phase of that parity is over |
| tile | attr: rank; (shared, barrier, coordinates..., map i64, guard) | TMA: to shared memory |
| copy | attr: size; (shared i64, global i64, guard) | global to shared memory, past the registers |
| workid | (shared, barrier, guard) | the next CTA to take over: there is none |

A block ends in one terminator: ``branch`` (condition, taken, else), ``jump``, ``exit``
(condition: lanes that leave, else), ``ret`` (address), ``barrier``,
``meet`` (a named barrier), ``reconverge`` or ``warpsync``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Type(Enum):
    """A value's type; the enum value is its width in bits and its kind."""

    I1 = "i1"
    I32 = "i32"
    I64 = "i64"
    F32 = "f32"
    F64 = "f64"

    # Members are singletons, and every operation built is looked up by its types.
    __hash__ = object.__hash__

    @property
    def width(self) -> int:
        """Width in bits."""
        return int(self.value[1:])


@dataclass(frozen=True, slots=True)
class Value:
    """One SSA value of a block; ``index`` numbers values in order of definition."""

    index: int
    type: Type


@dataclass(frozen=True, slots=True)
class Op:
    """One primitive. ``results`` is empty for effects; ``pc`` is the SASS address it came from."""

    name: str
    args: tuple[Value, ...]
    attrs: tuple[int | str, ...]
    results: tuple[Value, ...]
    pc: int


@dataclass(frozen=True, slots=True)
class Terminator:
    """How a block ends.

    ``kind``: branch, jump, exit, ret, barrier, meet, reconverge, warpsync. ``value`` is the
    condition (i1), the return address (i32), the member mask (i32), or of a named barrier its
    number plus 65536 times the threads that meet there (i32).
    ``target`` is the taken address, ``fallthrough`` the next one (-1 where there is none);
    ``token`` names the convergence register of a reconverge.
    """

    kind: str
    pc: int
    value: Value | None = None
    target: int = -1
    fallthrough: int = -1
    token: int = -1


@dataclass(slots=True)
class Block:
    """Straight-line code from ``address`` on; ``length`` counts its SASS instructions."""

    address: int
    length: int
    ops: list[Op]
    terminator: Terminator


@dataclass(slots=True)
class Function:
    """A lowered kernel: its blocks by address, entered at address 0.

    ``return_points`` are the addresses a ``ret`` may go to: the instruction after each call, and
    what jump tables hold.
    """

    name: str
    arch: str
    blocks: dict[int, Block]
    return_points: tuple[int, ...] = ()
    warp_wide: bool = False
    shared_bytes: int = 0
    local_bytes: int = 0
    param_base: int = 0
    constants: dict[int, bytes] = field(default_factory=dict)

    @property
    def cooperative(self) -> bool:
        """Whether only a launch of whole CTAs warp by warp can run the kernel."""
        meets = any(block.terminator.kind == "meet" for block in self.blocks.values())
        return meets or bool(self.primitives & COOPERATIVE)

    @property
    def primitives(self) -> set[str]:
        """Names of the primitives the kernel needs."""
        return {op.name for block in self.blocks.values() for op in block.ops}


PURE = frozenset(
    {"const", "get", "add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "zext"}
    | {"sext", "trunc", "bitcast", "fbits", "eq", "ult", "slt", "foeq", "folt", "fole", "funo"}
    | {"select", "fadd", "fsub", "fmul", "fma", "fmax", "fmin", "fpext", "fptrunc", "uitofp"}
    | {"fptoui", "rcp", "ldc", "special", "uniform"}
)
"""Primitives without effects: equal ones are merged, unused ones dropped."""

COOPERATIVE = frozenset(
    {"elect", "atomic", "matrix", "multiply", "mbarrier", "phase", "tile", "copy", "workid"}
)
"""Primitives that only a launch of whole CTAs warp by warp provides."""
