"""Tests of round trips: equal to a cache of labels, and to bytes that the reference stores."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from owners import tensors

from oracle.candidates import candidate
from oracle.errors import UsageError
from oracle.formats import bf16_encode
from oracle.geometry import PLANES, SIDES, CacheGeometry
from oracle.quantize import ScaleSearch
from oracle.reference import reference_read, reference_write
from oracle.requests import ReadRequest, StoreRequest
from oracle.views.planes import SPLITS, Carving, Plane, carve, view_split
from oracle.views.roundtrip import MAX_BYTES, RoundTrip, round_trip
from oracle.views.tensor import CacheTensor, cache_tensor, dense_strides, of_geometry

LINEAR = dict.fromkeys(SIDES, "linear")
SM100 = {"K": "linear", "V": "swizzle_4x4"}


def coordinates(plane: Plane) -> list[tuple[int, ...]]:
    """Page, token, head and column of a plane, in the order of stores."""
    pages, heads, tokens, columns = plane.shape
    return list(product(range(pages), range(tokens), range(heads), range(columns)))


def place(plane: Plane, spot: tuple[int, ...], layout: str) -> int:
    page, token, head, column = spot
    if plane.kind == "scale":
        columns = plane.shape[3]
        token, column = divmod(
            int(candidate(layout).table(plane.shape[2], columns)[token, column]), columns
        )
    return int(plane.offsets(page, head, token, column))


def assert_as_labelled(
    found: RoundTrip, writer: Carving, reader: Carving, stored: dict[str, str], read: dict[str, str]
) -> None:
    cache: dict[int, tuple[str, tuple[int, ...]]] = {}
    for plane in writer.planes:
        for spot in coordinates(plane):
            cache[place(plane, spot, stored[plane.side])] = (plane.name, spot)
    kept = replaced = unwritten = 0
    for plane in reader.planes:
        for spot in coordinates(plane):
            label = cache.get(place(plane, spot, read[plane.side]))
            kept += label == (plane.name, spot)
            unwritten += label is None
            replaced += label is not None and label != (plane.name, spot)
    assert (found.kept, found.replaced, found.unwritten) == (kept, replaced, unwritten)
    assert found.coordinates == kept + replaced + unwritten
    assert set(found.touched[found.written_by >= 0].tolist()) == set(cache)
    assert_bytes_as_labelled(found, writer, reader, stored, read)


def assert_bytes_as_labelled(
    found: RoundTrip, writer: Carving, reader: Carving, stored: dict[str, str], read: dict[str, str]
) -> None:
    """Per byte, the last to write it and the first to read it, by their turns."""
    last: dict[int, int] = {}
    first: dict[int, int] = {}
    turn = 0
    for one, other in zip(writer.planes, reader.planes, strict=True):
        for spot in coordinates(one):
            last[place(one, spot, stored[one.side])] = turn
            first.setdefault(place(other, spot, read[other.side]), turn)
            turn += 1
    assert found.touched.tolist() == sorted(last.keys() | first.keys())
    assert found.written_by.tolist() == [last.get(byte, -1) for byte in found.touched.tolist()]
    assert found.read_by.tolist() == [first.get(byte, -1) for byte in found.touched.tolist()]


@settings(max_examples=60, deadline=None)
@given(tensors(), st.sampled_from(sorted(SPLITS)), st.sampled_from(sorted(SPLITS)))
def test_a_round_trip_is_that_of_a_cache_of_labels(
    tensor: CacheTensor, one: str, other: str
) -> None:
    writer, reader = carve(tensor, view_split(one)), carve(tensor, view_split(other))
    found = round_trip(writer, reader, LINEAR, LINEAR)
    assert_as_labelled(found, writer, reader, LINEAR, LINEAR)


def test_layouts_take_part() -> None:
    shape = (2, 2, 8, 2, 72)
    carving = carve(cache_tensor(shape, dense_strides(shape, "NHD")), view_split("vllm"))
    for stored, read in product((LINEAR, SM100), repeat=2):
        found = round_trip(carving, carving, stored, read)
        assert_as_labelled(found, carving, carving, stored, read)
        assert (found.witness is None) == (stored == read)
    assert round_trip(carving, carving, SM100, LINEAR).witness == (
        "page 0 V scale head 0 token 0 column 1 finds what page 0 V scale head 0 token 1 column 0 "
        "stored"
    )


def test_runs_cover_every_touched_byte_once_and_name_who() -> None:
    shape = (2, 2, 4, 2, 18)
    tensor = cache_tensor(shape, dense_strides(shape, "LBNHC"))
    found = round_trip(
        carve(tensor, view_split("inline")), carve(tensor, view_split("contiguous")), LINEAR, LINEAR
    )
    runs = list(found.runs())
    assert len(runs) == found.run_count
    covered = [byte for run in runs for byte in range(run.start, run.start + run.length)]
    assert covered == found.touched.tolist()
    assert (runs[0].start, runs[0].length) == (0, 16)
    assert runs[0].written_by == runs[0].read_by == "page 0 K data head 0 token 0 byte 0"
    assert runs[1].written_by == "page 0 K scale head 0 token 0 column 0"
    assert runs[1].read_by == "page 0 K data head 1 token 0 byte 0"
    assert any(run.read_by is None for run in runs)


@pytest.mark.parametrize("split", ["vllm", "contiguous"])
@pytest.mark.parametrize("cache_layout", ["HND", "NHD"])
def test_what_is_kept_is_what_the_reference_reads_back(cache_layout: str, split: str) -> None:
    # The reference writes real bytes into its own page; a split that keeps all of a round trip
    # against "page" must show the same bytes at the same coordinates.
    geometry = CacheGeometry(3, 8, 2, 64, cache_layout)
    tensor = of_geometry(geometry)
    slots = np.arange(geometry.num_slots)
    values = np.random.default_rng(0).standard_normal((slots.size, 2, 64)).astype(np.float32)
    request = StoreRequest(
        geometry, "bf16", bf16_encode(values), bf16_encode(-2 * values), slots, 1.0, 1.0,
        np.zeros(geometry.cache_bytes, np.uint8),
    )  # fmt: skip
    cache = reference_write(request, "linear", "swizzle_4x4", ScaleSearch.MAX_OVER_6)
    writer, reader = (carve(tensor, view_split(name)) for name in ("page", split))
    found = round_trip(writer, reader, SM100, SM100)
    assert found.kept == found.coordinates == geometry.cache_bytes
    for side, kind in product(SIDES, PLANES):
        plane = reader.plane(side, kind)
        mesh = np.ix_(*(np.arange(size) for size in plane.shape))
        address = geometry.data_offset if kind == "data" else geometry.scale_offset
        page, head, row, column = mesh
        assert np.array_equal(
            cache[plane.offsets(*mesh)], cache[address(side, page, head, row, column)]
        )
    assert reference_read(ReadRequest(geometry, cache, slots, 1.0, 1.0), "linear", "swizzle_4x4")


def test_a_large_cache_is_looked_at_page_by_page() -> None:
    shape = (100_000, 2, 64, 8, 72)
    tensor = cache_tensor(shape, dense_strides(shape, "HND"))
    carving = carve(tensor, view_split("vllm"))
    found = round_trip(carving, carving, SM100, SM100)
    assert found.pages == MAX_BYTES // 73728
    assert found.kept == found.coordinates == found.pages * 73728


def test_refusals() -> None:
    shapes = (2, 2, 8, 2, 72), (2, 2, 8, 4, 72)
    one, other = (
        carve(cache_tensor(shape, dense_strides(shape, "HND")), view_split("vllm"))
        for shape in shapes
    )
    with pytest.raises(UsageError, match="needs the same pages, heads, tokens"):
        round_trip(one, other, LINEAR, LINEAR)
    shape = (2, 2, 4096, 16, 288)
    huge = carve(cache_tensor(shape, dense_strides(shape, "HND")), view_split("vllm"))
    with pytest.raises(UsageError, match="is too large for a round trip"):
        round_trip(huge, huge, LINEAR, LINEAR)


def test_pages_may_lie_far_apart() -> None:
    shape = (3, 2, 8, 2, 72)
    strides = (10**12, *dense_strides(shape, "HND")[1:])
    carving = carve(cache_tensor(shape, strides), view_split("vllm"))
    found = round_trip(carving, carving, LINEAR, LINEAR)
    assert found.kept == found.coordinates == found.touched.size == 3 * 2304
