"""Admissible sets against brute force: every combination of reciprocals, in exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from oracle.formats import DTYPES, FloatArray, bf16_encode
from oracle.numerics import exact
from oracle.numerics.admissible import Admissible, admissible, amax, explained
from oracle.numerics.domain import ODD_SCALES, drawn_batches, tie_batches
from oracle.numerics.edges import BOTH_EXACT, NEAR_TIE, TIES, WITNESS, WORSE_TAKEN
from oracle.numerics.exact import EVALUATIONS, Exact
from oracle.numerics.freedom import reciprocals
from oracle.quantize import RECIPROCALS, ScaleSearch, quantize, rcp_exact

MAX, FOUR = ScaleSearch.MAX_OVER_6, ScaleSearch.FOUR_OVER_SIX
OFF = (-1, 0, 1)
every_search = pytest.mark.parametrize("search", ScaleSearch, ids=lambda search: search.value)


def outcomes(group: list[float], scale: float, search: ScaleSearch) -> set[Exact]:
    """Everything some choice of results within one ulp stores."""
    if search is MAX:
        return {
            exact.quantize_exactly(group, scale, search, {"g": g, "six": six})
            for g, six in product(OFF, OFF)
        }
    stored: set[Exact] = set()
    for g in OFF:
        six, four = (list(_candidates(group, scale, name, g)) for name in ("six", "four"))
        for (six_result, six_error), (four_result, four_error) in product(six, four):
            # One scale byte means one multiplier, and the reciprocal is a function.
            if six_result.scale_byte == four_result.scale_byte:
                stored.add(six_result)
            else:
                stored.add(four_result if four_error < six_error else six_result)
    return stored


def _candidates(
    group: list[float], scale: float, name: str, g: int
) -> Iterator[tuple[Exact, float]]:
    for off in OFF:
        result, multiplier = exact._candidate(group, scale, name, {"g": g, name: off})
        for inverse in OFF:
            yield result, exact._computed_error(group, result, multiplier, inverse)


def sets(found: Admissible) -> dict[int, list[set[int]]]:
    """Scale byte -> the set of codes of each element, for a single group."""
    answer: dict[int, list[set[int]]] = {}
    for byte, possible, masks in zip(
        found.scale_bytes.tolist(), found.possible.tolist(), found.codes.tolist(), strict=True
    ):
        if possible:
            members = [{code for code in range(16) if mask >> code & 1} for mask in masks]
            assert byte not in answer or answer[byte] == members
            answer[byte] = members
    return answer


def brute(group: list[float], scale: float, search: ScaleSearch) -> dict[int, list[set[int]]]:
    answer: dict[int, list[set[int]]] = {}
    for codes, byte in outcomes(group, scale, search):
        for members, code in zip(answer.setdefault(byte, [set() for _ in codes]), codes,
                                 strict=True):  # fmt: skip
            members.add(code)
    return answer


def check(group: list[float], scale: float, search: ScaleSearch) -> None:
    x = np.array(group, np.float32)
    assert sets(admissible(x, scale, search)) == brute(x.tolist(), scale, search)


SCALES = (1.0, 0.5, 0.013700000010430813, 448 / 2**16)
any_patterns = arrays(np.uint16, 16, elements=st.integers(0, 2**16 - 1))
halves = arrays(np.int32, 16, elements=st.integers(-24, 24)).map(
    lambda a: bf16_encode((a / 2).astype(np.float32))
)


@settings(max_examples=60, deadline=None)
@given(any_patterns | halves, st.sampled_from(SCALES) | st.floats(width=32))
def test_max_over_6_allows_what_reciprocals_explain(patterns: Any, scale: float) -> None:
    check(DTYPES["bf16"].decode(patterns).tolist(), scale, MAX)


@pytest.mark.parametrize(
    ("group", "scale"),
    [
        (TIES, 1.0),
        (WITNESS, 1.0),
        (BOTH_EXACT, 1.0),
        (NEAR_TIE, 1.0),
        (WORSE_TAKEN, float(np.float32(1.2))),
        ((3.0, *[0.0] * 15), 1.0),
        ((math.nan, 3.0, *[1.0] * 14), 1.0),
        ((math.inf, *[1.0] * 15), 0.5),
        (TIES, 2.0**-126),
        (TIES, 2.0**125),
    ],
)
def test_four_over_six_allows_what_reciprocals_explain(
    group: tuple[float, ...], scale: float
) -> None:
    check(list(group), scale, FOUR)


@settings(max_examples=8, deadline=None)
@given(halves | any_patterns, st.sampled_from(SCALES))
def test_four_over_six_allows_what_reciprocals_explain_of_any_group(
    patterns: Any, scale: float
) -> None:
    check(DTYPES["bf16"].decode(patterns).tolist(), scale, FOUR)


@pytest.mark.parametrize("scale", [2.0**126, 2.0**-126, *ODD_SCALES])
def test_max_over_6_at_the_ends_of_the_range(scale: float) -> None:
    scale = float(np.float32(scale))
    for group in (TIES, tuple(v * 2.0**100 for v in TIES), (0.0,) * 16):
        check(list(group), scale, MAX)


def test_reciprocals_are_the_neighbours_of_the_right_one() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2**32, 4000, np.uint32).view(np.float32)
    x = np.concatenate([x, np.array([2.0**126, 2.0**127, 2.0**-126, 1.0, 0.0, -0.0, np.inf],
                                    np.float32)])  # fmt: skip
    found = reciprocals(x)
    for row, off in zip(found, OFF, strict=True):
        slow = np.array([exact.approximate_reciprocal(v, off) for v in x.tolist()], np.float32)
        ordinary = (np.abs(slow) > 2.0**-125) | ~np.isfinite(slow)
        assert np.array_equal(row[ordinary], slow[ordinary], equal_nan=True)


def test_next_to_the_smallest_normal_number_zero_is_possible_too() -> None:
    just_beyond = np.nextafter(np.float32(2.0**126), np.float32(np.inf))
    assert rcp_exact(just_beyond[None])[0] == 0
    assert reciprocals(just_beyond).tolist() == [0, 0, 2.0**-126]


# Whole batches: what is right must be admitted, what is wrong must not


@every_search
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rcp", RECIPROCALS)
def test_every_model_is_admissible(search: ScaleSearch, dtype: str, rcp: str) -> None:
    batches = [*drawn_batches(dtype, 800), next(tie_batches(dtype, search))]
    for label, (key, _, scale, _) in batches:
        x = DTYPES[dtype].decode(key)[:6000]
        codes, scale_bytes = quantize(x, scale, search, RECIPROCALS[rcp])
        scales_right, codes_right = admissible(x, scale, search).admits(codes, scale_bytes)
        assert scales_right.all(), label
        assert codes_right.all(), label
        assert explained(x, scale, codes, scale_bytes).all(), label


def test_a_reciprocal_20_ulp_off_is_seen() -> None:
    """Values so close above a tie that the multiplier's 10 ulp matter, and 3 would not."""

    def far(x: FloatArray) -> FloatArray:
        return np.asarray((rcp_exact(x).view(np.int32) + np.int32(20)).view(np.float32))

    above = np.float32(0.25) * (1 + np.arange(1, 16, dtype=np.float32) * np.float32(2**-23))
    x = np.array([[6.0, *above]], np.float32)
    codes, scale_bytes = quantize(x, 1.0, MAX, far)
    _, codes_right = admissible(x, 1.0).admits(codes, scale_bytes)
    assert codes_right.tolist() == [[True] * 3 + [False] * 8 + [True] * 5]


@every_search
def test_a_change_of_anything_not_open_is_seen(search: ScaleSearch) -> None:
    x = np.random.default_rng(2).standard_normal((400, 16)).astype(np.float32)
    allowed = admissible(x, 0.0137, search)
    closed = ~allowed.free
    codes, scale_bytes = quantize(x, 0.0137, search)
    assert closed.mean() > 0.9
    for off in range(1, 16):
        _, codes_right = allowed.admits((codes + off) % np.uint8(16), scale_bytes)
        assert not codes_right[closed].any()
    for off in range(1, 256):
        scales_right, _ = allowed.admits(codes, scale_bytes + np.uint8(off))
        assert not scales_right[closed].any()


def test_codes_that_no_single_multiplier_explains() -> None:
    x = np.array([[6.0, 0.25, 0.75, 1.25, *[0.0] * 12]], np.float32)
    byte = np.array([0x38], np.uint8)
    up = np.array([[7, 1, 2, 3, *[0] * 12]], np.uint8)
    torn = np.array([[7, 1, 1, 3, *[0] * 12]], np.uint8)
    allowed = admissible(x, 1.0)
    for codes, together in ((up, True), (torn, False)):
        assert allowed.admits(codes, byte)[1].all()
        assert explained(x, 1.0, codes, byte).tolist() == [together]


def test_near_ties_are_those_whose_scale_byte_is_open() -> None:
    x = np.array([NEAR_TIE, WITNESS, (0.0,) * 16, BOTH_EXACT], np.float32)
    assert admissible(x, 1.0, FOUR).near_tie.tolist() == [True, False, False, True]
    assert not admissible(x, 1.0, MAX).near_tie.any()


def test_shapes_follow_the_input() -> None:
    x = np.ones((3, 5, 16), np.float32)
    found = admissible(x, 1.0, FOUR)
    assert found.scale_bytes.shape == (3, 5, 2)
    assert found.codes.shape == (3, 5, 2, 16)
    assert found.free.shape == found.near_tie.shape == (3, 5)
    assert admissible(x[:0], 1.0).codes.shape == (0, 5, 1, 16)


@pytest.mark.parametrize("x", [np.zeros((2, 15), np.float32), np.zeros((2, 16))])
def test_a_wrong_shape_or_type_is_refused(x: Any) -> None:
    with pytest.raises(ValueError, match="groups"):
        admissible(x, 1.0)


def test_amax_passes_over_nans() -> None:
    x = np.array([[math.nan, -3.0, *[1.0] * 14], [math.nan] * 16, [-math.inf, *[0.0] * 15]])
    assert np.array_equal(amax(x.astype(np.float32)), [3.0, math.nan, math.inf], equal_nan=True)


def test_there_are_five_evaluations() -> None:
    """The brute force above tries as many as the exact quantiser has."""
    assert EVALUATIONS == ("g", "six", "six inverse", "four", "four inverse")
