"""The quantiser against a slow one of another make: one group at a time, in exact rationals.

`reference` follows the definition, each operation rounded from an exact rational number; `check`
compares `quantize` with it over groups chosen to be hard. The planted faults show that this same
check fails where it should.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from references import MIN_NORMAL, fused, product, quotient, reciprocal

from oracle import quantize as quantize_module
from oracle.formats import (
    DTYPES,
    E2M1,
    E4M3,
    FloatArray,
    e2m1_decode,
    e2m1_encode,
    e4m3_decode,
    e4m3_encode,
    fma32,
)
from oracle.quantize import (
    RECIPROCALS,
    Reciprocal,
    ScaleSearch,
    dequantize,
    quantize,
    rcp_exact,
)

ULPS = {"exact": 0, "+1ulp": 1, "-1ulp": -1}
MAX, FOUR = ScaleSearch.MAX_OVER_6, ScaleSearch.FOUR_OVER_SIX

WITNESS = [6.0] + [4.5] * 15
# Both candidates reproduce this group exactly: nothing justifies leaving 6.
BOTH_EXACT = [12.0, 6.0, -6.0] + [0.0] * 13
# The errors of the two candidates differ by less than a changed order of summation.
ORDER_DECIDES = [8.5, 4, -1.5, 0.5, -10, -8.5, 10.5, -8, 4.5, 4, 0.5, -11.5, -3, -3, 6, 5]

Group = list[float]
Quantized = tuple[list[int], int]
every_search = pytest.mark.parametrize("search", ScaleSearch, ids=lambda search: search.value)


# The reference


def scale_and_multiplier(amax: float, inverse: float, g: float, ulps: int) -> tuple[int, float]:
    scale_byte = E4M3.encode_spec(product(g, product(amax, inverse)))
    scale = E4M3.decode_spec(scale_byte)
    if scale == 0:
        return scale_byte, 0.0
    return scale_byte, reciprocal(product(scale, reciprocal(g, ulps)), ulps)


def squared_error(x: Group, codes: list[int], multiplier: float, ulps: int) -> float:
    inverse = reciprocal(multiplier, ulps) if multiplier != 0 else 0.0
    total, first = 0.0, 0.0
    for position, (value, code) in enumerate(zip(x, codes, strict=True)):
        difference = fused(E2M1.decode_spec(code), inverse, -value)
        if position % 2 == 0:
            first = difference
        else:
            pair = fused(first, first, product(difference, difference))
            total = fused(1.0, total, pair)
    return total


def reference(x: Group, global_scale: float, search: ScaleSearch, ulps: int) -> Quantized:
    g = quotient(1.0, global_scale)
    amax = max((abs(value) for value in x if not math.isnan(value)), default=math.nan)
    inverses = [float.fromhex("0x1.555556p-3")]
    if search is FOUR:
        inverses.append(0.25)
    candidates = []
    for inverse in inverses:
        scale_byte, multiplier = scale_and_multiplier(amax, inverse, g, ulps)
        codes = [E2M1.encode_spec(product(value, multiplier)) for value in x]
        candidates.append((codes, scale_byte, multiplier))
    best, *others = candidates
    for other in others:
        errors = [squared_error(x, codes, r, ulps) for codes, _, r in (other, best)]
        if errors[0] < errors[1]:
            best = other
    return best[0], best[1]


# The groups


def scale_ties() -> FloatArray:
    """Groups whose scale before rounding is a midpoint of E4M3: 6 or 4 times it is amax."""
    values = e4m3_decode(np.arange(0x7F, dtype=np.uint8))
    midpoints = (values[1:] + values[:-1]) / 2
    amax = np.concatenate([6 * midpoints, 4 * midpoints])
    ratios = np.array([1, 0.75, -0.5, 0.125] * 4, np.float32)
    return amax[:, None] * ratios


def drawn_groups(rng: np.random.Generator) -> list[FloatArray]:
    """Values as a model has them: halves of small integers, and normal ones in both dtypes."""
    shape = (80, 16)
    batches = [rng.integers(-24, 25, shape).astype(np.float32) / np.float32(2)]
    for verbs in DTYPES.values():
        normal = rng.standard_normal(shape).astype(np.float32)
        magnitudes = np.exp2(rng.integers(-14, 9, (80, 1)).astype(np.float32))
        batches += [verbs.decode(verbs.encode(x)) for x in (normal, normal * magnitudes)]
    return batches


def wild_groups(rng: np.random.Generator) -> FloatArray:
    """Zeros, infinities, NaNs of either kind, subnormals, and any pattern at all."""
    batches: list[FloatArray] = [
        np.zeros((1, 16), np.float32),
        np.full((1, 16), -0.0, np.float32),
        np.full((1, 16), np.nan, np.float32),
        np.array([[np.nan, 3.0] + [1.0] * 14, [1.0] * 15 + [-np.inf]], np.float32),
        np.array([[0x7F800001, 0x3F800000] * 8], np.uint32).view(np.float32),
        rng.standard_normal((8, 16)).astype(np.float32),
    ]
    for verbs in DTYPES.values():
        patterns = rng.integers(0, 2**16, (24, 16), np.uint16)
        batches += [verbs.decode(patterns), verbs.decode(patterns & np.uint16(0x807F))]
    return np.concatenate(batches)


@cache
def corpus() -> list[tuple[float, FloatArray]]:
    """Seeded groups [n, 16], in batches that share a global scale."""
    rng = np.random.default_rng(20)
    witnesses = np.array([WITNESS, BOTH_EXACT, ORDER_DECIDES], np.float32)
    batches = [(1.0, witnesses), (1.0, scale_ties())]
    for scale in (1.0, 0.0137, 448 / 6):
        batches += [(scale, groups) for groups in drawn_groups(rng)]
    for scale in (1.0, 1e-44, 2.0**-126, 1e-30, 3e38, -1.0, 0.0, -0.0, math.inf, math.nan):
        batches.append((scale, wild_groups(rng)))
    return batches


@cache
def expected(search: ScaleSearch, ulps: int) -> list[list[Quantized]]:
    return [
        [reference(group, float(np.float32(scale)), search, ulps) for group in groups.tolist()]
        for scale, groups in corpus()
    ]


def check(search: ScaleSearch, rcp: Reciprocal = rcp_exact, ulps: int = 0) -> None:
    for (scale, groups), answers in zip(corpus(), expected(search, ulps), strict=True):
        codes, scale_bytes = quantize(groups, scale, search, rcp)
        actual = zip(codes.tolist(), scale_bytes.tolist(), strict=True)
        for group, ours, theirs in zip(groups.tolist(), actual, answers, strict=True):
            assert ours == theirs, f"wrong at global scale {scale}: {group}"


# Quantising


@every_search
@pytest.mark.parametrize("rcp", RECIPROCALS)
def test_hard_groups_quantise_as_the_reference(search: ScaleSearch, rcp: str) -> None:
    check(search, RECIPROCALS[rcp], ULPS[rcp])


any_patterns = arrays(np.uint16, 16, elements=st.integers(0, 2**16 - 1))
# Elements of similar size, with either sign: groups in which every code can occur.
close_patterns = st.builds(
    lambda base, offsets: ((base + (offsets >> 1)) % 0x7C00 | (offsets & 1) << 15).astype(
        np.uint16
    ),
    st.integers(0, 0x7BFF),
    arrays(np.uint32, 16, elements=st.integers(0, 0x7FF)),
)
global_scales = st.floats(width=32) | st.floats(2**-10, 2**4, width=32)


@settings(max_examples=150, deadline=None)
@given(
    any_patterns | close_patterns,
    st.sampled_from(sorted(DTYPES)),
    global_scales,
    st.sampled_from(ScaleSearch),
    st.sampled_from(sorted(RECIPROCALS)),
)
def test_any_group_quantises_as_the_reference(
    patterns: npt.NDArray[np.uint16], dtype: str, scale: float, search: ScaleSearch, rcp: str
) -> None:
    x = DTYPES[dtype].decode(patterns)
    codes, scale_byte = quantize(x, scale, search, RECIPROCALS[rcp])
    answer = reference(x.tolist(), scale, search, ULPS[rcp])
    assert (codes.tolist(), int(scale_byte)) == answer


def error_at_scale_1(
    groups: FloatArray, codes: npt.NDArray[np.uint8], scale_bytes: npt.NDArray[np.uint8]
) -> FloatArray:
    """The error a kernel computes for each group in float32, from the two results alone."""
    scale = e4m3_decode(scale_bytes)
    assert (scale > 0).all()
    inverse = rcp_exact(rcp_exact(scale))
    difference = fma32(e2m1_decode(codes), inverse[:, None], -groups)
    total = np.zeros(len(groups), np.float32)
    for element in range(0, 16, 2):
        even, odd = difference[:, element], difference[:, element + 1]
        total = total + fma32(even, even, odd * odd)
    return total


def test_four_over_six_has_a_witness() -> None:
    groups = np.array([WITNESS], np.float32)
    six, either = (quantize(groups, 1.0, search) for search in (MAX, FOUR))
    assert six[1] == E4M3.encode_spec(1.0)
    assert either[1] == E4M3.encode_spec(1.5)
    assert e2m1_decode(six[0]).tolist() == [[6.0] + [4.0] * 15]
    assert e2m1_decode(either[0]).tolist() == [[4.0] + [3.0] * 15]
    assert error_at_scale_1(groups, *six) == 15 * 0.25
    assert error_at_scale_1(groups, *either) == 0


def test_equal_errors_stay_with_six() -> None:
    groups = np.array([BOTH_EXACT], np.float32)
    codes, scale_bytes = quantize(groups, 1.0, FOUR)
    assert error_at_scale_1(groups, codes, scale_bytes) == 0
    assert scale_bytes == E4M3.encode_spec(2.0)


def test_four_over_six_is_never_worse() -> None:
    normal = np.random.default_rng(3).standard_normal((20_000, 16)).astype(np.float32)
    for verbs in DTYPES.values():
        groups = verbs.decode(verbs.encode(normal))
        six, either = (error_at_scale_1(groups, *quantize(groups, 1.0, s)) for s in (MAX, FOUR))
        assert (either <= six).all()
        assert 0.2 < (either < six).mean() < 0.8


def test_a_nan_element_is_six_and_does_not_count() -> None:
    x = np.ones(16, np.float32)
    codes, scale_byte = quantize(x, 1.0)
    x[3] = -np.nan
    codes[3] = 0x7
    with_nan = quantize(x, 1.0)
    assert (with_nan[0] == codes).all()
    assert with_nan[1] == scale_byte


def test_a_group_of_zeros_keeps_its_signs() -> None:
    codes, scale_byte = quantize(np.array([0.0, -0.0] * 8, np.float32), 1.0)
    assert codes.tolist() == [0x0, 0x8] * 8
    assert scale_byte == 0


@every_search
def test_groups_do_not_depend_on_their_neighbours(
    search: ScaleSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = wild_groups(np.random.default_rng(4))[:60]
    whole = quantize(groups, 0.5, search)
    folded = quantize(np.asfortranarray(groups.reshape(3, 20, 16)), 0.5, search)
    assert folded[0].shape == (3, 20, 16)
    assert folded[1].shape == (3, 20)
    monkeypatch.setattr(quantize_module, "_CHUNK", 7)
    chunked = quantize(groups, 0.5, search)
    for results in (folded, chunked):
        assert results[0].tobytes() == whole[0].tobytes()
        assert results[1].tobytes() == whole[1].tobytes()


def test_no_groups_is_no_trouble() -> None:
    codes, scale_bytes = quantize(np.zeros((0, 4, 16), np.float32), 1.0)
    assert codes.shape == (0, 4, 16)
    assert scale_bytes.shape == (0, 4)


@pytest.mark.parametrize("shape", [(), (15,), (16, 8)])
def test_a_wrong_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="groups"):
        quantize(np.zeros(shape, np.float32), 1.0)


def test_a_wrong_type_is_refused() -> None:
    with pytest.raises(ValueError, match="float64"):
        quantize(np.zeros(16), 1.0)  # type: ignore[arg-type]


# Dequantising


def test_dequantising_multiplies_and_rounds_once() -> None:
    codes = np.broadcast_to(np.arange(16, dtype=np.uint8), (256, 16))
    scale_bytes = np.arange(256, dtype=np.uint8)
    values = e2m1_decode(codes).astype(np.float64) * e4m3_decode(scale_bytes)[:, None]
    for global_scale in (1.0, 0.0137, 2.0**-140, 3e38, -0.5):
        # At most 2 + 4 + 24 significant bits: exact in float64.
        with np.errstate(over="ignore"):
            exact = (values * float(np.float32(global_scale))).astype(np.float32)
        result = dequantize(codes, scale_bytes, global_scale)
        assert result.dtype == np.float32
        assert np.array_equal(result, exact, equal_nan=True)
        assert (np.signbit(result) == np.signbit(exact))[~np.isnan(exact)].all()


@every_search
def test_what_the_grid_holds_comes_back(search: ScaleSearch) -> None:
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6] * 2, np.float32) * np.float32(0.375)
    x = np.stack([values, -16 * values])
    assert (dequantize(*quantize(x, 0.5, search), 0.5) == x).all()


# The reciprocal


def reciprocal_inputs() -> FloatArray:
    """Every bf16, and the neighbourhoods of where the hardware flushes."""
    every_bf16 = np.arange(2**16, dtype=np.uint32) << 16
    edges = np.array([MIN_NORMAL, 2.0**126, 1.0, 3.0], np.float32).view(np.uint32)
    around = (edges[:, None] + np.arange(-3, 4)).astype(np.uint32).ravel()
    return np.concatenate([every_bf16, around, around | 0x80000000]).view(np.float32)


@cache
def expected_reciprocals(ulps: int) -> FloatArray:
    return np.array([reciprocal(x, ulps) for x in reciprocal_inputs().tolist()], np.float32)


def check_reciprocal(rcp: Reciprocal, ulps: int) -> None:
    with np.errstate(all="ignore"):
        actual = rcp(reciprocal_inputs())
    assert actual.dtype == np.float32
    right = actual.view(np.uint32) == expected_reciprocals(ulps).view(np.uint32)
    wrong = np.flatnonzero(~right & ~(np.isnan(actual) & np.isnan(expected_reciprocals(ulps))))
    assert wrong.size == 0, f"wrong: 1/{reciprocal_inputs()[wrong[0]]!r}"


@pytest.mark.parametrize("name", RECIPROCALS)
def test_reciprocals_follow_their_model(name: str) -> None:
    check_reciprocal(RECIPROCALS[name], ULPS[name])


@pytest.mark.parametrize("name", RECIPROCALS)
def test_reciprocals_flush_and_keep_signs(name: str) -> None:
    x = np.array([0.0, -0.0, 1e-40, -1e-40, np.inf, -np.inf, 3e38, -3e38], np.float32)
    assert RECIPROCALS[name](x).tolist() == [np.inf, -np.inf] * 2 + [0.0] * 4
    assert np.signbit(RECIPROCALS[name](x)).tolist() == [False, True] * 4
    assert np.isnan(RECIPROCALS[name](np.array([np.nan], np.float32))).all()


@pytest.mark.parametrize("wrong", [lambda x: np.float32(1) / x, RECIPROCALS["+1ulp"]])
def test_a_faulty_reciprocal_is_caught(wrong: Reciprocal) -> None:
    with pytest.raises(AssertionError, match="wrong"):
        check_reciprocal(wrong, 0)


# Planted faults, each in place of one part of the quantiser


def ties_up(x: FloatArray) -> npt.NDArray[np.uint8]:
    return e2m1_encode(x * np.float32(1 + 2**-23))


def unsaturated(x: FloatArray) -> npt.NDArray[np.uint8]:
    return np.where(np.abs(x) > 464, np.uint8(0x7F), e4m3_encode(x))


def poisoned_amax(groups: FloatArray) -> FloatArray:
    return np.asarray(np.abs(groups).max(axis=-1))


def amax_from_zero(groups: FloatArray) -> FloatArray:
    return np.asarray(np.nan_to_num(np.abs(groups), posinf=np.inf).max(axis=-1))


def unfused(a: FloatArray, b: FloatArray, c: FloatArray) -> FloatArray:
    return a * b + c


def backwards_error(
    groups: FloatArray,
    candidate: Any,
    rcp: Reciprocal,
    forwards: Callable[..., FloatArray] = quantize_module._squared_error,
) -> FloatArray:
    return forwards(groups[:, ::-1], candidate._replace(codes=candidate.codes[:, ::-1]), rcp)


FAULTS: dict[str, tuple[ScaleSearch, str, Any]] = {
    "1/6 an ulp high": (MAX, "_ONE_SIXTH", np.float32(float.fromhex("0x1.555558p-3"))),
    "1/6 an ulp low": (MAX, "_ONE_SIXTH", np.float32(float.fromhex("0x1.555554p-3"))),
    "1/4 an ulp high": (FOUR, "_ONE_FOURTH", np.float32(0.25 + 2**-25)),
    "E2M1 ties go up": (MAX, "e2m1_encode", ties_up),
    "E4M3 does not saturate": (MAX, "e4m3_encode", unsaturated),
    "amax takes a NaN": (MAX, "_amax", poisoned_amax),
    "amax of NaNs is 0": (MAX, "_amax", amax_from_zero),
    "4 wins a tie": (FOUR, "_four_wins", np.less_equal),
    "the sum runs backwards": (FOUR, "_squared_error", backwards_error),
    "the sum is not fused": (FOUR, "fma32", unfused),
    "subnormals are kept": (MAX, "_flush", np.positive),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    search, name, replacement = FAULTS[fault]
    monkeypatch.setattr(quantize_module, name, replacement)
    with pytest.raises(AssertionError, match="wrong at global scale"):
        check(search)


@every_search
@pytest.mark.parametrize("rcp", ["+1ulp", "-1ulp"])
def test_the_last_bit_of_the_reciprocal_is_seen(search: ScaleSearch, rcp: str) -> None:
    with pytest.raises(AssertionError, match="wrong at global scale"):
        check(search, RECIPROCALS[rcp], ulps=0)
