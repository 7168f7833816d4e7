"""The mutation score: what each oracle lets through, and that the document says so."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from oracle.candidates import CANDIDATES
from oracle.geometry import CacheGeometry
from oracle.numerics.conformance import ADMISSIBLE, BIT_EXACT, INADMISSIBLE
from oracle.numerics.document import tables
from oracle.numerics.mutants import (
    DECLARED,
    PLACEMENT_MUTANTS,
    QUANTISER_MUTANTS,
    MutantWriter,
    layout_mutants,
)
from oracle.numerics.mutation import (
    HEAD_SIZES,
    OWN,
    OWN_EXACT,
    bytes_status,
    mutation_rows,
    oracles,
    places_right,
    round_trip,
    score,
)
from oracle.numerics.prose import COMMAND
from oracle.numerics.tolerances import (
    NORMAL,
    OUTLIERS,
    SMALL,
    TOLERANCES,
    RoundTrip,
    close,
    cosine,
    random_data,
    relative_l2,
)
from oracle.report.markdown import as_markdown

DOCUMENT = Path(__file__).parents[2] / "docs" / "numerics.md"
GEOMETRY = CacheGeometry(1, 128, 2, 128)
RIGHT = MutantWriter("right", DECLARED)
BY_NAME = {mutant.name: mutant for mutant in (*PLACEMENT_MUTANTS, *QUANTISER_MUTANTS)}


# The table


def test_every_oracle_accepts_what_is_right() -> None:
    (right, *_) = mutation_rows()
    assert right.mutant == "reciprocal exact"
    assert right.accepted == dict.fromkeys(oracles(), 1)


def test_this_tool_rejects_everything_it_can() -> None:
    wrong = [row for row in mutation_rows() if row.kind != "right"]
    assert [row.mutant for row in wrong if row.accepted[OWN]] == ["ties away from zero"]
    assert not any(row.accepted[OWN_EXACT] for row in wrong)
    rejected, tried = score(wrong, OWN_EXACT)
    assert rejected == tried == sum(row.tried for row in wrong)


@pytest.mark.parametrize("tolerance", [tolerance.name for tolerance in TOLERANCES])
def test_a_tolerance_rejects_less(tolerance: str) -> None:
    wrong = [row for row in mutation_rows() if row.kind != "right"]
    rejected, tried = score(wrong, tolerance)
    assert 0 < rejected < tried - 10


def test_a_wrong_layout_passes_the_elementwise_tolerance_where_values_are_small() -> None:
    layouts = [row for row in mutation_rows() if row.kind == "layout"]
    assert all(row.accepted["atol 1.5, rtol 0.5, small values"] == row.tried for row in layouts)


def test_every_wrong_layout_is_tried() -> None:
    """At each head size, every candidate that is defined and another map than the declared one."""
    tried = {row.mutant: row.tried for row in mutation_rows() if row.kind == "layout"}
    counted: dict[str, int] = {}
    for size in HEAD_SIZES:
        plane = (128, size // 16)
        for side, right in DECLARED.items():
            table = CANDIDATES[right].table(*plane)
            for name, each in CANDIDATES.items():
                if each.undefined_reason(*plane) is None and not np.array_equal(
                    each.table(*plane), table
                ):
                    key = f"{side} stored {name}"
                    counted[key] = counted.get(key, 0) + 1
    assert tried == counted


def test_the_document_is_up_to_date() -> None:
    """Everything but what writers did over the whole domain, which takes longer."""
    written = DOCUMENT.read_text(encoding="utf-8")
    for section in tables():
        rendered = as_markdown("", [section]).partition("\n\n")[2]
        assert rendered in written, f"{DOCUMENT.name} is out of date: {COMMAND}"


# The mutants


@pytest.mark.parametrize("name", [mutant.name for mutant in PLACEMENT_MUTANTS])
def test_scales_in_wrong_places_are_found_by_address(name: str) -> None:
    assert not places_right(BY_NAME[name], GEOMETRY)


def test_right_places_are_found_right() -> None:
    assert places_right(RIGHT, GEOMETRY)
    assert bytes_status(RIGHT) == BIT_EXACT
    assert bytes_status(BY_NAME["ties away from zero"]) == ADMISSIBLE
    assert bytes_status(BY_NAME["1/6 an ulp high"]) == INADMISSIBLE


def test_coinciding_layouts_are_no_mutants() -> None:
    names = {mutant.name for mutant in layout_mutants(CacheGeometry(1, 128, 1, 64))}
    assert "V stored inverse_4x4" not in names  # equal to the swizzle at head size 64
    assert "V stored linear" in names


# The tolerances


def trip(key: float, read_key: float, value: float = 1.0, read_value: float = 1.0) -> RoundTrip:
    numbers = (key, value, read_key, read_value)
    return RoundTrip(*(np.full((4, 1, 16), number, np.float32) for number in numbers))


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("atol 1.5, rtol 0.5", 3.0, 3.01),
        ("relative L2 0.2", 1.19, 1.21),
        ("relative L2 0.15", 1.14, 1.16),
        ("cosine 0.86, 10 % mismatches, values", 2.0, 2.01),
    ],
)
def test_a_tolerance_is_as_wide_as_it_says(name: str, inside: float, outside: float) -> None:
    (tolerance,) = (each for each in TOLERANCES if each.name == name)
    inside = inside if name != "atol 1.5, rtol 0.5" else 3.0
    assert tolerance.accepts(trip(1.0, min(inside, 2.0 if "cosine" in name else inside)))
    assert not tolerance.accepts(trip(1.0, outside))
    assert not tolerance.accepts(trip(1.0, 1.0, 1.0, outside))
    assert not tolerance.accepts(trip(1.0, math.nan))


def test_a_tenth_may_mismatch() -> None:
    (tolerance,) = (each for each in TOLERANCES if each.name.endswith("values") and
                    each.data == OUTLIERS)  # fmt: skip
    key = np.ones((1, 1, 100), np.float32)
    for wrong, accepted in ((10, True), (11, False)):
        read = key.copy()
        read[..., :wrong] = 2.5
        assert tolerance.accepts(RoundTrip(key, key, read, key)) == accepted


def test_measures() -> None:
    one, other = np.array([3.0, 4.0], np.float32), np.array([3.0, -4.0], np.float32)
    assert relative_l2(other, one) == pytest.approx(8 / 5)
    assert cosine(one, other) == pytest.approx(-7 / 25)
    assert cosine(one, one * 0) == 0
    assert close(one, other, 0.0, 0.0) == 0.5


def test_data_is_of_its_kind() -> None:
    shape = (256, 2, 128)
    normal, small, outliers = (random_data(kind, shape, 1)[0] for kind in (NORMAL, SMALL, OUTLIERS))
    assert normal.std() == pytest.approx(1, abs=0.02)
    assert np.array_equal(small, normal * np.float32(0.25))
    assert (outliers != normal).any(axis=(0, 1)).sum() == 16


def test_a_right_round_trip_is_a_tenth_off() -> None:
    """What the tolerances are set against: correct is about 0.1 in relative L2, wrong 0.3."""
    right = round_trip(RIGHT, GEOMETRY, NORMAL)
    assert all(0.08 < relative_l2(*side) < 0.12 for side in right.sides)
    linear = MutantWriter("linear", {"K": "linear", "V": "linear"})
    wrong = round_trip(linear, GEOMETRY, NORMAL)
    assert 0.08 < relative_l2(*wrong.sides[0]) < 0.12
    assert 0.25 < relative_l2(*wrong.sides[1]) < 0.4
