"""Bytes are fetched from where a writer puts them, whatever its layout and how many there are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from subjects import LoggedWriter, TableWriter

from oracle.errors import NothingRan
from oracle.formats import DTYPES, bf16_encode
from oracle.geometry import CacheGeometry
from oracle.numerics.capture import GEOMETRY, MAX_TOKENS, Capture, Groups, Inputs
from oracle.numerics.misquantised import WRONG_QUANTISERS
from oracle.numerics.mutants import DECLARED, MutantWriter
from oracle.quantize import quantize
from oracle.requests import Stored, StoreRequest
from oracle.subjects.base import SubjectInfo
from oracle.subjects.spec import writers_from_specs

SMALL = CacheGeometry(1, 16, 2, 64)


def inputs(count: int, dtype: str = "bf16") -> Inputs:
    noise = np.random.default_rng(count).standard_normal((2, count, 16), np.float32)
    key, value = (DTYPES[dtype].encode(side) for side in noise)
    return Inputs(key, value, 0.0137, 0.5)


def check(capture: Capture, given: Inputs) -> None:
    stored = capture(given)
    decode = DTYPES[capture.dtype].decode
    for side, patterns, scale in (
        ("K", given.key, given.k_scale),
        ("V", given.value, given.v_scale),
    ):
        codes, scale_bytes = quantize(decode(patterns), scale)
        assert np.array_equal(stored[side].codes, codes)
        assert np.array_equal(stored[side].scale_bytes, scale_bytes)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("k", "v"),
    [("linear", "swizzle_4x4"), ("inverse_4x4", "linear"), ("double_swizzle_4x4", "tile_8x4")],
)
@pytest.mark.parametrize("kind", [TableWriter, LoggedWriter])
def test_any_layout(kind: type[TableWriter], k: str, v: str, dtype: str) -> None:
    check(Capture(kind(k, v), dtype), inputs(1000, dtype))


@pytest.mark.parametrize("layout", ["HND", "NHD"])
def test_any_geometry(layout: str) -> None:
    geometry = CacheGeometry(1, 12, 3, 192, layout)
    check(Capture(TableWriter("linear", "swizzle_4x4"), "bf16", geometry), inputs(777))


@pytest.mark.parametrize("count", [1, 63, 64, 65, 64 * 16 + 1])
def test_any_number_of_groups(count: int) -> None:
    check(Capture(TableWriter("linear", "linear"), "bf16"), inputs(count))


def test_more_groups_than_one_request_holds() -> None:
    capture = Capture(TableWriter("linear", "linear"), "bf16", SMALL)
    check(capture, inputs(MAX_TOKENS * capture.groups_per_token + 17))


def test_a_table_that_is_no_candidate() -> None:
    table = np.random.default_rng(0).permutation(16 * 8).reshape(16, 8)
    check(Capture(TableWriter(table, table[::-1]), "bf16"), inputs(300))


def test_codes_that_are_lost_are_read_in_their_usual_order() -> None:
    """A quantiser that drops signs hides its data map; its scales are found all the same."""
    wrong = WRONG_QUANTISERS["signs lost"]
    mutant = MutantWriter("lost", {"K": "inverse_4x4", "V": "tile_8x4"}, wrong)
    mutant = replace(mutant, declared={})
    given = inputs(200)
    stored = Capture(mutant, "bf16")(given)
    codes, scale_bytes = wrong(DTYPES["bf16"].decode(given.key), given.k_scale)
    assert np.array_equal(stored["K"].codes, codes)
    assert np.array_equal(stored["K"].scale_bytes, scale_bytes)


def test_a_mutant_whose_map_is_lost_is_read_where_it_declares() -> None:
    quantiser = WRONG_QUANTISERS["amax/4 for amax/6"]
    given = inputs(200)
    stored = Capture(MutantWriter("lost", DECLARED, quantiser), "bf16")(given)
    codes, scale_bytes = quantiser(DTYPES["bf16"].decode(given.key), given.k_scale)
    assert np.array_equal(stored["K"].codes, codes)
    assert np.array_equal(stored["K"].scale_bytes, scale_bytes)


class Nowhere(TableWriter):
    """Stores zeros, and declares nothing."""

    def write(self, request: StoreRequest) -> Stored:
        return Stored(np.zeros_like(request.cache))


def test_nothing_declared_and_nothing_found() -> None:
    with pytest.raises(NothingRan, match="scales of K could not be recovered, and nothing is"):
        Capture(Nowhere("linear", "linear"), "bf16")


class Straying(TableWriter):
    """Puts the scales of page p where those of page p - 1 belong."""

    def write(self, request: StoreRequest) -> Stored:
        slots = request.slot_mapping
        moved = np.where(slots < 0, slots, slots - request.geometry.block_size)
        return super().write(replace(request, slot_mapping=moved))


def test_bytes_in_another_page_are_not_taken() -> None:
    with pytest.raises(NothingRan, match="could not be recovered"):
        Capture(Straying("linear", "linear"), "bf16")


def test_a_refusal_is_passed_on() -> None:
    (writer,) = writers_from_specs(["reference:k=linear,v=swizzle_4x4"], (), ("bf16",))
    with pytest.raises(NothingRan, match="swizzle_4x4 needs S"):
        Capture(writer, "bf16", replace(GEOMETRY, head_size=96))


def test_sides_do_not_mix() -> None:
    """K and V have groups and a scale of their own."""
    ones = bf16_encode(np.ones((4, 16), np.float32))
    given = Inputs(ones, np.zeros_like(ones), 1.0, 2.0)
    stored = Capture(TableWriter("linear", "linear"), "bf16")(given)
    assert stored["V"].scale_bytes.tolist() == [0] * 4
    assert stored["K"].scale_bytes.tolist() == [0x23] * 4
    assert isinstance(stored["K"], Groups)


def test_info_of_a_table_writer_declares_nothing() -> None:
    """What the tests above rest on: these places were recovered, not declared."""
    info: SubjectInfo = TableWriter("linear", "linear").info
    assert not info.declared
