"""Where a lane is: thread, CTA, lane and the launch's sizes, in launches of three dimensions."""

from functools import cache

import numpy as np
import pytest
from handmade import execute, instruction

from oracle.machine.cubin import Cubin
from oracle.machine.launch import Program
from oracle.machine.lower import lower
from oracle.machine.memory import Memory
from oracle.toolchain import compile_cuda

ARCHS = ("sm_80", "sm_90", "sm_100a", "sm_120a")
FORMS = {"S2R", "S2UR"}
"""Opcode forms that this module exercises."""
SOURCE = """
extern "C" __global__ void coordinates(unsigned* out) {
  const unsigned cta = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  unsigned* row = out + (cta * blockDim.x * blockDim.y * blockDim.z + thread) * 14;
  row[0] = threadIdx.x, row[1] = threadIdx.y, row[2] = threadIdx.z;
  row[3] = blockIdx.x, row[4] = blockIdx.y, row[5] = blockIdx.z;
  row[6] = blockDim.x, row[7] = blockDim.y, row[8] = blockDim.z;
  row[9] = gridDim.x, row[10] = gridDim.y, row[11] = gridDim.z;
  unsigned lane, below;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
  row[12] = lane, row[13] = below;
}
"""


@cache
def cubin(arch: str) -> Cubin:
    return Cubin.parse(compile_cuda(SOURCE, arch, name="coordinates.cu"))


def rows(grid: tuple[int, int, int], block: tuple[int, int, int]) -> np.ndarray:
    """What every thread should write, in the order of CTAs and threads."""
    found = []
    for cta in np.ndindex(*grid[::-1]):
        for number, thread in enumerate(np.ndindex(*block[::-1])):
            lane = number % 32
            place = [*thread[::-1], *cta[::-1], *block, *grid]
            found.append([*place, lane, (1 << lane) - 1])
    return np.array(found, np.uint32)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("chunk", [32, 100, 8192])
@pytest.mark.parametrize(
    ("grid", "block"), [((3, 2, 4), (5, 3, 2)), ((7, 1, 1), (64, 1, 1)), ((1, 2, 1), (33, 2, 3))]
)
def test_coordinates(
    arch: str, chunk: int, grid: tuple[int, int, int], block: tuple[int, int, int]
) -> None:
    memory = Memory()
    expected = rows(grid, block)
    out = memory.map("out", np.zeros_like(expected), writable=True)
    params = np.array([out.base], np.uint64).tobytes()
    Program(lower(cubin(arch))).launch(grid, block, params, memory, chunk_lanes=chunk)
    assert (out.bytes.view(np.uint32).reshape(expected.shape) == expected).all()


@pytest.mark.parametrize("opcode", sorted(FORMS))
def test_alone(opcode: str) -> None:
    """In warps of one CTA each, and in a form that compilers use for uniform values."""
    register = "UR0" if opcode == "S2UR" else "R0"
    lines = {
        name: instruction(f"{opcode} {register},{name}") for name in ("SR_LANEID", "SR_CTAID.X")
    }
    lanes = np.arange(96, dtype=np.uint32)
    for name, expected in (("SR_LANEID", lanes % 32), ("SR_CTAID.X", lanes // 32)):
        after = execute([lines[name]], {"R9": lanes})
        assert (after[register] == expected).all()
