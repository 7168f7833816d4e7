"""The host side of the attention kernels: names, parameters, tensor maps, and what it refuses."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from attention import DECODE, PREFILL, name_of

from oracle.errors import NothingRan, UsageError
from oracle.geometry import CacheGeometry
from oracle.subjects.attention import (
    ANY_PAGE,
    NO_OPS,
    KernelName,
    Request,
    launch,
    tensor_maps,
    unsupported_reason,
)
from oracle.subjects.attentionkernel import probe_geometry, probe_request
from oracle.subjects.flashinfer import cubins, kernel_names, parse_source, readers_of
from oracle.sweep import sweep


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
        launch(kernel, Request(geometry, (0, 1)), (0, 0, 0), 1024)


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
    assert (source.version, path, source.pattern) == expected


@pytest.mark.parametrize(
    "spec", ["store", "trtllm-gen", "vllm==0.33.0", "reference:k=linear,v=linear"]
)
def test_other_specs_are_left_to_others(spec: str) -> None:
    assert parse_source(spec) is None


@pytest.mark.parametrize("spec", ["flashinfer-cubin", "flashinfer-cubin==latest!"])
def test_a_release_without_a_version_is_refused(spec: str) -> None:
    with pytest.raises(UsageError, match="give a release"):
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
        sweep(path, tmp_path / "rows.jsonl")


def test_members_are_chosen_by_name(tmp_path: Path) -> None:
    names = [name_of(100, head, rest) for head in (64, 128) for rest in (PREFILL, DECODE)]
    path = zipped(tmp_path / "some.whl", {f"x/{name}.cubin": b"" for name in names})
    assert kernel_names(path) == tuple(sorted(names))
    assert kernel_names(path, "*H64*Context") == (name_of(100, 64, PREFILL),)


def test_a_damaged_member_is_refused_by_name(tmp_path: Path) -> None:
    path = zipped(tmp_path / "bad.whl", {f"x/{name_of(100, 64, PREFILL)}.cubin": b"no ELF"})
    with pytest.raises(UsageError):
        list(cubins(path))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip"])
def test_what_is_no_wheel_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.whl"
    path.write_bytes(content)
    with pytest.raises(UsageError):
        kernel_names(path)


def test_an_interrupted_sweep_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name_of(100, head, DECODE) for head in (64, 128, 256)]
    path = zipped(tmp_path / "some.whl", {f"x/{name}.cubin": name.encode() for name in names})
    ran: list[str] = []

    class FakeCubin:
        def __init__(self, data: bytes) -> None:
            self.data = data

    def rows_of(name: str, cubin: object) -> list[object]:
        from oracle.sweep import Row

        ran.append(name)
        kernel = KernelName.parse(name)
        return [Row(name, "0", "sm_100a", "", "", "", kernel.head_size, 16, "", 8, 16)]

    monkeypatch.setattr("oracle.subjects.flashinfer.Cubin.parse", FakeCubin)
    monkeypatch.setattr("oracle.sweep.rows_of", rows_of)
    kept = tmp_path / "out" / "rows.jsonl"
    first = sweep(path, kept, pattern="*H64*")
    kept.write_text(kept.read_text() + '["cut off')
    assert json.loads(kept.read_text().splitlines()[0])[1] == names[0]
    ran.clear()
    seen: list[tuple[int, int]] = []
    rows = sweep(path, kept, progress=lambda done, total, name: seen.append((done, total)))
    assert sorted(ran) == sorted(names[1:])
    assert [row.kernel for row in rows] == sorted(names)
    assert first[0] in rows
    assert seen == [(2, 3), (3, 3)]
    ran.clear()
    assert sweep(path, kept) == rows
    assert ran == []
