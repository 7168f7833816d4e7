"""An NVFP4 store in Triton for HND caches: K scales linear, V scales 4x4-swizzled.

One program stores one group of 16 values. Under TRITON_INTERPRET=1 Triton executes it on the CPU.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _store_group(
    x_ptr, cache_ptr, slot_ptr, scale_ptr, page_stride, side_base, heads, tokens,
    columns: tl.constexpr, swizzled: tl.constexpr,
):  # fmt: skip
    token, head, column = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot = tl.load(slot_ptr + token)
    if slot >= 0:
        page, t = slot // tokens, slot % tokens
        first = ((token * heads + head) * columns + column) * 16
        pair = tl.arange(0, 8)
        low = tl.load(x_ptr + first + 2 * pair).to(tl.float32)
        high = tl.load(x_ptr + first + 2 * pair + 1).to(tl.float32)
        largest = tl.max(tl.maximum(tl.abs(low), tl.abs(high)), 0)
        global_scale = tl.load(scale_ptr)
        scale = (largest / 6.0 / global_scale).to(tl.float8e4nv)
        divisor = scale.to(tl.float32) * global_scale
        low = tl.where(divisor > 0, low / divisor, 0.0)
        high = tl.where(divisor > 0, high / divisor, 0.0)
        codes = _e2m1(low) | _e2m1(high) << 4
        side = cache_ptr + page * page_stride + side_base
        row = head * tokens + t
        tl.store(side + (row * columns + column) * 8 + pair, codes.to(tl.uint8))
        moved = t // 4 * 4 * columns + 4 * column + t % 4
        place = moved if swizzled else t * columns + column
        plane = heads * tokens * columns * 8 + head * tokens * columns
        tl.store(side + plane + place, scale.to(tl.uint8, bitcast=True))


@triton.jit
def _e2m1(x):
    """Codes of values: how many midpoints lie below, the even one of two kept at a midpoint."""
    size = tl.abs(x)
    code = (size > 0.25).to(tl.int32) + (size >= 0.75) + (size > 1.25) + (size >= 1.75)
    code += (size > 2.5).to(tl.int32) + (size >= 3.5) + (size > 5.0)
    return code + tl.where(x < 0, 8, 0)


def store(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale):
    pages, tokens, heads, content = key_cache.shape
    whole = torch.as_strided(key_cache, (pages * key_cache.stride(0),), (1,), 0)
    for x, cache, scale, swizzled in (
        (key, key_cache, k_scale, False),
        (value, value_cache, v_scale, True),
    ):
        grid = (x.shape[0], heads, content // 9)
        _store_group[grid](
            x.contiguous(), whole, slot_mapping, scale, cache.stride(0), cache.storage_offset(),
            heads, tokens, columns=content // 9, swizzled=swizzled,
        )  # fmt: skip
