"""Compiles a kernel and runs it as one CTA, warp by warp."""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from oracle.machine.cta import CodedRegion, CtaProgram, Launch, Outcome
from oracle.machine.cubin import Cubin
from oracle.machine.lower import lower
from oracle.machine.memory import Memory
from oracle.machine.replicas import images
from oracle.machine.tensormap import TensorMap
from oracle.toolchain import compile_cuda

ARCH = "sm_100a"
PARAMS = 0x7E00_0000_0000
TENSOR_MAP = 0x40
"""Offset of a tensor map among the parameters, which it follows aligned to 64 bytes."""
Words = NDArray[np.uint32]

_PROLOGUE = """
typedef unsigned u32; typedef unsigned long long u64;
struct alignas(64) Map { u64 w[16]; };
__device__ __forceinline__ u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void init(u64* b, u32 n) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at(b)), "r"(n) : "memory");
}
__device__ __forceinline__ void arrive(u64* b) {
  asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" :: "r"(at(b)) : "memory");
}
__device__ __forceinline__ void arrive_expect(u64* b, u32 n) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
               :: "r"(at(b)), "r"(n) : "memory");
}
__device__ __forceinline__ void wait(u64* b, u32 parity) {
  u32 over;
  do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2;"
                  " selp.u32 %0, 1, 0, p; }" : "=r"(over) : "r"(at(b)), "r"(parity) : "memory");
  while (!over);
}
__device__ __forceinline__ u32 elected() {
  u32 p;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(p));
  return p;
}
"""
_KERNEL = """
extern "C" __global__ void k(const u32* in, u32* out, const __grid_constant__ Map map) {
  const u32 t = threadIdx.x, lane = t % 32, warp = t / 32;
  BODY
}
"""


@functools.cache
def compiled(body: str, arch: str = ARCH) -> CtaProgram:
    """The kernel with that body: words `in` and `out`, t, lane and warp, a tensor map `map`."""
    cubin = Cubin.parse(compile_cuda(_PROLOGUE + _KERNEL.replace("BODY", body), arch, {}))
    return CtaProgram(lower(cubin, "k"))


def run(
    body: str,
    data: Words | None = None,
    *,
    threads: int = 128,
    words: int | None = None,
    maps: Mapping[int, TensorMap] | None = None,
    coded: bool = False,
    late: bool = False,
    step_limit: int = 200_000,
    arch: str = ARCH,
) -> tuple[Words, Outcome]:
    """What a CTA leaves in `out`, of `words` words (one a thread), and what it did.

    With `coded`, `in` spells where each of its nibbles is. A tensor map describes `in` with
    addresses counted from its start.
    """
    data = np.arange(1024, dtype=np.uint32) if data is None else data
    memory = Memory()
    source = memory.map("in", data)
    out = memory.map("out", np.zeros(words or threads, np.uint32), writable=True)
    launch = Launch(
        grid=(1, 1, 1),
        block=(threads, 1, 1),
        index=(0, 0, 0),
        params=struct.pack("<QQ", source.base, out.base) + bytes(TENSOR_MAP - 16 + 128),
        memory=memory,
        tensor_maps={
            PARAMS + offset: TensorMap(
                m.name, source.base + m.base, m.dims, m.strides, m.box, m.element_bits,
                m.unpacked, m.swizzle,
            )
            for offset, m in (maps or {}).items()
        },
        coded=(CodedRegion(source, images(source.size)),) if coded else (),
        driver={0x348: struct.pack("<Q", PARAMS)},
        step_limit=step_limit,
        late=late,
    )  # fmt: skip
    outcome = compiled(body, arch).run(launch)
    return out.bytes.view(np.uint32).copy(), outcome
