"""Edge vectors: bytes worked out by hand, writers on three archs, and all scale bytes as read."""

from __future__ import annotations

import math

import numpy as np
import pytest

from oracle.contracts import contracts
from oracle.formats import DTYPES
from oracle.numerics.capture import Capture
from oracle.numerics.edges import (
    ALLOWED,
    DEFECT,
    EDGES,
    EQUAL,
    KEPT,
    expected,
    judge_edges,
)
from oracle.numerics.exact import E4M3_VALUES
from oracle.numerics.misquantised import WRONG_QUANTISERS
from oracle.numerics.mutants import DECLARED, MutantWriter
from oracle.numerics.readers import scale_byte_values
from oracle.quantize import RECIPROCALS, ScaleSearch, quantize
from oracle.subjects.spec import readers_from_specs, writers_from_specs

MAX, FOUR = ScaleSearch.MAX_OVER_6, ScaleSearch.FOUR_OVER_SIX
BY_NAME = {edge.name: edge for edge in EDGES}

# Worked out from the definition of the formats, under a reciprocal of 1 that is 1.
BY_HAND = {
    "all +0": (0x00, "0" * 16),
    "all -0": (0x00, "8" * 16),
    "one element, the first": (0x30, "7" + "0" * 15),
    "every E2M1 tie": (0x38, "7e5c42a0086e1c3e"),
    "E4M3 tie, to even below": (0x38, "72" + "0" * 14),
    "E4M3 tie, to even above": (0x3A, "72" + "0" * 14),
    "smallest subnormal scale": (0x01, "72" + "0" * 14),
    "scale ties with zero": (0x00, "0" * 16),
    "largest scale": (0x7E, "72" + "0" * 14),
    "scale saturates, by half": (0x7E, "72" + "0" * 14),
    "nothing but NaN": (0x7F, "7" * 16),
    "-infinity": (0x7E, "f" + "0" * 15),
    "global scale 0, all +0": (0x7F, "7" * 16),
    "global scale NaN": (0x7F, "7" * 16),
    "4.5 beside 6": (0x38, "7" + "6" * 15),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_bytes_by_hand(name: str) -> None:
    right = expected(BY_NAME[name], "bf16", MAX)
    codes = "".join(f"{code:x}" for code in right.codes)
    assert (right.scale_byte, codes) == BY_HAND[name]


def test_the_witness_of_four_over_six() -> None:
    right = expected(BY_NAME["4.5 beside 6"], "bf16", FOUR)
    assert (right.scale_byte, right.codes.tolist()) == (0x3C, [6] + [5] * 15)
    assert not right.open_scale


@pytest.mark.parametrize(
    ("name", "value", "blame"),
    [
        ("every E2M1 tie", KEPT, ""),
        ("nothing but NaN", KEPT, ""),
        ("a NaN among numbers", "a NaN reads back as a number", "format"),
        ("+infinity", "an infinity reads back as a number", "format"),
        ("scale below all", "reads back as zeros", "caller"),
        ("scale between subnormals", "the scale has too few bits", "caller"),
        ("scale saturates, by half", "clipped", "caller"),
        ("global scale 0, all +0", "reads back as NaN", "caller"),
        ("global scale negative", KEPT, ""),
    ],
)
def test_what_becomes_of_the_value(name: str, value: str, blame: str) -> None:
    right = expected(BY_NAME[name], "bf16", MAX)
    assert right.value == value
    assert right.blame.startswith(blame)


def test_only_ties_are_open() -> None:
    for edge in EDGES:
        right = expected(edge, "bf16", MAX)
        assert not right.open_scale
        ties = {"every E2M1 tie": 9, "the same, scale 2^-7": 9, "the same, scale 0.0137": 0}
        assert right.open_codes == ties.get(edge.name, right.open_codes)


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(EDGES)


@pytest.mark.parametrize("search", ScaleSearch, ids=lambda search: search.value)
@pytest.mark.parametrize(
    ("arch", "dtype"), [("sm_90", "bf16"), ("sm_100a", "fp16"), ("sm_120a", "bf16")]
)
def test_the_store_kernel_stores_the_references_bytes(
    arch: str, dtype: str, search: ScaleSearch
) -> None:
    spec = f"store:k=linear,v=swizzle_4x4,search={search.value}"
    (writer,) = writers_from_specs([spec], (arch,), (dtype,))
    judged = judge_edges(Capture(writer, dtype), search)
    assert len(judged) == len(EDGES)
    assert {verdict for verdict, _ in judged} == {EQUAL}
    for edge, (_, stored) in zip(EDGES, judged, strict=True):
        right = expected(edge, dtype, search)
        assert np.array_equal(stored.codes, right.codes), edge.name
        assert stored.scale_bytes == right.scale_byte, edge.name


def test_what_is_open_is_allowed_and_what_is_not_is_a_defect() -> None:
    high = MutantWriter("+1", DECLARED, lambda x, k: quantize(x, k, MAX, RECIPROCALS["+1ulp"]))
    verdicts = dict(zip(BY_NAME, judge_edges(Capture(high, "bf16"), MAX), strict=True))
    assert verdicts["every E2M1 tie"][0] == ALLOWED
    assert DEFECT not in {verdict for verdict, _ in verdicts.values()}
    lost = MutantWriter("NaN", DECLARED, WRONG_QUANTISERS["NaN becomes zero"])
    verdicts = dict(zip(BY_NAME, judge_edges(Capture(lost, "bf16"), MAX), strict=True))
    defects = {name for name, (verdict, _) in verdicts.items() if verdict == DEFECT}
    assert defects == {"a NaN among numbers", "a signalling NaN", "nothing but NaN"}


def test_k_and_v_are_stored_under_different_scales() -> None:
    mutant = MutantWriter("exchanged", DECLARED, exchange_scales=True)
    verdicts = [verdict for verdict, _ in judge_edges(Capture(mutant, "bf16"), MAX)]
    assert verdicts.count(DEFECT) > len(EDGES) / 2


def test_a_signalling_nan_is_one() -> None:
    edge = BY_NAME["a signalling NaN"]
    for dtype, quiet in (("bf16", 0x40), ("fp16", 0x200)):
        pattern = int(edge.patterns(dtype)[0])
        assert math.isnan(DTYPES[dtype].decode(np.array([pattern], np.uint16))[0])
        assert not pattern & quiet


# Readers


@pytest.mark.parametrize("name", [row.name for row in contracts().values() if row.role == "reader"])
@pytest.mark.parametrize("side", ["K", "V"])
def test_every_reader_reads_every_scale_byte_as_e4m3(name: str, side: str) -> None:
    (reader,) = readers_from_specs([name])
    values = scale_byte_values(reader, side)
    right = [*E4M3_VALUES, math.nan]
    assert np.array_equal(values[:128], np.array(right, np.float32), equal_nan=True)
    assert np.array_equal(values[128:], -np.array(right, np.float32), equal_nan=True)
    assert np.signbit(values[128])
