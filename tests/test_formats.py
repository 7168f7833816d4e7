"""The formats, over every code and every 16-bit input and around every rounding boundary.

Each conversion has one check, which compares it on all probes with the scalar specification; the
planted faults show that this same check fails where it should. The specification itself is held
against gfloat, ml_dtypes and NVIDIA's host headers; where these differ from the hardware's rules,
the difference is written down and verified too.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import gfloat  # type: ignore[import-untyped]
import gfloat.formats  # type: ignore[import-untyped]
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from references import VendorHeaders, fused, nearest_float32

from oracle import formats
from oracle.formats import BF16, DTYPES, E2M1, E4M3, FP16, FloatArray

Codes = npt.NDArray[Any]
Encode = Callable[[FloatArray], Codes]

FORMATS = {fmt.name: fmt for fmt in (E2M1, E4M3, BF16, FP16)}
ENCODE: dict[str, Encode] = {
    "e2m1": formats.e2m1_encode,
    "e4m3": formats.e4m3_encode,
    "bf16": formats.bf16_encode,
    "fp16": formats.fp16_encode,
}
DECODE: dict[str, Callable[[Codes], FloatArray]] = {
    "e2m1": formats.e2m1_decode,
    "e4m3": formats.e4m3_decode,
    "bf16": formats.bf16_decode,
    "fp16": formats.fp16_decode,
}
GFLOAT = {
    "e2m1": gfloat.formats.format_info_ocp_e2m1,
    "e4m3": gfloat.formats.format_info_ocp_e4m3,
    "bf16": gfloat.formats.format_info_bfloat16,
    "fp16": gfloat.formats.format_info_binary16,
}
ML_DTYPES = {
    "e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp16": np.dtype(np.float16),
}
every_format = pytest.mark.parametrize("name", FORMATS)


def code_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(np.uint8 if FORMATS[name].sign_bit <= 0x80 else np.uint16)


def all_codes(name: str) -> Codes:
    return np.arange(2 * FORMATS[name].sign_bit, dtype=code_dtype(name))


@cache
def spec_values(name: str) -> FloatArray:
    return np.array([FORMATS[name].decode_spec(int(c)) for c in all_codes(name)], np.float32)


def neighbourhoods(name: str) -> FloatArray:
    """Each value and each midpoint of a format up to one binade past its end, 2 ulps around."""
    fmt = FORMATS[name]
    values = spec_values(name)[: fmt.max_code + 1].astype(np.float64)
    past_end = 2 * values[-1] - values[-2]
    points = np.concatenate([values, (values[:-1] + values[1:]) / 2])
    points = np.append(points, [(values[-1] + past_end) / 2, past_end, 2 * past_end])
    with np.errstate(over="ignore"):
        bits = points.astype(np.float32).view(np.int32)
    around = (bits + np.arange(-2, 3, dtype=np.int32)[:, None]).ravel()
    around = around[around >= 0]
    return np.concatenate([around, around | np.int32(-(2**31))]).view(np.float32)


@cache
def probes(name: str) -> FloatArray:
    """Float32 inputs: every bf16, every fp16, the neighbourhoods, and the ends of float32."""
    specials = np.array(
        [
            *(0, 1, 2, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000),  # ends, subnormals, infinity
            *(0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FFFFFFF),  # signalling and quiet NaNs
        ],
        np.uint32,
    )
    every_bf16 = np.arange(2**16, dtype=np.uint32) << 16
    with np.errstate(invalid="ignore"):
        every_fp16 = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    patterns = [specials, specials | 0x80000000, every_bf16, every_fp16.view(np.uint32)]
    patterns.append(neighbourhoods(name).view(np.uint32))
    return np.unique(np.concatenate(patterns)).view(np.float32)


@cache
def spec_codes(name: str) -> Codes:
    encode = FORMATS[name].encode_spec
    return np.array([encode(x) for x in probes(name).tolist()], code_dtype(name))


def check_encode(name: str, encode: Encode) -> None:
    codes = encode(probes(name))
    assert codes.dtype == code_dtype(name)
    wrong = np.flatnonzero(codes != spec_codes(name))
    assert wrong.size == 0, f"{probes(name)[wrong[0]]!r} -> {codes[wrong[0]]:#x}"


def same_floats(actual: FloatArray, expected: FloatArray) -> bool:
    """Equal bit for bit, any NaN being equal to any other."""
    both_nan = np.isnan(actual) & np.isnan(expected)
    return bool(((actual.view(np.uint32) == expected.view(np.uint32)) | both_nan).all())


# The specification


def test_e2m1_has_the_published_values_and_boundaries() -> None:
    values = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert [E2M1.decode_spec(code) for code in range(8)] == values
    assert [E2M1.decode_spec(code) for code in range(8, 16)] == [-v for v in values]
    ends = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5], np.float32)
    assert [E2M1.encode_spec(x) for x in ends.tolist()] == [0, 2, 2, 4, 4, 6, 6]
    below = np.nextafter(ends, np.float32(0)).tolist()
    assert [E2M1.encode_spec(x) for x in below] == [0, 1, 2, 3, 4, 5, 6]
    above = np.nextafter(ends, np.float32(9)).tolist()
    assert [E2M1.encode_spec(x) for x in above] == [1, 2, 3, 4, 5, 6, 7]


def test_e4m3_has_the_published_landmarks() -> None:
    landmarks = {0x00: 0.0, 0x01: 2.0**-9, 0x08: 2.0**-6, 0x38: 1.0, 0x7E: 448.0}
    assert {code: E4M3.decode_spec(code) for code in landmarks} == landmarks
    assert np.isnan([E4M3.decode_spec(0x7F), E4M3.decode_spec(0xFF)]).all()


def test_the_specification_picks_the_nearest_value() -> None:
    for fmt in (E2M1, E4M3):
        values = [Fraction(fmt.decode_spec(code)) for code in range(fmt.max_code + 1)]
        inputs = neighbourhoods(fmt.name)
        end = 2 * fmt.decode_spec(fmt.max_code)
        for x in np.unique(inputs[(inputs >= 0) & (inputs < end)]).tolist():
            exact = Fraction(x)
            nearest = min(range(len(values)), key=lambda c: (abs(values[c] - exact), c % 2))
            assert fmt.encode_spec(x) == nearest, x


@every_format
def test_special_values_follow_the_hardware(name: str) -> None:
    fmt = FORMATS[name]
    overflow = {"e2m1": 0x7, "e4m3": 0x7E, "bf16": 0x7F80, "fp16": 0x7C00}[name]
    nan = {"e2m1": 0x7, "e4m3": 0x7F, "bf16": 0x7FFF, "fp16": 0x7FFF}[name]
    inputs = [0.0, -0.0, np.inf, -np.inf, 3.4e38 * 1e9, np.nan, -np.nan]
    expected = [0, fmt.sign_bit, overflow, overflow | fmt.sign_bit, overflow, nan, nan]
    assert [fmt.encode_spec(x) for x in inputs] == expected


@every_format
def test_every_code_survives_a_round_trip(name: str) -> None:
    codes, values = all_codes(name), spec_values(name)
    numbers = ~np.isnan(values)
    again = [FORMATS[name].encode_spec(x) for x in values[numbers].tolist()]
    assert again == codes[numbers].tolist()


# The array functions against the specification, and the faults this comparison must see


@every_format
def test_arrays_encode_as_the_specification(name: str) -> None:
    check_encode(name, ENCODE[name])


@every_format
def test_arrays_decode_as_the_specification(name: str) -> None:
    values = DECODE[name](all_codes(name))
    assert values.dtype == np.float32
    assert same_floats(values, spec_values(name))


def test_shapes_are_kept() -> None:
    x = np.linspace(-9, 9, 24, dtype=np.float32).reshape(2, 3, 4)
    for name, encode in ENCODE.items():
        codes = encode(x)
        assert codes.shape == x.shape
        assert (encode(x.T) == codes.T).all()
        assert DECODE[name](codes).shape == x.shape
        assert encode(x[:0]).shape == (0, 3, 4)


def test_dtypes_name_the_16_bit_inputs() -> None:
    assert {name: dtype.format for name, dtype in DTYPES.items()} == {"bf16": BF16, "fp16": FP16}
    for name, dtype in DTYPES.items():
        check_encode(name, dtype.encode)
        assert same_floats(dtype.decode(all_codes(name)), spec_values(name))


def ties_up(x: FloatArray) -> Codes:
    nudged = np.where(np.abs(x) < 7, x * np.float32(1 + 2**-23), x)
    return formats.e2m1_encode(nudged)


def towards_zero(x: FloatArray) -> Codes:
    values = spec_values("e2m1")[:8]
    magnitude = np.where(np.isnan(x), 6, np.abs(x))
    code = np.searchsorted(values, magnitude, side="right") - 1
    return (code | np.where(np.signbit(x) & ~np.isnan(x), 8, 0)).astype(np.uint8)


def nan_keeps_its_sign(x: FloatArray) -> Codes:
    return formats.e2m1_encode(x) | np.where(np.isnan(x) & np.signbit(x), 8, 0).astype(np.uint8)


def zero_loses_its_sign(x: FloatArray) -> Codes:
    return formats.e2m1_encode(np.where(x == 0, np.float32(0), x))


def nan_above_the_range(x: FloatArray) -> Codes:
    return np.where(np.abs(x) > 464, 0x7F, formats.e4m3_encode(x)).astype(np.uint8)


def nan_of_either_sign(x: FloatArray) -> Codes:
    codes = formats.e4m3_encode(x)
    return np.where(np.isnan(x) & np.signbit(x), np.uint8(0xFF), codes)


def no_subnormals(x: FloatArray) -> Codes:
    return formats.e4m3_encode(np.where(np.abs(x) < 2**-6, np.copysign(np.float32(0), x), x))


def chopped(x: FloatArray) -> Codes:
    return (x.view(np.uint32) >> 16).astype(np.uint16)


def saturated(x: FloatArray) -> Codes:
    return formats.fp16_encode(np.clip(x, np.float32(-65504), np.float32(65504)))


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("e2m1", ties_up),
        ("e2m1", towards_zero),
        ("e2m1", nan_keeps_its_sign),
        ("e2m1", zero_loses_its_sign),
        ("e4m3", nan_above_the_range),
        ("e4m3", nan_of_either_sign),
        ("e4m3", no_subnormals),
        ("bf16", chopped),
        ("fp16", saturated),
    ],
)
def test_a_planted_fault_is_caught(name: str, fault: Encode) -> None:
    with np.errstate(all="ignore"), pytest.raises(AssertionError, match="->"):
        check_encode(name, fault)


# Other people's implementations


@every_format
def test_decoding_agrees_with_gfloat_and_ml_dtypes(name: str) -> None:
    codes = all_codes(name)
    theirs = gfloat.decode_ndarray(GFLOAT[name], codes.astype(np.int64)).astype(np.float32)
    assert same_floats(theirs, spec_values(name))
    with np.errstate(invalid="ignore"):
        assert same_floats(codes.view(ML_DTYPES[name]).astype(np.float32), spec_values(name))


@every_format
def test_encoding_agrees_with_gfloat_but_for_nan(name: str) -> None:
    info, fmt, inputs = GFLOAT[name], FORMATS[name], probes(name)
    numbers = ~np.isnan(inputs)
    saturates = fmt.infinity_code is None
    with np.errstate(over="ignore"):
        rounded = gfloat.round_ndarray(info, inputs[numbers].astype(np.float64), sat=saturates)
    assert (gfloat.encode_ndarray(info, rounded) == spec_codes(name)[numbers]).all()
    if fmt is E2M1:
        with pytest.raises(ValueError, match="No NaN"):
            gfloat.round_float(info, np.nan)
    else:
        all_ones = 2 * fmt.sign_bit - 1
        assert gfloat.encode_float(info, np.nan) == all_ones != fmt.nan_code


def ml_dtypes_codes(name: str) -> Codes:
    with np.errstate(all="ignore"):
        return probes(name).astype(ML_DTYPES[name]).view(code_dtype(name))


def test_ml_dtypes_e2m1_differs_on_nan_only() -> None:
    theirs, x = ml_dtypes_codes("e2m1"), probes("e2m1")
    zero_of_other_sign = np.where(np.signbit(x), 0x0, 0x8)
    assert (theirs == np.where(np.isnan(x), zero_of_other_sign, spec_codes("e2m1"))).all()


def test_ml_dtypes_e4m3_differs_on_nan_and_above_464() -> None:
    theirs, x = ml_dtypes_codes("e4m3"), probes("e4m3")
    signed_nan = np.where(np.signbit(x), 0xFF, 0x7F)
    no_number = np.isnan(x) | (np.abs(x) > 464)
    assert (theirs == np.where(no_number, signed_nan, spec_codes("e4m3"))).all()


def test_ml_dtypes_bf16_differs_on_nan_only() -> None:
    theirs, x = ml_dtypes_codes("bf16"), probes("bf16")
    signed_nan = np.where(np.signbit(x), 0xFFC0, 0x7FC0)
    assert (theirs == np.where(np.isnan(x), signed_nan, spec_codes("bf16"))).all()


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> VendorHeaders:
    reason = VendorHeaders.unavailable_reason()
    if reason is not None:
        pytest.skip(reason)
    return VendorHeaders.compile(tmp_path_factory.mktemp("vendor"))


@every_format
def test_encoding_agrees_with_nvidia(name: str, vendor: VendorHeaders) -> None:
    output = vendor(f"encode {name}", probes(name).tobytes())
    assert (np.frombuffer(output, code_dtype(name)) == spec_codes(name)).all()


@pytest.mark.parametrize("name", ["e2m1", "e4m3"])
def test_decoding_agrees_with_nvidia(name: str, vendor: VendorHeaders) -> None:
    output = vendor(f"decode {name}", all_codes(name).tobytes())
    assert same_floats(np.frombuffer(output, np.float32), spec_values(name))


def test_packing_agrees_with_nvidia(vendor: VendorHeaders) -> None:
    pairs = np.stack(np.meshgrid(spec_values("e2m1"), spec_values("e2m1")), axis=-1)
    output = np.frombuffer(vendor("encode e2m1 pair", pairs.tobytes()), np.uint8)
    assert (formats.pack_codes(formats.e2m1_encode(pairs)).ravel() == output).all()


# Packing


def test_the_low_nibble_is_the_even_element() -> None:
    assert formats.pack_codes(np.array([0x1, 0xA], np.uint8)).tolist() == [0xA1]
    assert formats.unpack_codes(np.array([0xA1], np.uint8)).tolist() == [0x1, 0xA]


def test_packing_and_unpacking_are_inverse() -> None:
    packed = np.arange(256, dtype=np.uint8).reshape(4, 64)
    codes = formats.unpack_codes(packed)
    assert codes.shape == (4, 128)
    assert codes.max() == 15
    assert (formats.pack_codes(codes) == packed).all()


def test_an_odd_number_of_codes_is_refused() -> None:
    with pytest.raises(ValueError, match="3 is odd"):
        formats.pack_codes(np.zeros((2, 3), np.uint8))


# Fused multiply-add

Fma = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]


def check_fma(fma: Fma, a: FloatArray, b: FloatArray, c: FloatArray) -> None:
    triples = list(zip(a.tolist(), b.tolist(), c.tolist(), strict=True))
    expected = np.array([fused(*triple) for triple in triples], np.float32)
    actual = fma(a, b, c)
    right = (actual == expected) & (np.signbit(actual) == np.signbit(expected))
    wrong = np.flatnonzero(~right & ~(np.isnan(actual) & np.isnan(expected)))
    assert wrong.size == 0, f"fma{triples[wrong[0]]} -> {actual[wrong[0]]!r}"


@cache
def near_ties() -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sums that miss a float32 tie by less than a float64 of their size can show.

    a * b is half a unit in the last place of c, give or take 2^-46 of itself: the integers are
    the factors of 2^46 - 1 and 2^46 + 1. At the last exponent the first sums are subnormal.
    """
    rows = [
        (sign * a * 2.0**-60, b * 2.0 ** (exponent + 13), c * 2.0**exponent)
        for exponent in (0, 1, 60, -40, -149)
        for c in (2**22 + 1, 2**23 - 2, 2**23, 2**23 + 1, 2**23 + 2, 2**24 - 1)
        for sign in (1, -1)
        for a, b in ((2**23 - 1, 2**23 + 1), (8384513, 8392705))
    ]
    table = np.array(rows, np.float32)
    assert (table == np.array(rows)).all()
    return table[:, 0], table[:, 1], table[:, 2]


def rounded_twice(a: FloatArray, b: FloatArray, c: FloatArray) -> FloatArray:
    return (a.astype(np.float64) * b + c).astype(np.float32)


def unfused(a: FloatArray, b: FloatArray, c: FloatArray) -> FloatArray:
    return a * b + c


def test_the_reference_rounds_as_numpy_casts() -> None:
    floats = neighbourhoods("fp16").astype(np.float64)
    ends = np.array([2.0**-149, 2.0**-126, 1.0, 2.0**127, float(np.finfo(np.float32).max)])
    for exponent in (-30, -25, 0):
        ends = np.concatenate([ends, ends * (1 + 2.0**exponent), ends * (1 - 2.0**exponent)])
    for x in np.concatenate([floats[::40] * (1 + 2.0**-24), ends, ends / 2, -ends]).tolist():
        with np.errstate(over="ignore"):
            assert nearest_float32(Fraction(x)) == np.float32(x)


def test_fma_rounds_once() -> None:
    check_fma(formats.fma32, *near_ties())


@pytest.mark.parametrize("fault", [rounded_twice, unfused])
def test_a_faulty_fma_is_caught(fault: Fma) -> None:
    operands = near_ties()
    with pytest.raises(AssertionError, match="->"):
        check_fma(fault, *operands)


# Patterns whose exponents lie close together meet ties and cancellation far more often.
any_pattern = st.integers(0, 2**32 - 1)
near_one = st.builds(
    lambda sign, exponent, mantissa: sign << 31 | exponent << 23 | mantissa,
    st.integers(0, 1),
    st.integers(127 - 13, 127 + 13),
    st.integers(0, 2**23 - 1) | st.integers(0, 11).map(lambda n: 1 << (2 * n)),
)
floats32 = st.one_of(
    arrays(np.uint32, (3, 8), elements=any_pattern),
    arrays(np.uint32, (3, 8), elements=near_one, fill=st.nothing()),
).map(lambda patterns: patterns.view(np.float32))


@settings(max_examples=150, deadline=None)
@given(floats32)
def test_fma_is_exact(operands: FloatArray) -> None:
    check_fma(formats.fma32, *operands)


def test_fma_handles_special_values() -> None:
    specials = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 3.4e38, 1e-45, -1e-45], "f4")
    a, b, c = (grid.ravel() for grid in np.meshgrid(specials, specials, specials))
    check_fma(formats.fma32, a, b, c)


def test_fma_broadcasts() -> None:
    rows, columns = np.ones((3, 1), np.float32), np.ones((1, 4), np.float32)
    sums = formats.fma32(rows, columns, np.arange(4, dtype=np.float32))
    assert sums.tolist() == [[1, 2, 3, 4]] * 3
