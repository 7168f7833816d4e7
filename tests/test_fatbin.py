"""The fat binary walker: containers made here, cuobjdump's view of them, and hostile bytes."""

import contextlib
import struct
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.errors import UsageError
from oracle.machine.cubin import Cubin
from oracle.machine.fatbin import FatbinEntry, Limits, entries_of, walk
from oracle.toolchain import compile_cuda

if sys.version_info >= (3, 14):
    from compression.zstd import compress
else:
    from zstandard import compress

LINUX_64 = 0x11
LZ4, ZSTD = 0x2000, 0x8000
ARCH_SPECIFIC, FAMILY = 0x100000, 0x200000
PTX, CUBIN = 1, 2


def entry(
    kind: int,
    arch: int,
    payload: bytes,
    *,
    flags: int = 0,
    compressed: bytes = b"",
    size: int | None = None,
    header: int = 64,
) -> bytes:
    """An entry as the toolkit writes it; `compressed` stands for `payload` where it is given."""
    stored = compressed or payload
    stored_padded = stored + bytes(-len(stored) % 8)
    fields = struct.pack(
        "<HHIQIIHHIIIQQQ",
        kind,
        0x101,
        header,
        len(stored_padded),
        len(compressed),
        0,
        0,
        1 if kind == CUBIN else 6,
        arch,
        0,
        0,
        LINUX_64 | flags,
        0,
        (len(payload) if compressed else 0) if size is None else size,
    )
    return fields + bytes(header - 64) + stored_padded


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def code(arch: str) -> bytes:
    return compile_cuda('extern "C" __global__ void k(int* a) { a[0] = 1; }', arch)


PTX_TEXT = b".version 9.0\n.target sm_80\n.address_size 64\n\0"


def everything() -> bytes:
    """Two containers with padding between: plain, compressed and wide-headed entries."""
    plain, family, specific = code("sm_80"), code("sm_100f"), code("sm_90a")
    first = container(
        entry(PTX, 80, PTX_TEXT, flags=ZSTD, compressed=compress(PTX_TEXT)),
        entry(CUBIN, 80, plain),
        entry(CUBIN, 100, family, flags=FAMILY | ZSTD, compressed=compress(family)),
    )
    second = container(entry(CUBIN, 90, specific, flags=ARCH_SPECIFIC, header=80))
    return first + bytes(40) + second + bytes(8)


def shared_object(section: bytes) -> bytes:
    """A minimal ELF file of the host with `section` as its `.nv_fatbin`."""
    names = b"\0.nv_fatbin\0.shstrtab\0"
    content = 64
    table = content + len(section) + len(names)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 0, table, 0, 64, 56, 0, 64, 3, 2
    )
    fatbin = struct.pack("<IIQQQQIIQQ", 1, 1, 2, 0, content, len(section), 0, 0, 16, 0)
    strings = struct.pack(
        "<IIQQQQIIQQ", 12, 3, 0, 0, content + len(section), len(names), 0, 0, 1, 0
    )
    return header + section + names + bytes(64) + fatbin + strings


def summary(entries: list[FatbinEntry]) -> list[tuple[str, str, bytes]]:
    return [(e.kind, e.arch, e.payload()) for e in entries]


def expected_entries() -> list[tuple[str, str, bytes]]:
    archs = ("sm_80", "sm_100f", "sm_90a")
    return [("ptx", "sm_80", PTX_TEXT), *(("cubin", arch, code(arch)) for arch in archs)]


def padded(payload: bytes) -> bytes:
    return payload + bytes(-len(payload) % 8)


def test_walk_yields_every_entry() -> None:
    found = summary(list(walk(everything())))
    wanted = expected_entries()
    assert [(kind, arch) for kind, arch, _ in found] == [(kind, arch) for kind, arch, _ in wanted]
    # An uncompressed payload keeps the padding to 8 bytes that its header counts.
    for (_, _, payload), (_, _, expected) in zip(found, wanted, strict=True):
        assert payload in (expected, padded(expected))


def test_arch_agrees_with_the_cubin_inside() -> None:
    for found in walk(everything()):
        if found.kind == "cubin":
            assert Cubin.parse(found.payload()).arch == found.arch


def test_shared_object_and_bare_fatbin_give_the_same() -> None:
    bare = summary(list(entries_of(everything())))
    assert summary(list(entries_of(shared_object(everything())))) == bare
    assert len(bare) == len(expected_entries())


def test_host_file_without_gpu_code_has_no_entries() -> None:
    renamed = shared_object(everything()).replace(b".nv_fatbin", b".nv_nothin")
    assert list(entries_of(renamed)) == []
    assert list(walk(b"")) == []
    assert list(walk(bytes(64))) == []


def test_file_of_another_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="not an ELF file"):
        list(entries_of(b"PK\3\4" * 100))


def test_unknown_kinds_are_named_not_dropped() -> None:
    (found,) = walk(container(entry(8, 90, b"BC\xc0\xde....")))
    assert found.kind == "kind 8"
    assert found.payload() == b"BC\xc0\xde...."


def test_lz4_is_refused_by_name_but_its_neighbours_are_not() -> None:
    cubin = code("sm_80")
    data = container(
        entry(CUBIN, 75, cubin, flags=LZ4, compressed=b"whatever"), entry(CUBIN, 80, cubin)
    )
    squeezed, plain = walk(data)
    with pytest.raises(UsageError, match="sm_75 cubin is compressed with LZ4"):
        squeezed.payload()
    assert plain.payload().startswith(cubin)


def test_unknown_encoding_is_refused() -> None:
    (found,) = walk(container(entry(CUBIN, 80, b"not an ELF file.", flags=0x4000)))
    with pytest.raises(UsageError, match="sm_80 cubin is damaged or encoded"):
        found.payload()


@pytest.mark.parametrize("announced", [0, 100, 999, 1001, 1 << 20])
def test_announced_size_must_be_the_real_one(announced: int) -> None:
    text = b"x" * 1000
    data = container(entry(PTX, 80, text, flags=ZSTD, compressed=compress(text), size=announced))
    (found,) = walk(data)
    with pytest.raises(UsageError, match="size its header announces"):
        found.payload()


def test_bomb_is_not_inflated() -> None:
    bomb = compress(bytes(64 << 20))
    assert len(bomb) < 1 << 16
    small = container(entry(PTX, 80, b"", flags=ZSTD, compressed=bomb, size=4096))
    (found,) = walk(small)
    with pytest.raises(UsageError, match="size its header announces"):
        found.payload()
    large = container(entry(PTX, 80, b"", flags=ZSTD, compressed=bomb, size=64 << 20))
    with pytest.raises(UsageError, match="more than is allowed"):
        list(walk(large, Limits(payload_bytes=1 << 20)))


def test_damaged_compression_is_one_line() -> None:
    text = bytes(range(256)) * 8
    squeezed = bytearray(compress(text))
    squeezed[4:12] = b"\xff" * 8
    (found,) = walk(container(entry(PTX, 80, text, flags=ZSTD, compressed=bytes(squeezed))))
    with pytest.raises(UsageError) as error:
        found.payload()
    assert "\n" not in str(error.value)


def test_limits_on_headers_and_padding() -> None:
    many = container(*[entry(PTX, 80, PTX_TEXT)] * 10)
    assert len(list(walk(many, Limits(headers=11)))) == 10
    with pytest.raises(UsageError, match="more than 10 headers"):
        list(walk(many, Limits(headers=10)))
    with pytest.raises(UsageError, match="more than 5 headers"):
        list(walk(container() * 10, Limits(headers=5)))
    apart = many + bytes(4096) + many
    assert len(list(walk(apart))) == 20
    with pytest.raises(UsageError, match="padding in a row"):
        list(walk(apart, Limits(padding_bytes=1024)))


def test_every_truncation_is_noticed() -> None:
    data = container(entry(CUBIN, 80, b"\x7fELF" + bytes(60)), entry(PTX, 80, PTX_TEXT))
    for length in range(1, len(data)):
        with pytest.raises(UsageError):
            list(walk(data[:length]))


def test_stray_bytes_between_containers_are_refused() -> None:
    one = container(entry(PTX, 80, PTX_TEXT))
    with pytest.raises(UsageError, match="no container starts where one should"):
        list(walk(one + b"stray".ljust(8, b"!") + one))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_hostile_bytes_raise_usage_errors_only(draw: st.DataObject) -> None:
    data = bytearray(shared_object(everything()) if draw.draw(st.booleans()) else everything())
    for _ in range(draw.draw(st.integers(1, 4))):
        start = draw.draw(st.integers(0, len(data) - 1) | st.integers(0, 240))
        content = draw.draw(st.binary(min_size=1, max_size=8) | st.just(b"\xff" * 8))
        data[start : start + len(content)] = content
    with contextlib.suppress(UsageError):
        for found in entries_of(bytes(data), Limits(payload_bytes=1 << 20)):
            assert len(found.payload()) <= 1 << 20


def cuobjdump() -> Path | None:
    try:
        files = metadata.files("nvidia-cuda-cuobjdump") or []
    except metadata.PackageNotFoundError:
        return None
    tools = [Path(str(f.locate())) for f in files if f.name == "cuobjdump"]
    return tools[0] if tools else None


@pytest.mark.skipif(cuobjdump() is None, reason="nvidia-cuda-cuobjdump is not installed")
def test_cuobjdump_extracts_the_same_cubins(tmp_path: Path) -> None:
    path = tmp_path / "all.fatbin"
    path.write_bytes(everything())
    subprocess.run(
        [str(cuobjdump()), "-xelf", "all", str(path)], cwd=tmp_path, check=True, capture_output=True
    )
    # Named <file>.<position>.<arch>.cubin; the arch there lacks the suffix of family targets.
    extracted = {int(p.name.split(".")[1]): p for p in tmp_path.glob("*.cubin")}
    ours = [e for e in walk(everything()) if e.kind == "cubin"]
    assert len(extracted) == len(ours) == 3
    for (_, path), found in zip(sorted(extracted.items()), ours, strict=True):
        assert found.arch.startswith(path.suffixes[-2].removeprefix(".").rstrip("af"))
        assert found.payload() in (path.read_bytes(), padded(path.read_bytes()))
