"""Instructions of whole CTAs that no compiler emits on demand, built by hand, run by one warp."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from handmade import program, refusals

from oracle.machine.cta import CodedRegion, CtaProgram, Launch, Outcome
from oracle.machine.memory import MachineFault, Memory
from oracle.machine.replicas import images

LANES = np.arange(32)
BARRIER, DATA = 0x500, 0x600
OUT = "R40"
"""The register whose words a run returns; lane numbers are in R0, `in` in R42, `out` in R44."""
_OPENING = (
    "S2R R0,SR_TID.X",
    "LDC.64 R42,c[0x0][0x380]",
    "LDC.64 R44,c[0x0][0x388]",
    "IMAD.WIDE.U32 R44,R0,0x4,R44",
)


def run(lines: Sequence[str], coded: bool = False) -> tuple[list[int], Outcome]:
    """What lines leave in R40 of each lane, and what they did."""
    function = program([*_OPENING, *lines, "STG.E desc[UR4][R44.64],R40", "EXIT"], param_base=0x380)
    memory = Memory()
    source = memory.map("in", np.arange(256, dtype=np.uint32))
    out = memory.map("out", np.zeros(32, np.uint32), writable=True)
    launch = Launch(
        (1, 1, 1), (32, 1, 1), (0, 0, 0), struct.pack("<QQ", source.base, out.base), memory,
        shared_bytes=0x1000, step_limit=10_000,
        coded=(CodedRegion(source, images(source.size)),) if coded else (),
    )  # fmt: skip
    outcome = CtaProgram(function).run(launch)
    return out.bytes.view(np.uint32).tolist(), outcome


def initialised(count: int) -> tuple[str, ...]:
    """An mbarrier of so many arrivals at [UR8]."""
    state = 0x100000 - count
    return (
        f"UMOV UR8,{BARRIER:#x}",
        f"UMOV UR6,{state << 1:#x}",
        f"UMOV UR7,{state << 11 & 0xFFFFFFFF:#x}",
        "SYNCS.EXCH.64 URZ,[UR8],UR6",
    )


PHASE_OVER = ("SYNCS.PHASECHK.TRANS64 P0,[UR8],RZ", f"SEL {OUT},RZ,0x1,!P0")
"""Whether the first phase is over, into R40."""


@pytest.mark.parametrize(("arrivals", "over"), [(1, 1), (2, 0)])
def test_the_tensor_core_arrives_once_for_the_warp(arrivals: int, over: int) -> None:
    out, _ = run([*initialised(arrivals), "UTCBAR [UR8],URZ", *PHASE_OVER])
    assert out == [over] * 32


@pytest.mark.parametrize(
    ("form", "operand", "count", "over"),
    [
        ("A1T0 RZ,[UR8],RZ", 0, 32, 1),
        ("A1T0 RZ,[UR8],RZ", 0, 33, 0),
        ("ART0 RZ,[UR8],R6", 3, 96, 1),
        ("RED.A1T0 RZ,[R5+URZ],RZ", 0, 32, 1),
    ],
)
def test_every_lane_arrives(form: str, operand: int, count: int, over: int) -> None:
    lines = (f"MOV R6,{operand:#x}", f"MOV R5,{BARRIER:#x}", f"SYNCS.ARRIVE.TRANS64.{form}")
    out, _ = run([*initialised(count), *lines, *PHASE_OVER])
    assert out == [over] * 32


def test_the_next_work_is_none_and_counts_its_sixteen_bytes() -> None:
    out, _ = run(
        [
            *initialised(1),
            "ELECT P1,URZ,PT",
            "MOV R6,0x10",
            "@P1 SYNCS.ARRIVE.TRANS64.RED RZ,[UR8],R6",
            f"UMOV UR10,{DATA:#x}",
            "UGETNEXTWORKID.BROADCAST [UR10],[UR8]",
            "SYNCS.PHASECHK.TRANS64.TRYWAIT P0,[UR8],RZ",
            "LDS.128 R8,[UR10]",
            "LOP3.LUT R8,R8,R9,R10,0xfe,!PT",
            "LOP3.LUT R8,R8,R11,RZ,0xfc,!PT",
            f"SEL {OUT},R8,0x99,P0",
        ]
    )
    assert out == [0] * 32


@pytest.mark.parametrize(("size", "registers"), [(64, 2), (128, 4)])
def test_an_asynchronous_store_counts_its_bytes(size: int, registers: int) -> None:
    stride = size // 8
    out, _ = run(
        [
            *initialised(1),
            "ELECT P1,URZ,PT",
            f"MOV R6,{32 * stride:#x}",
            "@P1 SYNCS.ARRIVE.TRANS64 RZ,[UR8],R6",
            f"MOV R5,{BARRIER:#x}",
            f"MOV R9,{DATA:#x}",
            f"IMAD R4,R0,{stride:#x},R9",
            *(f"IADD3 R{12 + i},PT,PT,R0,{100 * (i + 1):#x},RZ" for i in range(registers)),
            f"STAS.{size} [R4.64],R12",
            "SYNCS.PHASECHK.TRANS64.TRYWAIT P0,[UR8],RZ",
            f"LDS R8,[R4+{stride - 4:#x}]",
            f"SEL {OUT},R8,RZ,P0",
        ]
    )
    assert out == (LANES + 100 * registers).tolist()


def test_allocations_succeed() -> None:
    out, _ = run(
        [
            "UMOV UR5,0x10",
            "UTCATOMSWS.FIND_AND_SET.ALIGN UP0,UR5,UR5",
            "USETMAXREG.TRY_ALLOC.CTAPOOL UP1,0xb8",
            "USETMAXREG.DEALLOC.CTAPOOL 0x38",
            "PLOP3.LUT P0,PT,PT,UP0,UP1,0x80,0x8",
            "MOV R8,UR5",
            f"SEL {OUT},R8,0x77,P0",
        ]
    )
    assert out == [0] * 32


def test_what_orders_and_prefetches_changes_nothing() -> None:
    lines = ("FENCE.VIEW.ASYNC.S", "UTMACCTL.PF [UR8]", "ACQBULK", "PREEXIT", "UCGABAR_ARV")
    out, _ = run([*lines, "UVIRTCOUNT.DEALLOC.SMPOOL 0x80", "UCGABAR_WAIT", f"MOV {OUT},R0"])
    assert out == LANES.tolist()


# -- uniform registers --------------------------------------------------------------------------


def test_a_uniform_register_takes_the_value_of_the_lanes_that_write_it() -> None:
    out, _ = run(
        [
            "UMOV UR6,0x55",
            "ISETP.EQ.U32.AND P0,PT,R0,0x3,PT",
            "@P0 R2UR UR6,R0",
            "ISETP.EQ.U32.AND P1,PT,R0,0x40,PT",
            "@P1 R2UR UR6,RZ",
            f"MOV {OUT},UR6",
        ]
    )
    assert out == [3] * 32


def test_a_vote_under_a_predicate_is_of_the_lanes_it_holds_for() -> None:
    out, _ = run(
        [
            "ISETP.LT.U32.AND P1,PT,R0,0x8,PT",
            "ISETP.GE.U32.AND P0,PT,R0,0x8,PT",
            "@P1 VOTEU.ANY UP0,P0",
            "USEL UR6,URZ,0x7,UP0",
            f"MOV {OUT},UR6",
        ]
    )
    assert out == [7] * 32


def test_lanes_that_disagree_about_a_uniform_register_are_a_fault() -> None:
    with pytest.raises(MachineFault, match="lanes disagree about a uniform register"):
        run(["R2UR UR6,R0", f"MOV {OUT},UR6"])


def test_a_uniform_register_is_spilled_and_filled() -> None:
    out, _ = run(
        [
            "UMOV UR6,0x1234",
            "MOV.SPILL R8,UR6",
            "UMOV UR6,URZ",
            "R2UR.FILL UR7,R8",
            f"MOV {OUT},UR7",
        ]
    )
    assert out == [0x1234] * 32


def test_uniform_predicates_become_bits() -> None:
    out, _ = run(
        [
            "UISETP.EQ.U32.AND UP0,UPT,URZ,URZ,UPT",
            "UISETP.NE.U32.AND UP1,UPT,URZ,URZ,UPT",
            "UISETP.EQ.U32.AND UP2,UPT,URZ,URZ,UPT",
            "UP2UR UR6,UPR,URZ,0x6",
            f"MOV {OUT},UR6",
        ]
    )
    assert out == [4] * 32


@pytest.mark.parametrize("byte", range(4))
def test_predicates_come_from_any_byte(byte: int) -> None:
    word = 0x4B25_131D
    suffix = f".B{byte}" if byte else ""
    out, _ = run(
        [
            f"MOV R8,{word:#x}",
            f"R2P PR,R8{suffix},0x7f",
            *(f"SEL R{10 + i},RZ,{1 << i:#x},!P{i}" for i in range(7)),
            "IADD3 R10,PT,PT,R10,R11,R12",
            "IADD3 R10,PT,PT,R10,R13,R14",
            f"IADD3 {OUT},PT,PT,R10,R15,R16",
        ]
    )
    assert out == [word >> 8 * byte & 0x7F] * 32


@pytest.mark.parametrize("start", [-40, -16, 3])
def test_nothing_below_zero_with_relu(start: int) -> None:
    out, _ = run(
        [
            f"IADD3 R8,PT,PT,R0,{start:#x},RZ",
            "VIMNMX.RELU R9,PT,PT,R8,0x5,PT",
            "VIADDMNMX.RELU R10,R8,0x1,0x5,PT",
            f"IMAD {OUT},R10,0x100,R9",
        ]
    )
    x = LANES + start
    expected = 0x100 * np.clip(np.minimum(x + 1, 5), 0, None) + np.clip(np.minimum(x, 5), 0, None)
    assert out == expected.tolist()


# -- products -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codes", "nibbles"), [("N3210", "0123"), ("N7654", "4567"), ("N6420", "0246")]
)
@pytest.mark.parametrize(
    ("scales", "places"), [("B3210", "0123"), ("B0", "0000"), ("B1", "1111"), ("B3", "3333")]
)
@pytest.mark.parametrize("saturates", ["", ".SATFINITE"])
def test_a_product_tells_what_it_multiplied(
    codes: str, nibbles: str, scales: str, places: str, saturates: str
) -> None:
    name = f"QMUL4.E4M3x4.E2M1x4.E4M3x4{saturates}"
    _, outcome = run(
        [
            "IMAD.WIDE.U32 R6,R0,0x4,R42",
            "LDG.E R8,desc[UR4][R6.64]",
            "LDG.E R9,desc[UR4][R6.64+0x80]",
            f"{name} R10,R8.{codes},R9.{scales}",
            f"MOV {OUT},R0",
        ],
        coded=True,
    )
    (seen,) = outcome.observations
    assert (seen.nibbles, seen.places, seen.warp) == (nibbles, places, 0)
    words = images(1024).view(np.uint32)
    assert np.array_equal(seen.codes, words[:, :32])
    assert np.array_equal(seen.scales, words[:, 32:64])


@pytest.mark.parametrize(
    "line",
    [
        "QMUL4.E4M3x4.E2M1x4.E5M2x4.SATFINITE R10,R8.N3210,R9.B0",
        "QMUL4.E4M3x4.E2M1x4.E4M3x4.SATFINITE R10,R8,R9.B0",
        "QMUL4.E4M3x4.E2M1x4.E4M3x4.SATFINITE R10,R8.N0123,R9.B0",
        "LDSM.16.M88.4 R4,[R0]",
        "SYNCS.ARRIVE.TRANS64 R4,[UR8],R6",
        "SYNCS.ARRIVE.TRANS64.A2T0 RZ,[UR8],RZ",
        "UTCBAR [UR8],UR4",
        "UTMALDG.4D.IM2COL [UR8],[UR4]",
        "ATOMS.MIN.S32 R4,[R5],R6",
        "ATOMS.CAS R4,[R5],R6,R7",
        "ARRIVES.LDGSTSBAR.64 [UR8]",
        "R2P PR,R8.H1,0x7f",
        "UP2UR UR6,UPR,URZ",
    ],
)
def test_forms_without_a_meaning_are_refused_by_name(line: str) -> None:
    (text,) = refusals(line)
    assert line.split(" ", maxsplit=1)[0] in text


# -- what a caller declared not to matter -------------------------------------------------------


def test_left_out_results_are_zero_and_no_others() -> None:
    registers = range(8, 14)
    out, _ = run(
        [
            *(f"MOV R{r},{1 << (r - 8):#x}" for r in registers),
            "UNMODELLED.1.3 R8,R10,tmem[UR4]",
            "IADD3 R8,PT,PT,R8,R9,R10",
            "IADD3 R8,PT,PT,R8,R11,R12",
            f"IADD3 {OUT},PT,PT,R8,R13,RZ",
        ]
    )
    assert out == [2 + 32] * 32


@pytest.mark.parametrize(("count", "rows"), [(1, 8), (2, 16), (4, 32)])
def test_left_out_matrix_stores_make_their_rows_known(count: int, rows: int) -> None:
    lines = [
        f"MOV R9,{DATA:#x}",
        "IMAD R8,R0,0x10,R9",
        f"UNMODELLEDROWS.{count} [R8+0x10],R4",
        f"ISETP.LT.U32.AND P0,PT,R0,{rows:#x},PT",
        "MOV R40,0x3",
        "@P0 LDS R40,[R8+0x1c]",
    ]
    out, _ = run(lines)
    assert out == [0] * rows + [3] * (32 - rows)
    if rows < 32:
        with pytest.raises(MachineFault, match="nobody wrote"):
            run([*lines[:3], f"LDS {OUT},[R8+0x10]"])
