"""What cases are drawn, and what they shrink to."""

from __future__ import annotations

from itertools import count

import pytest
from broken import (
    PlantedWriter,
    Write,
    first_wins,
    heads_rotated,
    keys_for_values,
    page_0_linear,
    planted,
    slots_of_32_bits,
    stores,
    t_mod_4_dropped,
    tokens_share_a_maximum,
)
from hypothesis import given, settings

from oracle.errors import NothingRan, Refused
from oracle.geometry import CacheGeometry
from oracle.properties.case import StoreCase
from oracle.properties.promise import refusal
from oracle.properties.promises import PROMISES
from oracle.properties.strategies import DEFAULT_LIMITS, Limits, find_violation, store_cases
from oracle.requests import ByteStores, StoreRequest
from oracle.subjects.spec import readers_from_specs

WRITER = PlantedWriter("sound", stores)
TRTLLM = readers_from_specs(["trtllm-gen"])[0]
SMALL = Limits(head_sizes=(64, 128), num_heads=(1, 2), block_sizes=(4, 8), most_tokens=4)
QUICK = settings(deadline=None, max_examples=60, derandomize=True, database=None)


@given(store_cases(WRITER, TRTLLM))
def test_no_case_is_refused_and_each_stores_a_token(case: StoreCase) -> None:
    assert refusal(WRITER, TRTLLM, case) is None
    assert max(case.slots) >= 0
    assert len(case.slots) <= DEFAULT_LIMITS.most_tokens
    assert case.num_pages <= DEFAULT_LIMITS.most_pages
    elements = case.head_size * case.num_heads * case.block_size
    assert elements <= DEFAULT_LIMITS.most_page_elements


@given(store_cases(WRITER, limits=SMALL, dtypes=("fp16",)))
def test_limits_and_dtypes_are_kept(case: StoreCase) -> None:
    assert case.head_size in SMALL.head_sizes
    assert case.num_heads in SMALL.num_heads
    assert case.block_size in SMALL.block_sizes
    assert case.dtype == "fp16"


def test_a_writer_that_takes_nothing_is_told_of() -> None:
    # The swizzle is none of pages of 3 tokens.
    with pytest.raises(NothingRan, match="sound takes no geometry within the limits"):
        store_cases(WRITER, limits=Limits(block_sizes=(3,)))


@pytest.mark.parametrize(("fault", "promise", "heads", "tokens"), [
    (t_mod_4_dropped, "bijective", 1, 1),
    (page_0_linear, "round-trip", 1, 1),
    (first_wins, "last-wins", 1, 1),
    # One head cannot be rotated; a slot of 32 bits and two tokens take what they are called.
    (heads_rotated, "as-declared", 2, 1),
    (slots_of_32_bits, "padding-ignored", 1, 2),
    (tokens_share_a_maximum, "token-independent", 1, 2),
])  # fmt: skip
def test_a_fault_shrinks_to_the_smallest_case_that_has_it(
    fault: Write, promise: str, heads: int, tokens: int
) -> None:
    writer = planted(fault)
    found = find_violation(PROMISES[promise], writer, None, store_cases(writer), QUICK)
    assert found is not None
    # The writer declares a swizzle, which is made for pages of 4 tokens and heads of 64 at least.
    assert found.case.geometry == CacheGeometry(1, 4, heads, 64, "HND")
    assert found.case.dtype == "bf16"
    assert len(found.case.slots) == tokens
    assert PROMISES[promise].check(writer, None, found.case) == found.violation
    assert found.steady


def test_a_sound_writer_has_no_such_case() -> None:
    cases = store_cases(WRITER, limits=SMALL)
    assert find_violation(PROMISES["round-trip"], WRITER, None, cases, QUICK) is None


@pytest.mark.parametrize("taken", [(), ("NHD",)])
def test_what_a_writer_refuses_as_it_is_called_is_no_answer(taken: tuple[str, ...]) -> None:
    asked = []

    def choosy(request: StoreRequest) -> ByteStores:
        asked.append(request.geometry.cache_layout)
        if request.geometry.cache_layout not in taken:
            raise Refused("choosy", "made for NHD")
        return stores(request)

    def search() -> None:
        cases = store_cases(WRITER, limits=SMALL)
        writer = PlantedWriter("choosy", choosy)
        assert find_violation(PROMISES["deterministic"], writer, None, cases, QUICK) is None

    if taken:
        search()
        assert len(asked) - asked.count("HND") == 2 * QUICK.max_examples
    else:
        with pytest.raises(Refused, match="choosy refuses the geometry: made for NHD"):
            search()


def test_what_comes_and_goes_is_found_and_called_unsteady() -> None:
    turn = count()

    def once(request: StoreRequest) -> ByteStores:
        return keys_for_values(request) if next(turn) == 20 else stores(request)

    cases = store_cases(WRITER, limits=SMALL)
    writer = PlantedWriter("once", once)
    found = find_violation(PROMISES["round-trip"], writer, None, cases, QUICK)
    assert found is not None
    assert not found.steady
    assert found.violation.promise == "round-trip"
