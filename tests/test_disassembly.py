"""Instructions and operands: the grammar, the text against the encoding, and a hostile tool."""

import contextlib
import math
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle import toolchain
from oracle.errors import UsageError
from oracle.machine import disassembly
from oracle.machine.cubin import Cubin
from oracle.machine.disassembly import Instruction, disassemble
from oracle.machine.operands import (
    TRUE,
    ZERO,
    Address,
    Const,
    Imm,
    Label,
    Operand,
    Reg,
    Special,
    Unknown,
    parse_operand,
    split_operands,
)
from oracle.toolchain import ToolchainError, compile_cuda, kernel_source


def r(index: int, *suffixes: str) -> Reg:
    return Reg("R", index, suffixes=suffixes)


def ur(index: int) -> Reg:
    return Reg("UR", index)


OPERANDS: dict[str, Operand] = {
    "R5": r(5),
    "R254": r(254),
    "RZ": r(ZERO),
    "UR4": ur(4),
    "URZ": ur(ZERO),
    "P0": Reg("P", 0),
    "PT": Reg("P", TRUE),
    "!P6": Reg("P", 6, logical_not=True),
    "UP1": Reg("UP", 1),
    "!UPT": Reg("UP", TRUE, logical_not=True),
    "B0": Reg("B", 0),
    "SB5": Reg("SB", 5),
    "-R4": Reg("R", 4, negate=True),
    "~R15.reuse": Reg("R", 15, invert=True),
    "-RZ.H0_H0": Reg("R", ZERO, negate=True, suffixes=("H0_H0",)),
    "|R4|": Reg("R", 4, absolute=True),
    "-|R4|": Reg("R", 4, negate=True, absolute=True),
    "|R35|.H1_H1": Reg("R", 35, absolute=True, suffixes=("H1_H1",)),
    "|R9|.reuse": Reg("R", 9, absolute=True),
    "|UR5|": Reg("UR", 5, absolute=True),
    "R4.reuse": r(4),
    "R9.reuse.H0_H0": r(9, "H0_H0"),
    "R2.reuse.F32x2.HI_LO": r(2, "F32x2", "HI_LO"),
    "R8.N3210": r(8, "N3210"),
    "R2.64": r(2, "64"),
    "0x7632": Imm("0x7632", 0x7632),
    "-0x1": Imm("-0x1", -1),
    "0xffffffff": Imm("0xffffffff", 0xFFFFFFFF),
    "5": Imm("5", 5.0),
    "0.16666667163372039795": Imm("0.16666667163372039795", struct.unpack("<f", b"\xab\xaa*>")[0]),
    "1.1754943508222875080e-38": Imm("1.1754943508222875080e-38", 2.0**-126),
    "+INF": Imm("+INF", math.inf),
    "-INF": Imm("-INF", -math.inf),
    "c[0x0][0x3b0]": Const(0, None, 0x3B0),
    "c[0x0][R4+0x10]": Const(0, r(4), 0x10),
    "c[0x2][R6]": Const(2, r(6), 0),
    "c[0x0][UR4+0x2b0]": Const(0, ur(4), 0x2B0),
    "-c[0x0][0x1c0]": Const(0, None, 0x1C0, negate=True),
    "~c[0x3][0x8]": Const(3, None, 8, invert=True),
    "|c[0x0][0x8]|": Const(0, None, 8, absolute=True),
    "c[0x0][0x160].H0_H0": Const(0, None, 0x160, suffixes=("H0_H0",)),
    "cx[UR4][0x10]": Const(ur(4), None, 0x10),
    "[R4]": Address("", None, r(4), None, 0),
    "[RZ]": Address("", None, r(ZERO), None, 0),
    "[UR6+0x34330]": Address("", None, None, ur(6), 0x34330),
    "[R4+UR6+-0x10]": Address("", None, r(4), ur(6), -0x10),
    "[R5+URZ]": Address("", None, r(5), ur(ZERO), 0),
    "[R2.64]": Address("", None, r(2, "64"), None, 0),
    "[0x40]": Address("", None, None, None, 0x40),
    "desc[UR20][R18.64+0x10]": Address("", ur(20), r(18, "64"), None, 0x10),
    "desc[UR14][R4.64+-0x400]": Address("", ur(14), r(4, "64"), None, -0x400),
    "tmem[UR9+0x20]": Address("tmem", None, None, ur(9), 0x20),
    "gdesc[UR8]": Address("gdesc", None, None, ur(8), 0),
    "gdesc[UR16].tnspB": Address("gdesc", None, None, ur(16), 0, ("tnspB",)),
    "SR_TID.X": Special("SR_TID.X"),
    "SR_CgaCtaId": Special("SR_CgaCtaId"),
    "SRZ": Special("SRZ"),
    "PR": Special("PR"),
    "UPR": Special("UPR"),
    "$__internal_0_$__cuda_sm20_div_s64": Label("$__internal_0_$__cuda_sm20_div_s64"),
    "_ZN4vllm1kEv": Label("_ZN4vllm1kEv"),
}

NOT_OPERANDS = [
    "",
    "R255",
    "R300",
    "P7",
    "UP9",
    "B16",
    "|R3",
    "R3|",
    "R4.",
    "[R4",
    "[R4+R5]",
    "[-R4]",
    "[P0]",
    "[R4*0x2]",
    "desc[R4][R2.64]",
    "c[0x0][R4+UR5]",
    "c[0x0]",
    "cx[R4][0x10]",
    "{5,4}",
    "0x",
    "1.5.2",
    "R4 R5",
    "\0",
]


@pytest.mark.parametrize("text", OPERANDS)
def test_operand(text: str) -> None:
    assert parse_operand(text) == OPERANDS[text]


@pytest.mark.parametrize("text", ["+QNAN", "-QNAN"])
def test_nan_keeps_its_sign(text: str) -> None:
    operand = parse_operand(text)
    assert isinstance(operand, Imm)
    assert math.isnan(operand.value)
    assert math.copysign(1, operand.value) == (-1 if text[0] == "-" else 1)


@pytest.mark.parametrize("text", NOT_OPERANDS)
def test_what_is_not_understood_is_unknown_or_a_bare_name(text: str) -> None:
    assert parse_operand(text) in (Unknown(text), Label(text))


def test_out_of_range_registers_never_become_registers() -> None:
    registers = [f"R{i}" for i in range(255)] + [f"UR{i}" for i in range(255)]
    registers += [f"P{i}" for i in range(7)] + [f"UP{i}" for i in range(7)]
    assert all(isinstance(parse_operand(text), Reg) for text in registers)
    assert len({parse_operand(text) for text in registers}) == len(registers)


def test_constant_registers_and_wide_pairs() -> None:
    spelled = ("RZ", "URZ", "PT", "UPT", "R7", "P6", "B7", "UR63")
    parsed = [parse_operand(text) for text in spelled]
    assert [isinstance(p, Reg) and p.constant for p in parsed] == [True] * 4 + [False] * 4
    assert r(2, "64").wide
    assert not r(2, "H0_H0").wide


@given(st.text(alphabet="RUPZTSBc[]|-~!+.,x0123456789abcdefdesc{} \n", max_size=24))
def test_parsing_raises_nothing(text: str) -> None:
    for piece in split_operands(text):
        parse_operand(piece)


signs = st.sampled_from(["", "-", "~"])
offsets = st.integers(-0x800000, 0x7FFFFF)


@given(signs, st.booleans(), st.integers(0, 254), st.lists(st.sampled_from(["H0_H0", "B2", "F32"])))
def test_registers_round_trip(sign: str, bars: bool, index: int, suffixes: list[str]) -> None:
    bar = "|" if bars else ""
    text = f"{sign}{bar}R{index}{bar}" + "".join(f".{suffix}" for suffix in suffixes)
    expected = Reg("R", index, sign == "-", sign == "~", bars, False, tuple(suffixes))
    assert parse_operand(text) == expected


@given(st.integers(0, 254) | st.none(), st.integers(0, 254) | st.none(), offsets)
def test_addresses_round_trip(base: int | None, uniform: int | None, offset: int) -> None:
    terms = [] if base is None else [f"R{base}.64"]
    terms += [] if uniform is None else [f"UR{uniform}"]
    terms += [f"{'-' if offset < 0 else ''}0x{abs(offset):x}"] if offset or not terms else []
    expected = Address(
        "",
        ur(3),
        None if base is None else r(base, "64"),
        None if uniform is None else ur(uniform),
        offset,
    )
    assert parse_operand(f"desc[UR3][{'+'.join(terms)}]") == expected


def test_operands_are_cut_at_commas_outside_braces() -> None:
    assert split_operands("P0,PT,R4,c[0x0][0x10],PT") == ["P0", "PT", "R4", "c[0x0][0x10]", "PT"]
    assert split_operands("R3,-RZ,RZ,-0.0 ,0") == ["R3", "-RZ", "RZ", "-0.0", "0"]
    assert split_operands("SB0,{5,4,3}") == ["SB0", "{5,4,3}"]
    assert split_operands("") == []


FLOATS = [0.1, -3.0, 1e-40, 1.5e38, 7.25, -1.1754943508222875e-38, math.inf, 65504.0, 2.0**-24]

FLOAT_LINES = "\n".join(
    f"  a[{i}] = fmaf(a[{i + 20}], __int_as_float(0x{struct.pack('>f', value).hex()}), a[99]);"
    for i, value in enumerate(FLOATS)
)
FLOAT_SOURCE = f'extern "C" __global__ void floats(float* a) {{\n{FLOAT_LINES}\n}}'


@pytest.mark.parametrize("arch", ["sm_80", "sm_100a"])
def test_decimal_immediates_are_what_the_encoding_holds(arch: str) -> None:
    cubin = Cubin.parse(compile_cuda(FLOAT_SOURCE, arch))
    found = set()
    for instruction in disassemble(cubin)["floats"]:
        for operand in instruction.operands:
            if isinstance(operand, Imm) and isinstance(operand.value, float):
                assert instruction.opcode.startswith("FFMA")
                bits = struct.pack("<I", instruction.immediate_bits)
                assert struct.pack("<f", operand.value) == bits
                found.add(bits)
    assert {struct.pack("<f", value) for value in FLOATS} <= found


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100a", "sm_120a"])
def test_store_kernel_decodes_completely(arch: str) -> None:
    defines = {"SCALE_SEARCH": "FOUR_OVER_SIX"}
    cubin = Cubin.parse(compile_cuda(kernel_source("nvfp4_kv_store"), arch, defines))
    instructions = disassemble(cubin)["nvfp4_kv_store"]
    kernel = cubin.kernel()
    assert [i.address for i in instructions] == list(range(0, len(kernel.code), 16))
    assert b"".join(i.encoding.to_bytes(16, "little") for i in instructions) == kernel.code
    unknown = [i.text for i in instructions for o in i.operands if isinstance(o, Unknown)]
    assert unknown == []
    names = {o.name for i in instructions for o in i.operands if isinstance(o, Label)}
    assert names
    assert names <= set(kernel.symbols)
    predicates = {i.predicate for i in instructions} - {None}
    assert predicates
    assert all(p is not None and p.lstrip("!U").startswith("P") for p in predicates)
    flow = {i.opcode.split(".")[0] for i in instructions if i.control_flow}
    assert {"BRA", "EXIT", "CALL", "RET"} <= flow
    assert not flow & {"MOV", "FFMA", "STG", "LDG"}
    memory = {i.opcode.split(".")[0] for i in instructions}
    assert {"LDG", "STG"} <= memory
    assert not memory & {"LDL", "STL"}


def test_instruction_is_printed_as_a_disassembler_does() -> None:
    plain = Instruction(0, "EXIT", None, (), True, "", 0)
    assert plain.text == "EXIT"
    guarded = Instruction(16, "MOV", "!P0", (r(1), r(2)), False, "R1,R2", 0xDEADBEEF << 32)
    assert guarded.text == "@!P0 MOV R1,R2"
    assert guarded.immediate_bits == 0xDEADBEEF


def test_every_kernel_is_found_under_its_full_name() -> None:
    long = "long_" * 200
    source = f"""
    extern "C" __global__ void first(int* a) {{ a[0] = 1; }}
    template <class... T> __global__ void {long}(int* a) {{ a[0] = sizeof...(T); }}
    template __global__ void {long}<int, char, double>(int*);
    """
    cubin = Cubin.parse(compile_cuda(source, "sm_90"))
    decoded = disassemble(cubin)
    assert set(decoded) == set(cubin.kernels)
    assert max(map(len, decoded)) > 1000
    assert all(decoded.values())


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cubin:
    """A small cubin, with an empty disk cache."""
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(tmp_path / "cache"))
    return Cubin.parse(
        compile_cuda('extern "C" __global__ void k(int* a) { a[0] = 1; }', "sm_90", name="tiny.cu")
    )


def no_tool(*_: object) -> bytes:
    raise AssertionError("nvdisasm was started")


def test_decoded_form_comes_from_the_cache(
    tiny: Cubin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = disassemble(tiny)
    with monkeypatch.context() as patch:
        patch.setattr(disassembly, "_run_nvdisasm", no_tool)
        assert disassemble(tiny) == first
    (entry,) = (tmp_path / "cache").glob("*.sass.json")
    entry.write_bytes(entry.read_bytes().replace(b"EXIT", b"EXIX"))
    assert disassemble(tiny) == first


def pretend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a shell script in the place of nvdisasm."""
    tool = tmp_path / "nvdisasm"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setattr(disassembly, "nvdisasm_path", lambda: tool)


FUNCTION = '{"function-name": "k", "sass-instructions": %s}'


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'fatal: no such arch' >&2; exit 1", "cannot decode the cubin: fatal: no such arch"),
        ("exit 3", "no reason given"),
        ("kill -SEGV $$", "crashed on the cubin"),
        ("exec sleep 60", "stopped after"),
        ("exec yes", "too large"),
        ("echo nonsense", "not understood"),
        ("echo '[{}]'", "not understood"),
        ("echo '[{}, [{}]]'", "not understood"),
        ("echo '[{}, []]'", "did not decode all of kernel k"),
        (f"echo '[{{}}, [{FUNCTION % '[]'}]]'", "did not decode all of kernel k"),
        (f"echo '[{{}}, [{FUNCTION % '[5]'}]]'", "not understood"),
    ],
)
def test_misbehaving_tool_gets_one_line(
    tiny: Cubin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    pretend(tmp_path, monkeypatch, script)
    monkeypatch.setattr(disassembly, "TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(disassembly, "MAX_OUTPUT_BYTES", 1 << 16)
    with pytest.raises(UsageError, match=reason) as error:
        disassemble(tiny)
    assert "\n" not in str(error.value)


def test_tool_that_cannot_run_is_named(
    tiny: Cubin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disassembly, "nvdisasm_path", lambda: tmp_path / "absent")
    with pytest.raises(ToolchainError, match="nvidia-cuda-nvdisasm cannot be run"):
        disassemble(tiny)
    assert toolchain.nvdisasm_path().name == "nvdisasm"


def test_code_of_noise_is_refused_or_decoded(tiny: Cubin) -> None:
    code = tiny.kernel().code
    noisy = Cubin.parse(tiny.data.replace(code, bytes(i * 37 & 0xFF for i in range(len(code)))))
    assert noisy.kernel().code != code
    with contextlib.suppress(UsageError):
        assert len(disassemble(noisy)["k"]) * 16 == len(code)
