"""What the machine does not know it refuses by name when a kernel is loaded, all of it at once."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
from handmade import instruction, refusals
from hypothesis import given, settings
from hypothesis import strategies as st
from snippets import CALM, Family, snippet

from oracle.machine.context import Unsupported
from oracle.machine.disassembly import Instruction, disassemble
from oracle.machine.lower import basic_blocks, lower
from oracle.machine.operands import Address, Const, Operand, Reg, parse_operand

FAMILY = Family(
    snippet("doubles", "double x = a; x = x * 1.5 + b; o0 = (u32)x;", lambda: 0, "DFMA"),
    snippet("atomics", "atomicAdd(&((u32*)out)[a & 3], b); o1 = clock();", lambda: 0, "RED"),
    snippet("matches", "o0 = __match_any_sync(~0u, a);", lambda: 0, "MATCH.ANY"),
    snippet("plain", "o0 = a + b;", lambda: 0, "IADD3"),
)
WITH_CASES = (
    *("integer", "extrema", "compare", "moves", "bits", "floating", "float_compare", "half"),
    "convert",
)
OPERANDS = ("R7", "-R7", "~R7", "|R7|", "R7.H1", "UR7", "P3", "!P3", "UP3", "0x5", "1.5", "B0")
OPERANDS += ("c[0x0][0x380]", "c[0x3][R4]", "cx[UR4][0x10]", "[R4]", "desc[UR4][R4.64]", "SR_TID.X")
OPERANDS += ("PR", "somewhere", "RZ", "URZ", "PT", "tmem[UR4]", "???")


def texts() -> list[str]:
    """Every instruction that the instruction tests build by hand."""
    modules = map(importlib.import_module, (f"test_{name}" for name in WITH_CASES))
    cases = [case for module in modules for case in module.CASES]
    seen: dict[str, str] = {}
    for case in cases:
        seen.setdefault(case.form, case.text)
    return [*seen.values(), "LDG.E R0,desc[UR4][R2.64]", "STS.64 [R4.X8+0x10],R6",
            "LDC.64 R2,c[0x0][0x380]", "SHFL.UP PT,R0,R2,0x1,RZ", "VOTE.ALL R0,P1,P0",
            "BRA 0x40", "EXIT", "BSSY B0,0x40", "BSYNC B0", "BAR.SYNC.DEFER_BLOCKING 0x0",
            "CALL.REL.NOINC 0x40", "BRX R2,-0x10", "WARPSYNC R2", "BREAK B0",
            "REDUX.OR UR0,R2"]  # fmt: skip


@pytest.mark.parametrize("arch", ["sm_80", "sm_120a"])
@pytest.mark.parametrize(
    ("name", "named"),
    [("doubles", ("I2F.F64", "DFMA", "F2I.U32.F64")), ("atomics", ("RED", "SR_CLOCKLO")),
     ("matches", ("opcode MATCH.ANY at 0x",))],
)  # fmt: skip
def test_a_compiled_kernel_is_refused_with_everything_in_it(
    arch: str, name: str, named: tuple[str, ...]
) -> None:
    with pytest.raises(Unsupported) as refusal:
        FAMILY.program(name, arch)
    text = str(refusal.value)
    assert text.startswith(f"kernel {name}_kernel ({arch}) cannot be executed: ")
    assert "\n" not in text
    for word in named:
        assert word in text


def test_everything_unknown_is_listed_at_once() -> None:
    assert refusals(
        "FOO.BAR R0,R2", "IADD3.WRAP R0,PT,PT,R2,R3,R4", "EXIT", "IADD3 R0,R2", "MUFU.EX2 R0,R2"
    ) == [
        "opcode FOO.BAR at 0x0000",
        "IADD3.WRAP R0,PT,PT,R2,R3,R4: modifier .WRAP is not understood",
        "IADD3 R0,R2: operands are not understood",
        "MUFU.EX2 R0,R2: only the reciprocal of the multifunction unit is modelled",
    ]


def test_a_predicate_after_the_scope_it_leaves_is_refused() -> None:
    """Compilers write it, and what it does to the lanes where it is false is not known."""
    (text,) = refusals("@P0 BREAK.RELIABLE B1,P2")
    assert text.startswith("@P0 BREAK.RELIABLE B1,P2: ")


def test_code_that_is_never_reached_needs_no_meaning() -> None:
    cubin, code = FAMILY.cubin("sm_90"), FAMILY._code("sm_90")["plain"]
    end = next(place for place, i in enumerate(code) if i.opcode == "EXIT")
    strange = [replace(i, opcode="FOO") if place > end else i for place, i in enumerate(code)]
    lower(cubin, "plain_kernel", strange)
    strange[0] = replace(code[0], opcode="FOO")
    with pytest.raises(Unsupported) as refusal:
        lower(cubin, "plain_kernel", strange)
    # With one unknown instruction in the way all are named, since nobody knows where it leads.
    assert str(refusal.value).count("opcode FOO") == len(code) - end


@pytest.mark.parametrize("guard", ["@PR", "@R4", "@P9x", "@UPR"])
def test_a_guard_that_is_no_predicate(guard: str) -> None:
    (text,) = refusals(f"{guard} IADD3 R0,PT,PT,R2,R3,R4")
    assert "IADD3" in text


@settings(max_examples=400, **CALM)
@given(
    text=st.sampled_from(texts()),
    place=st.integers(0, 7),
    operand=st.sampled_from(OPERANDS),
    how=st.sampled_from(("replace", "insert", "drop")),
    modifier=st.sampled_from(("", "", ".X", ".FTZ", ".HI", ".64", ".F32", ".NEW", ".U32", ".SAT")),
    predicate=st.sampled_from((None, None, "P1", "!UP2", "PR")),
)
def test_changed_operands_have_a_meaning_or_are_refused(
    text: str, place: int, operand: str, how: str, modifier: str, predicate: str | None
) -> None:
    """Whatever the operands, lowering gives blocks or names the instruction; it never breaks."""
    whole = instruction(text)
    operands = list(whole.operands)
    if how == "insert":
        operands.insert(place, parse_operand(operand))
    elif place < len(operands):
        operands[place : place + 1] = [parse_operand(operand)] if how == "replace" else []
    changed = replace(
        whole, opcode=whole.opcode + modifier, operands=tuple(operands), predicate=predicate
    )
    blocks, problems = basic_blocks([changed], {})
    assert blocks
    for _, problem in problems:
        assert whole.opcode in problem


@pytest.mark.parametrize("extra", ["R7", "P3", "!PT", "0x5", "c[0x0][0x380]"])
def test_an_operand_too_many_is_refused(extra: str) -> None:
    """No operand is passed over in silence."""
    # A branch or an exit may have one more condition, and a barrier a number of threads.
    open_ended = ("EXIT", "BAR.SYNC.DEFER_BLOCKING 0x0")
    for text in texts():
        whole = instruction(text)
        longer = replace(whole, operands=(*whole.operands, parse_operand(extra)))
        if text not in open_ended:
            assert basic_blocks([longer], {})[1], f"{text},{extra}"


def changes(operand: Operand) -> Iterator[Operand]:
    """The operand with a sign or a suffix that would mean another value."""
    if isinstance(operand, Reg | Const):
        for sign in ("negate", "invert", "absolute"):
            if not getattr(operand, sign):
                yield replace(operand, **{sign: True})
        yield from (replace(operand, suffixes=(name,)) for name in ("B1", "H1_H1", "XYZ", "U32"))
    if isinstance(operand, Reg):
        yield replace(operand, logical_not=not operand.logical_not)
    if isinstance(operand, Address) and operand.base:
        yield replace(operand, base=replace(operand.base, negate=True))
        yield replace(operand, suffixes=("X4",))
        yield replace(operand, space="gdesc")
        yield replace(operand, offset=operand.offset + 4)
        yield replace(operand, uniform=Reg("UR", 9))


def meant(code: Instruction) -> object:
    """What lowering makes of an instruction, None where it refuses."""
    blocks, problems = basic_blocks([code], {})
    ops = [(op.name, op.args, op.attrs) for op in blocks[0].ops]
    return None if problems else (ops, blocks[0].terminator)


def test_a_changed_operand_changes_the_meaning_or_is_refused() -> None:
    """No sign and no suffix is passed over in silence."""
    # A truth table decides which inputs of LOP3 matter at all.
    for text in (text for text in texts() if "LOP3" not in text):
        whole = instruction(text)
        before = meant(whole)
        assert before is not None
        for place, operand in enumerate(whole.operands):
            for changed in changes(operand):
                operands = (*whole.operands[:place], changed, *whole.operands[place + 1 :])
                after = meant(replace(whole, operands=operands))
                assert after != before or _is_zero(operand, changed), (text, changed)


def _is_zero(operand: Operand, changed: Operand) -> bool:
    """A zero whose sign or part makes no difference, or a part spelled in two ways."""
    if getattr(operand, "constant", False) and getattr(operand, "file", "") in ("R", "UR"):
        return not getattr(changed, "invert", False)
    parts = (getattr(operand, "suffixes", ()), getattr(changed, "suffixes", ()))
    return parts in ((("H1",), ("H1_H1",)), (("H1_H1",), ("H1_H1",)))


def test_the_refused_snippets_are_what_they_seem() -> None:
    for name in ("doubles", "atomics", "matches"):
        code = disassemble(FAMILY.cubin("sm_90"))[f"{name}_kernel"]
        assert any(i.opcode.startswith(FAMILY.snippets[name].forms[0]) for i in code)
