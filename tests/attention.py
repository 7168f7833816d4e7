"""Attention kernels for tests: from a wheel named by LAYOUT_ORACLE_WHEELS, with planted faults."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from oracle.machine.cubin import Cubin
from oracle.machine.disassembly import Instruction
from oracle.machine.operands import Address, Imm
from oracle.subjects.attentionkernel import AttentionKernel
from oracle.subjects.flashinfer import cubins

WHEELS_VARIABLE = "LAYOUT_ORACLE_WHEELS"
VERSION = "0.6.13"
TYPES = "QE4m3KvE2m1OE4m3"


def name_of(arch: int, head: int, rest: str) -> str:
    """The name of a kernel of the release."""
    return f"fmhaSm{arch}aKernel_{TYPES}H{head}PagedKv{rest}"


PREFILL = "DenseP16VarSeqQ128Kv128StaticContext"
DECODE = "DenseP16VarSeqQ8Kv128StaticSwapsAbForGen"


def wheel(version: str = VERSION) -> Path:
    """The wheel of a release; the test is skipped where there is none."""
    folder = os.environ.get(WHEELS_VARIABLE)
    if not folder:
        pytest.skip(f"{WHEELS_VARIABLE} names no directory of wheels")
    found = sorted(Path(folder).glob(f"flashinfer_cubin-{version}-*.whl"))
    if not found:
        pytest.skip(f"no wheel of flashinfer-cubin {version} in {folder}")
    return found[0]


@functools.cache
def cubin(name: str, version: str = VERSION) -> Cubin:
    """The cubin of one kernel of a wheel."""
    ((_, found),) = cubins(wheel(version), name)
    return found


@functools.cache
def reader(name: str, version: str = VERSION) -> AttentionKernel:
    """A kernel of a wheel, as it is."""
    return AttentionKernel(cubin(name, version), name)


def altered(name: str, change: Callable[[Instruction], Instruction]) -> AttentionKernel:
    """A kernel of the wheel with some instructions changed."""
    return AttentionKernel(cubin(name), name, rewrite=change)


def with_immediate(
    opcode: str, old: int, new: int, first: int = 0, last: int = 1 << 30
) -> Callable[[Instruction], Instruction]:
    """Puts another immediate, or offset of an address, into instructions of one opcode."""

    def change(instruction: Instruction) -> Instruction:
        if not instruction.opcode.startswith(opcode) or not first <= instruction.address <= last:
            return instruction
        operands = []
        for operand in instruction.operands:
            if isinstance(operand, Imm) and operand.value == old:
                operand = Imm(hex(new), new)
            elif isinstance(operand, Address) and operand.offset == old:
                operand = replace(operand, offset=new)
            operands.append(operand)
        return replace(instruction, operands=tuple(operands))

    return change
