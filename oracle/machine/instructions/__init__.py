"""The instruction set, one family a module: each opcode's spelling and its meaning.

A meaning reads operands from a `Context`, takes every modifier it understands, and writes
registers. The uniform twin of an instruction (UIADD3 of IADD3) means the same thing.
"""

from oracle.machine.instructions import (
    asynchronous,
    bits,
    compare,
    control,
    convert,
    floating,
    half,
    integer,
    memory,
    moves,
    tensor,
    warp,
)
from oracle.machine.instructions.registry import MEANINGS

__all__ = [
    "MEANINGS",
    "asynchronous",
    "bits",
    "compare",
    "control",
    "convert",
    "floating",
    "half",
    "integer",
    "memory",
    "moves",
    "tensor",
    "warp",
]
