"""What was visited, counted against every case by hand."""

from __future__ import annotations

import pytest
from hunting import LIMITS, subject_of

from oracle.fuzz.coverage import DIMENSIONS, SLOTS, Coverage
from oracle.fuzz.domain import cases_of, domain_of
from oracle.properties.case import StoreCase
from oracle.subjects.spec import writers_from_specs

(WRITER,) = writers_from_specs(["reference:k=linear,v=swizzle_4x4"], (), ("bf16",))
CASE = StoreCase(2, 4, 1, 64, "HND", "bf16", (0,))


def coverage() -> Coverage:
    return Coverage(domain_of(subject_of(WRITER), LIMITS))


def test_the_domain_is_what_the_writer_takes() -> None:
    domain = domain_of(subject_of(WRITER), LIMITS)
    assert set(domain) == set(DIMENSIONS)
    # A swizzle needs head sizes of whole 64 elements and pages of whole bands.
    assert domain["head_size"] == (64, 128)
    assert domain["block_size"] == (4, 8, 16)
    assert domain["dtype"] == ("bf16",)
    assert cases_of(subject_of(WRITER), LIMITS).wrapped_strategy is not None


def test_a_case_counts_once_in_every_dimension() -> None:
    counted = coverage()
    counted.add(CASE)
    counted.add(CASE)
    assert counted.counts["head_size"] == {"64": 2, "128": 0}
    assert counted.visited("head_size") == (1, 2)
    assert counted.in_words().startswith("head sizes 1/2, page sizes 1/3, heads 1/3, pages 1/4, ")


@pytest.mark.parametrize(
    ("slots", "kinds"),
    [
        ((0,), {"first slot"}),
        ((1, 2), {"rising"}),
        ((2, 1), {"shuffled"}),
        ((1, 1), {"rising", "repeated"}),
        ((-1, 1), {"rising", "padding"}),
        ((-1, -1, 1), {"rising", "padding"}),
        ((1, 7), {"rising", "last slot", "several pages"}),
        ((4, 5, 6, 7), {"rising", "last slot", "whole page"}),
        ((2, 0, 3, 0, 1), {"shuffled", "repeated", "first slot", "whole page"}),
    ],
)
def test_kinds_of_slots(slots: tuple[int, ...], kinds: set[str]) -> None:
    case = StoreCase(2, 4, 1, 64, "HND", "bf16", slots)
    assert {name for name, holds in SLOTS.items() if holds(case)} == kinds


def test_counts_are_added_and_kept() -> None:
    one, other, again = coverage(), coverage(), coverage()
    one.add(CASE)
    other.add(StoreCase(1, 8, 2, 128, "NHD", "bf16", (3, -1), "raw"))
    one.merge(other)
    again.restore(one.document())
    assert again.document() == one.document()
    assert again.visited("cache_layout") == (2, 2)


def test_what_lies_outside_the_domain_counts_where_it_fits() -> None:
    counted = coverage()
    counted.add(StoreCase(1, 4, 1, 16, "HND", "bf16", (0,)))
    assert counted.visited("head_size") == (0, 2)
    assert counted.visited("block_size") == (1, 3)
    counted.restore({**coverage().document(), "head_size": {"16": 5, "64": 3}})
    assert counted.counts["head_size"] == {"64": 3, "128": 0}
