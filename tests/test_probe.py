"""The probes recover any map, whatever it is, from bytes alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from subjects import LoggedWriter, TableReader, TableWriter

from oracle.addressmap import MISSING
from oracle.candidates import CANDIDATES
from oracle.codewords import ELEMENT_CODES, GUARD_CODE, SCALE_CODES, Book, digits, keys, words
from oracle.errors import UsageError
from oracle.formats import e4m3_decode, e4m3_encode, fp16_decode, fp16_encode
from oracle.geometry import CacheGeometry
from oracle.probe import PROBED_PAGES, AddressesVary, WriterProbe, map_writer
from oracle.readerprobe import map_reader
from oracle.requests import Stored, StoreRequest

SMALL = CacheGeometry(4, 4, 2, 64, "HND")


@pytest.mark.parametrize(("prime", "length"), [(13, 4), (113, 3)])
def test_two_words_agree_in_fewer_places_than_they_have_digits(prime: int, length: int) -> None:
    count = prime**2 - 5
    symbols = words(count, prime, length)
    assert digits(count, prime) == 2
    assert symbols.min() >= 0
    assert symbols.max() < prime
    for index in (0, 1, prime, count - 1):
        same = (symbols == symbols[:, [index]]).sum(axis=0)
        same[index] = 0
        assert same.max() <= 1


def test_words_are_the_values_of_the_polynomial() -> None:
    symbols = words(5000, 113, 5, first=3)
    for index in (0, 112, 113, 4999):
        low, high = index % 113, index // 113
        assert symbols[:, index].tolist() == [(low + high * x) % 113 for x in range(3, 8)]


def test_a_field_that_is_too_small_is_refused() -> None:
    with pytest.raises(UsageError, match="too many for one probe"):
        words(13**3, 13, 2)


def test_a_book_finds_by_search_what_a_wrong_guess_misses() -> None:
    known = keys(words(100, 13, 4).astype(np.uint8), 8)
    shuffled = np.random.default_rng(0).permutation(100)
    seen = np.append(known[shuffled], np.uint64(2**40))
    wrong = np.zeros(101, np.int64)
    assert Book(known).find(seen, wrong).tolist() == [*shuffled, -1]


def test_every_code_of_a_probe_is_one_the_formats_return_unchanged() -> None:
    scales = e4m3_decode(SCALE_CODES)
    assert (e4m3_encode(scales) == SCALE_CODES).all()
    for multiple in (0.5, 1.5, 6.0):
        assert (fp16_decode(fp16_encode(scales * np.float32(multiple))) == scales * multiple).all()
    assert GUARD_CODE not in ELEMENT_CODES


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_the_words_of_a_probe_are_distinct(dtype: str) -> None:
    probe = WriterProbe(CacheGeometry(4, 16, 4, 128, "NHD"), dtype)
    data, scale = keys(probe.codes, 4), keys(probe.scales, 8)
    assert np.unique(data).size == data.size
    assert np.unique(scale).size == scale.size


def tables(geometry: CacheGeometry) -> st.SearchStrategy[np.ndarray]:
    size = geometry.block_size * geometry.scale_columns
    shape = (geometry.block_size, geometry.scale_columns)
    anything = st.lists(st.integers(0, size - 1), min_size=size, max_size=size)
    either = st.one_of(st.permutations(range(size)), anything)
    return either.map(lambda flat: np.array(flat, np.int64).reshape(shape))


@given(tables(SMALL), tables(SMALL), st.sampled_from(["HND", "NHD"]))
def test_any_reader_table_is_recovered(k: np.ndarray, v: np.ndarray, layout: str) -> None:
    geometry = CacheGeometry(4, 4, 2, 64, layout)
    read = map_reader(TableReader(k, v), geometry)
    for side, table in (("K", k), ("V", v)):
        relative = read.maps[side, "scale"].plane_relative()
        assert relative is not None
        assert (relative == table).all()
        data = read.maps[side, "data"].plane_relative()
        assert data is not None
        assert (data == np.arange(4 * 64).reshape(4, 64)).all()


@given(st.permutations(range(16)), st.permutations(range(16)), st.sampled_from(["HND", "NHD"]))
def test_any_permutation_written_is_recovered(k: list[int], v: list[int], layout: str) -> None:
    geometry = CacheGeometry(4, 4, 2, 64, layout)
    both = [np.array(flat).reshape(4, 4) for flat in (k, v)]
    for writer in (TableWriter(*both), LoggedWriter(*both)):
        written = map_writer(writer, geometry, "bf16")
        for side, table in zip("KV", both, strict=True):
            assert (written.maps[side, "scale"].plane_relative() == table).all()
        assert written.unexplained.size == 0
        assert written.touched.size == 2 * geometry.page_bytes


@given(tables(SMALL))
def test_a_scale_another_token_overwrites_is_found_by_storing_it_alone(table: np.ndarray) -> None:
    written = map_writer(TableWriter(table, "linear"), SMALL, "fp16")
    offset = written.maps["K", "scale"].plane_relative()
    for token in range(4):
        for column in range(4):
            # Within one token the last column wins, and nothing can show the others.
            hidden = (table[token, column + 1 :] == table[token, column]).any()
            found = written.maps["K", "scale"].found[:, :, token, column]
            assert found.all() == (not hidden)
    if offset is not None:
        assert (offset == table).all()


@pytest.mark.parametrize("search", ["max6", "4over6"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("layout", ["HND", "NHD"])
@pytest.mark.parametrize("head_size", [64, 192, 256])
def test_the_searches_and_dtypes_store_the_same_map(
    head_size: int, layout: str, dtype: str, search: str
) -> None:
    geometry = CacheGeometry(4, 16, 2, head_size, layout)
    columns = geometry.scale_columns
    writer = TableWriter("linear", "swizzle_4x4", search)
    written = map_writer(writer, geometry, dtype)
    for side, name in (("K", "linear"), ("V", "swizzle_4x4")):
        expected = CANDIDATES[name].table(16, columns)
        assert (written.maps[side, "scale"].plane_relative() == expected).all()


class Forgetful(TableWriter):
    """Leaves the last token of every page as it was."""

    def write(self, request: StoreRequest) -> Stored:
        slots = request.slot_mapping.copy()
        slots[slots % request.geometry.block_size == request.geometry.block_size - 1] = -1
        fewer = StoreRequest(**{**request.__dict__, "slot_mapping": slots})
        return super().write(fewer)


def test_a_token_that_is_never_stored_is_missing() -> None:
    written = map_writer(Forgetful("linear", "linear"), SMALL, "bf16")
    for amap in written.maps.values():
        assert (amap.offset[:, :, 3] == MISSING).all()
        assert amap.found[:, :, :3].all()


class Restless(LoggedWriter):
    """Stores to addresses that depend on the values."""

    def write(self, request: StoreRequest) -> Stored:
        stored = super().write(request)
        assert stored.stores is not None
        shift = int(request.key.astype(np.int64).sum() % 7)
        moved = type(stored.stores)(stored.stores.offset + shift, stored.stores.value)
        return Stored(stored.cache, moved)


def test_addresses_that_depend_on_values_are_no_map() -> None:
    with pytest.raises(AddressesVary, match="depend on the values"):
        map_writer(Restless("linear", "linear"), SMALL, "bf16")


def test_a_probe_stores_two_pages_in_shuffled_order_with_padding() -> None:
    probe = WriterProbe(SMALL, "bf16")
    slots = probe.slots
    assert sorted(slots[slots >= 0]) == list(range(4, 12))
    assert (slots < 0).sum() == 3
    assert slots.tolist() != sorted(slots)
    assert PROBED_PAGES == (1, 2)
