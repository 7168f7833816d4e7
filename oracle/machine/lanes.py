"""The NumPy back end: one generated Python function a block, one array element a lane.

A value that is the same for every lane (a parameter, a block-uniform address) stays a NumPy scalar
and costs next to nothing; arithmetic broadcasts it where it meets an array. Names are reused as
soon as a value is dead, which keeps the arrays in use inside the cache.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from oracle.machine import primitives
from oracle.machine.ir import COOPERATIVE, Block, Function, Op, Type, Value

DTYPES: dict[Type, type[np.generic]] = {
    Type.I1: np.bool_,
    Type.I32: np.uint32,
    Type.I64: np.uint64,
    Type.F32: np.float32,
    Type.F64: np.float64,
}
_NAME = {t: d.__name__ if t is not Type.I1 else "bool_" for t, d in DTYPES.items()}
_SIGNED = {Type.I32: "int32", Type.I64: "int64"}

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "shl": "<<",
    "lshr": ">>", "eq": "==", "ult": "<", "foeq": "==", "folt": "<", "fole": "<=",
    "fadd": "+", "fsub": "-", "fmul": "*",
}  # fmt: skip
_CALL = {"select": "where", "fma": "fma", "fmax": "fmax", "fmin": "fmin", "fbits": "fbits"}
_CONVERT = {"zext", "trunc", "fpext", "fptrunc", "uitofp", "fptoui"}
_STATE = COOPERATIVE | {"load", "store", "shuffle", "ballot", "require", "ldc", "special", "rcp"}
_STATE |= {"converge", "abandon", "uniform"}
_NAMES_PC = COOPERATIVE | {"load", "store", "shuffle", "require"}

_GLOBALS: dict[str, Any] = {
    "where": np.where,
    "fma": primitives.fma,
    "fmax": primitives.fmax,
    "fmin": primitives.fmin,
    "fbits": primitives.fbits,
    **{name: getattr(np, name) for name in (*_NAME.values(), *_SIGNED.values())},
}

BlockFunction = Callable[[Any], Any]


@dataclass
class CompiledBlock:
    """A block as a Python function, written and compiled when it is first needed.

    Most kernels hold paths that few inputs take. `numbering` places registers in the state's
    `registers`. With `one_warp` all lanes are of one warp and share its uniform registers.
    """

    block: Block
    numbering: dict[str, int]
    one_warp: bool = False

    @cached_property
    def run(self) -> BlockFunction:
        """Executes the block on a state and returns the terminator's value."""
        source, constants = _Writer(self.block, self.numbering, self.one_warp).write()
        code = builtins.compile(source, f"<block {self.block.address:#06x}>", "exec")
        namespace = {**_GLOBALS, **constants}
        exec(code, namespace)  # the text holds names of this module and numbers only
        function: BlockFunction = namespace["block"]
        return function


def compile_function(
    function: Function, one_warp: bool = False
) -> tuple[dict[int, CompiledBlock], dict[str, int]]:
    """Every block, and the register numbering used by the state's ``registers``."""
    numbering: dict[str, int] = {}
    for block in function.blocks.values():
        for op in block.ops:
            if op.name in ("get", "set"):
                numbering.setdefault(str(op.attrs[0]), len(numbering))
    blocks = {a: CompiledBlock(b, numbering, one_warp) for a, b in function.blocks.items()}
    return blocks, numbering


class _Writer:
    """Writes one block as Python source."""

    def __init__(self, block: Block, numbering: dict[str, int], one_warp: bool) -> None:
        self.block = block
        self.one_warp = one_warp
        self.numbering = numbering
        self.names: dict[Value, str] = {}
        self.constants: dict[str, Any] = {}
        self.free: list[str] = []
        self.slots = 0
        self.last_use: dict[Value, int] = {}
        for position, op in enumerate(block.ops):
            for arg in op.args:
                self.last_use[arg] = position
        if block.terminator.value is not None:
            self.last_use[block.terminator.value] = len(block.ops)
        for op in block.ops:
            if op.name == "set":
                self.last_use[op.args[0]] = len(block.ops)

    def write(self) -> tuple[str, dict[str, Any]]:
        """The source of ``block(s)`` and the constants it names."""
        lines: list[str] = []
        written: list[tuple[int, str]] = []
        shared: list[tuple[int, str]] = []
        for position, op in enumerate(self.block.ops):
            if op.name == "const":
                self._constant(op)
            elif op.name == "set":
                name = str(op.attrs[0])
                target = shared if self.one_warp and name[0] == "U" else written
                target.append((self.numbering[name], self.names[op.args[0]]))
            else:
                lines.append(self._statement(op, position))
        lines += [f"R[{k}] = s.one({name})" for k, name in shared]
        lines += self._write_back(written)
        value = self.block.terminator.value
        lines.append(f"return {self.names[value] if value is not None else None}")
        body = "\n    ".join(lines)
        return f"def block(s):\n    R = s.registers\n    {body}\n", self.constants

    @staticmethod
    def _write_back(written: list[tuple[int, str]]) -> list[str]:
        if not written:
            return []
        plain = "; ".join(f"R[{k}] = {name}" for k, name in written)
        merged = "; ".join(f"R[{k}] = where(m, {name}, R[{k}])" for k, name in written)
        return ["m = s.merge", f"if m is None: {plain}", f"else: {merged}"]

    def _constant(self, op: Op) -> None:
        kind, bits = op.results[0].type, int(op.attrs[0])
        if kind is Type.I1:
            value: np.generic = np.bool_(bits)
        else:
            value = (np.uint32(bits) if kind.width == 32 else np.uint64(bits)).view(DTYPES[kind])
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        self.names[op.results[0]] = name

    def _statement(self, op: Op, position: int) -> str:
        expression = self._expression(op)
        for arg in dict.fromkeys(op.args):
            name = self.names[arg]
            if self.last_use[arg] == position and name.startswith("t"):
                self.free.append(name)
        targets = []
        for result in op.results:
            if result in self.last_use:
                self.names[result] = self._slot()
                targets.append(self.names[result])
            else:
                targets.append("_")
        if not targets:
            return expression
        if op.name == "load":
            return f"{', '.join(targets)}, = {expression}"
        return f"{', '.join(targets)} = {expression}"

    def _slot(self) -> str:
        if self.free:
            return self.free.pop()
        self.slots += 1
        return f"t{self.slots}"

    def _expression(self, op: Op) -> str:
        a = [self.names[arg] for arg in op.args]
        kind = op.results[0].type if op.results else Type.I1
        if op.name == "get":
            return f"R[{self.numbering[str(op.attrs[0])]}]"
        if op.name in _INFIX:
            return f"{a[0]} {_INFIX[op.name]} {a[1]}"
        if op.name in _CALL:
            return f"{_CALL[op.name]}({', '.join(a)})"
        if op.name in _CONVERT:
            if op.name == "trunc" and kind is Type.I1:
                return f"({a[0]} & {a[0]}.dtype.type(1)).astype(bool_)"
            return f"{a[0]}.astype({_NAME[kind]})"
        if op.name == "bitcast":
            return f"{a[0]}.view({_NAME[kind]})"
        if op.name == "funo":
            return f"({a[0]} != {a[0]}) | ({a[1]} != {a[1]})"
        if op.name == "ashr":
            signed = _SIGNED[kind]
            return f"({a[0]}.view({signed}) >> {a[1]}.view({signed})).view({_NAME[kind]})"
        if op.name == "slt":
            signed = _SIGNED[op.args[0].type]
            return f"{a[0]}.view({signed}) < {a[1]}.view({signed})"
        if op.name == "sext":
            if op.args[0].type is Type.I1:
                return f"{_NAME[kind]}(0) - {a[0]}.astype({_NAME[kind]})"
            return f"{a[0]}.view(int32).astype(int64).view(uint64)"
        if op.name in _STATE:
            attrs = [repr(attr) for attr in op.attrs]
            where = [str(op.pc)] if op.name in _NAMES_PC else []
            return f"s.{op.name}({', '.join(attrs + where + a)})"
        raise AssertionError(f"no NumPy form for primitive {op.name}")
