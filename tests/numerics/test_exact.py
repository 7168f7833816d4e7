"""The NumPy quantiser against the exact one, on whole domains and on drawn groups.

`oracle.numerics.exact` rounds rational numbers and shares no code with what it is compared to. It
is itself held against NumPy's own conversions here, and must tell every wrong quantiser apart.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from oracle.formats import (
    DTYPES,
    FloatArray,
    bf16_decode,
    e2m1_decode,
    e2m1_encode,
    e4m3_decode,
    e4m3_encode,
)
from oracle.numerics import exact
from oracle.numerics.edges import EDGES
from oracle.numerics.exact import approximate_reciprocal, float32, quantize_exactly
from oracle.numerics.misquantised import WRONG_QUANTISERS
from oracle.quantize import RECIPROCALS, ScaleSearch, quantize

ULPS = {"exact": 0, "+1ulp": 1, "-1ulp": -1}
every_search = pytest.mark.parametrize("search", ScaleSearch, ids=lambda search: search.value)
any_float32 = st.floats(width=32)


def same(x: FloatArray, scale: float, search: ScaleSearch, rcp: str = "exact") -> list[int]:
    """Which of the groups the two quantisers agree on."""
    codes, scale_bytes = quantize(x, scale, search, RECIPROCALS[rcp])
    ulps = dict.fromkeys(exact.EVALUATIONS, ULPS[rcp])
    slow = [quantize_exactly(group, scale, search, ulps) for group in x.tolist()]
    return [
        index
        for index, (group, byte, answer) in enumerate(zip(codes, scale_bytes, slow, strict=True))
        if tuple(group.tolist()) == answer.codes and byte == answer.scale_byte
    ]


# The exact quantiser's own parts


@settings(max_examples=300, deadline=None)
@given(st.integers(-(2**60), 2**60), st.integers(-220, 120))
def test_rounding_is_that_of_a_conversion(integer: int, exponent: int) -> None:
    value = math.ldexp(float(integer >> 8), exponent)  # at most 53 bits: a float holds it
    with np.errstate(over="ignore"):
        assert float32(Fraction(value)) == np.float32(value)


@settings(max_examples=300, deadline=None)
@given(any_float32, any_float32)
def test_products_are_numpys(a: float, b: float) -> None:
    with np.errstate(all="ignore"):
        product = np.float32(a) * np.float32(b)
    assert np.array_equal(np.float32(exact.multiply(a, b)), product, equal_nan=True)
    assert math.isnan(product) or np.signbit(product) == np.signbit(exact.multiply(a, b))


@settings(max_examples=300, deadline=None)
@given(any_float32, st.sampled_from(sorted(ULPS)))
def test_reciprocals_are_the_models(x: float, name: str) -> None:
    with np.errstate(all="ignore"):
        model = RECIPROCALS[name](np.array([x], np.float32))
    slow = np.array([approximate_reciprocal(x, ULPS[name])], np.float32)
    assert np.array_equal(model, slow, equal_nan=True)
    assert np.isnan(model).all() or np.signbit(model) == np.signbit(slow)


# Whole domains


def test_every_bf16_has_the_e2m1_code_of_the_nearest_value() -> None:
    x = bf16_decode(np.arange(2**16, dtype=np.uint16))
    assert e2m1_encode(x).tolist() == [exact.encode_e2m1(value) for value in x.tolist()]


def test_every_bf16_has_the_e4m3_byte_of_the_nearest_value() -> None:
    x = bf16_decode(np.arange(2**16, dtype=np.uint16))
    assert e4m3_encode(x).tolist() == [exact.encode_e4m3(value) for value in x.tolist()]


def test_every_code_and_byte_decodes_alike() -> None:
    codes, scale_bytes = np.arange(16, dtype=np.uint8), np.arange(256, dtype=np.uint8)
    assert e2m1_decode(codes).tolist() == [exact.decode_e2m1(code) for code in range(16)]
    slow = np.array([exact.decode_e4m3(byte) for byte in range(256)], np.float32)
    assert np.array_equal(e4m3_decode(scale_bytes), slow, equal_nan=True)


@pytest.mark.parametrize("scale", [1.0, 0.0137])
def test_every_amax_has_the_exact_scale_byte(scale: float) -> None:
    """All positive bf16 values, among them every midpoint of E4M3 and everything that saturates."""
    scale = float(np.float32(scale))
    x = np.zeros((0x7F80, 16), np.float32)
    x[:, 5] = bf16_decode(np.arange(0x7F80, dtype=np.uint16))
    g, sixth = exact.invert(scale), exact._FRACTIONS["six"]
    slow = [
        exact.encode_e4m3(exact.multiply(g, exact.multiply(amax, sixth)))
        for amax in x[:, 5].tolist()
    ]
    assert quantize(x, scale)[1].tolist() == slow


# Drawn groups


@every_search
@pytest.mark.parametrize("rcp", RECIPROCALS)
def test_the_edge_vectors_quantise_exactly(search: ScaleSearch, rcp: str) -> None:
    for edge in EDGES:
        x = DTYPES["bf16"].decode(edge.patterns("bf16"))[None]
        scale = float(np.float32(edge.scale))
        assert same(x, scale, search, rcp) == [0], edge.name


close_patterns = st.builds(
    lambda base, offsets: ((base + (offsets >> 1)) % 0x7C00 | (offsets & 1) << 15).astype(
        np.uint16
    ),
    st.integers(0, 0x7BFF),
    arrays(np.uint32, 16, elements=st.integers(0, 0x7FF)),
)
any_patterns = arrays(np.uint16, 16, elements=st.integers(0, 2**16 - 1))
global_scales = st.floats(width=32) | st.floats(2**-10, 2**4, width=32)


@settings(max_examples=120, deadline=None)
@given(
    any_patterns | close_patterns,
    st.sampled_from(sorted(DTYPES)),
    global_scales,
    st.sampled_from(ScaleSearch),
    st.sampled_from(sorted(RECIPROCALS)),
)
def test_any_group_quantises_exactly(
    patterns: np.ndarray, dtype: str, scale: float, search: ScaleSearch, rcp: str
) -> None:
    assert same(DTYPES[dtype].decode(patterns)[None], scale, search, rcp) == [0]


@pytest.mark.parametrize("name", WRONG_QUANTISERS)
def test_a_wrong_quantiser_is_caught(name: str) -> None:
    drawn = np.random.default_rng(4).integers(-24, 25, (40, 16)).astype(np.float32) / np.float32(2)
    made = [
        [math.nan, *[1.0] * 15],
        [5376.0, *[448.0] * 15],
        [-0.0, *[3.0] * 15],
        [6.375, 7.0, *[1.0] * 14],
        [*[1.0] * 15, 5.0],
        [6.375, *[1.0] * 15],
    ]
    x = np.concatenate([drawn, np.array(made, np.float32)])
    scale = 1e-40 if name == "codes by division" else 0.5
    codes, scale_bytes = WRONG_QUANTISERS[name](x, scale)
    slow = [quantize_exactly(group, float(np.float32(scale))) for group in x.tolist()]
    answers = [(tuple(c), b) for c, b in zip(codes.tolist(), scale_bytes.tolist(), strict=True)]
    assert answers != slow
