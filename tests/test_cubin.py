"""The cubin reader, against pyelftools, ctypes' struct layout, the source, and hostile bytes."""

import contextlib
import ctypes
import io
import struct
from collections.abc import Callable

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.errors import UsageError
from oracle.machine.cubin import Cubin
from oracle.machine.elf import Elf
from oracle.toolchain import compile_cuda, supported_archs

SOURCE = """
__constant__ float table[4] = {1.0f, -2.0f, 0.5f, 3.0f};
__device__ int counter = 5;
struct Big { int x[1500]; };

__device__ __noinline__ float routine(float x) { return x * x + sinf(x); }

extern "C" __global__ void __launch_bounds__(128) shared(float* a, int n) {
  __shared__ float s[32];
  s[threadIdx.x & 31] = a[n];
  __syncthreads();
  a[threadIdx.x] = routine(s[31 - (threadIdx.x & 31)]) + table[n & 3];
}
extern "C" __global__ void mixed(char a, double b, short c, const int* d, char e, long long* f) {
  f[0] = a + static_cast<long long>(b) + c + d[0] + e;
}
extern "C" __global__ void large(Big b, int n, int* out) { out[0] = b.x[n]; }
extern "C" __global__ void none() { counter = 7; }
"""


class Mixed(ctypes.Structure):
    """The parameters of `mixed` as C lays them out in a struct."""

    _fields_ = (
        ("a", ctypes.c_char),
        ("b", ctypes.c_double),
        ("c", ctypes.c_short),
        ("d", ctypes.c_void_p),
        ("e", ctypes.c_char),
        ("f", ctypes.c_void_p),
    )


OFFSET_OF_D = 24

PARAM_BASE = {"sm_80": 0x160, "sm_90a": 0x210, "sm_100a": 0x380, "sm_120a": 0x380}


def cubin_of(arch: str) -> bytes:
    return compile_cuda(SOURCE, arch)


@pytest.mark.parametrize("arch", supported_archs())
def test_arch_is_read_for(arch: str) -> None:
    source = 'extern "C" __global__ void k(int* a) { a[0] = 1; }'
    assert Cubin.parse(compile_cuda(source, arch)).arch == arch


def edited(data: bytes, offset: int, content: bytes) -> bytes:
    return data[:offset] + content + data[offset + len(content) :]


def without_note(data: bytes) -> bytes:
    assert b"-arch " in data
    return data.replace(b"-arch ", b"-xxxx ")


def test_arch_without_the_assemblers_note_comes_from_the_flags() -> None:
    data = without_note(cubin_of("sm_100a"))
    assert Cubin.parse(data).arch == "sm_100"
    (flags,) = struct.unpack_from("<I", data, 48)
    assert Cubin.parse(edited(data, 48, struct.pack("<I", flags | 8))).arch == "sm_100a"


def test_arch_of_the_older_abi() -> None:
    data = edited(without_note(cubin_of("sm_90a")), 8, b"\x07")
    assert Cubin.parse(edited(data, 48, struct.pack("<I", 0x5A055A))).arch == "sm_90"
    assert Cubin.parse(edited(data, 48, struct.pack("<I", 0x5A0D5A))).arch == "sm_90a"


def test_a_note_of_another_arch_does_not_count() -> None:
    data = cubin_of("sm_100a")
    assert Cubin.parse(data.replace(b"-arch sm_100a", b"-arch sm_120a")).arch == "sm_100"


@pytest.mark.parametrize("arch", PARAM_BASE)
def test_parameters_are_laid_out_as_c_does(arch: str) -> None:
    kernel = Cubin.parse(cubin_of(arch)).kernel("mixed")
    fields = [getattr(Mixed, name) for name in "abcdef"]
    assert [(p.offset, p.size) for p in kernel.params] == [(f.offset, f.size) for f in fields]
    assert [p.ordinal for p in kernel.params] == list(range(6))
    assert kernel.param_base == PARAM_BASE[arch]
    assert kernel.param_size == ctypes.sizeof(Mixed)


@pytest.mark.parametrize("arch", PARAM_BASE)
def test_what_the_source_declares_is_found(arch: str) -> None:
    cubin = Cubin.parse(cubin_of(arch))
    assert set(cubin.kernels) == {"shared", "mixed", "large", "none"}
    shared, large, none = (cubin.kernels[name] for name in ("shared", "large", "none"))
    assert [(p.offset, p.size) for p in large.params] == [(0, 6000), (6000, 4), (6008, 8)]
    assert none.params == ()
    assert shared.max_threads == (128, 1, 1)
    assert none.max_threads is None
    # From sm_90 on, the first 1024 bytes of shared memory belong to the system.
    assert shared.shared_bytes == 32 * 4 + (1024 if arch != "sm_80" else 0)
    assert none.shared_bytes == 0
    assert shared.stack_bytes > none.stack_bytes == 0
    assert shared.constants[3] == struct.pack("<4f", 1.0, -2.0, 0.5, 3.0)
    assert 0 not in shared.constants
    assert 4 in none.relocated_banks  # holds the address of `counter`
    assert 3 not in none.relocated_banks
    (routine,) = (offset for name, offset in shared.symbols.items() if "routine" in name)
    assert 0 < routine < len(shared.code)
    assert routine % 16 == 0
    assert shared.entry == shared.symbols["shared"] == 0


def test_unresolved_call_is_named() -> None:
    source = """
    extern __device__ int elsewhere(int);
    extern "C" __global__ void k(int* a) { a[0] = elsewhere(a[1]); }"""
    kernel = Cubin.parse(compile_cuda(source, "sm_90", options=["-rdc=true"])).kernel()
    assert any("elsewhere" in text for text in kernel.unsupported_relocations())
    assert Cubin.parse(cubin_of("sm_90a")).kernel("mixed").unsupported_relocations() == ()


@pytest.mark.parametrize("arch", PARAM_BASE)
def test_elf_reader_agrees_with_pyelftools(arch: str) -> None:
    data = cubin_of(arch)
    ours, theirs = Elf(data, "the cubin"), ELFFile(io.BytesIO(data))
    expected = list(theirs.iter_sections())
    assert [s.name for s in ours.sections] == [s.name for s in expected]
    for mine, other in zip(ours.sections, expected, strict=True):
        assert mine.size == other["sh_size"]
        if other["sh_type"] not in ("SHT_NOBITS", "SHT_NULL"):
            assert bytes(mine.data) == other.data()
    (table,) = (s for s in expected if isinstance(s, SymbolTableSection))
    assert [(s.name, s.value, s.size) for s in ours.symbols] == [
        (s.name, s["st_value"], s["st_size"]) for s in table.iter_symbols()
    ]
    relocations = [
        (section["sh_info"], r["r_offset"], r["r_info_type"], r["r_info_sym"])
        for section in expected
        if isinstance(section, RelocationSection)
        for r in section.iter_relocations()
    ]
    assert relocations
    assert [(r.target, r.offset, r.type, r.symbol) for r in ours.relocations()] == [
        (target, offset, kind, table.get_symbol(symbol).name)
        for target, offset, kind, symbol in relocations
    ]


def test_kernel_is_chosen_by_name() -> None:
    cubin = Cubin.parse(cubin_of("sm_80"))
    assert cubin.kernel("none").name == "none"
    with pytest.raises(UsageError, match=r"there is no kernel nine: the cubin holds .*shared"):
        cubin.kernel("nine")
    with pytest.raises(UsageError, match="name one kernel"):
        cubin.kernel()


def header(data: bytes, offset: int, layout: str, value: int) -> bytes:
    return edited(data, offset, struct.pack(layout, value))


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda d: b"", "not an ELF file"),
    "text": (lambda d: b"hello" * 100, "not an ELF file"),
    "32 bits": (lambda d: edited(d, 4, b"\x01"), "64-bit"),
    "another machine": (lambda d: header(d, 18, "<H", 62), "another machine"),
    "section table past the end": (lambda d: header(d, 40, "<Q", len(d)), "section table"),
    "section table far away": (lambda d: header(d, 40, "<Q", 2**63), "section table"),
    "many sections": (lambda d: header(d, 60, "<H", 0xFFFF), "section table"),
    "entry size": (lambda d: header(d, 58, "<H", 0), "section table"),
    "no names": (lambda d: header(d, 62, "<H", 0xFFFF), "no section names"),
    "no arch": (lambda d: header(d, 48, "<I", 0), "name no arch"),
    "cut in half": (lambda d: d[: len(d) // 2], "damaged"),
    "last byte missing": (lambda d: d[:-1], "damaged"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_cubin_gets_one_line(damage: str) -> None:
    damaged, reason = DAMAGES[damage]
    with pytest.raises(UsageError, match=reason) as error:
        Cubin.parse(damaged(cubin_of("sm_80")))
    assert "\n" not in str(error.value)


def test_lost_parameter_is_noticed() -> None:
    data = cubin_of("sm_80")
    record = struct.pack("<BBHIHH", 4, 0x17, 12, 0, 3, OFFSET_OF_D)
    assert data.count(record) == 1
    renumbered = data.replace(record, struct.pack("<BBHIHH", 4, 0x17, 12, 0, 9, OFFSET_OF_D))
    with pytest.raises(UsageError, match="mixed lacks some of its parameters"):
        Cubin.parse(renumbered)
    moved = data.replace(record, struct.pack("<BBHIHH", 4, 0x17, 12, 0, 3, 0xFFF0))
    with pytest.raises(UsageError, match="mixed has parameters out of bounds"):
        Cubin.parse(moved)


@given(st.data())
@settings(max_examples=400, deadline=1000)
def test_hostile_bytes_raise_usage_errors_only(draw: st.DataObject) -> None:
    data = bytearray(cubin_of("sm_80"))
    if draw.draw(st.booleans()):
        del data[draw.draw(st.integers(0, len(data))) :]
    # The headers, attribute records and tables are where a reader can be led astray.
    for _ in range(draw.draw(st.integers(1, 4))):
        start = draw.draw(st.integers(0, max(len(data) - 1, 0)) | st.integers(0, 63))
        content = draw.draw(
            st.binary(min_size=1, max_size=8) | st.sampled_from([b"\xff" * 8, b"\0" * 8])
        )
        data[start : start + len(content)] = content
    with contextlib.suppress(UsageError):
        assert Cubin.parse(bytes(data)).arch.startswith("sm_")
