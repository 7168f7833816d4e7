"""The reference writer and reader against a naive pair that goes element by element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.candidates import CANDIDATES, candidate
from oracle.errors import UsageError
from oracle.formats import DTYPES
from oracle.geometry import CacheGeometry
from oracle.layout import LayoutUndefined
from oracle.quantize import ScaleSearch, dequantize, quantize
from oracle.reference import ScaleLayout, reference_read, reference_write
from oracle.requests import ReadRequest, StoreRequest

# A busy machine is no failure; the naive pair is slow.
relaxed = settings(deadline=None, max_examples=40)

# --- A naive writer and reader: plain loops, own tables, own addresses ------------------------

F32 = np.float32
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
E4M3 = [
    Fraction(code % 8, 8) * Fraction(1, 64)
    if code < 8
    else Fraction(8 + code % 8, 8) * Fraction(2) ** (code // 8 - 7)
    for code in range(0x7F)
]
Flat = Callable[[int, int, int], int]
NAIVE_LAYOUTS: dict[str, Flat] = {
    "linear": lambda t, s, n: t * n + s,
    "swizzle_4x4": lambda t, s, n: (t // 4) * 4 * n + 4 * s + t % 4,
    "tile_8x4": lambda t, s, n: (t // 8 * (n // 4) + s // 4) * 32 + t % 8 * 4 + s % 4,
}


def nearest(magnitude: np.floating[Any], grid: list[Fraction]) -> int:
    """The code of the nearest value, the even code on a tie; past the end the last code."""
    exact = Fraction(float(magnitude))
    return min(range(len(grid)), key=lambda code: (abs(grid[code] - exact), code % 2))


def naive_group(group: list[np.float32], global_scale: float) -> tuple[int, list[int]]:
    """The scale byte and the 16 codes of finite values, in single float32 steps."""
    g = F32(1) / F32(global_scale)
    amax = max(abs(x) for x in group)
    scale_byte = nearest(g * (amax * F32(1 / 6)), E4M3)
    scale = F32(float(E4M3[scale_byte]))
    r = F32(0) if scale == 0 else F32(1) / (scale * (F32(1) / g))
    grid = [Fraction(value) for value in E2M1]
    codes = [nearest(abs(x * r), grid) | (8 if np.signbit(x * r) else 0) for x in group]
    return scale_byte, codes


def naive_address(
    geometry: CacheGeometry, side: int, plane: str, slot: int, head: int, col: int, row: int
) -> int:
    """Where a byte of a slot's page lies: regions of H*N lines, lines by the cache layout."""
    page, tokens, heads = slot // geometry.block_size, geometry.block_size, geometry.num_heads
    half, scales = geometry.head_size // 2, geometry.head_size // 16
    start = (2 * page + side) * tokens * heads * (half + scales)
    line = head * tokens + row if geometry.cache_layout == "HND" else row * heads + head
    if plane == "data":
        return start + line * half + col
    return start + tokens * heads * half + line * scales + col


def naive_scale_address(
    geometry: CacheGeometry, side: int, slot: int, head: int, s: int, layout: Flat
) -> int:
    columns = geometry.head_size // 16
    row, col = divmod(layout(slot % geometry.block_size, s, columns), columns)
    return naive_address(geometry, side, "scale", slot, head, col, row)


def naive_write(request: StoreRequest, layouts: tuple[Flat, Flat]) -> list[int]:
    geometry = request.geometry
    cache: list[int] = request.cache.tolist()
    for index, slot in enumerate(request.slot_mapping.tolist()):
        if slot < 0:
            continue
        for side, source in enumerate((request.key, request.value)):
            global_scale = (request.k_scale, request.v_scale)[side]
            for head, s in product(range(geometry.num_heads), range(geometry.head_size // 16)):
                group = [
                    DTYPES[request.dtype].decode(source[index, head, 16 * s + i : 16 * s + i + 1])[
                        0
                    ]
                    for i in range(16)
                ]
                scale_byte, codes = naive_group(group, global_scale)
                cache[naive_scale_address(geometry, side, slot, head, s, layouts[side])] = (
                    scale_byte
                )
                token = slot % geometry.block_size
                for i in range(8):
                    at = naive_address(geometry, side, "data", slot, head, 8 * s + i, token)
                    cache[at] = codes[2 * i] + 16 * codes[2 * i + 1]
    return cache


def naive_read(request: ReadRequest, side: int, layout: Flat) -> list[Any]:
    geometry = request.geometry
    global_scale = F32((request.k_scale, request.v_scale)[side])

    def element(slot: int, head: int, d: int) -> np.float32:
        token = slot % geometry.block_size
        packed = request.cache[naive_address(geometry, side, "data", slot, head, d // 2, token)]
        code = int(packed) // 16 if d % 2 else int(packed) % 16
        scale = request.cache[naive_scale_address(geometry, side, slot, head, d // 16, layout)]
        value = F32(E2M1[code % 8]) * F32(float(E4M3[scale])) * global_scale
        return -value if code >= 8 else value

    return [
        [
            [element(slot, head, d) for d in range(geometry.head_size)]
            for head in range(geometry.num_heads)
        ]
        for slot in request.slots.tolist()
    ]


# --- Requests ---------------------------------------------------------------------------------

SMALL = [
    CacheGeometry(2, 4, 2, 64, "HND"),
    CacheGeometry(2, 4, 2, 64, "NHD"),
    CacheGeometry(1, 8, 1, 128, "HND"),
    CacheGeometry(3, 8, 3, 64, "NHD"),
]


def store_request(
    geometry: CacheGeometry,
    slots: list[int],
    dtype: str = "bf16",
    scales: tuple[float, float] = (1.0, 1.0),
    seed: int = 0,
) -> StoreRequest:
    """Random finite values of many magnitudes, and random bytes in the cache before."""
    random = np.random.default_rng(seed)
    shape = (2, len(slots), geometry.num_heads, geometry.scale_columns, 16)
    values = random.normal(size=shape) * 2.0 ** random.integers(-6, 7, (*shape[:-1], 1))
    values[random.random(shape) < 0.05] = 0
    encoded = DTYPES[dtype].encode(values.astype(np.float32))
    key, value = encoded.reshape(2, len(slots), geometry.num_heads, geometry.head_size)
    cache = random.integers(0, 256, geometry.cache_bytes, np.uint8)
    return StoreRequest(geometry, dtype, key, value, np.array(slots, np.int64), *scales, cache)


def read_request(request: StoreRequest, cache: Any, slots: list[int]) -> ReadRequest:
    return ReadRequest(
        request.geometry, cache, np.array(slots, np.int64), request.k_scale, request.v_scale
    )


# --- The writer -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("geometry", SMALL, ids=str)
@pytest.mark.parametrize("layouts", [("linear", "swizzle_4x4"), ("swizzle_4x4", "linear")])
def test_the_writer_stores_what_the_naive_one_does(
    geometry: CacheGeometry, dtype: str, layouts: tuple[str, str]
) -> None:
    slots = [geometry.num_slots - 1, 2, -1, 0, 5 % geometry.num_slots, -7]
    request = store_request(geometry, slots, dtype, scales=(0.0137, 2.0))
    k_layout, v_layout = layouts
    expected = naive_write(request, (NAIVE_LAYOUTS[k_layout], NAIVE_LAYOUTS[v_layout]))
    assert reference_write(request, k_layout, v_layout).tolist() == expected


@relaxed
@given(
    geometry=st.sampled_from(SMALL[:3]),
    slots=st.lists(st.integers(-2, 7), max_size=6),
    k_layout=st.sampled_from(["linear", "swizzle_4x4"]),
    v_layout=st.sampled_from(["linear", "swizzle_4x4"]),
    scales=st.tuples(*[st.sampled_from([1.0, 0.5, 0.0137, 300.0])] * 2),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_slots_skipped_and_repeated(
    geometry: CacheGeometry,
    slots: list[int],
    k_layout: str,
    v_layout: str,
    scales: tuple[float, float],
    seed: int,
) -> None:
    request = store_request(geometry, slots, scales=scales, seed=seed)
    expected = naive_write(request, (NAIVE_LAYOUTS[k_layout], NAIVE_LAYOUTS[v_layout]))
    assert reference_write(request, k_layout, v_layout).tolist() == expected


def test_whole_tiles_are_written_as_the_naive_writer_does() -> None:
    request = store_request(SMALL[3], [0, 7, 15, 22])
    tile = NAIVE_LAYOUTS["tile_8x4"]
    assert reference_write(request, "tile_8x4", "tile_8x4").tolist() == naive_write(
        request, (tile, tile)
    )


def test_the_request_stays_as_it_is() -> None:
    request = store_request(SMALL[0], [0, 3])
    before = [array.tobytes() for array in (request.key, request.value, request.cache)]
    written = reference_write(request, "linear", "linear")
    assert not np.array_equal(written, request.cache)
    assert [a.tobytes() for a in (request.key, request.value, request.cache)] == before


def test_without_a_slot_nothing_changes() -> None:
    for slots in ([], [-1, -1]):
        request = store_request(SMALL[0], slots)
        written = reference_write(request, "linear", "swizzle_4x4")
        assert np.array_equal(written, request.cache)


def test_of_two_tokens_for_one_slot_the_last_stays() -> None:
    both = store_request(SMALL[0], [5, 5])
    last = replace(both, key=both.key[1:], value=both.value[1:], slot_mapping=both.slot_mapping[1:])
    written = reference_write(both, "linear", "swizzle_4x4")
    assert np.array_equal(written, reference_write(last, "linear", "swizzle_4x4"))
    first = replace(last, key=both.key[:1], value=both.value[:1])
    assert not np.array_equal(written, reference_write(first, "linear", "swizzle_4x4"))


def test_a_table_stands_for_its_candidate() -> None:
    request = store_request(SMALL[3], list(range(24)))
    for name in CANDIDATES:
        if candidate(name).undefined_reason(8, 4) is None:
            table = candidate(name).table(8, 4)
            by_name = reference_write(request, name, "linear")
            assert np.array_equal(reference_write(request, table, "linear"), by_name)


@relaxed
@given(
    geometry=st.sampled_from(SMALL[:2]),
    slots=st.lists(st.integers(-1, 7), max_size=6),
    table=st.lists(st.integers(0, 15), min_size=16, max_size=16),
)
def test_of_two_scales_at_one_offset_the_last_stays(
    geometry: CacheGeometry, slots: list[int], table: list[int]
) -> None:
    """Random tables collide nearly always."""
    request = store_request(geometry, slots)
    written = reference_write(request, np.reshape(table, (4, 4)), "linear")
    layouts = (lambda t, s, n: table[t * n + s], NAIVE_LAYOUTS["linear"])
    assert written.tolist() == naive_write(request, layouts)


def test_the_search_changes_bytes_and_no_address() -> None:
    """Sixteen values that 4/6 serves better than 6/6 does."""
    geometry = CacheGeometry(1, 4, 1, 64)
    group = np.array([6.0] + [4.5] * 15, np.float32)
    words = DTYPES["bf16"].encode(np.tile(group, 4)).reshape(1, 1, 64)
    cache = np.full(geometry.cache_bytes, 0xEE, np.uint8)
    request = StoreRequest(geometry, "bf16", words, words, np.array([2]), 1.0, 1.0, cache)
    six = reference_write(request, "linear", "swizzle_4x4")
    four = reference_write(request, "linear", "swizzle_4x4", ScaleSearch.FOUR_OVER_SIX)
    assert not np.array_equal(four, six)
    assert np.array_equal(four == 0xEE, six == 0xEE)
    _, scale_bytes = quantize(group, 1.0, ScaleSearch.FOUR_OVER_SIX)
    assert four[geometry.scale_offset("K", 0, 0, 2, np.arange(4))].tolist() == [scale_bytes] * 4


def test_the_reciprocal_reaches_the_codes_and_not_the_scales() -> None:
    request = store_request(SMALL[0], list(range(8)))
    exact = reference_write(request, "linear", "linear")
    without = reference_write(request, "linear", "linear", rcp=np.zeros_like)
    is_data = request.geometry.locate(np.arange(exact.size)).plane == 0
    assert not np.any(without[is_data] & 0x77)
    assert np.any(exact[is_data] & 0x77)
    assert np.array_equal(without[~is_data], exact[~is_data])


# --- The reader -------------------------------------------------------------------------------


@pytest.mark.parametrize("geometry", SMALL, ids=str)
@pytest.mark.parametrize("layouts", [("linear", "swizzle_4x4"), ("swizzle_4x4", "linear")])
def test_the_reader_reads_what_the_naive_one_does(
    geometry: CacheGeometry, layouts: tuple[str, str]
) -> None:
    """On random bytes, so that whatever it reads shows; all of E4M3 but NaN."""
    random = np.random.default_rng(1)
    cache = random.integers(0, 0x7F, geometry.cache_bytes, np.uint8)
    where = geometry.locate(np.arange(cache.size))
    cache[where.plane == 0] = random.integers(0, 256, np.count_nonzero(where.plane == 0))
    slots = np.array([geometry.num_slots - 1, 0, 2, 2])
    request = ReadRequest(geometry, cache, slots, 0.0137, 2.0)
    for side, values in enumerate(reference_read(request, *layouts)):
        assert values.dtype == np.float32
        assert values.tolist() == naive_read(request, side, NAIVE_LAYOUTS[layouts[side]])


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("geometry", SMALL, ids=str)
def test_a_round_trip_gives_the_quantised_values(geometry: CacheGeometry, dtype: str) -> None:
    slots = np.random.default_rng(2).permutation(geometry.num_slots).tolist()
    request = store_request(geometry, slots, dtype, scales=(0.25, 0.125))
    for k_layout, v_layout in product(("linear", "swizzle_4x4", "inverse_4x4"), repeat=2):
        cache = reference_write(request, k_layout, v_layout)
        read = reference_read(read_request(request, cache, slots), k_layout, v_layout)
        for values, words, scale in (
            (read[0], request.key, request.k_scale),
            (read[1], request.value, request.v_scale),
        ):
            groups = DTYPES[dtype].decode(words).reshape(-1, 16)
            codes, scale_bytes = quantize(groups, scale)
            expected = dequantize(codes, scale_bytes, scale).reshape(values.shape)
            assert np.array_equal(values, expected)
            assert np.abs(values - DTYPES[dtype].decode(words)).max() < np.abs(values).max() / 4


def distinct_scales(geometry: CacheGeometry) -> StoreRequest:
    """Every scale of a page and head differs from its neighbours: powers of two by position."""
    t, s = np.ogrid[: geometry.num_slots, : geometry.scale_columns]
    amax = 6.0 * 2.0 ** ((5 * t + s) % 13 - 6)
    groups = np.broadcast_to(
        amax[:, None, :, None].astype(np.float32),
        (geometry.num_slots, geometry.num_heads, geometry.scale_columns, 16),
    )
    words = DTYPES["bf16"].encode(groups).reshape(geometry.num_slots, geometry.num_heads, -1)
    cache = np.zeros(geometry.cache_bytes, np.uint8)
    slots = np.arange(geometry.num_slots)
    return StoreRequest(geometry, "bf16", words, words, slots, 1.0, 1.0, cache)


@pytest.mark.parametrize("head_size", [64, 128, 256])
@pytest.mark.parametrize("cache_layout", ["HND", "NHD"])
def test_a_reader_of_another_layout_is_noticed(head_size: int, cache_layout: str) -> None:
    """Wrong exactly where the two layouts differ and the scales at those places do."""
    geometry = CacheGeometry(2, 16, 2, head_size, cache_layout)
    request = distinct_scales(geometry)
    slots = list(range(geometry.num_slots))
    cache = reference_write(request, "linear", "swizzle_4x4")
    written = DTYPES["bf16"].decode(request.key)
    right, _ = reference_read(read_request(request, cache, slots), "linear", "swizzle_4x4")
    assert np.array_equal(right, written)
    swapped, _ = reference_read(read_request(request, cache, slots), "swizzle_4x4", "linear")
    table = candidate("swizzle_4x4").table(16, geometry.scale_columns).ravel()
    planes = written[:, 0, ::16].reshape(2, -1)
    expected = planes[:, table].reshape(geometry.num_slots, -1)
    for head in range(geometry.num_heads):
        assert np.array_equal(swapped[:, head, ::16], expected)
    assert np.count_nonzero(swapped != written) > written.size // 2


def test_a_reader_of_the_other_cache_layout_is_noticed() -> None:
    request = store_request(SMALL[0], list(range(8)))
    cache = reference_write(request, "linear", "linear")
    reading = read_request(request, cache, list(range(8)))
    right = reference_read(reading, "linear", "linear")
    other = reference_read(replace(reading, geometry=SMALL[1]), "linear", "linear")
    assert not np.array_equal(right[0], other[0])
    assert not np.array_equal(right[1], other[1])


# --- Refusals ---------------------------------------------------------------------------------


def test_a_slot_past_the_cache_is_refused() -> None:
    request = store_request(SMALL[0], [0, 8])
    with pytest.raises(UsageError, match=r"slot 8 is past the cache: 2 pages of 4 tokens"):
        reference_write(request, "linear", "linear")
    with pytest.raises(UsageError, match=r"slot 9 is past the cache: .* slots 0\.\.7"):
        reference_read(read_request(request, request.cache, [0, 9]), "linear", "linear")


def test_a_negative_slot_cannot_be_read() -> None:
    request = store_request(SMALL[0], [0])
    with pytest.raises(UsageError, match="slot -1 cannot be read"):
        reference_read(read_request(request, request.cache, [3, -1]), "linear", "linear")


@pytest.mark.parametrize(
    ("layout", "error", "message"),
    [
        ("zigzag", UsageError, "no layout is called 'zigzag'"),
        ("tile_8x4", LayoutUndefined, "needs T to be a multiple of 8, not T=4"),
        (np.zeros((4, 5), np.int64), UsageError, r"int64 \[4, 5\]: give whole numbers \[4, 4\]"),
        (np.zeros((4, 4)), UsageError, r"is float64 \[4, 4\]"),
        (np.full((4, 4), 16), UsageError, r"leaves the plane: give offsets 0\.\.15"),
        (np.full((4, 4), -1), UsageError, r"leaves the plane: give offsets 0\.\.15"),
    ],
)
def test_layouts_that_are_none_are_refused(
    layout: ScaleLayout, error: type[Exception], message: str
) -> None:
    request = store_request(SMALL[0], [0])
    for layouts in ((layout, "linear"), ("linear", layout)):
        with pytest.raises(error, match=message):
            reference_write(request, *layouts)
        with pytest.raises(error, match=message):
            reference_read(read_request(request, request.cache, [0]), *layouts)


@pytest.mark.parametrize(
    ("field", "given", "message"),
    [
        ("dtype", "fp32", "dtype is 'fp32': give bf16 or fp16"),
        ("key", np.zeros((2, 2, 32), np.uint16), r"key is uint16 \[2, 2, 32\]: give uint16 \[2, 2"),
        ("value", np.zeros((2, 2, 64), np.float32), r"value is float32 \[2, 2, 64\]: give uint16"),
        ("slot_mapping", np.zeros(2, np.int32), r"slot_mapping is int32 \[2\]: give int64 \[2\]"),
        ("slot_mapping", np.zeros((1, 2), np.int64), r"slot_mapping is int64 \[1, 2\]"),
        ("slot_mapping", np.zeros(3, np.int64), r"key is uint16 \[2, 2, 64\]: give .* \[3, 2, 64"),
        ("cache", np.zeros(575, np.uint8), r"cache is uint8 \[575\]: give uint8 \[1152\]"),
    ],
)
def test_store_requests_that_do_not_fit_are_refused(field: str, given: Any, message: str) -> None:
    request = store_request(SMALL[0], [0, 1])
    with pytest.raises(UsageError, match=message):
        replace(request, **{field: given})


@pytest.mark.parametrize(
    ("field", "given", "message"),
    [
        ("slots", np.zeros(2, np.uint64), r"slots is uint64 \[2\]: give int64 \[2\]"),
        ("cache", np.zeros(1152, np.int8), r"cache is int8 \[1152\]: give uint8 \[1152\]"),
    ],
)
def test_read_requests_that_do_not_fit_are_refused(field: str, given: Any, message: str) -> None:
    request = store_request(SMALL[0], [0])
    with pytest.raises(UsageError, match=message):
        replace(read_request(request, request.cache, [0]), **{field: given})
