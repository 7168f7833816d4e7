"""Tests of slices: runs, closedness and order, each against bytes enumerated one by one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from owners import tensors

from oracle.candidates import CANDIDATES
from oracle.errors import UsageError
from oracle.geometry import SIDES
from oracle.views.owners import Owners
from oracle.views.planes import SPLITS, Carving, Plane, carve, view_split
from oracle.views.slices import narrowed, runs, slice_verdict, unequal_parts
from oracle.views.tensor import CacheTensor, cache_tensor, dense_strides

relaxed = settings(deadline=None)  # a busy machine is no failure

LINEAR = dict.fromkeys(SIDES, "linear")


def cache(layout: str, split: str, heads: int = 4, tokens: int = 16) -> Carving:
    shape = (3, 2, tokens, heads, 72)
    return carve(cache_tensor(shape, dense_strides(shape, layout)), view_split(split))


def bytes_in_page(plane: Plane) -> np.ndarray:  # type: ignore[type-arg]
    """Distinct offsets of page 0, rising."""
    _, *inner = plane.shape
    return np.unique(plane.offsets(0, *np.ix_(*(np.arange(size) for size in inner))))


@relaxed
@given(tensors(), st.sampled_from(sorted(SPLITS)))
def test_runs_hold_every_byte_of_a_page(tensor: CacheTensor, split: str) -> None:
    carving = carve(tensor, view_split(split))
    for plane in carving.planes:
        found = runs(plane)
        if Owners(carving).once:
            assert found.start == bytes_in_page(plane)[0]
            assert found.length * found.count == bytes_in_page(plane).size


@pytest.mark.parametrize("split", ["vllm", "inline"])
@pytest.mark.parametrize("layout", ["HND", "NHD"])
def test_runs_are_as_long_as_they_can_be(layout: str, split: str) -> None:
    carving = cache(layout, split)
    parts = [range(0, 1), range(1, 3), range(0, 4)], [range(0, 16), range(3, 4), range(4, 12)]
    for heads, tokens in product(*parts):
        verdict = slice_verdict(carving, heads, tokens, LINEAR)
        for plane, found in zip(carving.planes, verdict.runs, strict=True):
            offsets = bytes_in_page(plane.narrowed(heads, tokens))
            breaks = np.flatnonzero(np.diff(offsets) > 1).size
            assert (found.start, found.count) == (offsets[0], breaks + 1)
            assert found.length * found.count == offsets.size


@pytest.mark.parametrize("layout", CANDIDATES)
def test_a_slice_of_tokens_is_closed_just_where_its_rows_hold_its_scales(layout: str) -> None:
    tokens = 128 if layout == "tile_128x4" else 16
    shape = (2, 2, tokens, 2, 9 * 32)
    carving = carve(cache_tensor(shape, dense_strides(shape, "HND")), view_split("vllm"))
    table = CANDIDATES[layout].table(tokens, 32)
    step = 1 if tokens == 16 else 16
    layouts = {"K": "linear", "V": layout}
    for start, stop in product(range(0, tokens, step), range(step, tokens + 1, step)):
        if start < stop:
            rows = table[start:stop] // 32
            closed = bool(((rows >= start) & (rows < stop)).all())
            found = slice_verdict(carving, range(2), range(start, stop), layouts)
            assert found.closed == closed
            assert set(found.open_sides) <= {"V"}


def test_a_swizzle_is_closed_on_whole_bands_only() -> None:
    carving = cache("HND", "vllm")
    layouts = {"K": "linear", "V": "swizzle_4x4"}
    found = slice_verdict(carving, range(0, 4), range(0, 6), layouts)
    assert found.open_sides == {
        "V": "the scale of token 4 column 4 is in row 6 (swizzle_4x4)",
    }
    assert slice_verdict(carving, range(1, 2), range(4, 12), layouts).closed


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("layout", ["HND", "NHD"])
def test_slicing_before_carving_is_refused_just_where_bytes_differ(layout: str, split: str) -> None:
    carving = cache(layout, split)
    for heads, tokens in product(
        (range(0, 4), range(0, 1), range(1, 3)), (range(0, 16), range(0, 8), range(8, 16))
    ):
        found = slice_verdict(carving, heads, tokens, LINEAR)
        sliced = carve(narrowed(carving.tensor, heads, tokens), carving.split)
        same = all(
            np.array_equal(bytes_in_page(one.narrowed(heads, tokens)), bytes_in_page(other))
            for one, other in zip(carving.planes, sliced.planes, strict=True)
        )
        assert (found.carve_first is None) == same


def test_a_tensor_slice_for_tensor_parallelism_is_carved_elsewhere() -> None:
    found = slice_verdict(cache("HND", "vllm"), range(2, 4), range(16), LINEAR)
    assert found.carve_first == (
        "the base of K data is 2048 in the slice, and carving the sliced tensor makes it 2304"
    )
    assert (
        slice_verdict(cache("HND", "head_slots"), range(2, 4), range(16), LINEAR).carve_first
        is None
    )


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("layout", ["HND", "NHD", "LBNHC"])
@pytest.mark.parametrize("padding", [0, 64])
def test_equal_parts_are_heads_just_where_they_hold_their_bytes(
    layout: str, split: str, padding: int
) -> None:
    shape = (3, 2, 4, 3, 18)
    strides = list(dense_strides(shape, layout))
    strides[0] += padding
    carving = carve(cache_tensor(shape, strides), view_split(split))
    part = strides[0] // 6
    held = True
    for plane in carving.planes:
        for head in range(3):
            offsets = bytes_in_page(plane.narrowed(range(head, head + 1), range(4)))
            number = SIDES.index(plane.side) * 3 + head
            held &= bool((offsets // part == number).all())
    assert (unequal_parts(carving) is None) == held


def test_only_head_slots_are_equal_parts_and_padding_spoils_them() -> None:
    assert unequal_parts(cache("HND", "head_slots")) is None
    assert unequal_parts(cache("HND", "inline")) is None
    assert unequal_parts(cache("HND", "vllm")) == (
        "part 1 of 8 is bytes 1152 to 2303, and K data of head 1 is in 1024 to 2047"
    )
    shape = (3, 2, 16, 4, 72)
    strides = (9216 + 512, *dense_strides(shape, "HND")[1:])
    padded = carve(cache_tensor(shape, strides), view_split("head_slots"))
    assert unequal_parts(padded) == (
        "part 1 of 8 is bytes 1216 to 2431, and K data of head 1 is in 1152 to 2175"
    )


def test_a_part_one_byte_too_short_is_seen() -> None:
    shape = (3, 2, 16, 4, 72)
    strides = (9216 - 8, *dense_strides(shape, "HND")[1:])
    short = carve(cache_tensor(shape, strides), view_split("head_slots"))
    assert unequal_parts(short) == (
        "part 0 of 8 is bytes 0 to 1150, and K scale of head 0 is in 1024 to 1151"
    )


@pytest.mark.parametrize(("heads", "tokens"), [
    (range(0, 5), range(0, 16)), (range(3, 3), range(0, 16)), (range(0, 4), range(0, 17)),
    (range(-1, 2), range(0, 16)), (range(0, 4, 2), range(0, 16)),
])  # fmt: skip
def test_slices_outside_the_cache_are_refused(heads: range, tokens: range) -> None:
    with pytest.raises(UsageError, match="is no slice of"):
        slice_verdict(cache("HND", "vllm"), heads, tokens, LINEAR)
