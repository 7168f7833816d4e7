"""Instructions built by hand, for forms no compiler emits on demand.

A case is one instruction over fixed registers: the words a, b, c, d stand in R2 .. R5 (or UR2 ..
UR5), the predicates p and q in P0 and P1 (UP0 and UP1). The reference gives what should stand in
the registers named by `outs` afterwards.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from snippets import CALM, OPERANDS, Reference, Words, assert_equal, expect, grid, rows

from oracle.machine.disassembly import Instruction
from oracle.machine.instructions import MEANINGS
from oracle.machine.ir import Block, Function, Op, Terminator
from oracle.machine.lanes import compile_function
from oracle.machine.lower import basic_blocks
from oracle.machine.memory import Memory
from oracle.machine.operands import Imm, parse_operand, split_operands
from oracle.machine.primitives import RcpModel, rcp_exact
from oracle.machine.state import ConstantBank, State


def instruction(text: str, address: int = 0, immediate: int | None = None) -> Instruction:
    """An instruction from its text, such as "@!P0 IADD3 R0,R2,0x1,RZ".

    `immediate` is the immediate field of the encoding; by default that of an f32 in decimal.
    """
    guard, _, rest = text.partition(" ") if text.startswith("@") else ("", "", text)
    opcode, _, operands = rest.partition(" ")
    parsed = tuple(map(parse_operand, split_operands(operands)))
    if immediate is None:
        floats = [o.value for o in parsed if isinstance(o, Imm) and isinstance(o.value, float)]
        immediate = struct.unpack("<I", struct.pack("<f", floats[0]))[0] if floats else 0
    encoding = immediate << 32
    return Instruction(address, opcode, guard[1:] or None, parsed, False, operands, encoding)


def program(
    lines: Sequence[str], entries: Collection[int] = (), arch: str = "sm_100a", **more: int
) -> Function:
    """Some lines lowered as a whole kernel, 16 bytes a line, blocks beginning at `entries` too."""
    code = [instruction(line, 16 * place) for place, line in enumerate(lines)]
    blocks, problems = basic_blocks(code, {}, entries)
    assert not problems, problems
    returns = tuple(i.address + 16 for i in code if i.opcode.startswith("CALL"))
    return Function("handmade", arch, blocks, returns, **more)  # type: ignore[arg-type]


def refusals(*lines: str) -> list[str]:
    """What is said of the lines that have no meaning."""
    code = [instruction(line, 16 * place) for place, line in enumerate(lines)]
    return [text for _, text in basic_blocks(code, {})[1]]


def execute(
    code: Sequence[Instruction], registers: Mapping[str, NDArray], rcp: RcpModel = rcp_exact
) -> dict[str, NDArray]:
    """Run straight-line code over register values [n], n a multiple of 32; all registers after."""
    blocks, problems = basic_blocks(code, {})
    assert not problems, problems
    lanes = len(next(iter(registers.values())))
    unset = {name: np.zeros(lanes, np.uint32) for op in blocks[0].ops for name in op.attrs[:1]}
    after = run_operations(blocks[0].ops, {**unset, **registers}, lanes, rcp)
    return {name: np.broadcast_to(value, lanes) for name, value in after.items()}


def run_operations(
    ops: list[Op], registers: Mapping[str, Any], lanes: int = 32, rcp: RcpModel = rcp_exact
) -> dict[str, Any]:
    """Run primitives over registers given by name; the registers they name, afterwards."""
    function = Function("handmade", "sm_100a", {0: Block(0, 1, ops, Terminator("exit", 0))})
    compiled, numbering = compile_function(function)
    shape = (lanes // 32, 1, 1), (32, 1, 1)
    start = [registers.get(name) for name in numbering]
    state = State(function, start, Memory(), ConstantBank.of(function, *shape, b""), rcp)
    state.place(0, shape[0][0], *shape)
    with np.errstate(all="ignore"):
        compiled[0].run(state)
    return {name: state.registers[place] for name, place in numbering.items()}


@dataclass(frozen=True)
class Case:
    """One instruction, what it should give, and what it takes: words and predicates."""

    text: str
    reference: Reference
    outs: tuple[str, ...]
    words: int
    predicates: int
    kind: str
    immediate: int | None

    @property
    def form(self) -> str:
        """The opcode with its modifiers."""
        return instruction(self.text).opcode

    def check(self, operands: Words) -> None:
        """Compare with the reference for operands uint32 [n, words + predicates]."""
        count = len(operands)
        lanes = -(-count // 32) * 32
        padded = np.zeros((lanes, operands.shape[1]), np.uint32)
        padded[:count] = operands
        registers: dict[str, NDArray] = {}
        for place in range(self.words):
            registers[f"R{place + 2}"] = registers[f"UR{place + 2}"] = padded[:, place]
        for place in range(self.predicates):
            flag = padded[:, self.words + place] & 1 == 1
            registers[f"P{place}"] = registers[f"UP{place}"] = flag
        after = execute([instruction(self.text, immediate=self.immediate)], registers)
        found = np.stack([after[name].astype(np.uint32) for name in self.outs], axis=1)[:count]
        flags = np.uint32(1)
        operands = operands.copy()
        operands[:, self.words :] &= flags
        assert_equal(self.text, operands, found, expect(self.reference, operands))

    def check_edges(self) -> None:
        """Compare over every (or a thousand) combinations of edge values."""
        edges = grid(OPERANDS[self.kind].edges, self.words, 512)
        flags = grid((0, 1), self.predicates)
        self.check(
            np.hstack([np.repeat(edges, len(flags), axis=0), np.tile(flags, (len(edges), 1))])
        )


def case(
    text: str,
    reference: Reference,
    words: int = 2,
    *,
    outs: str = "R0",
    predicates: int = 0,
    kind: str = "word",
    immediate: int | None = None,
) -> Case:
    """A case; `outs` are separated by blanks."""
    return Case(text, reference, tuple(outs.split()), words, predicates, kind, immediate)


def with_uniform_twins(*cases: Case) -> tuple[Case, ...]:
    """Some cases, and for each opcode that has a uniform twin the first case in its spelling.

    The twin of IADD3 is UIADD3; it means the same and works on uniform registers.
    """
    twins: dict[str, Case] = {}
    present = {case.form.split(".")[0] for case in cases}
    for original in cases:
        opcode = "U" + original.form.split(".")[0]
        if opcode in MEANINGS and opcode not in present and not original.text.startswith("@"):
            form, _, operands = original.text.partition(" ")
            operands = re.sub(r"\b(R[0-9Z]|P[0-9T])", r"U\1", operands)
            outs = tuple("U" + out for out in original.outs)
            twins.setdefault(opcode, replace(original, text=f"U{form} {operands}", outs=outs))
    return (*cases, *twins.values())


def check_cases(cases: Sequence[Case]) -> tuple[Callable[[Case], None], Callable[[], None]]:
    """A test of every case over edge values, and one of cases and operands drawn together."""

    @pytest.mark.parametrize("case", cases, ids=lambda case: case.text)
    def test_handmade(case: Case) -> None:
        case.check_edges()

    @settings(max_examples=50, **CALM)
    @given(data=st.data(), case=st.sampled_from(cases))
    def test_handmade_drawn(data: st.DataObject, case: Case) -> None:
        arity = case.words + case.predicates
        case.check(data.draw(rows(OPERANDS[case.kind].drawn, arity)))

    return test_handmade, test_handmade_drawn
