"""The store in Triton, executed by its interpreter: max/6 search, bf16, finite values.

Importing this needs triton, and torch for the tensors. Every byte equals the machine's for values
and scales that are neither subnormal nor special.
"""

from __future__ import annotations

import os

# What triton is imported for; its own functions are made for it as well.
os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl

from oracle.formats import ByteArray
from oracle.geometry import SIDES
from oracle.requests import StoreRequest


@triton.jit
def _e4m3(x):
    """E4M3 codes of positive numbers, rounded to nearest even and clamped."""
    magnitude = tl.minimum(x, 448.0)
    bits = magnitude.to(tl.int32, bitcast=True)
    normal = ((bits + 0x7FFFF + (bits >> 20 & 1)) >> 20) - (120 << 3)
    # Adding 2^14 leaves multiples of 2^-9 in the lowest bits.
    small = (magnitude + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    return tl.where(magnitude < 0.015625, small, normal)


@triton.jit
def _value(code):
    """The values of positive E4M3 codes."""
    normal = ((code << 20) + (120 << 23)).to(tl.float32, bitcast=True)
    return tl.where(code < 8, code.to(tl.float32) * 0.001953125, normal)


@triton.jit
def _store_token(
    source, cache, slots, token_stride, page_bytes, block_size, data_base, data_head, data_token,
    scale_base, scale_head, scale_token, global_scale,
    heads: tl.constexpr, columns: tl.constexpr, swizzled: tl.constexpr,
):  # fmt: skip
    """One token of one side: all its groups at once."""
    token = tl.program_id(0)
    slot = tl.load(slots + token)
    group = tl.arange(0, heads * columns)
    element = tl.arange(0, 16)
    words = tl.load(source + token * token_stride + group[:, None] * 16 + element[None, :])
    bits = words.to(tl.int32) << 16
    x = bits.to(tl.float32, bitcast=True)
    largest = tl.max(tl.abs(x), axis=1)
    g = 1.0 / global_scale
    scale = _e4m3(g * (largest * 0.16666667163372040))
    value = _value(scale)
    multiplier = tl.where(value == 0.0, 0.0, 1.0 / (value * (1.0 / g)))
    scaled = tl.abs(x * multiplier[:, None])
    code = (scaled > 0.25).to(tl.int32) + (scaled >= 0.75).to(tl.int32)
    code += (scaled > 1.25).to(tl.int32) + (scaled >= 1.75).to(tl.int32)
    code += (scaled > 2.5).to(tl.int32) + (scaled >= 3.5).to(tl.int32)
    code += (scaled > 5.0).to(tl.int32)
    code |= bits >> 28 & 8
    shifted = code << (element % 8 * 4)[None, :]
    halves = tl.sum(tl.reshape(shifted, (heads * columns, 2, 8)), axis=2)
    if slot >= 0:
        page, t = slot // block_size, slot % block_size
        head, column = group // columns, group % columns
        at = page * page_bytes + data_base + head * data_head + t * data_token + column * 8
        half = tl.arange(0, 2)
        place = (cache + at[:, None] + half[None, :] * 4).to(tl.pointer_type(tl.int32))
        tl.store(place, halves)
        row, col = t, column
        if swizzled:
            row = t // 4 * 4 + column // (columns // 4)
            col = column % (columns // 4) * 4 + t % 4
        at = page * page_bytes + scale_base + head * scale_head + row * scale_token + col
        tl.store(cache + at, scale.to(tl.uint8))


def store(request: StoreRequest, cache: ByteArray) -> None:
    """Store a request's tokens into `cache`, K scales linear and V scales swizzled."""
    geometry = request.geometry
    slots = torch.from_numpy(request.slot_mapping)
    sides = zip(
        SIDES, (request.key, request.value), (request.k_scale, request.v_scale), strict=True
    )
    for side, source, global_scale in sides:
        _store_token[(request.slot_mapping.size,)](
            torch.from_numpy(source.view("int16")), torch.from_numpy(cache), slots,
            geometry.num_heads * geometry.head_size, geometry.page_bytes, geometry.block_size,
            geometry.side_base(side), *geometry.data_strides,
            geometry.scale_base(side), *geometry.scale_strides, global_scale,
            heads=geometry.num_heads, columns=geometry.scale_columns, swizzled=side == "V",
        )  # fmt: skip
