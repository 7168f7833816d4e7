"""What a search finds, how small, and what it lets be."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from broken import PLANTED, PlantedWriter, V, planted, stores, t_mod_4_dropped, v_linear
from hunting import LIMITS, Ear, hunt, subject_of, task_of
from hypothesis.database import DirectoryBasedExampleDatabase
from mutants import mutant_writer

from oracle.errors import UsageError
from oracle.fuzz import worker
from oracle.fuzz.failure import ANY, Key, key_of
from oracle.fuzz.messages import Order, Ready, Rechecked
from oracle.fuzz.search import DATABASE_KEY
from oracle.fuzz.smallest import smallest
from oracle.fuzz.worker import PROMISES_PER_CASE, Worker, some_of
from oracle.properties.case import StoreCase
from oracle.properties.promises import PROMISES, Violation
from oracle.properties.strategies import DEFAULT_LIMITS
from oracle.requests import ByteStores, StoreRequest

EXAMPLES = 25
ENOUGH = 60
"""Cases among which some show a fault that one promise alone notices, in half of the cases."""
CASE = StoreCase(1, 4, 1, 64, "HND", "bf16", (0,))
COMPILED = ("t%4 dropped", "heads rotated", "nibbles exchanged", "padding stored")


def test_a_sound_writer_breaks_nothing(tmp_path: Path) -> None:
    ear = hunt(PlantedWriter("sound", stores), tmp_path, EXAMPLES)
    assert ear.failures == []
    assert ear.examples == EXAMPLES


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.__name__)
def test_every_planted_fault_is_found_and_is_as_small_as_can_be(
    fault: type, tmp_path: Path
) -> None:
    ear = hunt(planted(fault), tmp_path, ENOUGH)
    assert ear.failures
    assert all(failure.shrunk for failure in ear.failures)
    # The least that a swizzle is defined for; a head that moves needs another to move to.
    least = (64, 4, 2 if fault.__name__ == "heads_rotated" else 1)
    cases = [failure.case for failure in ear.failures]
    assert least in {(case.head_size, case.block_size, case.num_heads) for case in cases}


@pytest.mark.parametrize("name", COMPILED)
def test_a_broken_kernel_is_found(name: str, tmp_path: Path) -> None:
    # Unlike the host side of the original, the broken one takes what a swizzle is not made for.
    limits = replace(LIMITS, head_sizes=(64, 128), block_sizes=(4, 8))
    ear = hunt(mutant_writer(name), tmp_path, 12, limits=limits)
    assert ear.failures
    assert all(failure.case.head_size == 64 for failure in ear.failures)


@pytest.fixture
def thorough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case is examined for every promise, so that few cases show everything."""
    monkeypatch.setattr(worker, "PROMISES_PER_CASE", len(PROMISES))


@pytest.mark.usefixtures("thorough")
def test_two_faults_of_one_writer_are_both_found(tmp_path: Path) -> None:
    def both(request: StoreRequest) -> ByteStores:
        backwards = {
            name: getattr(request, name)[::-1] for name in ("key", "value", "slot_mapping")
        }
        return v_linear(replace(request, **backwards))

    found = {f.key for f in hunt(PlantedWriter("both", both), tmp_path, 2 * EXAMPLES).failures}
    assert Key("as-declared", "V scale") in found
    assert "last-wins" in {key.promise for key in found}


@pytest.mark.usefixtures("thorough")
def test_of_each_promise_no_more_failures_are_kept_than_the_cap(tmp_path: Path) -> None:
    def one_or_the_other(request: StoreRequest) -> ByteStores:
        return v_linear(request) if request.geometry.num_heads == 1 else stores(request, k=V)

    writer = PlantedWriter("one or the other", one_or_the_other)
    both, capped = (hunt(writer, tmp_path / str(cap), EXAMPLES, cap=cap) for cap in (5, 1))
    ways = {Key("as-declared", f"{side} scale") for side in "KV"}
    assert ways <= {failure.key for failure in both.failures}
    assert len(ways & {failure.key for failure in capped.failures}) == 1
    assert sum(t.beyond["as-declared"] for t in capped.tallies) > 0


def test_a_seed_gives_the_same_search_again(tmp_path: Path) -> None:
    def told(name: str, seed: int) -> list[object]:
        ear = hunt(planted(t_mod_4_dropped), tmp_path / name, EXAMPLES, seed=seed)
        first, *others = ear.tallies
        for tally in others:
            first.coverage.merge(tally.coverage)
        return [ear.failures, ear.examples, first.coverage.document()]

    assert told("one", 7) == told("two", 7)
    assert told("three", 8) != told("one", 7)


@pytest.mark.usefixtures("thorough")
def test_what_is_known_is_counted_and_not_found_again(tmp_path: Path) -> None:
    first = hunt(planted(v_linear), tmp_path, EXAMPLES)
    known = tuple(failure.key for failure in first.failures)
    second = hunt(planted(v_linear), tmp_path, EXAMPLES, first=1, known=known)
    assert second.failures == []
    times = sum(t.times[key] for t in second.tallies for key in known)
    assert times > 0


def test_another_session_finds_in_the_database_what_was_found(tmp_path: Path) -> None:
    first = hunt(planted(v_linear), tmp_path, EXAMPLES)
    second = hunt(planted(v_linear), tmp_path, 1, remember=True)
    before_search = second.told[: second.told.index(Ready())]
    assert {f.key for f in first.failures} <= {f.key for f in second.failures if f in before_search}


def test_where_the_fault_is_gone_the_database_is_kept_for_others(tmp_path: Path) -> None:
    hunt(planted(v_linear), tmp_path, EXAMPLES)
    kept = sorted(path.name for path in tmp_path.rglob("*"))
    sound = hunt(PlantedWriter("sound", stores), tmp_path, 1, remember=True)
    assert sound.failures == []
    assert set(kept) <= {path.name for path in tmp_path.rglob("*")}


@pytest.mark.parametrize("garbage", [b"", b"\xff\xff", b"\x00" * 9, b"\x21\x00\x21\x00"])
def test_what_is_no_case_in_the_database_is_passed_over(garbage: bytes, tmp_path: Path) -> None:
    DirectoryBasedExampleDatabase(tmp_path).save(DATABASE_KEY, garbage)
    ear = hunt(PlantedWriter("sound", stores), tmp_path, 1, remember=True)
    assert ear.failures == []
    assert ear.examples >= 1


def test_known_failures_are_executed_first(tmp_path: Path) -> None:
    found = hunt(planted(v_linear), tmp_path / "a", EXAMPLES).failures
    again = hunt(planted(v_linear), tmp_path / "b", 1, doubtful=tuple(found))
    assert again.told[: len(found)] == [Rechecked(failure.key, True) for failure in found]
    mended = hunt(PlantedWriter("sound", stores), tmp_path / "c", 1, doubtful=tuple(found))
    assert mended.told[: len(found)] == [Rechecked(failure.key, False) for failure in found]


def test_a_search_that_is_stopped_gives_what_it_was_shrinking(tmp_path: Path) -> None:
    class Late(Ear):
        """Asks to stop once a failure is being shrunk."""

        def poll(self) -> bool:
            return writer.failed > 2 and super().poll()

    class Counting(PlantedWriter):
        failed = 0

        def write(self, request: StoreRequest):  # type: ignore[no-untyped-def]
            self.failed += 1
            return super().write(request)

    writer = Counting("counting", v_linear)
    ear = Late([Order.STOP])
    Worker(subject_of(writer), task_of(tmp_path), ear).run()
    (failure,) = ear.failures
    assert not failure.shrunk
    more = hunt(planted(v_linear), tmp_path, 1, doubtful=(failure,), remember=True)
    assert [f.shrunk for f in more.failures if f.key == failure.key] == [True]


@pytest.mark.usefixtures("thorough")
def test_what_somebody_else_found_is_left_to_them(tmp_path: Path) -> None:
    found = hunt(planted(v_linear), tmp_path / "a", EXAMPLES).failures
    ear = Ear([failure.key for failure in found])
    Worker(subject_of(planted(v_linear)), task_of(tmp_path / "b", examples=30), ear).run()
    assert ear.failures == []


def test_a_failure_that_comes_and_goes_is_told_as_such(tmp_path: Path) -> None:
    times = count()

    def seldom(request: StoreRequest) -> ByteStores:
        if next(times) == 30:
            raise UsageError("once")
        return stores(request)

    (failure,) = hunt(PlantedWriter("seldom", seldom), tmp_path, EXAMPLES).failures
    assert not failure.steady


def test_a_writer_that_fails_is_one_failure_of_no_promise(tmp_path: Path) -> None:
    def raising(request: StoreRequest) -> ByteStores:
        if request.geometry.num_heads > 1:
            raise UsageError(f"it: raised Error: {request.slot_mapping.size}, given something")
        return stores(request)

    (failure,) = hunt(PlantedWriter("raising", raising), tmp_path, EXAMPLES).failures
    assert failure.key == Key(ANY, "it")
    assert failure.case.num_heads == 2


def test_messages_with_other_coordinates_are_one_failure() -> None:
    keys = {
        key_of(
            Violation("bijective", f"byte {byte}", {"side": "K", "plane": "scale", "byte": byte})
        )
        for byte in range(3)
    }
    assert keys == {Key("bijective", "K scale")}
    notes = {
        key_of(Violation("in-region", "", {"side": "K", "note": f"stored in page {page} V data"}))
        for page in range(3)
    }
    assert notes == {Key("in-region", "K stored in page # V data")}


def test_sizes_are_tried_that_lie_between_others_which_do_not_fail() -> None:
    case = StoreCase(4, 17, 5, 256, "HND", "bf16", (0,))
    found = smallest(
        case, lambda c: c.block_size in (4, 11, 17) and c.num_heads != 1, DEFAULT_LIMITS
    )
    assert found == StoreCase(1, 4, 2, 16, "HND", "bf16", (0,))


def test_a_size_stays_that_the_slots_need() -> None:
    case = StoreCase(3, 4, 1, 64, "HND", "bf16", (5,))
    found = smallest(case, lambda c: c.block_size == 4, DEFAULT_LIMITS)
    assert (found.num_pages, found.block_size) == (2, 4)


def test_every_promise_is_examined_for_some_cases() -> None:
    promises = list(PROMISES.values())
    chosen = [
        some_of(promises, StoreCase(1, 4, 1, 64, "HND", "bf16", (0,), seed=s)) for s in range(99)
    ]
    assert {len(each) for each in chosen} == {PROMISES_PER_CASE}
    assert {promise.name for each in chosen for promise in each} == set(PROMISES)
    assert some_of(promises[:2], CASE) in (promises[:2], promises[1::-1])
