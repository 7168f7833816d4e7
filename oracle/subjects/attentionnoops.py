"""Instructions of attention kernels that do not decide which byte is multiplied with which."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from oracle.machine.disassembly import Instruction
from oracle.machine.operands import Imm

NO_OPS: Mapping[str, str] = {
    "UTCQMMA": "the tensor core's product: it reads what the transform made, and decides nothing",
    "STTM": "tensor memory is only read by the tensor core and by LDTM",
    "LDTM": "scores and partial outputs: zero, as if every product were zero",
    "STSM": "the output tile on its way out",
    "STG": "the output in global memory",
    "MUFU.EX2": "the exponential of the softmax",
    "HMNMX2.XORSIGN": "clamping of the output to its format",
    "F2F.F64": "the attention sink, in the softmax's denominator: double precision in releases "
    "before 0.6.4, as are the next four",
    "F2F.F32.F64": "the attention sink",
    "DMUL": "the attention sink",
    "DFMA": "the attention sink",
    "DSETP": "whether the attention sink is subnormal",
}
"""Instructions whose results no address or byte of the cache depends on, and why."""

_WORDS_A_COLUMN = {"16dp256bit": 4, "16dp128bit": 2, "16dp64bit": 1, "32dp32bit": 1}


def without_numbers(instruction: Instruction) -> Instruction:
    """An instruction of NO_OPS replaced by zeros in its results; any other as it is."""
    base, *modifiers = instruction.opcode.split(".")
    if not any(f"{instruction.opcode}.".startswith(f"{name}.") for name in NO_OPS):
        return instruction
    counts: list[int] = []
    if base == "LDTM":
        columns = next((_WORDS_A_COLUMN[m] for m in modifiers if m in _WORDS_A_COLUMN), 1)
        times = next((int(m[1:]) for m in modifiers if re.fullmatch(r"x\d+", m)), 1)
        # With STAT the maximum of the words comes first.
        counts = [1, columns * times] if "STAT" in modifiers else [columns * times]
    elif base == "STSM":
        count = next((m for m in modifiers if m in ("2", "4")), "1")
        return replace(instruction, opcode=f"UNMODELLEDROWS.{count}")
    elif base == "DSETP":
        # A comparison of zero with zero: its predicates are false.
        target, other, *_, also = instruction.operands
        zeros = (Imm("0x0", 0), Imm("0x0", 0))
        return replace(instruction, opcode="ISETP.NE.AND", operands=(target, other, *zeros, also))
    elif base in ("MUFU", "HMNMX2") or instruction.opcode.startswith("F2F.F32"):
        counts = [1]
    elif base in ("F2F", "DMUL", "DFMA"):
        counts = [2]
    return replace(instruction, opcode=".".join(["UNMODELLED", *map(str, counts)]))
