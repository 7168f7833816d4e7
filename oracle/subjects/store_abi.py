"""How a store kernel is launched: its parameters, grid and block.

The parameters are those of vLLM's `reshape_and_cache_nvfp4_kernel`, which this project's own kernel
shares: eight pointers and a pointer to the slots, two token strides
in elements, three sizes, and the strides of the data and of the scale planes in bytes. One CTA
stores one token; a thread takes one group of 16 values, more where a token has over 512 groups.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from oracle.geometry import CacheGeometry
from oracle.machine.cubin import KernelInfo

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
MAX_THREADS = 512
WARP = 32


def unsupported_params(kernel: KernelInfo) -> str | None:
    """Why the parameters of a kernel are not those of a store kernel; None where they are."""
    sizes = tuple(param.size for param in kernel.params)
    if sizes == _SIZES:
        return None
    return (
        f"its {len(sizes)} parameters of {list(sizes)} bytes are not those of a store kernel, "
        f"which has {len(_SIZES)} of {list(_SIZES)}"
    )


@dataclass(frozen=True)
class StoreLaunch:
    """The numbers of one launch. Strides: tokens in elements, planes in bytes."""

    tokens: int
    key_stride: int
    value_stride: int
    num_heads: int
    head_size: int
    block_size: int
    data_strides: tuple[int, int, int]
    scale_strides: tuple[int, int, int]

    @classmethod
    def of(cls, geometry: CacheGeometry, tokens: int) -> StoreLaunch:
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
        )

    @property
    def grid(self) -> tuple[int, int, int]:
        """One CTA a token."""
        return self.tokens, 1, 1

    @property
    def block(self) -> tuple[int, int, int]:
        """A thread a group, at most 512, in whole warps."""
        groups = self.num_heads * self.head_size // 16
        return -(-min(groups, MAX_THREADS) // WARP) * WARP, 1, 1

    def params(self, kernel: KernelInfo, addresses: Mapping[str, int]) -> bytes:
        """The parameter block, given the address of each of `POINTERS`."""
        values = [addresses[name] for name in POINTERS]
        values += [self.key_stride, self.value_stride]
        values += [self.num_heads, self.head_size, self.block_size]
        values += [*self.data_strides, *self.scale_strides]
        block = bytearray(kernel.param_size)
        for param, value in zip(kernel.params, values, strict=True):
            struct.pack_into("<Q" if param.size == 8 else "<I", block, param.offset, value)
        return bytes(block)
