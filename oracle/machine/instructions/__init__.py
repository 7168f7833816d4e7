"""The instruction set, one family a module: each opcode's spelling and its meaning.

A meaning reads operands from a `Context`, takes every modifier it understands, and writes
registers. The uniform twin of an instruction (UIADD3 of IADD3) means the same thing.
"""

from oracle.machine.instructions import (
    bits,
    compare,
    control,
    convert,
    floating,
    half,
    integer,
    memory,
    moves,
    warp,
)
from oracle.machine.instructions.registry import MEANINGS

__all__ = [
    "MEANINGS",
    "bits",
    "compare",
    "control",
    "convert",
    "floating",
    "half",
    "integer",
    "memory",
    "moves",
    "warp",
]
