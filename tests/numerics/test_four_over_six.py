"""Four over six: what its choice guarantees, by exact arithmetic, on whatever Hypothesis finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from oracle.formats import DTYPES, bf16_encode, e4m3_decode
from oracle.numerics.admissible import admissible
from oracle.numerics.edges import BOTH_EXACT, NEAR_TIE, WITNESS, WORSE_TAKEN
from oracle.numerics.exact import (
    EVALUATIONS,
    Exact,
    candidates_exactly,
    quantize_exactly,
    true_error,
)
from oracle.numerics.margin import Margin, ordinary
from oracle.quantize import ScaleSearch, quantize

MAX, FOUR = ScaleSearch.MAX_OVER_6, ScaleSearch.FOUR_OVER_SIX

patterns = arrays(np.uint16, 16, elements=st.integers(0, 2**16 - 1))
halves = arrays(np.int32, 16, elements=st.integers(-24, 24)).map(
    lambda a: bf16_encode((a / 2).astype(np.float32))
)
normal = st.integers(0, 2**32 - 1).map(
    lambda seed: bf16_encode(np.random.default_rng(seed).standard_normal(16).astype(np.float32))
)
scales = st.sampled_from([1.0, 0.25, 6 / 2688, 6 / 448, 1.2]) | st.floats(2**-20, 2**20, width=32)
reciprocal_errors = st.fixed_dictionaries(
    {name: st.sampled_from([-1, 0, 1]) for name in EVALUATIONS}
)


def margin(group: list[float], scale: float, ulps: dict[str, int] | None = None) -> Margin:
    six, four = candidates_exactly(group, scale, ulps)
    return Margin.of(group, six, four, scale)


@settings(max_examples=200, deadline=None)
@given(halves | normal | patterns, scales, reciprocal_errors)
def test_the_stored_error_never_exceeds_that_of_max_over_6_but_in_near_ties(
    words: Any, scale: float, ulps: dict[str, int]
) -> None:
    group, scale = DTYPES["bf16"].decode(words).tolist(), float(np.float32(scale))
    if not ordinary(group, scale):
        return
    stored = true_error(group, quantize_exactly(group, scale, FOUR, ulps), scale)
    default = true_error(group, quantize_exactly(group, scale, MAX, ulps), scale)
    bounds = margin(group, scale, ulps)
    assert default == bounds.six
    assert stored <= default + bounds.width
    if not bounds.near_tie:
        assert stored == min(bounds.six, bounds.four)
        assert stored <= default


@settings(max_examples=150, deadline=None)
@given(halves | normal, scales)
def test_what_is_named_a_near_tie_is_one(words: Any, scale: float) -> None:
    """A choice that some reciprocal turns over is within the uncertainty of the true errors."""
    x, scale = DTYPES["bf16"].decode(words), float(np.float32(scale))
    if admissible(x, scale, FOUR).near_tie:
        assert ordinary(x.tolist(), scale)
        assert margin(x.tolist(), scale).near_tie


def test_the_witness_is_strictly_better() -> None:
    found = margin(list(WITNESS), 1.0)
    assert (found.six, found.four) == (15 * 0.25, 0)
    assert not found.near_tie
    assert quantize_exactly(WITNESS, 1.0, FOUR) == Exact((6, *[5] * 15), 0x3C)


def test_equal_errors_stay_with_six() -> None:
    assert margin(list(BOTH_EXACT), 1.0).six == margin(list(BOTH_EXACT), 1.0).four == 0
    assert quantize_exactly(BOTH_EXACT, 1.0, FOUR).scale_byte == 0x40


def test_near_ties_are_named() -> None:
    assert margin(list(NEAR_TIE), 1.0).near_tie
    assert not margin(list(WITNESS), 1.0).near_tie


def test_rounding_can_take_the_worse_candidate() -> None:
    """So "never worse than max/6" is true of true errors, and of a store but for near ties."""
    scale = float(np.float32(1.2))
    stored = true_error(WORSE_TAKEN, quantize_exactly(WORSE_TAKEN, scale, FOUR), scale)
    default = true_error(WORSE_TAKEN, quantize_exactly(WORSE_TAKEN, scale, MAX), scale)
    assert default < stored < default * (1 + 2.0**-20)
    codes, scale_byte = quantize(np.array(WORSE_TAKEN, np.float32), scale, FOUR)
    assert (tuple(codes.tolist()), int(scale_byte)) == quantize_exactly(WORSE_TAKEN, scale, FOUR)


@pytest.mark.parametrize("dtype", DTYPES)
def test_under_amax_over_2688_the_4_of_large_groups_saturates(dtype: str) -> None:
    rng = np.random.default_rng(8)
    verbs = DTYPES[dtype]
    x = verbs.decode(verbs.encode(rng.standard_normal((4000, 16)).astype(np.float32)))
    scale = float(np.abs(x).max() / np.float32(2688))
    found = admissible(x, scale, FOUR)
    share = np.abs(x).max(axis=-1) / np.abs(x).max()
    four = e4m3_decode(found.scale_bytes[:, 1])
    assert (four[share > 0.7] == 448).all()
    assert share.max() == 1
    # The largest group's candidates are one and the same, so nothing can be chosen.
    assert found.scale_bytes[share == 1].tolist() == [[0x7E, 0x7E]]
    codes, scale_bytes = quantize(x, scale, FOUR)
    decoded = np.abs(e4m3_decode(scale_bytes) * np.float32(scale))
    assert (np.abs(x).max(axis=-1) <= 6.4 * decoded).all()
    assert found.admits(codes, scale_bytes)[1].all()


def test_extreme_groups_are_not_ordinary() -> None:
    assert ordinary([1.0] * 16, 1.0)
    assert not ordinary([float("nan"), *[1.0] * 15], 1.0)
    assert not ordinary([2.0**100, *[1.0] * 15], 1.0)
    assert not ordinary([1.0] * 16, 0.0)
