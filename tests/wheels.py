"""Artefacts made for tests: this project's store kernel under the names that vLLM gives its own."""

from __future__ import annotations

import os
import struct
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest
from test_fatbin import CUBIN, FAMILY, ZSTD, container, entry

from oracle.machine.cubin import Cubin
from oracle.subjects.source import KERNEL
from oracle.toolchain import compile_cuda, kernel_source

if sys.version_info >= (3, 14):
    from compression.zstd import compress
else:
    from zstandard import compress

HOME = "vllm/_C_stable_libtorch.abi3.so"
SCALARS = {"bf16": "3c108BFloat16", "fp16": "3c104Half"}
SEARCHES = ("MAX_OVER_6", "FOUR_OVER_SIX")

_LAST_PARAMETER = "long long scale_block_offset_stride) {"
_V_OFFSET = "scale_offset<V_LAYOUT>(t, s, columns, scale_block_offset_stride)"
_V_CHOICE = (
    "(swizzle_v_sf ? scale_offset<SWIZZLE_4X4>(t, s, columns, scale_block_offset_stride)"
    " : scale_offset<LINEAR>(t, s, columns, scale_block_offset_stride))"
)


def kernel_name(dtype: str, search: int | None = None, switch: bool = False) -> str:
    """The mangled name of vLLM's kernel; the later releases have a scale search in it."""
    choice = "" if search is None else f"LNS_18NVFP4KVScaleSearchE{search}E"
    types = "EEvPKT_S5_PhS6_S6_S6_PKlPKfSA_" if search is None else "EEvPKT_S6_PhS7_S7_S7_PKlPKfSB_"
    return (
        f"_ZN4vllm30reshape_and_cache_nvfp4_kernelIN{SCALARS[dtype]}E{choice}{types}lliiillllll"
        + "b" * switch
    )


@cache
def store_cubin(arch: str, dtype: str, search: int | None = None, switch: bool = False) -> bytes:
    """The store kernel, K linear and V swizzled, compiled under one of vLLM's names.

    With `switch` it takes the trailing bool that some builds have.
    """
    source = kernel_source(KERNEL)
    if switch:
        for old, new in (
            (_LAST_PARAMETER, f"{_LAST_PARAMETER[:-3]}, bool swizzle_v_sf) {{"),
            (_V_OFFSET, _V_CHOICE),
        ):
            assert source.count(old) == 1
            source = source.replace(old, new)
    defines = {
        KERNEL: kernel_name(dtype, search, switch),
        "DTYPE": dtype.upper(),
        "SCALE_SEARCH": SEARCHES[search or 0],
    }
    return compile_cuda(source, arch, defines)


def renamed_cubin(arch: str, name: str) -> bytes:
    """The store kernel under any name."""
    return compile_cuda(kernel_source(KERNEL), arch, {KERNEL: name})


def code_entry(arch: str, cubin: bytes) -> bytes:
    """A compressed entry of a fat binary for a family target, as vLLM's are."""
    number = int(arch.removeprefix("sm_").rstrip("af"))
    return entry(CUBIN, number, cubin, flags=FAMILY | ZSTD, compressed=compress(cubin))


def shared_object(fatbin: bytes, names: bytes = b"") -> bytes:
    """A minimal host ELF file: `names` in its `.rodata`, `fatbin` as its `.nv_fatbin`."""
    strings = b"\0.rodata\0.nv_fatbin\0.shstrtab\0"
    names += bytes(-len(names) % 16)
    offsets = [64, 64 + len(names), 64 + len(names) + len(fatbin)]
    table = offsets[2] + len(strings)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 0, table, 0, 64, 56, 0, 64, 4, 3
    )
    sections = bytes(64)
    for name, kind, offset, size in (
        (1, 1, offsets[0], len(names)),
        (9, 1, offsets[1], len(fatbin)),
        (20, 3, offsets[2], len(strings)),
    ):
        sections += struct.pack("<IIQQQQIIQQ", name, kind, 2, 0, offset, size, 0, 0, 16, 0)
    return header + names + fatbin + strings + sections


@cache
def store_object(*cubins: tuple[str, bytes]) -> bytes:
    """A shared object with one container that holds (arch, cubin) pairs, names registered."""
    names = sorted({name for _, cubin in cubins for name in _kernel_names(cubin)})
    fatbin = container(*(code_entry(arch, cubin) for arch, cubin in cubins))
    return shared_object(fatbin, b"\0".join([b"", *names, b""]))


def _kernel_names(cubin: bytes) -> list[bytes]:
    return [name.encode() for name in Cubin.parse(cubin).kernels]


def release_object() -> bytes:
    """What a recent release holds: two archs, two dtypes, two scale searches."""
    return store_object(
        *(
            (arch, store_cubin(arch, dtype, search))
            for arch in ("sm_100f", "sm_120f")
            for dtype in ("bf16", "fp16")
            for search in (0, 1)
        )
    )


def write_wheel(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    """A wheel with these members and some that are none of the tool's business."""
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("vllm/__init__.py", "raise RuntimeError('imported')\n")
        for name, data in members.items():
            archive.writestr(name, data)
        archive.writestr("vllm-1.0.dist-info/METADATA", "Name: vllm\n")
    return path


def release_name(version: str) -> str:
    """The file name of a release's wheel."""
    return f"vllm-{version}-cp38-abi3-manylinux_2_28_x86_64.whl"


def real_wheel(version: str) -> Path:
    """The published wheel of a release; skips the test where it is not at hand."""
    directory = os.environ.get("LAYOUT_ORACLE_WHEELS", "")
    found = sorted(Path(directory).glob(f"vllm-{version}-*.whl")) if directory else []
    if not found:
        where = f"LAYOUT_ORACLE_WHEELS ({directory or 'not set'})"
        pytest.skip(f"no wheel of vLLM {version} in {where}")
    return found[-1]
