"""Every byte of small caches has one owner; views, tensors and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from oracle.errors import UsageError
from oracle.geometry import PLANES, SIDES, CacheGeometry, Region, StridedView, overlaps

relaxed = settings(deadline=None)  # a busy machine is no failure


class Owner(NamedTuple):
    """What a byte of the cache belongs to."""

    page: int
    side: str
    plane: str
    head: int
    row: int
    col: int


def owners(geometry: CacheGeometry) -> list[Owner]:
    """The owner of every byte in turn: the specification as the order of nested loops."""
    return list(walk(geometry))


def walk(geometry: CacheGeometry) -> Iterator[Owner]:
    heads, rows = range(geometry.num_heads), range(geometry.block_size)
    widths = {"data": geometry.head_size // 2, "scale": geometry.head_size // 16}
    for page in range(geometry.num_blocks):
        for side in ("K", "V"):
            for plane in ("data", "scale"):
                if geometry.cache_layout == "HND":
                    lines = [(head, row) for head in heads for row in rows]
                else:
                    lines = [(head, row) for row in rows for head in heads]
                for head, row in lines:
                    for col in range(widths[plane]):
                        yield Owner(page, side, plane, head, row, col)


SIZES = [(1, 1, 1, 16), (3, 4, 2, 32), (2, 3, 5, 48), (2, 5, 1, 64), (1, 1, 4, 16), (2, 4, 4, 80)]
GEOMETRIES = [CacheGeometry(*sizes, order) for sizes in SIZES for order in ("HND", "NHD")]
every_geometry = pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)


def address(geometry: CacheGeometry, owner: Owner) -> int:
    offset = geometry.data_offset if owner.plane == "data" else geometry.scale_offset
    return int(offset(owner.side, owner.page, owner.head, owner.row, owner.col))


# --- Addresses --------------------------------------------------------------------------------


@every_geometry
def test_every_byte_is_the_address_of_its_owner(geometry: CacheGeometry) -> None:
    owned = owners(geometry)
    assert geometry.cache_bytes == len(owned)
    assert [address(geometry, owner) for owner in owned] == list(range(len(owned)))


@every_geometry
def test_locate_names_the_owner_of_every_byte(geometry: CacheGeometry) -> None:
    where = geometry.locate(np.arange(geometry.cache_bytes))
    assert where.inside.all()
    named = [
        Owner(page, SIDES[side], PLANES[plane], head, row, col)
        for page, side, plane, head, row, col in zip(
            *(getattr(where, field).tolist() for field in Owner._fields), strict=True
        )
    ]
    assert named == owners(geometry)


@every_geometry
def test_broadcast_addresses_cover_the_cache_once(geometry: CacheGeometry) -> None:
    page = np.arange(geometry.num_blocks)[:, None, None, None]
    head = np.arange(geometry.num_heads)[:, None, None]
    row = np.arange(geometry.block_size)[:, None]
    planes = []
    for side in SIDES:
        planes.append(geometry.data_offset(side, page, head, row, np.arange(geometry.data_bytes)))
        columns = np.arange(geometry.scale_columns)
        planes.append(geometry.scale_offset(side, page, head, row, columns))
    together = np.sort(np.concatenate([plane.ravel() for plane in planes]))
    assert np.array_equal(together, np.arange(geometry.cache_bytes))


def test_the_other_cache_layout_has_other_owners() -> None:
    """What the exhaustive tests would say of a geometry that confuses the two."""
    for sizes in SIZES:
        hnd, nhd = (owners(CacheGeometry(*sizes, order)) for order in ("HND", "NHD"))
        _, tokens, heads, _ = sizes
        assert (hnd == nhd) == (tokens == 1 or heads == 1)


@relaxed
@given(st.integers(-(2**40), 2**40), st.sampled_from(GEOMETRIES))
def test_locate_outside_the_cache(offset: int, geometry: CacheGeometry) -> None:
    where = geometry.locate(offset)
    page, rest = divmod(offset, geometry.page_bytes)
    assert bool(where.inside) == (0 <= offset < geometry.cache_bytes)
    assert int(where.page) == page
    within = owners(geometry)[rest]
    assert (int(where.head), int(where.row), int(where.col)) == within[3:]
    assert (SIDES[int(where.side)], PLANES[int(where.plane)]) == within[1:3]


def test_the_numbers_of_a_common_page() -> None:
    """Head size 128, 8 heads, 16 tokens: H*N*D/2 = 8192 and H*N*S = 1024 bytes a region."""
    hnd = CacheGeometry(2, 16, 8, 128, "HND")
    assert (hnd.scale_columns, hnd.data_bytes, hnd.content_bytes) == (8, 64, 72)
    assert (hnd.side_bytes, hnd.page_bytes, hnd.cache_bytes) == (9216, 18432, 36864)
    assert (hnd.side_base("V"), hnd.scale_base("K"), hnd.scale_base("V")) == (9216, 8192, 17408)
    assert hnd.data_strides == (16 * 64, 64)
    assert hnd.scale_strides == (16 * 8, 8)
    assert hnd.num_slots == 32
    nhd = CacheGeometry(2, 16, 8, 128, "NHD")
    assert nhd.data_strides == (64, 8 * 64)
    assert nhd.scale_strides == (8, 8 * 8)
    assert int(hnd.scale_offset("V", 1, 3, 5, 7)) == 18432 + 17408 + 3 * 128 + 5 * 8 + 7
    assert int(nhd.scale_offset("V", 1, 3, 5, 7)) == 18432 + 17408 + 3 * 8 + 5 * 64 + 7


def test_plane_names_at_every_border() -> None:
    geometry = CacheGeometry(2, 4, 2, 32)  # 128 data and 16 scale bytes a side
    names = {
        -1: "before the allocation",
        0: "page 0 K data",
        127: "page 0 K data",
        128: "page 0 K scale",
        143: "page 0 K scale",
        144: "page 0 V data",
        272: "page 0 V scale",
        287: "page 0 V scale",
        288: "page 1 K data",
        575: "page 1 V scale",
        576: "past the allocation",
    }
    assert {offset: geometry.plane_name(offset) for offset in names} == names


# --- Regions ----------------------------------------------------------------------------------


@every_geometry
def test_the_regions_of_a_page_tile_it(geometry: CacheGeometry) -> None:
    regions = geometry.page_regions()
    assert [region.name for region in regions] == ["K data", "K scale", "V data", "V scale"]
    assert overlaps(regions) == []
    covered = [byte for region in regions for byte in range(region.start, region.stop)]
    assert covered == list(range(geometry.page_bytes))
    for region in regions:
        assert geometry.plane_name(region.start) == f"page 0 {region.name}"
        assert geometry.plane_name(region.stop - 1) == f"page 0 {region.name}"


spans = st.builds(
    lambda start, length: Region("r", start, start + length), st.integers(0, 8), st.integers(1, 4)
)


@relaxed
@given(st.lists(spans, max_size=5))
def test_overlaps_are_the_pairs_that_share_a_byte(regions: list[Region]) -> None:
    shared = [
        (one, other)
        for index, one in enumerate(regions)
        for other in regions[index + 1 :]
        if set(range(one.start, one.stop)) & set(range(other.start, other.stop))
    ]
    assert overlaps(regions) == shared


# --- Views and tensors ------------------------------------------------------------------------


def physical_cache(geometry: CacheGeometry) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A kv_cache [B, 2, N, H, F] as vLLM allocates it: contiguous in its physical order."""
    pages, tokens, heads = geometry.num_blocks, geometry.block_size, geometry.num_heads
    content = geometry.head_size * 9 // 16
    if geometry.cache_layout == "NHD":
        return np.zeros((pages, 2, tokens, heads, content), np.uint8)
    return np.zeros((pages, 2, heads, tokens, content), np.uint8).transpose(0, 1, 3, 2, 4)


def described(view: np.ndarray[Any, Any], cache: np.ndarray[Any, Any]) -> StridedView:
    """A NumPy view of the cache in our terms."""
    start = view.__array_interface__["data"][0] - cache.__array_interface__["data"][0]
    return StridedView(view.shape, view.strides, start)


@every_geometry
def test_views_are_what_slicing_the_cache_gives(geometry: CacheGeometry) -> None:
    cache = physical_cache(geometry)
    assert described(cache, cache) == geometry.cache_view()
    for index, side in enumerate(SIDES):
        assert described(cache[:, index], cache) == geometry.side_view(side)


@every_geometry
def test_side_views_cover_exactly_their_side(geometry: CacheGeometry) -> None:
    for side in SIDES:
        cache = np.zeros(geometry.cache_bytes, np.uint8)
        shape, strides, offset = geometry.side_view(side)
        as_strided(cache[offset:], shape, strides)[...] = 1
        assert np.flatnonzero(cache).tolist() == [
            byte for byte, owner in enumerate(owners(geometry)) if owner.side == side
        ]


@every_geometry
def test_the_op_tells_the_order_from_a_side_view(geometry: CacheGeometry) -> None:
    """The op's own rule, on the views it is given: is_hnd = stride(2) > stride(1)."""
    _, strides, _ = geometry.side_view("K")
    if geometry.block_size > 1 and geometry.num_heads > 1:
        assert (strides[2] > strides[1]) == (geometry.cache_layout == "HND")


class Tensor:
    """What the oracle needs of a torch tensor: strides by method, and torch's spelling."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.shape = array.shape
        self.dtype = f"torch.{array.dtype}"
        self._strides = array.strides

    def stride(self) -> tuple[int, ...]:
        return self._strides


@every_geometry
def test_a_tensor_gives_its_geometry_back(geometry: CacheGeometry) -> None:
    cache = physical_cache(geometry)
    order = geometry.cache_layout
    assert CacheGeometry.from_tensor(cache.shape, cache.strides, order) == geometry
    assert CacheGeometry.from_array(cache, order) == geometry
    assert CacheGeometry.from_array(Tensor(cache), order) == geometry
    if geometry.block_size > 1 and geometry.num_heads > 1:
        assert CacheGeometry.from_tensor(cache.shape, cache.strides) == geometry
        assert CacheGeometry.from_array(Tensor(cache)) == geometry
    else:
        with pytest.raises(UsageError, match=r"the same bytes with block_size .* cache_layout"):
            CacheGeometry.from_array(cache)


def test_strides_of_size_one_say_nothing() -> None:
    one_page = CacheGeometry(1, 4, 2, 32, "NHD")
    shape, strides, _ = one_page.cache_view()
    assert CacheGeometry.from_tensor(shape, (-7, *strides[1:])) == one_page
    one_head = CacheGeometry(2, 4, 1, 32, "HND")
    shape, strides, _ = one_head.cache_view()
    assert CacheGeometry.from_tensor(shape, (*strides[:3], 12345, 1), "HND") == one_head


TOKEN_MAJOR = np.zeros((3, 4, 2, 2, 18), np.uint8).transpose(0, 2, 1, 3, 4)
PADDED = np.zeros((3, 400), np.uint8)[:, :288].reshape(3, 2, 4, 2, 18)
SIDES_FIRST = np.zeros((2, 3, 4, 2, 18), np.uint8).transpose(1, 0, 2, 3, 4)
EVERY_OTHER = np.zeros((3, 2, 4, 2, 36), np.uint8)[..., ::2]
REVERSED = np.zeros((3, 2, 4, 2, 18), np.uint8)[::-1]


@pytest.mark.parametrize(
    "array",
    [TOKEN_MAJOR, PADDED, SIDES_FIRST, EVERY_OTHER, REVERSED],
    ids=["token-major", "padded pages", "sides first", "every other byte", "reversed"],
)
def test_any_other_order_is_refused_with_both_known_ones(array: np.ndarray[Any, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        CacheGeometry.from_array(array)
    message = str(caught.value)
    assert str(list(array.strides)) in message
    assert "HND [288, 144, 18, 72, 1]" in message
    assert "NHD [288, 144, 36, 18, 1]" in message
    assert ("overlap" in message) == (array is TOKEN_MAJOR)


def test_a_token_major_page_names_the_regions_that_overlap() -> None:
    with pytest.raises(UsageError, match="36 bytes apart make K data and V data overlap"):
        CacheGeometry.from_array(TOKEN_MAJOR)


@pytest.mark.parametrize(
    ("shape", "strides", "cache_layout", "message"),
    [
        ((3, 4, 2, 18), (144, 36, 18, 1), None, r"is \[pages, 2, tokens, heads, bytes\]"),
        ((3, 3, 4, 2, 18), (432, 144, 36, 18, 1), None, r"is \[pages, 2, tokens, heads, bytes\]"),
        ((3, 2, 4, 2, 18), (288, 144, 36, 18), None, "with 4 strides"),
        ((3, 2, 4, 2, 20), (320, 160, 40, 20, 1), None, "20 is no NVFP4 head"),
        ((3, 2, 4, 2, 0), (0, 0, 0, 0, 1), None, "head_size is 0"),
        ((0, 2, 4, 2, 18), (288, 144, 36, 18, 1), None, "num_blocks is 0"),
        ((3, 2, 4, 2, 18), (288, 144, 36, 18, 1), "HND", r"are not those of HND \[288, 144, 18"),
        ((3, 2, 4, 2, 18), (288, 144, 36, 18, 1), "NDH", "cache_layout is 'NDH'"),
    ],
)
def test_tensors_that_are_no_kv_cache_are_refused(
    shape: tuple[int, ...], strides: tuple[int, ...], cache_layout: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        CacheGeometry.from_tensor(shape, strides, cache_layout)


def test_an_array_that_is_not_of_bytes_is_refused() -> None:
    with pytest.raises(UsageError, match="dtype uint8, not float32"):
        CacheGeometry.from_array(np.zeros((3, 2, 4, 2, 18), np.float32))


# --- Sizes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((0, 16, 8, 128), "num_blocks is 0"),
        ((1, -1, 8, 128), "block_size is -1"),
        ((1, 16, 0, 128), "num_heads is 0"),
        ((1, 16, 8, 0), "head_size is 0: give a whole number"),
        ((1, 16, 8, -16), "head_size is -16: give a whole number"),
        ((1, 16, 8, 72), "head_size is 72: give a multiple of 16"),
        ((1, 16, 8, 128.0), "head_size is 128.0: give a whole number"),
        ((2**20, 2**10, 2**5, 2**7), "beyond the limit of 1099511627776"),
    ],
)
def test_sizes_that_cannot_be_are_refused(sizes: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CacheGeometry(*sizes)


def test_other_names_are_refused() -> None:
    with pytest.raises(UsageError, match="cache_layout is 'DHN': give HND or NHD"):
        CacheGeometry(1, 16, 8, 128, "DHN")
    with pytest.raises(UsageError, match="no side is called 'k': give K or V"):
        CacheGeometry(1, 16, 8, 128).side_base("k")
