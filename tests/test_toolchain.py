"""The compiler: every arch, headers, one-line errors, and a cache that can only ever help."""

from importlib import metadata
from pathlib import Path

import pytest

from oracle import diskcache, toolchain
from oracle.errors import OracleError, UsageError
from oracle.machine.cubin import Cubin
from oracle.toolchain import CompileError, ToolchainError, compile_cuda, kernel_source

SOURCE = 'extern "C" __global__ void k(int* a) { a[0] = VALUE; }'
ARCHS = ("sm_80", "sm_90", "sm_90a", "sm_100", "sm_100f", "sm_100a", "sm_103a", "sm_120a")

HEADERS = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" __global__ void k(float* a) {
  a[0] = __half2float(__float2half(a[1])) + __bfloat162float(__float2bfloat16(a[2]));
}
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty disk cache of the test's own."""
    directory = tmp_path / "cache"
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(directory))
    return directory


def no_compiler(*_: object) -> bytes:
    raise AssertionError("the compiler was started")


@pytest.mark.parametrize("arch", ARCHS)
def test_cuda_headers_compile_for(arch: str) -> None:
    cubin = Cubin.parse(compile_cuda(HEADERS, arch))
    assert cubin.arch == arch
    assert list(cubin.kernels) == ["k"]


def test_supported_archs_are_those_that_compile() -> None:
    archs = toolchain.supported_archs()
    assert set(ARCHS) <= set(archs)
    assert not {"sm_90f", "sm_80a", "sm_101"} & set(archs)


@pytest.mark.parametrize("arch", ["", "100a", "sm_", "sm_90f", "sm_80a", "sm_101", "compute_90"])
def test_unknown_arch_is_a_usage_error(arch: str) -> None:
    with pytest.raises(UsageError, match=r"unknown arch .*sm_"):
        compile_cuda(SOURCE, arch, {"VALUE": "1"})


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ('extern "C" __global__ void k() { int x = ; }', r"k\.cu\(1\): error: expected an expr"),
        ("#include <cstdint>\n", 'cannot open source file "cstdint"'),
        ('extern "C" __global__ void k() { asm("bogus.f32;"); }', "bogus"),
    ],
)
def test_compile_error_is_the_first_of_the_log(source: str, reason: str) -> None:
    with pytest.raises(CompileError, match=reason) as error:
        compile_cuda(source, "sm_80", name="k.cu")
    assert error.value.exit_code == 2
    assert str(error.value).startswith("k.cu does not compile for sm_80: ")
    assert "\n" not in str(error.value)


def test_native_conversion_needs_an_arch_specific_target() -> None:
    source = """
    extern "C" __global__ void k(float* a, unsigned short* b) {
      unsigned r;
      asm("{.reg .b8 c; cvt.rn.satfinite.e2m1x2.f32 c, %1, %1; cvt.u32.u8 %0, c;}"
          : "=r"(r) : "f"(a[0]));
      b[0] = r;
    }"""
    assert compile_cuda(source, "sm_100a")
    with pytest.raises(CompileError, match="sm_100: "):
        compile_cuda(source, "sm_100")


def test_defines_and_options_reach_the_compiler() -> None:
    one = compile_cuda(SOURCE, "sm_80", {"VALUE": "1"})
    assert one != compile_cuda(SOURCE, "sm_80", {"VALUE": "2"})
    assert one == compile_cuda(SOURCE, "sm_80", options=["-DVALUE=1"])
    two = compile_cuda(SOURCE, "sm_80", {"A": "1", "VALUE": "A"})
    assert two == compile_cuda(SOURCE, "sm_80", {"VALUE": "A", "A": "1"})
    with pytest.raises(UsageError, match="not a macro name"):
        compile_cuda(SOURCE, "sm_80", {"VALUE -G": "1"})
    with pytest.raises(CompileError, match="--nonsense"):
        compile_cuda(SOURCE, "sm_80", {"VALUE": "1"}, options=["--nonsense"])


def test_second_compilation_comes_from_the_cache(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compile_cuda(SOURCE, "sm_80", {"VALUE": "1"})
    monkeypatch.setattr(toolchain, "_compile", no_compiler)
    assert compile_cuda(SOURCE, "sm_80", {"VALUE": "1"}) == first
    assert [path.suffix for path in cache.iterdir()] == [".cubin"]
    for arch, defines in (("sm_90", {"VALUE": "1"}), ("sm_80", {"VALUE": "2"})):
        with pytest.raises(AssertionError, match="was started"):
            compile_cuda(SOURCE, arch, defines)


def test_another_compiler_version_does_not_use_the_entry(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_cuda(SOURCE, "sm_80", {"VALUE": "1"})
    versions = {**toolchain.tool_versions(), toolchain.NVRTC_PACKAGE: "13.99"}
    monkeypatch.setattr(toolchain, "tool_versions", lambda: versions)
    monkeypatch.setattr(toolchain, "_compile", no_compiler)
    with pytest.raises(AssertionError, match="was started"):
        compile_cuda(SOURCE, "sm_80", {"VALUE": "1"})


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "digest"])
def test_damaged_entry_is_rebuilt(cache: Path, damage: str) -> None:
    first = compile_cuda(SOURCE, "sm_80", {"VALUE": "1"})
    (entry,) = cache.iterdir()
    sound = entry.read_bytes()
    middle = len(sound) // 2
    entry.write_bytes(
        {
            "flip": sound[:middle] + bytes([sound[middle] ^ 1]) + sound[middle + 1 :],
            "truncate": sound[:middle],
            "empty": b"",
            "digest": bytes([sound[0] ^ 1]) + sound[1:],
        }[damage]
    )
    assert compile_cuda(SOURCE, "sm_80", {"VALUE": "1"}) == first
    assert entry.read_bytes() == sound


def test_unwritable_cache_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = compile_cuda(SOURCE, "sm_80", {"VALUE": "1"})
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    for place in (blocked, blocked / "below"):
        monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(place))
        assert compile_cuda(SOURCE, "sm_80", {"VALUE": "1"}) == expected
    assert blocked.read_text() == "not a directory"


def test_entry_is_whole_or_absent(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.replace", full_disk)
    diskcache.store("key", ".bin", b"payload")
    assert list(cache.iterdir()) == []
    assert diskcache.load("key", ".bin") is None


def test_cache_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", "/a/b")
    assert toolchain.cache_dir() == Path("/a/b")
    monkeypatch.delenv("LAYOUT_ORACLE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert toolchain.cache_dir() == Path("/c/layout-oracle")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/someone")
    assert toolchain.cache_dir() == Path("/home/someone/.cache/layout-oracle")


def test_key_separates_its_parts() -> None:
    assert diskcache.key_of([b"ab"]) != diskcache.key_of([b"a", b"b"])
    assert diskcache.key_of([b"a", b"b"]) != diskcache.key_of([b"b", b"a"])
    assert diskcache.key_of([b"", b"a"]) != diskcache.key_of([b"a"])


def test_missing_wheel_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> list[metadata.PackagePath]:
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "files", missing)
    for cached in (toolchain._nvrtc, toolchain.supported_archs, toolchain.include_dir):
        cached.cache_clear()
    with pytest.raises(ToolchainError, match=r"pip install .*nvidia-cuda-nvrtc") as error:
        compile_cuda(SOURCE, "sm_80", {"VALUE": "1"})
    assert isinstance(error.value, OracleError)
    assert error.value.exit_code == 5
    with pytest.raises(ToolchainError, match="nvidia-cuda-nvdisasm is not installed"):
        toolchain.nvdisasm_path()


def test_incomplete_wheel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "files", lambda package: [])
    with pytest.raises(ToolchainError, match="nvidia-cuda-nvdisasm has no nvdisasm"):
        toolchain.nvdisasm_path()


def test_kernel_source_is_found_by_name() -> None:
    assert "void nvfp4_kv_store(" in kernel_source("nvfp4_kv_store")
    for name in ("nvfp4", "../kernels/nvfp4_kv_store", ""):
        with pytest.raises(UsageError, match="no kernel source named"):
            kernel_source(name)


STORE_PARAMETERS = [8] * 11 + [4] * 3 + [8] * 6
"""Sizes: nine pointers, two strides; heads, head size, page size; six strides."""


@pytest.mark.parametrize("search", ["MAX_OVER_6", "FOUR_OVER_SIX"])
@pytest.mark.parametrize("dtype", ["BF16", "FP16"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100a", "sm_103a", "sm_120a"])
def test_store_kernel_compiles_without_spills(arch: str, dtype: str, search: str) -> None:
    defines = {"DTYPE": dtype, "SCALE_SEARCH": search, "K_LAYOUT": "INVERSE_4X4"}
    cubin = Cubin.parse(compile_cuda(kernel_source("nvfp4_kv_store"), arch, defines))
    kernel = cubin.kernel("nvfp4_kv_store")
    assert [param.size for param in kernel.params] == STORE_PARAMETERS
    assert kernel.stack_bytes == 0
    assert kernel.shared_bytes == 0
    assert kernel.register_count is not None
    assert kernel.register_count <= 64
    assert kernel.unsupported_relocations() == ()


@pytest.mark.parametrize(
    ("defines", "reason"),
    [
        ({"DTYPE": "2"}, "DTYPE is neither"),
        ({"SCALE_SEARCH": "2"}, "SCALE_SEARCH is neither"),
        ({"K_LAYOUT": "3"}, "K_LAYOUT and V_LAYOUT are"),
        ({"V_LAYOUT": "-1"}, "K_LAYOUT and V_LAYOUT are"),
    ],
)
def test_store_kernel_refuses_unknown_choices(defines: dict[str, str], reason: str) -> None:
    with pytest.raises(CompileError, match=reason):
        compile_cuda(kernel_source("nvfp4_kv_store"), "sm_80", defines)
