"""The verdict on attention kernels alone, with kernels that read by named layouts."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from attention import DECODE, PREFILL, name_of
from commandline import Call, cubin

from oracle.addressmap import Read
from oracle.codewords import ELEMENT_CODES, MAX_PASSES, digits
from oracle.errors import UsageError
from oracle.geometry import CacheGeometry
from oracle.machine.context import Unsupported
from oracle.readerprobe import MAX_ELEMENTS, check_size, map_reader
from oracle.readerverdict import kernel_verdict
from oracle.report import document
from oracle.report.kerneltable import sections
from oracle.report.markdown import as_markdown
from oracle.subjects import attention
from oracle.subjects.attention import KernelName
from oracle.subjects.attentionkernel import AttentionKernel
from oracle.subjects.base import SubjectInfo
from oracle.subjects.reference import ReferenceReader


class MadeUp(AttentionKernel):
    """Has the name of an attention kernel and reads by layouts, without any machine code."""

    def __init__(self, name: str, k: str = "linear", v: str = "swizzle_4x4") -> None:
        self.kernel = KernelName.parse(name)
        self.info = SubjectInfo(
            id=f"flashinfer-cubin==0.6.13:{name}",
            role="reader",
            name=self.kernel.group,
            executor="machine",
            arch=self.kernel.arch,
            kernel=name,
            declared={"K": "linear", "V": "swizzle_4x4"},
        )
        self._reader = ReferenceReader(self.info, k, v)

    def unsupported_reason(self, geometry: CacheGeometry, dtype: str = "") -> str | None:
        return attention.unsupported_reason(self.kernel, geometry)

    def map(self, geometry: CacheGeometry) -> Read:
        return map_reader(self._reader, geometry)


class Unexecutable(MadeUp):
    """Has opcodes without a meaning."""

    def map(self, geometry: CacheGeometry) -> Read:
        raise Unsupported("opcode HCF at 0x10; opcode JMPX at 0x20")


class Deadly(MadeUp):
    """Ends the process it is executed in."""

    def map(self, geometry: CacheGeometry) -> Read:
        os._exit(1)


WIDE = "DenseP32VarSeqQ8Kv128StaticSwapsAbForGen"
SOUND = (
    MadeUp(name_of(103, 256, WIDE)),
    MadeUp(name_of(100, 64, PREFILL)),
    MadeUp(name_of(100, 128, DECODE)),
)
ODD = MadeUp(name_of(100, 256, PREFILL), v="linear")


def test_the_table_is_shown_again(call: Call, tmp_path: Path) -> None:
    made = kernel_verdict(SOUND, {})
    known = tuple(replace(info, artifact_sha256="0" * 64) for info in made.subjects)
    document.write_files(replace(made, subjects=known), 0, tmp_path)
    done = call("report", str(tmp_path / document.JSON_NAME))
    assert done.code == 0
    assert done.out.startswith("3 attention kernels, 3 of them executed: 3 read as declared.")
    assert "\nKernels\n" in done.out


@pytest.mark.parametrize(
    "kernel", [None, "store", name_of(100, 64, PREFILL).replace("64", "6" * 5000)]
)
def test_what_is_no_attention_kernel_has_no_table(kernel: str | None) -> None:
    made = kernel_verdict(SOUND, {})
    first, *others = made.subjects
    assert sections(replace(made, subjects=(replace(first, kernel=kernel), *others))) == []


def table(*kernels: AttentionKernel) -> str:
    return as_markdown("t", sections(kernel_verdict(kernels, {})))


def test_every_kernel_is_run_where_it_fits() -> None:
    verdict = kernel_verdict(SOUND, {})
    assert verdict.exit_code == 0
    where = {(f.subject, f.configuration.head_size, f.configuration.block_size)
             for f in verdict.findings}  # fmt: skip
    assert where == {(k.info.id, k.kernel.head_size, k.kernel.page) for k in SOUND}
    assert {f.status for f in verdict.findings} == {"match"}
    assert verdict.domain["head_sizes"] == (64, 128, 256)
    assert verdict.domain["block_sizes"] == (16, 32)
    assert verdict.domain["geometries"] == 3
    assert [info.id for info in verdict.subjects] == [kernel.info.id for kernel in SOUND]
    assert kernel_verdict(SOUND, {}, jobs=2) == verdict


def test_a_process_that_is_killed_is_one_line() -> None:
    kernels = [Deadly(kernel.kernel.name) for kernel in SOUND]
    with pytest.raises(UsageError, match="ended from outside"):
        kernel_verdict(kernels, {}, jobs=2)


def test_geometries_that_are_asked_for_come_instead() -> None:
    verdict = kernel_verdict(SOUND, {"head_sizes": (64,), "num_heads": (1, 3)})
    ran = {f.subject for f in verdict.findings if f.status == "match"}
    assert ran == {SOUND[1].info.id}
    assert {f.configuration.num_heads for f in verdict.findings} == {1, 3}
    reasons = {f.reason for f in verdict.findings if f.status == "refused"}
    assert reasons == {"the kernel is for head size 256", "the kernel is for head size 128"}


def test_a_row_for_each_kernel_after_a_summary() -> None:
    text = table(*SOUND, ODD)
    assert text.index("4 attention kernels, 4 of them executed: 3 read as declared.") == 5
    assert "Declared: K scales linear and V scales swizzle_4x4." in text
    assert "Otherwise: sm_100a, prefill, static, head size 256." in text
    rows = [line for line in text.splitlines() if line.startswith("| sm_")]
    assert rows == [
        "| sm_100a | prefill, static | Dense | 128 | 64 | 16 | ✓ linear | ✓ swizzle_4x4 | ✓ yes |",
        "| sm_100a | prefill, static | Dense | 128 | 256 | 16 | ✓ linear | ✗ linear | ✗ no |",
        "| sm_100a | decode, static | Dense | 8 | 128 | 16 | ✓ linear | ✓ swizzle_4x4 | ✓ yes |",
        "| sm_103a | decode, static | Dense | 8 | 256 | 32 | ✓ linear | ✓ swizzle_4x4 | ✓ yes |",
    ]
    # Every name of a map that has several.
    assert "at head size 64 swizzle_4x4 = inverse_4x4" in text


def test_a_kernel_that_cannot_be_executed_says_why() -> None:
    broken = Unexecutable(name_of(100, 64, DECODE))
    verdict = kernel_verdict([broken], {})
    assert {(f.status, f.reason) for f in verdict.findings} == {
        ("unsupported", "opcode HCF at 0x10; opcode JMPX at 0x20")
    }
    assert verdict.exit_code == 5
    text = table(broken, *SOUND)
    assert "4 attention kernels, 3 of them executed: 3 read as declared." in text
    assert "| Dense | 8 | 64 | \\- | ✗ unsupported | ✗ unsupported | \\- |" in text


@pytest.fixture
def wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands for a wheel: two kernels."""
    monkeypatch.setattr("oracle.subjects.spec.readers_of", lambda *_: [SOUND[0], ODD])


def test_a_cubin_of_another_family_is_refused_by_name(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "store.cubin"
    path.write_bytes(cubin())
    done = call("verdict", "--reader", str(path))
    assert done.code == 2
    assert "nvfp4_kv_store is no attention kernel with an NVFP4 KV cache by its name" in (
        done.complaint
    )


READER = ("--reader", "flashinfer-cubin==0.6.13", "--jobs", "1")


def test_kernels_alone_need_no_geometry_and_no_writer(wheel: None, call: Call) -> None:
    done = call("verdict", *READER)
    assert done.code == 1
    assert done.out.startswith("2 attention kernels, 2 of them executed: 1 read as declared.")
    assert "refused" not in done.out
    found = json.loads(call("verdict", *READER, "--json").out)
    assert [subject["role"] for subject in found["subjects"]] == ["reader", "reader"]
    assert found["domain"]["head_sizes"] == [256]
    assert found["domain"]["block_sizes"] == [16, 32]


def test_a_writer_beside_them_is_held_against_them(wheel: None, call: Call) -> None:
    where = ("--head-size", "256", "--block-size", "16", "--cache-layout", "HND")
    done = call("verdict", "reference:k=linear,v=swizzle_4x4", *READER, *where, "--json")
    found = json.loads(done.out)
    assert {agreement["status"] for agreement in found["agreements"]} == {
        "agree", "disagree", "undecided"
    }  # fmt: skip


@pytest.mark.parametrize("tokens", [1, 4, 2048, 4712, 4713, 4714, 4715, 65536])
def test_a_reader_is_asked_as_much_as_a_writer_and_no_more(tokens: int) -> None:
    geometry = CacheGeometry(4, tokens, 1, 256)
    elements = 2 * 2 * tokens * 256
    too_many = digits(elements, ELEMENT_CODES.size) + 2 > MAX_PASSES
    assert too_many == (elements > MAX_ELEMENTS)
    if too_many:
        with pytest.raises(UsageError, match=f"{elements} elements are too many for one probe"):
            check_size(geometry)
    else:
        check_size(geometry)


def test_a_huge_cache_is_refused_before_it_is_made(call: Call) -> None:
    huge = ("--head-size", "16384", "--block-size", "65536", "--jobs", "1")
    done = call("verdict", "reference:k=linear,v=linear", "--reader", "trtllm-gen", *huge)
    assert done.code == 2
    assert "too many for one probe" in done.complaint
    name = name_of(100, 64, "DensePagedVarSeqQ128Kv128StaticContext")
    kernel = MadeUp(name)
    with pytest.raises(UsageError, match="too many for one probe"):
        AttentionKernel.map(kernel, CacheGeometry(4, 65536, 2, 64))
