"""Store kernels as ordinary users write them, from NVRTC and nvcc at -O1 to -O3.

Each file of `user_kernels` says in its header which dtype it takes, which arithmetic it follows
and where its scales go. `specified` is what `oracle.quantize` implements; `divided` has IEEE
divisions instead of reciprocals, and is spelled out here. Every byte must be the expected one,
stored once.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from oracle.candidates import candidate
from oracle.formats import DTYPES, e2m1_encode, e4m3_decode, e4m3_encode, pack_codes
from oracle.geometry import CacheGeometry
from oracle.machine.cubin import Cubin
from oracle.machine.disassembly import Instruction, disassemble
from oracle.machine.ir import Function
from oracle.machine.launch import Program
from oracle.machine.lower import lower
from oracle.quantize import quantize
from oracle.requests import StoreRequest
from oracle.subjects.base import SubjectInfo
from oracle.subjects.binary import MachineWriter
from oracle.toolchain import compile_cuda

FOLDER = Path(__file__).parent / "user_kernels"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.cu")))
ARCHS = ("sm_90", "sm_100a", "sm_120a")
POISON = 0xEE
GEOMETRIES = (
    CacheGeometry(num_blocks=3, block_size=4, num_heads=3, head_size=64, cache_layout="NHD"),
    CacheGeometry(num_blocks=2, block_size=16, num_heads=5, head_size=128, cache_layout="HND"),
)


Compiled = tuple[Cubin, dict[str, tuple[Instruction, ...]]]


@dataclass(frozen=True)
class Source:
    """A kernel's text and what its header declares."""

    text: str
    dtype: str
    arithmetic: str
    layouts: tuple[str, str]

    @classmethod
    def read(cls, name: str) -> "Source":
        text = (FOLDER / f"{name}.cu").read_text()
        header = re.search(r"// dtype: (\w+) +arithmetic: (\w+) +layouts: (\w+), (\w+)\n", text)
        assert header, f"{name}.cu does not say what it does"
        return cls(text, header[1], header[2], (header[3], header[4]))


def unit(names: tuple[str, ...]) -> str:
    """Some kernels as one translation unit: includes first, each kernel in its own namespace."""
    includes, bodies = [], []
    for name in names:
        text = Source.read(name).text
        includes += re.findall(r"^#include .*$", text, re.M)
        body = re.sub(r"^#include .*$", "", text, flags=re.M)
        bodies.append(f"namespace user_{name} {{\n{body}\n}}")
    return "\n".join([*dict.fromkeys(includes), *bodies])


def shared_out(arch: str, level: int) -> tuple[str, ...]:
    """The kernels compiled for an arch at a level: all at -O3, at -O1 and -O2 a third on each."""
    if level == 3:
        return NAMES
    return NAMES[(ARCHS.index(arch) + level) % 3 :: 3]


@cache
def from_nvrtc(arch: str, level: int) -> Compiled:
    source = unit(shared_out(arch, level))
    return decoded(compile_cuda(source, arch, options=[f"--ptxas-options=-O{level}"]))


def decoded(cubin: bytes) -> Compiled:
    parsed = Cubin.parse(cubin)
    return parsed, disassemble(parsed)


def inputs(geometry: CacheGeometry, dtype: str, seed: int) -> np.ndarray:
    """Groups of many magnitudes: ties, zeros of both signs, subnormals, the largest values."""
    rng = np.random.default_rng(seed)
    shape = (6, geometry.num_heads, geometry.head_size)
    x = rng.standard_normal(shape).astype(np.float32)
    groups = x.reshape(-1, 16)
    groups *= np.exp2(rng.integers(-12, 9, (len(groups), 1))).astype(np.float32)
    groups[::5] = rng.integers(-24, 25, groups[::5].shape) / np.float32(4)
    groups[3::7] = np.where(groups[3::7] < 0, np.float32(-0.0), np.float32(0))
    groups[4::7, ::2] = 0
    groups[6::11] *= np.float32(1e-7)
    groups[7::11, 5] = np.float32(6.5e4)
    return DTYPES[dtype].encode(x)


def request(geometry: CacheGeometry, dtype: str) -> StoreRequest:
    """Six tokens, one of them to be skipped, in scattered slots."""
    slots = np.random.default_rng(1).permutation(geometry.num_slots)[:6].astype(np.int64)
    slots[2] = -1
    cache_before = np.full(geometry.cache_bytes, POISON, np.uint8)
    key, value = inputs(geometry, dtype, 2), inputs(geometry, dtype, 3)
    return StoreRequest(geometry, dtype, key, value, slots, 0.0137, 0.5, cache_before)


def divided(groups: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Codes and scale bytes by two IEEE divisions a scale and one an element."""
    s = np.float32(scale)
    with np.errstate(all="ignore"):
        scales = e4m3_encode(np.abs(groups).max(axis=-1) / np.float32(6) / s)
        step = (e4m3_decode(scales) * s)[..., None]
        codes = np.where(step == 0, np.uint8(0), e2m1_encode(groups / step))
    return codes, scales


def expected(request: StoreRequest, source: Source) -> np.ndarray:
    """The cache after a store, from the formats' definitions and the geometry."""
    geometry = request.geometry
    image = request.cache.copy()
    tokens, heads = len(request.slot_mapping), geometry.num_heads
    for side, bits, scale, layout in (
        ("K", request.key, request.k_scale, source.layouts[0]),
        ("V", request.value, request.v_scale, source.layouts[1]),
    ):
        groups = DTYPES[request.dtype].decode(bits).reshape(tokens, heads, -1, 16)
        rule = {"specified": quantize, "divided": divided}[source.arithmetic]
        codes, scales = rule(groups, scale)
        data = pack_codes(codes).reshape(tokens, heads, -1)
        rows, columns = geometry.block_size, geometry.scale_columns
        table = candidate(layout).table(rows, columns)
        for token, slot in enumerate(request.slot_mapping.tolist()):
            if slot < 0:
                continue
            page, row = divmod(slot, rows)
            head = np.arange(heads)[:, None]
            at = geometry.data_offset(side, page, head, row, np.arange(data.shape[-1]))
            image[at] = data[token]
            place = table[row]
            at = geometry.scale_offset(side, page, head, place // columns, place % columns)
            image[at] = scales[token]
    return image


def check(
    cubin: Cubin, program: Program, name: str, geometries: tuple[CacheGeometry, ...] = GEOMETRIES
) -> None:
    """Run a kernel over some geometries and compare every byte and every store."""
    source = Source.read(name)
    writer = MachineWriter(SubjectInfo(name, "writer", name, "machine"), cubin, name)
    writer.program = program  # its unit is decoded once for all of its kernels
    for geometry in geometries:
        asked = request(geometry, source.dtype)
        stored = writer.write(asked)
        assert not stored.faults
        wrong = np.flatnonzero(stored.cache != expected(asked, source))
        assert not wrong.size, f"{name}: {wrong.size} bytes differ, first at {wrong[0]}"
        offsets = stored.stores.offset
        assert len(np.unique(offsets)) == len(offsets), f"{name} stores a byte twice"
        stored_bytes = 5 * 2 * geometry.num_heads * geometry.scale_columns * 9
        assert len(offsets) == stored_bytes


LEVELS = [
    (arch, level, name) for arch in ARCHS for level in (3, 1, 2) for name in shared_out(arch, level)
]


@cache
def lowered(arch: str, level: int, name: str) -> Function:
    cubin, code = from_nvrtc(arch, level)
    return lower(cubin, name, code[name])


@pytest.mark.parametrize(("arch", "level", "name"), LEVELS)
def test_nvrtc(arch: str, level: int, name: str) -> None:
    cubin = from_nvrtc(arch, level)[0]
    best = from_nvrtc(arch, 3)[0]
    if level == 3:
        check(cubin, Program(lowered(arch, 3, name)), name)
    elif cubin.kernel(name).code != best.kernel(name).code:
        # Where the code is that of -O3 it has run already.
        check(cubin, Program(lowered(arch, level, name)), name, GEOMETRIES[:1])


def test_every_kernel_at_every_level() -> None:
    assert len(NAMES) >= 12
    seen = {(level, name) for _, level, name in LEVELS}
    assert seen == {(level, name) for level in (1, 2, 3) for name in NAMES}


@pytest.fixture(scope="module")
def from_nvcc(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """All kernels from nvcc at -O1."""
    folder = tmp_path_factory.mktemp("nvcc")
    source, cubin = folder / "unit.cu", folder / "unit.cubin"
    source.write_text(unit(NAMES))
    options = ["-cubin", "-arch=sm_90", "-Xptxas", "-O1", "-std=c++17"]
    done = subprocess.run(
        ["nvcc", *options, "-o", str(cubin), str(source)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"nvcc cannot compile here: {done.stderr.decode()[:200]}")
    return decoded(cubin.read_bytes())


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on PATH")
@pytest.mark.parametrize("name", NAMES)
def test_nvcc(from_nvcc: Compiled, name: str) -> None:
    cubin, code = from_nvcc
    check(cubin, Program(lower(cubin, name, code[name])), name, GEOMETRIES[:1])
