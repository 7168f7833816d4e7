"""Barriers: counts, phases and transaction bytes, against a plain reading of PTX."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle.machine.memory import MachineFault
from oracle.machine.sync import MBarrier, NamedBarrier


def state_of(count: int) -> int:
    """The low word that a kernel stores for a barrier of `count` arrivals."""
    return ((0x100000 - count) << 1) & 0xFFFF_FFFF


@given(st.integers(1, 0xFFFFF))
def test_the_count_is_read_from_the_state_a_kernel_stores(count: int) -> None:
    barrier = MBarrier.initialised(0x400, state_of(count))
    assert (barrier.count, barrier.pending, barrier.phases) == (count, count, 0)


@pytest.mark.parametrize("word", [0, state_of(0)])
def test_a_state_without_arrivals_is_refused(word: int) -> None:
    with pytest.raises(MachineFault, match="is initialised with"):
        MBarrier.initialised(0x400, word)


def test_a_new_barrier_has_its_previous_phase_over() -> None:
    barrier = MBarrier.initialised(0x400, state_of(2))
    assert barrier.over(1)
    assert not barrier.over(0)


@given(st.integers(1, 5), st.lists(st.integers(0, 3), max_size=12))
def test_a_phase_is_over_after_as_many_arrivals_as_counted(count: int, tries: list[int]) -> None:
    barrier = MBarrier.initialised(0x400, state_of(count))
    for number in range(1, 4 * count + 1):
        barrier.arrive()
        assert barrier.phases == number // count
        for parity in (0, 1):
            assert barrier.over(parity) == (number // count % 2 != parity)


def test_expected_bytes_keep_a_phase_open() -> None:
    barrier = MBarrier.initialised(0x400, state_of(1))
    barrier.arrive(expected=96)
    assert not barrier.over(0)
    barrier.complete(64)
    assert not barrier.over(0)
    barrier.complete(32)
    assert barrier.over(0)


def test_bytes_may_come_before_they_are_expected() -> None:
    barrier = MBarrier.initialised(0x400, state_of(1))
    barrier.complete(96)
    assert not barrier.over(0)
    barrier.arrive(expected=96)
    assert barrier.over(0)


def test_one_byte_too_many_is_not_enough() -> None:
    barrier = MBarrier.initialised(0x400, state_of(1))
    barrier.arrive(expected=96)
    barrier.complete(97)
    assert not barrier.over(0)


def test_more_arrivals_than_counted_are_a_fault() -> None:
    barrier = MBarrier.initialised(0x400, state_of(2))
    barrier.outstanding = 1
    barrier.arrive(2)
    with pytest.raises(MachineFault, match="more arrivals than 2"):
        barrier.arrive()


def test_a_named_barrier_lets_everyone_go_with_the_last() -> None:
    barrier: NamedBarrier[str] = NamedBarrier(96)
    assert barrier.join("a", 32) == []
    assert barrier.join("b", 32) == []
    assert barrier.join("c", 32) == ["a", "b", "c"]
    assert barrier.join("d", 32) == []


def test_more_threads_than_expected_are_a_fault() -> None:
    barrier: NamedBarrier[str] = NamedBarrier(48)
    barrier.join("a", 32)
    with pytest.raises(MachineFault, match="64 threads meet at a barrier of 48"):
        barrier.join("b", 32)
