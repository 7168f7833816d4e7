"""Tests of what a shape and strides are taken for: dimensions, named orders, and refusals."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from oracle.errors import UsageError
from oracle.geometry import CACHE_LAYOUTS, CacheGeometry
from oracle.views.tensor import (
    LAYOUTS,
    CacheTensor,
    cache_tensor,
    dense_strides,
    departures,
    from_array,
    of_geometry,
)

SHAPE = (3, 2, 16, 4, 72)
DENSE = (9216, 4608, 288, 72, 1)


def strides_of(tensor: CacheTensor) -> tuple[int, ...]:
    return (
        tensor.page_stride,
        tensor.side_stride,
        tensor.token_stride,
        tensor.head_stride,
        tensor.content_stride,
    )


def test_dense_strides_are_those_of_numpy() -> None:
    # An array in the named order, transposed to the order of the shape, has the strides looked for.
    axes = {"B": 3, "2": 2, "N": 16, "H": 4, "F": 72}
    for layout, order in (
        ("HND", "B2HNF"), ("LBHNC", "B2HNF"), ("NHD", "B2NHF"), ("LBNHC", "BN2HF"),
    ):  # fmt: skip
        array = np.empty([axes[letter] for letter in order], np.uint8)
        expected = array.transpose([order.index(letter) for letter in "B2NHF"]).strides
        assert dense_strides(SHAPE, layout) == expected
    packed = np.empty((3, 16, 8, 72), np.uint8)
    assert dense_strides((3, 8, 16, 72), "LBNHC") == packed.transpose(0, 2, 1, 3).strides
    assert dense_strides((3, 8, 16, 72), "NHD") == packed.transpose(0, 2, 1, 3).strides


@pytest.mark.parametrize("layout", ["BLHNC", "BLNHC"])
def test_layers_between_pages(layout: str) -> None:
    one, five = (dense_strides(SHAPE, layout, layers) for layers in (1, 5))
    assert five == (5 * one[0], *one[1:])
    assert not departures(cache_tensor(SHAPE, five), layout)
    assert not departures(cache_tensor(SHAPE, five), layout, 5)
    assert departures(cache_tensor(SHAPE, five), layout, 4)


@pytest.mark.parametrize("layout", CACHE_LAYOUTS)
def test_a_geometry_has_the_strides_of_its_layout(layout: str) -> None:
    tensor = of_geometry(CacheGeometry(3, 16, 4, 128, layout))
    assert strides_of(tensor) == dense_strides(SHAPE, layout)
    assert (tensor.head_size, tensor.data_bytes, tensor.scale_columns) == (128, 64, 8)
    assert tensor.storage_bytes == 3 * tensor.page_bytes
    assert tensor.geometry == CacheGeometry(1, 16, 4, 128, layout)


def test_every_order_of_the_dimensions_is_the_same_tensor() -> None:
    for names in ("B2NHF", "BPNF"):
        shape = SHAPE if names == "B2NHF" else (3, 8, 16, 72)
        strides = dense_strides(shape, "HND")
        seen = set()
        for order in permutations(range(len(names))):
            turned = cache_tensor(
                [shape[i] for i in order],
                [strides[i] for i in order],
                dims="".join(names[i] for i in order),
            )
            seen.add((strides_of(turned), turned.pages, turned.tokens, turned.heads))
        assert seen == {((*DENSE[:2], 72, 1152, 1), 3, 16, 4)}


@pytest.mark.parametrize("packed", [False, True])
def test_strides_of_singletons_do_not_matter(packed: bool) -> None:
    for pages, tokens, heads in product((1, 2), repeat=3):
        if packed:
            shape: tuple[int, ...] = (pages, 2 * heads, tokens, 72)
        else:
            shape = (pages, 2, tokens, heads, 72)
        strides = dense_strides(shape, "HND")
        plain = cache_tensor(shape, strides)
        for junk in (0, 1, 7, 10**9):
            strange = [
                junk if size == 1 else step for size, step in zip(shape, strides, strict=True)
            ]
            assert cache_tensor(shape, strange) == plain


def test_equal_strides_are_token_major_as_the_op_takes_them() -> None:
    # Its rule is stride(2) > stride(1).
    tensor = cache_tensor((2, 2, 4, 4, 9), (288, 144, 36, 36, 1))
    assert not tensor.heads_first
    assert tensor.geometry.cache_layout == "NHD"


def test_departures_name_the_stride() -> None:
    tensor = cache_tensor(SHAPE, dense_strides(SHAPE, "NHD"))
    assert departures(tensor, "NHD") == []
    assert departures(tensor, "LBHNC") == [
        "LBHNC steps 72 bytes from one token to the next, not 288",
        "LBHNC steps 1152 bytes from one head to the next, not 72",
    ]
    packed = cache_tensor((3, 8, 16, 72), dense_strides((3, 8, 16, 72), "NHD"))
    assert departures(packed, "NHD") == departures(packed, "LBNHC") == []


def test_an_array_is_known_by_its_attributes() -> None:
    array = np.zeros(SHAPE, np.uint8)
    assert from_array(array) == cache_tensor(SHAPE, DENSE)
    assert from_array(array[:, :, ::2]) == cache_tensor((3, 2, 8, 4, 72), (9216, 4608, 576, 72, 1))
    assert from_array(array.transpose(0, 1, 3, 2, 4), "B2HNF").tokens == 16
    assert from_array(as_strided(array, SHAPE, (0, 4608, 288, 72, 1))).page_stride == 0


REFUSED = [
    ((3, 2, 16, 72), (1, 1, 1), {}, "4 sizes have 3 strides"),
    ((3, 2, 16), (1, 1, 1), {}, "a shape of 3 dimensions"),
    ((3, 2, 16, 4, 72), DENSE, {"dims": "B2NHX"}, "as B2NHX"),
    ((3, 2, 16, 4, 72), DENSE, {"dims": "BPNF"}, "5 dimensions as BPNF"),
    ((0, 2, 16, 4, 72), DENSE, {}, "sizes of at least 1"),
    ((3, 2, -16, 4, 72), DENSE, {}, "sizes of at least 1"),
    ((3, 3, 16, 4, 72), DENSE, {}, "there are two sides"),
    ((3, 7, 16, 72), (1, 1, 1, 1), {}, "give an even number"),
    ((3, 2, 16, 4, 71), DENSE, {}, "71 bytes are no NVFP4 head"),
    ((3, 2, 16, 4, 72), (9216, 4608, -288, 72, 1), {}, "a negative stride"),
    ((3, 2, 16, 4, 72), DENSE, {"offset": -1}, "a negative stride or storage offset"),
    ((3, 2, 16, 4, 72), DENSE, {"storage_bytes": 27647}, "the strides leave the storage"),
    ((3, 2, 16, 4, 72), DENSE, {"storage_bytes": 27648, "offset": 1}, "leave the storage"),
    ((2**40, 2, 2**20, 4, 72), DENSE, {}, "overflows 64 bits"),
    ((3, 2, 16, 4, 72), (2**62, 4608, 288, 72, 1), {}, "overflows 64 bits"),
]


@pytest.mark.parametrize(("shape", "strides", "options", "words"), REFUSED)
def test_what_is_no_cache_is_refused(shape, strides, options, words) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError) as caught:
        cache_tensor(shape, strides, **options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_storage_is_just_large_enough() -> None:
    assert cache_tensor(SHAPE, DENSE, storage_bytes=27648).storage_bytes == 27648


def test_other_refusals() -> None:
    with pytest.raises(UsageError, match="no layout is called 'LBXYZ'"):
        dense_strides(SHAPE, "LBXYZ")
    with pytest.raises(UsageError, match="dtype uint8, not float32"):
        from_array(np.zeros(SHAPE, np.float32))
    with pytest.raises(UsageError, match="negative stride"):
        from_array(np.zeros(SHAPE, np.uint8)[::-1])
    assert len(LAYOUTS) == len(set(LAYOUTS)) == 6
