"""Kernels written in the representation itself, block by block, and launches of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from oracle.machine.builder import I1, I32, I64, Builder
from oracle.machine.ir import Block, Function, Terminator, Value
from oracle.machine.memory import Memory

PARAM_BASE = 0x380
ENTRY_LENGTH = 1


class Code(Builder):
    """The operations of one block; parameters are 64-bit words of constant memory."""

    def read(self, name: str) -> Value:
        kind = I1 if name.strip("U")[0] == "P" else I32
        return self.emit("get", (kind,), (), (name,))[0]

    def write(self, name: str, value: Value) -> None:
        self.emit("set", (), (value,), (name,))

    def word(self, value: int) -> Value:
        return self.const(I32, value)

    def parameter(self, number: int) -> Value:
        offset = PARAM_BASE + 8 * number
        low, high = (
            self.emit("ldc", (I32,), (self.word(at),), (0,))[0] for at in (offset, offset + 4)
        )
        return self.join(low, high)

    def special(self, name: str) -> Value:
        return self.emit("special", (I32,), (), (name,))[0]

    def at(self, base: Value, index: Value, scale: int) -> Value:
        """base + index * scale."""
        return self.add(base, self.mul(self.zext(index, I64), self.const(I64, scale)))

    def load(self, address: Value, size: int = 4, guard: Value | None = None) -> Sequence[Value]:
        guard = guard or self.const(I1, 1)
        return self.emit("load", (I32,) * max(1, size // 4), (address, guard), ("global", size))

    def store(
        self, address: Value, words: Sequence[Value], size: int = 4, guard: Value | None = None
    ) -> None:
        guard = guard or self.const(I1, 1)
        self.emit("store", (), (address, guard, *words), ("global", size))

    def end(self, address: int, end: Terminator, length: int = 1) -> Block:
        # Register writes come last, as lowering leaves them.
        writes = [op for op in self.ops if op.name == "set"]
        others = [op for op in self.ops if op.name != "set"]
        return Block(address, length, [*others, *writes], end)


def kernel(*blocks: Block, returns: tuple[int, ...] = ()) -> Function:
    """A kernel of some blocks; the first is at 0."""
    return Function(
        "handmade", "sm_100a", {b.address: b for b in blocks}, returns, param_base=PARAM_BASE
    )


def leave(pc: int = 0) -> Terminator:
    return Terminator("exit", pc)


def parameters(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def filled(memory: Memory, **regions: Any) -> list[int]:
    """Map arrays; those that are integers are so many bytes to be written. Their addresses."""
    bases = []
    for name, contents in regions.items():
        if isinstance(contents, int):
            empty = np.zeros(contents, np.uint8)
            bases.append(memory.map(name, empty, writable=True, initialised=False).base)
        else:
            bases.append(memory.map(name, contents).base)
    return bases
