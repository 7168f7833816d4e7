"""Every opcode form of the store kernel and of the users' kernels has a meaning and a test.

A form is an opcode with its modifiers. The instruction tests of this folder declare which forms
they exercise, and assert that these occur in what they run.
"""

import importlib
from collections import Counter
from functools import cache

import pytest
from test_user_kernels import LEVELS, from_nvrtc, lowered

from oracle.machine.cubin import Cubin
from oracle.machine.disassembly import Instruction, disassemble
from oracle.machine.instructions import MEANINGS
from oracle.machine.ir import Function
from oracle.machine.lower import lower
from oracle.toolchain import compile_cuda, kernel_source

FAMILIES = (
    *("integer", "extrema", "compare", "moves", "bits", "floating", "float_compare", "half"),
    *("convert", "memory", "control", "warp"),
)
ARCHS = ("sm_80", "sm_90", "sm_100a", "sm_120a")
DTYPES = ("BF16", "FP16")
SEARCHES = ("MAX_OVER_6", "FOUR_OVER_SIX")


# What the store kernels in vLLM 0.25.1 and 0.33.0 consist of, on sm_100 and sm_120.
VLLM = """
BRA BRA.U BSSY.RECONVERGENT BSYNC.RECONVERGENT CALL.REL.NOINC EXIT F2FP.F16.E4M3.UNPACK_B
F2FP.SATFINITE.E2M1.F32.PACK_AB_MERGE_C F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C
F2I.FTZ.U32.TRUNC.NTZ F2I.U64.TRUNC FADD FADD.FTZ FFMA FFMA.RM FFMA.RP FMUL FSEL FSETP.GEU.AND
FSETP.GTU.AND FSETP.NEU.AND FSETP.NEU.FTZ.AND HADD2.F32 HFMA2 HFMA2.BF16_V2 HMNMX2
HMNMX2.BF16_V2 I2F.RP I2F.U32.RP I2F.U64.RP IABS IADD.64 IADD3 IADD3.X IMAD IMAD.HI.U32
IMAD.IADD IMAD.MOV IMAD.MOV.U32 IMAD.SHL.U32 IMAD.U32 IMAD.WIDE.U32 IMAD.X ISETP.GE.AND
ISETP.GE.U32.AND ISETP.GE.U32.AND.EX ISETP.GT.U32.AND ISETP.LE.AND ISETP.NE.AND ISETP.NE.AND.EX
ISETP.NE.U32.AND LDC LDC.64 LDCU LDCU.128 LDCU.64 LDG.E.64.CONSTANT LDG.E.CONSTANT LEA LEA.HI
LEA.HI.X LOP3.LUT MOV MOV.64 MUFU.RCP NOP PLOP3.LUT PRMT R2UR RET.REL.NODEC S2R SEL SHF.L.U32
SHF.R.S32.HI SHF.R.U32.HI STG.E.64 STG.E.U8 UF2I.FTZ.U32.TRUNC.NTZ UI2F.U32.RP UIADD3 UIADD3.64
UIADD3.X UIMAD UIMAD.HI.U32 UIMAD.WIDE.U32 UISETP.GE.AND UISETP.GE.U32.AND UISETP.GE.U64.AND
UISETP.NE.S64.AND UISETP.NE.U32.AND ULEA.HI ULOP3.LUT UMOV USEL.64 USHF.R.S32.HI VHMNMX
VHMNMX.BF16_V2 VIADD
"""


@cache
def declared() -> frozenset[str]:
    """Forms that some instruction test declares."""
    forms: set[str] = set()
    for name in FAMILIES:
        module = importlib.import_module(f"test_{name}")
        forms |= module.FAMILY.forms | {case.form for case in getattr(module, "CASES", ())}
    for name in (*FAMILIES, "scheduler", "coordinates"):
        forms |= getattr(importlib.import_module(f"test_{name}"), "FORMS", set())
    return frozenset(forms)


@cache
def store_kernels(arch: str) -> tuple[Cubin, dict[str, tuple[Instruction, ...]]]:
    """The store kernel for both dtypes and searches as one unit, a namespace each."""
    parts = ["#include <cuda_fp16.h>\n#include <cuda_bf16.h>"]
    source = kernel_source("nvfp4_kv_store")
    macros = {"DTYPE": DTYPES, "SCALE_SEARCH": SEARCHES}
    for dtype in DTYPES:
        for search in SEARCHES:
            name = f"nvfp4_kv_store_{dtype}_{search}"
            chosen = {"DTYPE": dtype, "SCALE_SEARCH": search, "nvfp4_kv_store": name}
            parts += [f"#define {macro} {value}" for macro, value in chosen.items()]
            parts.append(f"namespace {name}_ {{\n{source}\n}}")
            parts += [f"#undef {macro}" for macro in (*chosen, *_defined(source), *macros)]
    cubin = Cubin.parse(compile_cuda("\n".join(parts), arch))
    return cubin, disassemble(cubin)


def _defined(source: str) -> list[str]:
    lines = (line.split() for line in source.splitlines())
    return [words[1] for words in lines if words[:1] == ["#define"]]


@cache
def occurring() -> Counter[str]:
    """How often each form occurs where execution of the kernels that must run can come to."""
    forms: Counter[str] = Counter()
    for arch in ARCHS:
        cubin, code = store_kernels(arch)
        for name in cubin.kernels:
            forms += reached(lower(cubin, name, code[name]), code[name])
    for arch, level, name in LEVELS:
        forms += reached(lowered(arch, level, name), from_nvrtc(arch, level)[1][name])
    return forms


def reached(function: Function, code: tuple[Instruction, ...]) -> Counter[str]:
    """The forms of a kernel's instructions that stand in some block."""
    inside = {
        block.address // 16 * 16 + 16 * place
        for block in function.blocks.values()
        for place in range(block.length)
    }
    return Counter(i.opcode for i in code if i.address in inside)


@pytest.mark.parametrize("arch", ARCHS)
def test_the_unit_holds_every_store_kernel(arch: str) -> None:
    assert len(store_kernels(arch)[0].kernels) == len(DTYPES) * len(SEARCHES)


def test_every_form_is_tested() -> None:
    """Lowering refuses what has no meaning, so that whatever occurs is supported."""
    untested = {form: count for form, count in occurring().items() if form not in declared()}
    assert not untested, untested


def test_every_form_of_shipped_kernels_is_tested() -> None:
    assert set(VLLM.split()) <= declared()


def test_every_opcode_with_a_meaning_is_tested() -> None:
    opcodes = {form.split(".")[0] for form in declared()}
    untested = [
        opcode
        for opcode, meaning in MEANINGS.items()
        if meaning.__module__.split(".")[-1] in FAMILIES and opcode not in opcodes
    ]
    assert not untested


def test_count(capsys: pytest.CaptureFixture[str]) -> None:
    """The number of supported forms is reported, apart from the tests that pin their results."""
    with capsys.disabled():
        print(
            f"\n{len(declared())} opcode forms tested; the store kernel and the users' kernels "
            f"use {len(occurring())} of them"
        )
    assert set(occurring()) <= declared()
