"""The host side of the attention kernels: names, parameters, tensor maps, and what it refuses."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from attention import DECODE, PREFILL, name_of

from oracle.contracts import contract, contracts
from oracle.errors import NothingRan, UsageError
from oracle.geometry import CacheGeometry
from oracle.machine.disassembly import Instruction
from oracle.machine.operands import parse_operand, split_operands
from oracle.subjects.attention import (
    ANY_PAGE,
    KernelName,
    Request,
    launch,
    tensor_maps,
    unsupported_reason,
)
from oracle.subjects.attentionkernel import probe_geometry, probe_request
from oracle.subjects.attentionnoops import NO_OPS, without_numbers
from oracle.subjects.attentionparams import BLOCKS, PARAM_BASE, ParameterBlock, parameter_block
from oracle.subjects.binary import artifact_digest
from oracle.subjects.flashinfer import cubins, kernel_names, parse_source, readers_of
from oracle.sweep import KeptRows, Row, rows_of, sweep


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        (PREFILL, ("Dense", 16, "", 128, "Static", "Context")),
        (DECODE, ("Dense", 16, "", 8, "Static", "SwapsAbForGen")),
        ("CausalPagedVarSeqQ128Kv128PersistentContext",
         ("Causal", ANY_PAGE, "", 128, "Persistent", "Context")),
        ("SlidingOrChunkedCausalP64MultiCtasKvCgaVarSeqQ16Kv128StaticSwapsAbForGen",
         ("SlidingOrChunkedCausal", 64, "MultiCtasKvCga", 16, "Static", "SwapsAbForGen")),
        ("CustomPagedMultiCtasKvVarSeqQ8Kv128StaticSwapsAbForGen",
         ("Custom", ANY_PAGE, "MultiCtasKv", 8, "Static", "SwapsAbForGen")),
        ("DenseP32VarSeqQ128Kv128PersistentKeepsAbForGen",
         ("Dense", 32, "", 128, "Persistent", "KeepsAbForGen")),
    ],
)  # fmt: skip
def test_a_name_has_its_fields(rest: str, expected: tuple[object, ...]) -> None:
    kernel = KernelName.parse(name_of(103, 256, rest))
    fields = (kernel.mask, kernel.page, kernel.split, kernel.rows, kernel.schedule, kernel.family)
    assert fields == expected
    assert (kernel.arch, kernel.head_size, kernel.query, kernel.output) == (
        "sm_103a",
        256,
        "E4m3",
        "E4m3",
    )


@pytest.mark.parametrize(
    "name", ["", "reshape_and_cache", name_of(100, 64, "DenseP16Q8Kv128Other")]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no attention kernel with an NVFP4 KV cache"):
        KernelName.parse(name)


@pytest.mark.parametrize(
    ("rest", "geometry", "reason"),
    [
        (PREFILL, CacheGeometry(4, 16, 2, 128), "head size 64"),
        (PREFILL, CacheGeometry(4, 32, 2, 64), "pages of 16 tokens"),
        (PREFILL, CacheGeometry(4, 16, 2, 64, "NHD"), "HND only"),
        ("DensePagedVarSeqQ128Kv128StaticContext", CacheGeometry(4, 64, 2, 64), "power of two"),
        ("DensePagedVarSeqQ128Kv128StaticContext", CacheGeometry(4, 384, 2, 64), "power of two"),
    ],
)
def test_geometries_no_host_would_launch_are_refused(
    rest: str, geometry: CacheGeometry, reason: str
) -> None:
    kernel = KernelName.parse(name_of(100, 64, rest))
    assert reason in (unsupported_reason(kernel, geometry) or "")
    with pytest.raises(UsageError, match=reason):
        launch(kernel, BLOCKS[-1], Request(geometry, (0, 1)), (0, 0, 0), 1024)


def test_scale_maps_cover_each_page_once() -> None:
    for head in (64, 128, 256):
        for page in (16, 32, 64, 128):
            kernel = KernelName.parse(name_of(100, head, "DensePagedVarSeqQ128Kv128StaticContext"))
            geometry = CacheGeometry(3, page, 2, head)
            maps = tensor_maps(kernel, Request(geometry, (1,)), 0, 0)
            for side in ("K", "V"):
                source, _ = maps[f"{side} scale"].tile((0, 0, 1, 2), 0)
                base = int(geometry.scale_offset(side, 2, 1, 0, 0))
                plane = page * geometry.scale_columns
                assert sorted(source.tolist()) == list(range(base, base + plane))
                data, _ = maps[side].tile((0, 0, 1, 2), 0)
                rows = {int(geometry.data_offset(side, 2, 1, t, 0)) for t in range(page)}
                assert rows <= set(data.tolist())


def test_a_probe_has_the_probed_pages_and_spare_ones() -> None:
    kernel = KernelName.parse(name_of(100, 128, PREFILL))
    geometry = probe_geometry(kernel)
    request = probe_request(kernel, geometry)
    assert len(set(request.pages)) == len(request.pages) == geometry.num_blocks - 3
    assert {1, 2} <= set(request.pages)
    assert list(request.pages) != sorted(request.pages)


def test_every_instruction_left_out_has_its_reason() -> None:
    assert all(len(reason) > 10 for reason in NO_OPS.values())


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("flashinfer-cubin==0.6.13", ("0.6.13", None, "*")),
        ("flashinfer-cubin==0.6.13:*H64*", ("0.6.13", None, "*H64*")),
        ("some/where.whl", (None, "some/where.whl", "*")),
        ("some/where.whl:*Context", (None, "some/where.whl", "*Context")),
        ("kernel.cubin", (None, "kernel.cubin", "*")),
    ],
)
def test_what_a_spec_names(spec: str, expected: tuple[str | None, str | None, str]) -> None:
    source = parse_source(spec)
    assert source is not None
    path = None if source.path is None else str(source.path)
    version = source.release.version if source.release is not None else None
    assert (version, path, source.pattern) == expected


@pytest.mark.parametrize(
    "spec", ["store", "trtllm-gen", "vllm==0.33.0", "reference:k=linear,v=linear"]
)
def test_other_specs_are_left_to_others(spec: str) -> None:
    assert parse_source(spec) is None


@pytest.mark.parametrize("spec", ["flashinfer-cubin", "flashinfer-cubin==latest!"])
def test_a_release_without_a_version_is_refused(spec: str) -> None:
    with pytest.raises(
        UsageError, match=r"give (a release, such as|one such as) flashinfer-cubin=="
    ):
        parse_source(spec)


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def test_a_wheel_without_such_kernels_has_nothing_to_run(tmp_path: Path) -> None:
    path = zipped(
        tmp_path / "empty.whl", {"a/fmhaSm100aKernel_QE4m3KvE4m3.cubin": b"x", "b.txt": b""}
    )
    source = parse_source(str(path))
    assert source is not None
    with pytest.raises(NothingRan, match="holds no attention kernel") as error:
        readers_of(source)
    assert error.value.exit_code == 5
    with pytest.raises(NothingRan):
        sweep(path, KeptRows(tmp_path / "rows.jsonl"))


def test_members_are_chosen_by_name(tmp_path: Path) -> None:
    names = [name_of(100, head, rest) for head in (64, 128) for rest in (PREFILL, DECODE)]
    path = zipped(tmp_path / "some.whl", {f"x/{name}.cubin": b"" for name in names})
    assert kernel_names(path) == tuple(sorted(names))
    assert kernel_names(path, "*H64*Context") == (name_of(100, 64, PREFILL),)


def test_a_damaged_member_is_refused_by_name(tmp_path: Path) -> None:
    path = zipped(tmp_path / "bad.whl", {f"x/{name_of(100, 64, PREFILL)}.cubin": b"no ELF"})
    with pytest.raises(UsageError):
        list(cubins(path))


def test_a_member_that_inflates_as_no_cubin_does_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"x/{name_of(100, 64, PREFILL)}.cubin", bytes(4 << 20))
    with pytest.raises(UsageError, match="claims to inflate as no cubin does"):
        list(cubins(path))


@pytest.mark.parametrize("size", ["0", "9" * 5000, "٦٤"])
def test_a_name_with_a_size_that_is_none_is_refused(size: str) -> None:
    with pytest.raises(UsageError, match="by its name"):
        KernelName.parse(name_of(100, 64, PREFILL).replace("H64", f"H{size}"))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip"])
def test_what_is_no_wheel_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.whl"
    path.write_bytes(content)
    with pytest.raises(UsageError):
        kernel_names(path)


def made_up(name: str, data: bytes) -> list[Row]:
    """A row without anything being executed."""
    head = KernelName.parse(name).head_size
    return [Row(name, artifact_digest(data), "sm_100a", "", "", "", head, 16, "", 8, 16)]


def test_an_interrupted_sweep_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name_of(100, head, DECODE) for head in (64, 128, 256)]
    path = zipped(tmp_path / "some.whl", {f"x/{name}.cubin": name.encode() for name in names})
    ran: list[str] = []

    def rows_of(name: str, data: bytes) -> list[Row]:
        ran.append(name)
        return made_up(name, data)

    monkeypatch.setattr("oracle.sweep.rows_of", rows_of)
    kept = tmp_path / "out" / "rows.jsonl"
    first = sweep(path, KeptRows(kept), pattern="*H64*")
    kept.write_text(kept.read_text() + '["cut off')
    ran.clear()
    seen: list[tuple[int, int]] = []
    rows = sweep(
        path, KeptRows(kept), progress=lambda done, total, name: seen.append((done, total))
    )
    assert sorted(ran) == sorted(names[1:])
    assert [row.kernel for row in rows] == sorted(names)
    assert first[0] in rows
    assert seen == [(1, 3), (2, 3), (3, 3)]
    ran.clear()
    assert sweep(path, KeptRows(kept)) == rows
    assert ran == []
    # Other bytes under a name that is known are another kernel.
    other = zipped(tmp_path / "other.whl", {f"x/{names[0]}.cubin": b"other"})
    assert sweep(other, KeptRows(kept))[0].sha256 != first[0].sha256
    assert ran == names[:1]
    # So are bytes that are known under a name they did not have.
    renamed = zipped(tmp_path / "renamed.whl", {f"x/{names[0]}.cubin": names[1].encode()})
    assert [row.kernel for row in sweep(renamed, KeptRows(kept))] == names[:1]


def ending(*subject: object) -> NoReturn:
    """Ends the process it is called in."""
    os._exit(1)


def test_a_process_of_a_sweep_that_is_killed_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oracle.sweep.rows_of", ending)
    path = zipped(tmp_path / "some.whl", {f"x/{name_of(100, 64, DECODE)}.cubin": b""})
    with pytest.raises(UsageError, match="ended from outside"):
        sweep(path, KeptRows(tmp_path / "rows.jsonl"), jobs=2)


def test_rows_of_another_version_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "rows.jsonl"
    (row,) = made_up(name_of(100, 64, DECODE), b"x")
    KeptRows(kept).add([row])
    assert KeptRows(kept).get(row.kernel, row.sha256) == [row]
    monkeypatch.setattr("oracle.sweep.__version__", "0")
    assert KeptRows(kept).get(row.kernel, row.sha256) is None


def test_rows_that_cannot_be_kept_are_made_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    kept = KeptRows(tmp_path / "file" / "rows.jsonl")
    (row,) = made_up(name_of(100, 64, DECODE), b"x")
    kept.add([row])
    assert kept.get(row.kernel, row.sha256) == [row]


def test_a_damaged_cubin_is_a_row_that_says_so() -> None:
    name = name_of(100, 64, PREFILL)
    (row,) = rows_of(name, b"no ELF")
    assert (row.kernel, row.head_size, row.as_declared) == (name, 64, False)
    assert row.problem


# -- parameters ---------------------------------------------------------------------------------


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: str(block.size))
def test_fields_of_a_block_lie_in_it_and_apart(block: ParameterBlock) -> None:
    spans = [(offset, 128) for offset in block.tensor_maps.values()]
    for fields, size in ((block.pointers, 8), (block.integers, 4), (block.floats, 4)):
        spans += [(offset - PARAM_BASE, size) for offset in fields.values()]
    spans += [(block.shared_table - PARAM_BASE, 1)] if block.shared_table is not None else []
    used = [byte for offset, size in spans for byte in range(offset, offset + size)]
    assert len(used) == len(set(used))
    assert min(used) >= 0
    assert max(used) < block.size
    assert all(offset % size == 0 for offset, size in spans)


def test_a_struct_is_known_by_its_size_or_refused_with_what_is_known() -> None:
    assert [parameter_block(block.size) for block in BLOCKS] == list(BLOCKS)
    with pytest.raises(UsageError, match=r"1281 bytes.*not known; of 1088 \(flashinfer-cubin 0\.4"):
        parameter_block(1281)


def test_kernels_are_declared_what_held_for_their_parameters() -> None:
    declared = [contract(block.contract, "reader") for block in BLOCKS]
    assert [row.v for row in declared] == ["linear", "swizzle_4x4", "swizzle_4x4"]
    old, new, _ = declared
    # What was superseded is held against nothing but machine code of its own.
    assert old.superseded_by == new.name
    assert new.name in contracts()
    assert old.name not in contracts()


def test_a_block_without_a_flag_has_the_table_of_v_behind_that_of_k() -> None:
    kernel = KernelName.parse(name_of(100, 64, DECODE))
    geometry = probe_geometry(kernel)
    request = probe_request(kernel, geometry)
    started, _ = launch(kernel, BLOCKS[0], request, (0, 0, 0), 1024)
    assert len(started.params) == 1088
    where = BLOCKS[0].pointers["page_table"] - PARAM_BASE
    table = int.from_bytes(started.params[where : where + 8], "little")
    pages = np.uint64(table) + 4 * np.arange(2 * len(request.pages), dtype=np.uint64)
    (words,) = started.memory.load(pages, 4, 0)
    assert words.tolist() == [*request.pages, *request.pages]


# -- instructions that are left out -------------------------------------------------------------


@pytest.mark.parametrize(
    ("opcode", "operands", "becomes"),
    [
        ("DMUL", "R2, R4, R6", "UNMODELLED.2"),
        ("DFMA", "R2, R4, R6, R8", "UNMODELLED.2"),
        ("F2F.F64.F32", "R2, R4", "UNMODELLED.2"),
        ("F2F.F32.F64", "R2, R4", "UNMODELLED.1"),
        ("DSETP.GEU.AND", "P1, PT, |R2|, R4, PT", "ISETP.NE.AND"),
        ("F2F.F16.F32", "R2, R4", "F2F.F16.F32"),
        ("DEPBAR.LE", "SB0, 0x0", "DEPBAR.LE"),
    ],
)
def test_double_precision_of_the_softmax_is_left_out(
    opcode: str, operands: str, becomes: str
) -> None:
    parsed = tuple(parse_operand(text) for text in split_operands(operands))
    plain = Instruction(0, opcode, None, parsed, False, operands, 0)
    left = without_numbers(plain)
    assert left.opcode == becomes
    if opcode.startswith("DSETP"):
        assert left.operands[:2] == parsed[:2]
        assert left.operands[2] == left.operands[3]
        assert left.operands[4] == parsed[4]
    else:
        assert left.operands == parsed
