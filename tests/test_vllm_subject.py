"""vLLM's store kernel as a subject, out of artefacts that are made up here."""

from __future__ import annotations

import hashlib
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from test_fatbin import CUBIN, LZ4, PTX, container, entry
from wheels import (
    code_entry,
    kernel_name,
    release_name,
    release_object,
    renamed_cubin,
    shared_object,
    store_cubin,
    store_object,
    write_wheel,
)

from oracle.errors import NothingRan, UsageError
from oracle.geometry import CacheGeometry
from oracle.machine.cubin import Cubin
from oracle.machine.disassembly import disassemble
from oracle.run import Domain, run_verdict
from oracle.subjects import archive
from oracle.subjects.base import Writer
from oracle.subjects.release import ArtifactOptions
from oracle.subjects.store_abi import StoreAbi, StoreLaunch, threads_per_group
from oracle.subjects.vllm import (
    STORE_KERNEL,
    UnlaunchableWriter,
    VllmWriter,
    kernels_of,
    title,
    writers_from_artifact,
)
from oracle.subjects.vllm_host import host_check
from oracle.toolchain import compile_cuda

BOTH = ("bf16", "fp16")
ONE = Domain((128,), (2,), (16,), ("HND",), BOTH)
BF16 = store_cubin("sm_100f", "bf16")
REGISTERED = b"\0" + kernel_name("bf16").encode() + b"\0"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty disk cache."""
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def inflated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of members of wheels as they are unpacked."""
    names: list[str] = []
    contents = archive._Wheel.contents

    def noted(self: Any, member: Any, watch: Any) -> memoryview:
        names.append(member.name)
        return contents(self, member, watch)

    monkeypatch.setattr(archive._Wheel, "contents", noted)
    return names


def wheel_of(tmp_path: Path, **members: bytes) -> Path:
    """A wheel with shared objects under `vllm/`, by their names without the suffix."""
    named = {f"vllm/{name}.abi3.so": data for name, data in members.items()}
    return write_wheel(tmp_path / release_name("9.9.9"), named)


def writers(path: Path, *archs: str, dtypes: tuple[str, ...] = BOTH) -> list[Writer]:
    return writers_from_artifact(str(path), archs, dtypes)


def labels(found: list[Writer]) -> list[str]:
    return [writer.info.id.rpartition(":")[2] for writer in found]


def test_a_release_gives_a_writer_an_arch_dtype_and_search(tmp_path: Path) -> None:
    wheel_of(tmp_path, _C_stable_libtorch=release_object())
    found = writers_from_artifact("vllm==9.9.9", (), BOTH, ArtifactOptions(tmp_path, offline=True))
    assert [writer.info.id for writer in found] == [
        f"vllm==9.9.9:{arch}/{dtype}/{search}"
        for arch in ("sm_100f", "sm_120f")
        for dtype in BOTH
        for search in ("max6", "4over6")
    ]
    for writer, label in zip(found, labels(found), strict=True):
        arch, dtype, search = label.split("/")
        number = int(search == "4over6")
        info = writer.info
        assert (info.arch, info.dtypes, info.scale_search.value) == (arch, (dtype,), search)
        assert (info.role, info.executor) == ("writer", "machine")
        assert info.declared == {"K": "linear", "V": "swizzle_4x4"}
        code = store_cubin(arch, dtype, number)
        assert info.artifact_sha256 == hashlib.sha256(code).hexdigest()
        scalar = {"bf16": "BFloat16", "fp16": "Half"}[dtype]
        assert info.kernel == f"vllm::{STORE_KERNEL}<c10::{scalar}, search {number}>"
        assert info.name == f"vLLM 9.9.9 store kernel, {arch}"
    verdict = run_verdict(found, [], ONE)
    assert len(verdict.findings) == 8 * 4
    assert {finding.status for finding in verdict.findings} == {"match"}
    assert run_verdict(found, [], ONE, jobs=2) == verdict


def test_archs_and_dtypes_pick(tmp_path: Path) -> None:
    path = wheel_of(tmp_path, _C_stable_libtorch=release_object())
    assert labels(writers(path, "sm_120", dtypes=("fp16",))) == [
        "sm_120f/fp16/max6",
        "sm_120f/fp16/4over6",
    ]
    # The arch of a device has other suffixes than that of the code it runs.
    assert labels(writers(path, "sm_100a", dtypes=("bf16",)))[0] == "sm_100f/bf16/max6"
    for archs in (("sm_90",), ("sm_100", "sm_90")):
        with pytest.raises(NothingRan) as error:
            writers(path, *archs)
        assert str(error.value).endswith(
            "for sm_90: it has cubin for sm_100f (compute capability 10.0 or a later 10.x), "
            "cubin for sm_120f (compute capability 12.0 or a later 12.x)"
        )


@pytest.mark.parametrize(
    ("arch", "code"), [("sm_103", "sm_100f"), ("sm_121a", "sm_120f"), ("sm_100", None)]
)
def test_a_gpu_gets_the_code_of_its_family(tmp_path: Path, arch: str, code: str | None) -> None:
    path = wheel_of(tmp_path, _C=release_object())
    told: list[str] = []
    options = ArtifactOptions(notify=told.append)
    found = writers_from_artifact(str(path), (arch,), ("bf16",), options)
    assert {writer.info.arch for writer in found} == {code or "sm_100f"}
    assert told == ([f"{path}: {arch} loads the code for {code}"] if code else [])
    end = f"store kernel, {code}, as {arch} loads it" if code else "store kernel, sm_100f"
    assert all(writer.info.name.endswith(end) for writer in found)


def test_a_gpu_gets_the_code_that_fits_it_best(tmp_path: Path) -> None:
    own = store_cubin("sm_103a", "bf16")
    code = store_object(
        ("sm_100f", BF16), ("sm_103a", own), ("sm_80", store_cubin("sm_80", "bf16"))
    )
    path = wheel_of(tmp_path, _C=code)
    assert labels(writers(path, "sm_103")) == ["sm_103a/bf16/max6"]
    assert labels(writers(path, "sm_100")) == ["sm_100f/bf16/max6"]
    assert labels(writers(path, "sm_86")) == ["sm_80/bf16/max6"]
    assert labels(writers(path, "sm_103", "sm_100")) == ["sm_100f/bf16/max6", "sm_103a/bf16/max6"]
    # Each kernel is looked for by itself: fp16 is there for the family alone.
    half = store_object(("sm_100f", store_cubin("sm_100f", "fp16")), ("sm_103a", own))
    path = wheel_of(tmp_path, _C=half)
    assert labels(writers(path, "sm_103")) == ["sm_100f/fp16/max6", "sm_103a/bf16/max6"]


def test_a_dtype_that_is_not_there(tmp_path: Path) -> None:
    path = wheel_of(tmp_path, _C_stable_libtorch=store_object(("sm_100f", BF16)))
    with pytest.raises(NothingRan, match=f"has no {STORE_KERNEL} for fp16"):
        writers(path, dtypes=("fp16",))


@pytest.mark.parametrize("form", ["wheel", "object", "package", "site-packages", "cubin", "fatbin"])
def test_every_form_of_artefact(tmp_path: Path, form: str) -> None:
    code = store_object(("sm_100f", BF16))
    package = tmp_path / "vllm"
    package.mkdir()
    if form in ("package", "site-packages"):
        (package / "_C.abi3.so").write_bytes(code)
        path = package if form == "package" else tmp_path
    elif form == "wheel":
        path = wheel_of(tmp_path, _C=code)
    else:
        path = package / f"x.{form}"
        kinds = {"object": code, "cubin": BF16, "fatbin": container(code_entry("sm_100f", BF16))}
        path.write_bytes(kinds[form])
    (found,) = writers(path)
    assert found.info.id == f"{path}:sm_100f/bf16/max6"
    assert found.info.name == f"{path.name} store kernel, sm_100f"
    assert found.info.kernel == f"vllm::{STORE_KERNEL}<c10::BFloat16>"


def test_the_home_of_the_kernel_is_searched_first_and_alone(
    tmp_path: Path, cache: Path, inflated: list[str]
) -> None:
    nothing = shared_object(b"")
    path = wheel_of(
        tmp_path, a=nothing, _C=store_object(("sm_100f", BF16)), _C_stable_libtorch=nothing
    )
    assert writers(path)
    assert inflated == ["vllm/_C_stable_libtorch.abi3.so", "vllm/_C.abi3.so"]


def test_a_new_home_is_found_after_the_known_ones(tmp_path: Path) -> None:
    code = store_object(("sm_100f", BF16))
    assert writers(wheel_of(tmp_path, _cache_C=code, _C_stable_libtorch=shared_object(b"")))


def test_what_is_vendored_further_down_is_somebody_else_s(tmp_path: Path) -> None:
    code = store_object(("sm_100f", BF16))
    path = write_wheel(tmp_path / "a.whl", {"vllm/third_party/x.so": code})
    with pytest.raises(NothingRan, match="it holds no shared object"):
        writers(path)


def test_older_archs_are_searched_where_no_newer_one_has_it(tmp_path: Path) -> None:
    both = store_object(("sm_90a", store_cubin("sm_90a", "bf16")), ("sm_100f", BF16))
    assert labels(writers(wheel_of(tmp_path, _C=both))) == ["sm_100f/bf16/max6"]
    assert labels(writers(wheel_of(tmp_path, _C=both), "sm_90")) == ["sm_90a/bf16/max6"]
    old = store_object(("sm_90a", store_cubin("sm_90a", "bf16")))
    assert labels(writers(wheel_of(tmp_path, _C=old))) == ["sm_90a/bf16/max6"]


def test_a_wheel_without_the_kernel_says_what_it_holds(tmp_path: Path) -> None:
    named = (
        b"\0_ZN4vllm24reshape_and_cache_kernelIfEEvv\0_ZN4vllm30reshape_and_cache_flash_kernelIE\0"
    )
    path = wheel_of(tmp_path, _C=shared_object(b"", named), other=shared_object(b""))
    with pytest.raises(NothingRan) as error:
        writers(path)
    assert error.value.exit_code == 5
    assert str(error.value) == (
        f"{path}: there is no {STORE_KERNEL} in it; it holds reshape_and_cache_flash_kernel, "
        "reshape_and_cache_kernel"
    )
    path = wheel_of(tmp_path, _C=shared_object(b""), other=shared_object(b""))
    with pytest.raises(NothingRan, match=r"stands in vllm/_C\.abi3\.so, vllm/other\.abi3\.so$"):
        writers(path)


def test_a_name_across_two_pieces_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.cubin"
    path.write_bytes(BF16)
    monkeypatch.setattr(archive, "CHUNK_BYTES", 7)
    assert writers(path)


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        (entry(PTX, 100, REGISTERED), "as machine code: it has ptx for sm_100$"),
        (entry(CUBIN, 100, renamed_cubin("sm_100f", "other")), "holds no code of it$"),
    ],
)
def test_a_name_without_code(tmp_path: Path, piece: bytes, message: str) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(shared_object(container(piece), REGISTERED))
    with pytest.raises(NothingRan, match=message):
        writers(path)


@pytest.mark.parametrize(
    ("fatbin", "message"),
    [
        (container(entry(CUBIN, 100, BF16, flags=LZ4, compressed=b"x" * 80)), "LZ4"),
        (container(entry(CUBIN, 100, BF16, size=1 << 40, flags=0x8000, compressed=b"x" * 80)),
         "has an entry of 1099511627776 bytes"),
        (container(code_entry("sm_100f", BF16))[:-100], "a container is cut off"),
        (container(code_entry("sm_100f", BF16[:-8])), "damaged"),
        (b"stray bytes that are no container", "no container starts"),
    ],
)  # fmt: skip
def test_damaged_code(tmp_path: Path, fatbin: bytes, message: str) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(shared_object(fatbin, REGISTERED))
    with pytest.raises(UsageError, match=message) as error:
        writers(path)
    assert error.value.exit_code == 2


def test_code_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oracle.subjects.gpucode.MAX_UNPACKED_BYTES", len(BF16))
    path = tmp_path / "x.so"
    path.write_bytes(store_object(("sm_100f", BF16), ("sm_120f", store_cubin("sm_120f", "bf16"))))
    with pytest.raises(UsageError, match="unpacks to more than"):
        writers(path)


def test_a_truncated_object(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    code = store_object(("sm_100f", BF16))
    for keep in (len(code) - 1, len(code) // 2, len(REGISTERED) + 70):
        path.write_bytes(code[:keep])
        with pytest.raises(UsageError, match="does not fit the file"):
            writers(path)


def test_the_second_run_unpacks_nothing(tmp_path: Path, cache: Path, inflated: list[str]) -> None:
    path = wheel_of(tmp_path, _C=release_object())
    first = [writer.info for writer in writers(path)]
    assert inflated == ["vllm/_C.abi3.so"]
    assert [writer.info for writer in writers(path)] == first
    assert inflated == ["vllm/_C.abi3.so"]
    # A wheel that changed is read again, and so is one whose cubins went away.
    os.utime(path, ns=(1, 1))
    assert [writer.info for writer in writers(path)] == first
    assert inflated == ["vllm/_C.abi3.so"] * 2
    (cache / f"{first[0].artifact_sha256}.cubin").unlink()
    assert [writer.info for writer in writers(path)] == first
    assert inflated == ["vllm/_C.abi3.so"] * 3


def test_that_nothing_is_there_is_remembered(
    tmp_path: Path, cache: Path, inflated: list[str]
) -> None:
    path = wheel_of(tmp_path, _C=shared_object(b""))
    for _ in range(2):
        with pytest.raises(NothingRan, match="there is no"):
            writers(path)
    assert inflated == ["vllm/_C.abi3.so"]


def test_without_a_cache_it_works_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(tmp_path / "file" / "cache"))
    path = wheel_of(tmp_path, _C=store_object(("sm_100f", BF16)))
    assert labels(writers(path)) == labels(writers(path)) == ["sm_100f/bf16/max6"]


def test_builds_with_a_switch_are_two_subjects(tmp_path: Path) -> None:
    path = tmp_path / "x.cubin"
    path.write_bytes(store_cubin("sm_100f", "bf16", 0, switch=True))
    found = writers(path)
    assert labels(found) == [f"sm_100f/bf16/max6/swizzle_v_sf={value}" for value in (1, 0)]
    assert [writer.info.declared["V"] for writer in found] == ["swizzle_4x4", "linear"]
    verdict = run_verdict(found, [], ONE)
    assert {finding.status for finding in verdict.findings} == {"match"}
    layouts = [f.layouts for f in verdict.findings if (f.side, f.plane) == ("V", "scale")]
    assert layouts == [("swizzle_4x4",), ("linear",)]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (kernel_name("bf16", 2), "search 2> has template arguments that are not understood"),
        (f"_ZN4vllm{len(STORE_KERNEL)}{STORE_KERNEL}IfEEvPKT_", "template arguments"),
    ],
)
def test_unknown_variants_are_refused_by_name(tmp_path: Path, name: str, reason: str) -> None:
    path = tmp_path / "x.cubin"
    path.write_bytes(renamed_cubin("sm_100f", name))
    found = writers(path)
    assert [type(writer) for writer in found] == [UnlaunchableWriter]
    verdict = run_verdict(found, [], ONE)
    assert {finding.status for finding in verdict.findings} == {"unsupported"}
    assert all(reason in str(finding.reason) for finding in verdict.findings)
    assert verdict.exit_code == 5


def test_unknown_parameters_are_refused(tmp_path: Path) -> None:
    source = f'extern "C" __global__ void {kernel_name("fp16")}(int* a, int b) {{ *a = b; }}'
    path = tmp_path / "x.cubin"
    path.write_bytes(compile_cuda(source, "sm_100f"))
    (found,) = writers(path)
    assert found.info.dtypes == ("fp16",)
    reasons = {f.reason for f in run_verdict([found], [], ONE).findings}
    assert reasons == {
        f"vllm::{STORE_KERNEL}<c10::Half> cannot be launched: its 2 parameters of [8, 4] bytes are "
        "not those of a store kernel, which has 20 of "
        "[8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 8, 8, 8, 8, 8, 8]"
    }
    (row,) = kernels_of(str(path))
    assert row.refusal is not None
    assert "2 parameters" in row.refusal


def test_two_codes_for_one_arch_keep_different_ids(tmp_path: Path) -> None:
    other = compile_cuda(
        f'extern "C" __global__ void {kernel_name("bf16")}(int* a) {{ *a = 0; }}', "sm_100f"
    )
    found = writers(wheel_of(tmp_path, _C=store_object(("sm_100f", BF16), ("sm_100f", other))))
    digests = [hashlib.sha256(code).hexdigest()[:8] for code in (BF16, other)]
    assert sorted(labels(found)) == sorted(f"sm_100f/bf16/max6@{digest}" for digest in digests)
    same = store_object(("sm_100f", BF16), ("sm_100f", BF16))
    assert labels(writers(wheel_of(tmp_path, _C=same))) == ["sm_100f/bf16/max6"]


def test_the_host_side_takes_whole_bands_of_four_tokens() -> None:
    for block_size in range(1, 70):
        reason = host_check(CacheGeometry(1, block_size, 2, 80), "bf16")
        assert (reason is None) == (block_size % 4 == 0)
    assert "multiple of 4 tokens" in str(host_check(CacheGeometry(1, 6, 2, 80), "bf16"))


def test_a_refused_page_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "x.cubin"
    path.write_bytes(BF16)
    verdict = run_verdict(writers(path), [], Domain((64,), (1,), (6,), ("HND",), ("bf16",)))
    assert {finding.status for finding in verdict.findings} == {"refused"}


EXCHANGE = """
extern "C" __global__ void k(float* x) {
  float y = x[threadIdx.x];
  for (int m = 1; m < THREADS; m *= 2) y = fmaxf(y, __shfl_xor_sync(0xffffffff, y, m));
  x[threadIdx.x] = y;
}
"""


@pytest.mark.parametrize("threads", [1, 2, 4, 8])
@pytest.mark.parametrize("arch", ["sm_90", "sm_100f", "sm_120f"])
def test_shuffles_tell_how_many_threads_share_a_group(arch: str, threads: int) -> None:
    cubin = Cubin.parse(compile_cuda(EXCHANGE, arch, {"THREADS": str(threads)}))
    assert threads_per_group(disassemble(cubin)["k"]) == threads


def test_the_store_kernel_of_this_project_does_a_group_in_a_thread() -> None:
    (code,) = disassemble(Cubin.parse(BF16)).values()
    assert threads_per_group(code) == 1


@pytest.mark.parametrize(
    ("heads", "head_size", "threads", "block"),
    [
        (1, 16, 1, 32),
        (1, 64, 2, 32),
        (8, 128, 1, 64),
        (8, 128, 2, 128),
        (2, 80, 1, 32),
        (2, 144, 2, 64),
        (16, 576, 1, 512),
        (9, 512, 1, 288),
        (9, 512, 2, 512),
    ],
)
def test_the_block_of_a_launch(heads: int, head_size: int, threads: int, block: int) -> None:
    geometry = CacheGeometry(4, 16, heads, head_size)
    launch = StoreLaunch.of(geometry, 7, StoreAbi(threads))
    assert (launch.grid, launch.block) == ((7, 1, 1), (block, 1, 1))


def test_a_writer_can_be_sent_to_another_process(tmp_path: Path) -> None:
    path = tmp_path / "x.cubin"
    path.write_bytes(BF16)
    (found,) = writers(path)
    again = pickle.loads(pickle.dumps(found))
    assert again.info == found.info
    assert run_verdict([again], [], ONE) == run_verdict([found], [], ONE)


def test_models_of_the_reciprocal_are_writers_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "x.cubin"
    path.write_bytes(BF16)
    (found,) = writers(path)
    assert isinstance(found, VllmWriter)
    other = found.under("-1ulp")
    assert (other._rcp, found._rcp) == ("-1ulp", "exact")


def test_kernels_are_listed(tmp_path: Path) -> None:
    path = wheel_of(tmp_path, _C=release_object())
    rows = kernels_of(str(path))
    assert len(rows) == 8
    for row in rows:
        assert (row.member, row.refusal) == ("vllm/_C.abi3.so", None)
        assert row.arch in ("sm_100f", "sm_120f")
        assert row.title.startswith(f"vllm::{STORE_KERNEL}<c10::")
        assert len(row.kernel.params) == 20
        assert row.sha256 == hashlib.sha256(row.cubin.data).hexdigest()
    half = kernels_of(str(path), matching="4Half")
    assert {row.sha256 for row in half} == {row.sha256 for row in rows if "Half" in row.title}
    assert len(half) == 4
    assert kernels_of(str(path), matching="nothing") == []


def test_all_kernels_of_a_cubin_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "x.cubin"
    path.write_bytes(renamed_cubin("sm_90", "_Z5otherIfEvv"))
    (row,) = kernels_of(str(path))
    assert (row.title, row.refusal) == ("other<float>", None)


def test_titles_are_short() -> None:
    assert title(kernel_name("fp16", 1)) == f"vllm::{STORE_KERNEL}<c10::Half, search 1>"
    assert title("plain_name") == "plain_name"
    assert title("bad\nname") == r"'bad\nname'"
