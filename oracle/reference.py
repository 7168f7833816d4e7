"""The reference writer and reader: the specification of an NVFP4 cache, executable.

For any geometry, any layout of the K and V scale planes, and any scale search:

    slot             page = slot // N, token = slot % N
    data byte b      at (page, head, token, b) of the side's data region; always in this order
    scale s          at flat offset p = layout(token, s) of the [N, S] plane of its page and head,
                     that is in row p // S and column p % S of the side's scale region

What the bytes are is told by `oracle.quantize`, and where the regions are by `oracle.geometry`.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oracle.candidates import candidate
from oracle.errors import UsageError
from oracle.formats import DTYPES, ByteArray, FloatArray, pack_codes, unpack_codes
from oracle.geometry import CacheGeometry, IntArray
from oracle.quantize import GROUP, Reciprocal, ScaleSearch, dequantize, quantize, rcp_exact
from oracle.requests import ReadRequest, StoreRequest

ScaleLayout: TypeAlias = str | ArrayLike
"""The name of a candidate, or a table [N, S] of flat offsets in the plane, which may collide."""

_Element = TypeVar("_Element", bound=np.generic)


def reference_write(
    request: StoreRequest,
    k_layout: ScaleLayout,
    v_layout: ScaleLayout,
    search: ScaleSearch = ScaleSearch.MAX_OVER_6,
    rcp: Reciprocal = rcp_exact,
) -> ByteArray:
    """The cache after the store, uint8 [cache_bytes]; the request's own image stays as it is.

    Tokens with a negative slot are skipped. Stores happen in the order of tokens, then columns:
    of two to one byte the last stays. Raises UsageError for a slot past the cache, an unknown
    layout or a table of the wrong shape or range, and LayoutUndefined where a candidate has no
    layout of this plane.
    """
    geometry = request.geometry
    slot_mapping = _inside(request.slot_mapping, geometry)
    stored = np.flatnonzero(slot_mapping >= 0)
    # A token hides every earlier one of its slot, since it stores to exactly the same bytes.
    stored = stored[_last_occurrences(slot_mapping[stored])]
    cache = request.cache.copy()
    for side, patterns, global_scale, layout in (
        ("K", request.key, request.k_scale, k_layout),
        ("V", request.value, request.v_scale, v_layout),
    ):
        values = DTYPES[request.dtype].decode(patterns[stored])
        codes, scale_bytes = quantize(_groups(values), global_scale, search, rcp)
        data, scales = _addresses(geometry, side, layout, slot_mapping[stored])
        cache[data] = pack_codes(codes.reshape(values.shape))
        last = _last_occurrences(scales.ravel())
        cache[scales.ravel()[last]] = scale_bytes.ravel()[last]
    return cache


def reference_read(
    request: ReadRequest, k_layout: ScaleLayout, v_layout: ScaleLayout
) -> tuple[FloatArray, FloatArray]:
    """Keys and values of the requested slots, float32 [T, H, D] each.

    Raises UsageError for a slot outside the cache, and for layouts as `reference_write` does.
    """
    geometry = request.geometry
    slots = _inside(request.slots, geometry)
    if (slots < 0).any():
        raise UsageError(f"slot {slots.min()} cannot be read: slots start at 0")
    sides = []
    for side, global_scale, layout in (
        ("K", request.k_scale, k_layout),
        ("V", request.v_scale, v_layout),
    ):
        data, scales = _addresses(geometry, side, layout, slots)
        codes = unpack_codes(request.cache[data])
        values = dequantize(_groups(codes), request.cache[scales], global_scale)
        sides.append(values.reshape(codes.shape))
    return sides[0], sides[1]


def _addresses(
    geometry: CacheGeometry, side: str, layout: ScaleLayout, slots: IntArray
) -> tuple[IntArray, IntArray]:
    """Offsets of the data bytes [T, H, D/2] and of the scales [T, H, S] of the tokens in slots."""
    page, token = np.divmod(slots[:, None, None], geometry.block_size)
    head = np.arange(geometry.num_heads)[:, None]
    data = geometry.data_offset(side, page, head, token, np.arange(geometry.data_bytes))
    columns = geometry.scale_columns
    flat = _plane_table(layout, geometry.block_size, columns)[token, np.arange(columns)]
    scales = geometry.scale_offset(side, page, head, flat // columns, flat % columns)
    return data, scales


def _groups(elements: NDArray[_Element]) -> NDArray[_Element]:
    """[..., D] as groups that share a scale, [..., S, 16]."""
    *outer, head_size = elements.shape
    return elements.reshape(*outer, head_size // GROUP, GROUP)


def _plane_table(layout: ScaleLayout, tokens: int, columns: int) -> IntArray:
    """Flat offsets [tokens, columns] of a named or given layout."""
    if isinstance(layout, str):
        return candidate(layout).table(tokens, columns)
    table = np.asarray(layout)
    if table.shape != (tokens, columns) or not np.issubdtype(table.dtype, np.integer):
        raise UsageError(
            f"a layout table is {table.dtype} {list(table.shape)}: "
            f"give whole numbers [{tokens}, {columns}]"
        )
    if table.min() < 0 or table.max() >= table.size:
        raise UsageError(f"a layout table leaves the plane: give offsets 0..{table.size - 1}")
    return table.astype(np.int64)


def _inside(slots: IntArray, geometry: CacheGeometry) -> IntArray:
    """The slots, none of them past the cache."""
    if (slots >= geometry.num_slots).any():
        raise UsageError(
            f"slot {slots.max()} is past the cache: {geometry.num_blocks} pages of "
            f"{geometry.block_size} tokens have slots 0..{geometry.num_slots - 1}"
        )
    return slots


def _last_occurrences(values: IntArray) -> IntArray:
    """Positions, rising, at which each distinct value of a flat array stands for the last time."""
    _, from_the_end = np.unique(values[::-1], return_index=True)
    return np.sort(values.size - 1 - from_the_end)
