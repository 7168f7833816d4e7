"""Groups of lanes part and meet again: branches, waits, barriers, deadlocks and the step limit.

Most kernels here are built instruction by instruction; each thread ends by storing R5.
"""

import re

import numpy as np
import pytest
from handmade import instruction, program
from hypothesis import given, settings
from hypothesis import strategies as st
from snippets import CALM

from oracle.errors import UsageError
from oracle.machine.launch import Program
from oracle.machine.memory import MachineFault, Memory

BEFORE = ["S2R R0,SR_TID.X", "LDC.64 R2,c[0x0][0x380]", "IMAD.WIDE.U32 R2,R0,0x4,R2"]
AFTER = ["STG.E desc[UR4][R2.64],R5", "EXIT"]
LANES = np.arange(64, dtype=np.uint32)
ODD = ["LOP3.LUT P0,RZ,R0,0x1,RZ,0xc0,!PT"]
"""P0 is set in the odd threads."""


def assembled(lines: list[str]) -> tuple[list[str], set[int]]:
    """The whole kernel and the addresses of its labels.

    A line may start with `name:`, and `<name>` stands for its address.
    """
    whole = BEFORE + lines + AFTER
    labels = {line.split(":")[0]: 16 * i for i, line in enumerate(whole) if ":" in line}
    plain = [line.split(":")[-1] for line in whole]
    code = [re.sub("<([a-z]+)>", lambda m: hex(labels[m[1]]), line) for line in plain]
    return code, set(labels.values())


def run(lines: list[str], threads: int = 64, limit: int = 5000, chunk: int = 8192) -> np.ndarray:
    """What each thread of one CTA stores at the end."""
    code, labels = assembled(lines)
    function = program(code, labels, param_base=0x380, shared_bytes=1024)
    memory = Memory()
    out = memory.map("out", np.zeros(threads, np.uint32), writable=True)
    params = np.array([out.base], np.uint64).tobytes()
    Program(function).launch(
        (1, 1, 1), (threads, 1, 1), params, memory, step_limit=limit, chunk_lanes=chunk
    )
    return out.bytes.view(np.uint32)


# Each flow with what lane i stores.
FLOWS = {
    "branch": (
        [*ODD, "MOV R5,0x1", "@P0 BRA <end>", "MOV R5,0x2", "end:IADD3 R5,PT,PT,R5,R0,RZ"],
        lambda i: i + (1 if i % 2 else 2),
    ),
    "two_conditions": (
        [*ODD, "ISETP.GE.AND P1,PT,R0,0x8,PT", "MOV R5,0x1", "@P0 BRA !P1,<end>", "MOV R5,0x2",
         "end:NOP"],
        lambda i: 1 if i % 2 and i < 8 else 2,
    ),
    "uniform_branch": (
        ["UMOV UR6,0x5", "UISETP.GE.AND UP0,UPT,UR6,0x5,UPT", "MOV R5,0x1", "BRA.U UP0,<end>",
         "MOV R5,0x2", "end:BRA.U !UP0,<end>", "YIELD", "NANOSLEEP 0x10", "DEPBAR.LE SB0,0x0",
         "LDGDEPBAR"],
        lambda i: 1,
    ),
    "jumps_and_a_generic_load": (
        [*ODD, "STG.E desc[UR4][R2.64],R0", "MOV R6,<odd>", "UMOV UR6,<join>", "@!P0 MOV R6,<even>",
         "BRX R6,-<odd>", "odd:LD.E R5,desc[UR4][R2.64]", "BRXU UR6,-<even>",
         "even:MOV R5,0x4", "join:NOP"],
        lambda i: i if i % 2 else 4,
    ),
    "exits": (
        [*ODD, "MOV R5,0x7", "@P0 STG.E desc[UR4][R2.64],R0", "@P0 EXIT", "MOV R5,0x9"],
        lambda i: i if i % 2 else 9,
    ),
    "scope": (
        [*ODD, "MOV R5,0x1", "BSSY B0,<join>", "@P0 BRA <odd>", "MOV R5,R0", "BRA <join>",
         "odd:MOV R5,0x3", "join:BSYNC B0", "SHFL.BFLY PT,R5,R5,0x1,0x1f"],
        lambda i: i ^ 1 if i % 2 else 3,
    ),
    # The odd lanes take the long way to the shuffle; BRA.DIV gathers the warp before it.
    "gathered": (
        [*ODD, "MOV R5,R0", "@!P0 BRA <far>", "near:UMOV UR6,0xffffffff", "BRA.DIV UR6,<never>",
         "SHFL.BFLY PT,R5,R5,0x1,0x1f", "BRA <end>", "far:IADD3 R5,PT,PT,R5,0x64,RZ",
         "BRA <near>", "never:MOV R5,0x0", "end:NOP"],
        lambda i: (i ^ 1) + (100 if i % 2 else 0),
    ),
    "gathered_by_call": (
        [*ODD, "MOV R5,R0", "MOV R6,0xffffffff", "@P0 BRA <odd>", "BRA <meet>",
         "odd:IADD3 R5,PT,PT,R5,0x64,RZ", "meet:UMOV UR6,0xffffffff", "BRA.CONV UR6,<after>",
         "WARPSYNC R6", "after:SHFL.BFLY PT,R5,R5,0x1,0x1f"],
        lambda i: (i ^ 1) + (0 if i % 2 else 100),
    ),
    # Lanes 0 .. 7 wait for each other alone; the others go their own way for good.
    "partial_mask": (
        ["ISETP.GE.AND P1,PT,R0,0x8,PT", *ODD, "MOV R5,R0", "@P1 BRA <end>", "@P0 BRA <odd>",
         "BRA <meet>", "odd:IADD3 R5,PT,PT,R5,0x64,RZ", "meet:MOV R6,0xff",
         "WARPSYNC.EXCLUSIVE R6", "SHFL.BFLY PT,R5,R5,0x1,0x1f", "end:NOP"],
        lambda i: i if i >= 8 else (i ^ 1) + (0 if i % 2 else 100),
    ),
    "guarded_wait": (
        [*ODD, "MOV R5,R0", "@P0 WARPSYNC.ALL", "@!P0 WARPSYNC.ALL", "VOTE.ANY R5,PT,P0"],
        lambda i: 0xAAAAAAAA,
    ),
    "uniform_vote": (
        [*ODD, "VOTEU.ANY UR6,UP1,P0", "VOTEU.ALL UP2,P0", "MOV R5,UR6",
         "USEL UR7,0x10,0x20,UP1", "USEL UR8,0x1,0x2,UP2", "IADD3 R5,PT,PT,R5,UR7,UR8"],
        lambda i: 0xAAAAAAAA + 0x12,
    ),
    # Odd lanes leave the scope in the loop's third round; the even ones do not wait for them.
    "left_scope": (
        [*ODD, "MOV R5,RZ", "MOV R6,RZ", "BSSY B0,<join>", "loop:IADD3 R6,PT,PT,R6,0x1,RZ",
         "ISETP.GE.AND P1,PT,R6,0x3,P0", "@P1 BREAK B0", "@P1 BRA <out>",
         "ISETP.LT.AND P1,PT,R6,0x6,PT", "@P1 BRA <loop>", "join:BSYNC B0", "MOV R5,0x1",
         "out:IADD3 R5,PT,PT,R5,R6,RZ"],
        lambda i: 3 if i % 2 else 7,
    ),
    "barrier": (
        ["IMAD.SHL.U32 R6,R0,0x4,RZ", "STS [R6],R0", "BAR.SYNC.DEFER_BLOCKING 0x0",
         "LOP3.LUT R6,R6,0xc4,RZ,0x3c,!PT", "LDS R5,[R6]"],
        lambda i: i ^ 49,
    ),
    # Both halves of a warp wait at a barrier of their own, which is the same to the CTA.
    "two_barriers": (
        [*ODD, "IMAD.SHL.U32 R6,R0,0x4,RZ", "STS [R6],R0", "@P0 BRA <odd>",
         "BAR.SYNC.DEFER_BLOCKING 0x0", "BRA <end>", "odd:BAR.SYNC.DEFER_BLOCKING 0x0",
         "end:LOP3.LUT R6,R6,0xfc,RZ,0x3c,!PT", "LDS R5,[R6]"],
        lambda i: i ^ 63,
    ),
    "barrier_without_the_left": (
        ["ISETP.GE.AND P1,PT,R0,0x28,PT", "MOV R5,0x5", "@P1 STG.E desc[UR4][R2.64],R5",
         "@P1 EXIT", "@!P1 BAR.SYNC.DEFER_BLOCKING 0x0", "MOV R5,R0"],
        lambda i: 5 if i >= 40 else i,
    ),
}  # fmt: skip

FORMS = {
    instruction(line.split(":")[-1].replace("<", "0x").replace(">", "")).opcode
    for lines, _ in FLOWS.values()
    for line in lines
}
"""Opcode forms that the flows exercise."""


@pytest.mark.parametrize("name", FLOWS)
def test_flow(name: str) -> None:
    lines, expected = FLOWS[name]
    assert run(lines).tolist() == [expected(i) & 0xFFFFFFFF for i in range(64)]


def test_a_call_returns_to_where_it_came_from() -> None:
    lines = [*ODD, "MOV R7,0x0", "@P0 BRA <odd>", "MOV R6,<back>", "CALL.REL.NOINC <sub>",
             "back:BRA <end>", "odd:MOV R6,<again>", "CALL.REL.NOINC <sub>",
             "again:IADD3 R5,PT,PT,R5,0x100,RZ", "BRA <end>", "sub:IADD3 R5,PT,PT,R0,0x1,RZ",
             "BRX R6,-<here>", "end:NOP"]  # fmt: skip
    # An indirect branch adds the address behind it, which its offset takes away again.
    behind = 16 * (len(BEFORE) + len(lines) - 1)
    lines = [line.replace("<here>", hex(behind)) for line in lines]
    assert run(lines).tolist() == [i + 1 + (0x100 if i % 2 else 0) for i in range(64)]


def test_an_endless_loop_is_stopped() -> None:
    with pytest.raises(MachineFault, match=r"step limit of 5000 .* at pc 0x0040"):
        run(["MOV R5,0x1", "loop:IADD3 R5,PT,PT,R5,0x1,RZ", "BRA <loop>"])


def test_lanes_waiting_at_different_barriers_for_ever() -> None:
    lines = [*ODD, "BSSY B0,<join>", "@P0 BRA <odd>", "BAR.SYNC.DEFER_BLOCKING 0x0",
             "odd:NOP", "join:BSYNC B0"]  # fmt: skip
    with pytest.raises(
        MachineFault, match=r"deadlocks: 32 lanes at pc 0x0060 \(barrier\), 32 lanes"
    ):
        run(lines)


def test_a_shuffle_from_a_lane_that_is_elsewhere() -> None:
    with pytest.raises(MachineFault, match="does not take part"):
        run([*ODD, "@P0 BRA <end>", "SHFL.BFLY PT,R5,R0,0x1,0x1f", "end:NOP"])


def test_a_shuffle_from_a_lane_that_has_left() -> None:
    with pytest.raises(MachineFault, match="does not take part"):
        run([*ODD, "@P0 EXIT", "SHFL.BFLY PT,R5,R0,0x1,0x1f"])


def test_a_trap_is_a_fault_only_where_it_is_reached() -> None:
    guarded = ["ISETP.GE.AND P1,PT,R0,{},PT", "MOV R5,0x1", "@P1 BPT.TRAP 0x1"]
    assert run([line.format("0x40") for line in guarded]).tolist() == [1] * 64
    with pytest.raises(MachineFault, match="traps"):
        run([line.format("0x3f") for line in guarded])


def test_a_jump_that_misses_every_block() -> None:
    with pytest.raises(MachineFault, match="not a block"):
        run(["MOV R6,0x5", "BRX R6,-0x50"])


@pytest.mark.parametrize(("grid", "block"), [((0, 1, 1), (32, 1, 1)), ((1, 1, 1), (1025, 1, 1))])
def test_impossible_launches(grid: tuple[int, int, int], block: tuple[int, int, int]) -> None:
    function = program(assembled(["MOV R5,0x1"])[0], param_base=0x380)
    with pytest.raises(UsageError, match="not possible"):
        Program(function).launch(grid, block, bytes(8), Memory())


@settings(max_examples=40, **CALM)
@given(
    arms=st.lists(st.integers(0, 3), min_size=8, max_size=8),
    rounds=st.lists(st.integers(0, 5), min_size=8, max_size=8),
)
def test_any_way_through_a_loop_with_four_arms(arms: list[int], rounds: list[int]) -> None:
    """Each of 8 kinds of lanes takes its own arm, its own number of times, and all meet after."""
    table = [arm | count << 8 for arm, count in zip(arms, rounds, strict=True)]
    choose = [f"@P{k % 2} MOV R7,{word:#x}" for k, word in enumerate(table)]
    lines = ["LOP3.LUT R6,R0,0x7,RZ,0xc0,!PT"]
    for kind, choice in enumerate(choose):
        lines += [f"ISETP.EQ.AND P{kind % 2},PT,R6,{kind:#x},PT", choice]
    lines += [
        "LOP3.LUT R8,R7,0xff,RZ,0xc0,!PT", "SHF.R.U32.HI R9,RZ,0x8,R7", "MOV R5,0x1",
        "BSSY B0,<join>", "head:ISETP.EQ.AND P0,PT,R9,RZ,PT", "@P0 BRA <join>",
        "IADD3 R9,PT,PT,R9,-0x1,RZ", "BSSY B1,<next>",
        "ISETP.EQ.AND P1,PT,R8,0x1,PT", "@P1 BRA <one>", "ISETP.EQ.AND P1,PT,R8,0x2,PT",
        "@P1 BRA <two>", "ISETP.EQ.AND P1,PT,R8,0x3,PT", "@P1 BRA <three>",
        "IMAD R5,R5,0x3,RZ", "BRA <next>", "one:IADD3 R5,PT,PT,R5,R0,RZ", "BRA <next>",
        "two:LOP3.LUT R5,R5,R0,RZ,0x3c,!PT", "BRA <next>", "three:IMAD.SHL.U32 R5,R5,0x4,RZ",
        "next:BSYNC B1", "BRA <head>", "join:BSYNC B0", "SHFL.BFLY PT,R5,R5,0x3,0x1f",
    ]  # fmt: skip

    def alone(lane: int) -> int:
        x = 1
        for _ in range(rounds[lane % 8]):
            x = [x * 3, x + lane, x ^ lane, x * 4][arms[lane % 8]]
        return x & 0xFFFFFFFF

    assert run(lines).tolist() == [alone(lane ^ 3) for lane in range(64)]
