"""How a store kernel is launched: its parameters, grid and block.

The parameters are those of vLLM's `reshape_and_cache_nvfp4_kernel`, which this project's own kernel
shares: eight pointers and a pointer to the slots, two token strides in elements, three sizes, and
the strides of the data and of the scale planes in bytes. Some development builds end with a bool
that says whether V's scales are swizzled. One CTA stores one token; a thread takes one group of 16
values, more where a token has over 512 groups. Kernels that spread a group over two threads, as
vLLM's did up to 0.23, get twice the threads, at most 512 as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.geometry import CacheGeometry
from oracle.machine.cubin import KernelInfo
from oracle.machine.disassembly import Instruction
from oracle.machine.operands import Imm
from oracle.requests import StoreRequest

POINTERS = (
    "key",
    "value",
    "key_data",
    "value_data",
    "key_scale",
    "value_scale",
    "slot_mapping",
    "k_scale",
    "v_scale",
)
_SIZES = (8,) * len(POINTERS) + (8, 8) + (4, 4, 4) + (8,) * 6
_SIZES_WITH_SWITCH = (*_SIZES, 1)
MAX_THREADS = 512
WARP = 32


def unsupported_params(kernel: KernelInfo) -> str | None:
    """Why the parameters of a kernel are not those of a store kernel; None where they are."""
    sizes = tuple(param.size for param in kernel.params)
    if sizes in (_SIZES, _SIZES_WITH_SWITCH):
        return None
    return (
        f"its {len(sizes)} parameters of {list(sizes)} bytes are not those of a store kernel, "
        f"which has {len(_SIZES)} of {list(_SIZES)}"
    )


def inputs(request: StoreRequest) -> dict[str, NDArray[Any]]:
    """What those of `POINTERS` point to that do not point into the cache."""
    return {
        "key": request.key,
        "value": request.value,
        "slot_mapping": request.slot_mapping,
        "k_scale": np.array([request.k_scale], np.float32),
        "v_scale": np.array([request.v_scale], np.float32),
    }


def has_swizzle_switch(kernel: KernelInfo) -> bool:
    """Whether the last parameter of a store kernel is the bool that swizzles V's scales."""
    return len(kernel.params) == len(_SIZES_WITH_SWITCH)


def threads_per_group(instructions: Iterable[Instruction]) -> int:
    """How many neighbouring threads share a group of 16 values: 1, 2, 4, ...

    Threads that share one find its largest value by butterfly shuffles; the widest of them, over
    lanes `m` apart, is done by 2m threads. A kernel without shuffles does a group in one thread.
    """
    widest = 0
    for instruction in instructions:
        if instruction.opcode.startswith("SHFL.BFLY"):
            masks = [o.value for o in instruction.operands if isinstance(o, Imm)]
            # A shuffle with its mask in a register is another path of one that has it here.
            if len(masks) == 2 and isinstance(masks[0], int):
                widest = max(widest, masks[0])
    return 2 * widest or 1


@dataclass(frozen=True)
class StoreAbi:
    """What the launch of one store kernel depends on beside the geometry.

    `swizzle_v` is the value of the trailing bool, for kernels that have one.
    """

    threads_per_group: int = 1
    swizzle_v: bool = True


@dataclass(frozen=True)
class StoreLaunch:
    """The numbers of one launch. Strides: tokens in elements, planes in bytes.

    `scale_base` counts from the start of a side, which is where its data begins.
    """

    tokens: int
    key_stride: int
    value_stride: int
    num_heads: int
    head_size: int
    block_size: int
    data_strides: tuple[int, int, int]
    scale_strides: tuple[int, int, int]
    scale_base: int
    abi: StoreAbi = StoreAbi()

    @classmethod
    def of(cls, geometry: CacheGeometry, tokens: int, abi: StoreAbi | None = None) -> StoreLaunch:
        """The launch that stores `tokens` densely packed tokens into a cache."""
        token_stride = geometry.num_heads * geometry.head_size
        data, scale = geometry.data_strides, geometry.scale_strides
        return cls(
            tokens=tokens,
            key_stride=token_stride,
            value_stride=token_stride,
            num_heads=geometry.num_heads,
            head_size=geometry.head_size,
            block_size=geometry.block_size,
            data_strides=(geometry.page_bytes, data.head, data.token),
            scale_strides=(geometry.page_bytes, scale.head, scale.token),
            scale_base=geometry.scale_base("K") - geometry.side_base("K"),
            abi=abi or StoreAbi(),
        )

    def cache_addresses(self, geometry: CacheGeometry, cache: int) -> dict[str, int]:
        """The addresses of `POINTERS` that point into a cache, which begins at `cache`."""
        addresses = {}
        for side, prefix in (("K", "key"), ("V", "value")):
            addresses[f"{prefix}_data"] = cache + geometry.side_base(side)
            addresses[f"{prefix}_scale"] = addresses[f"{prefix}_data"] + self.scale_base
        return addresses

    @property
    def grid(self) -> tuple[int, int, int]:
        """One CTA a token."""
        return self.tokens, 1, 1

    @property
    def block(self) -> tuple[int, int, int]:
        """The threads of a token's groups, at most 512, in whole warps."""
        threads = self.num_heads * self.head_size // 16 * self.abi.threads_per_group
        return -(-min(threads, MAX_THREADS) // WARP) * WARP, 1, 1

    def params(self, kernel: KernelInfo, addresses: Mapping[str, int]) -> bytes:
        """The parameter block, given the address of each of `POINTERS`."""
        values = [addresses[name] for name in POINTERS]
        values += [self.key_stride, self.value_stride]
        values += [self.num_heads, self.head_size, self.block_size]
        values += [*self.data_strides, *self.scale_strides]
        if has_swizzle_switch(kernel):
            values.append(int(self.abi.swizzle_v))
        block = bytearray(kernel.param_size)
        for param, value in zip(kernel.params, values, strict=True):
            block[param.offset : param.offset + param.size] = value.to_bytes(param.size, "little")
        return bytes(block)
