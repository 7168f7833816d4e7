"""The directory of a session: what is kept, what is believed of it, and whose it is."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hunting import LIMITS, subject_of

from oracle.errors import UsageError
from oracle.fuzz.coverage import Coverage
from oracle.fuzz.domain import domain_of
from oracle.fuzz.failure import Failure
from oracle.fuzz.record import Entry, Record
from oracle.fuzz.replayfile import load
from oracle.fuzz.state import State, default_directory, opened
from oracle.fuzz.subject import Subject, subject_from_specs
from oracle.properties.case import StoreCase
from oracle.properties.promise import Violation
from oracle.subjects.reference import ReferenceWriter
from oracle.subjects.spec import writers_from_specs

SPEC = "reference:k=linear,v=swizzle_4x4"
CASE = StoreCase(1, 4, 1, 64, "HND", "bf16", (0, -1, 3), "spread", 5, 0.5, 2.0)
FAILURE = Failure(CASE, Violation("bijective", "two share", {"side": "V", "plane": "scale"}))


def subject() -> Subject:
    (writer,) = writers_from_specs([SPEC], (), ("bf16",))
    return subject_of(writer)


def coverage() -> Coverage:
    return Coverage(domain_of(subject(), LIMITS))


def saved(directory: Path, **changes: object) -> Record:
    """A session with one failure in a directory, its session.json changed afterwards."""
    record = Record(3, coverage(), rounds=2, examples=10, refused=1, seconds=1.5)
    record.coverage.add(CASE)
    record.beyond = Counter({"in-region": 4})
    record.add(FAILURE)
    with opened(directory, subject()) as state:
        state.keep(record.entries[FAILURE.key])
        state.save(record)
    path = directory / "session.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return record


def loaded(directory: Path, whose: Subject | None = None, seed: int | None = None) -> Record:
    told: list[str] = []
    with opened(directory, whose or subject()) as state:
        record = state.load(seed, coverage(), told.append)
    record.told = told  # type: ignore[attr-defined]
    return record


def test_what_was_saved_is_there_again(tmp_path: Path) -> None:
    before, after = saved(tmp_path), loaded(tmp_path)
    assert after.entries == {FAILURE.key: Entry(FAILURE)}
    for name in ("seed", "rounds", "examples", "refused", "seconds", "beyond"):
        assert getattr(after, name) == getattr(before, name)
    assert after.coverage.document() == before.coverage.document()


def test_another_seed_can_be_asked_for(tmp_path: Path) -> None:
    saved(tmp_path)
    assert loaded(tmp_path, seed=9).seed == 9
    assert loaded(tmp_path / "new", seed=9).seed == 9


def test_a_case_file_names_the_subject_and_no_reader_it_does_not_need(tmp_path: Path) -> None:
    made = replace(subject(), reader_spec="trtllm-gen")
    with opened(tmp_path, made) as state:
        replay = load(state.keep(Entry(FAILURE)))
        assert (replay.subject, replay.reader, replay.failure) == (SPEC, None, FAILURE)
        unread = Violation("agrees-with-reader", "elsewhere", {"side": "K", "plane": "scale"})
        replay = load(state.keep(Entry(Failure(CASE, unread, shrunk=False, steady=False))))
        assert replay.reader == "trtllm-gen"
        assert (replay.failure.shrunk, replay.failure.steady) == (False, False)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"schema_version": "0.9"}, "schema_version"),
        ({"rounds": -1}, "rounds"),
        ({"rounds": True}, "rounds"),
        ({"examples": "many"}, "examples"),
        ({"milliseconds": 1.5}, "milliseconds"),
        ({"coverage": {}}, "head_size"),
        ({"coverage": []}, "coverage"),
        ({"beyond": 3}, "beyond"),
        ({"beyond": {"in-region": -1}}, "beyond"),
        ({"writers": []}, "writers"),
        ({"artifacts": None}, "artifacts"),
        ({"failures": 1}, "failures"),
        ({"failures": [{"case": "../../x.json", "times": 1, "fails": True}]}, "case"),
        ({"failures": [{"case": "x.json", "times": 1, "fails": "yes"}]}, "fails"),
        ({"more": 1}, "more"),
        ({"subject": "store"}, "its subject is 'store'"),
        ({"reader": "trtllm-gen"}, "its reader is 'trtllm-gen'"),
        ({"writers": {"bf16": "store@sm_90/bf16"}}, "its writer of bf16"),
    ],
)
def test_a_damaged_or_foreign_session_is_refused(
    changes: dict[str, object], complaint: str, tmp_path: Path
) -> None:
    saved(tmp_path, **changes)
    with pytest.raises(UsageError) as refused:
        loaded(tmp_path)
    assert complaint in str(refused.value)
    assert "name another --state" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"a": NaN}', "\xff"])
def test_a_truncated_session_is_refused(text: str, tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "session.json").write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=r"session\.json"):
        loaded(tmp_path)


def test_a_session_that_is_too_large_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, tool="x" * (1 << 22))
    with pytest.raises(UsageError, match="larger than"):
        loaded(tmp_path)


def test_a_case_that_cannot_be_read_is_left_out_with_a_line(tmp_path: Path) -> None:
    saved(tmp_path)
    (path,) = (tmp_path / "cases").iterdir()
    path.write_text(path.read_text()[:40])
    record = loaded(tmp_path)
    assert record.entries == {}
    (line,) = record.told  # type: ignore[attr-defined]
    assert line.startswith("a known failure is left out: ")
    assert str(path) in line


def test_where_the_code_has_changed_only_the_failures_are_kept(tmp_path: Path) -> None:
    saved(tmp_path, artifacts={SPEC: "0" * 64})
    record = loaded(tmp_path)
    assert list(record.entries) == [FAILURE.key]
    assert (record.examples, record.seconds, record.rounds) == (0, 0.0, 2)
    assert record.told == [f"the code of {SPEC} has changed: counts start anew"]  # type: ignore[attr-defined]


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match=r"thesis\.tex"), opened(tmp_path, subject()):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_directory_with_examples_from_elsewhere_is_taken(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    assert loaded(tmp_path).entries == {}


def test_a_state_is_for_one_session_at_a_time(tmp_path: Path) -> None:
    with (
        opened(tmp_path, subject()),
        pytest.raises(UsageError, match="another session is using it"),
        opened(tmp_path, subject()),
    ):
        pass
    with opened(tmp_path, subject()):
        pass


def test_what_a_subject_forked_does_not_keep_a_state_locked(tmp_path: Path) -> None:
    with opened(tmp_path, subject()):
        forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        forked.start()
    try:
        with opened(tmp_path, subject()):
            pass
    finally:
        forked.kill()
        forked.join()


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--state"), opened(tmp_path / "file", subject()):
        pass


def test_every_subject_has_a_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(tmp_path))
    one = subject()
    others = (one, replace(one, reader_spec="trtllm-gen"), replace(one, spec="other"))
    assert len({default_directory(each) for each in others}) == 3
    assert default_directory(one).parent == tmp_path / "fuzz"


def test_failures_of_a_kind_have_one_file_and_others_another(tmp_path: Path) -> None:
    state = State(tmp_path, subject())
    names = {state.case_path(replace_witness(each)).name for each in ("V", "K", "K/../", "K:..:")}
    assert len(names) == 4
    assert all(Path(name).name == name for name in names)


def replace_witness(side: str) -> tuple[str, str]:
    return replace(FAILURE, violation=Violation("bijective", "", {"side": side})).key


def test_of_two_cases_of_a_failure_the_smaller_is_kept() -> None:
    record = Record(0, coverage())
    large = replace(FAILURE, case=replace(CASE, num_heads=2))
    assert record.add(large)
    assert record.add(FAILURE)
    assert not record.add(large)
    assert not record.add(replace(FAILURE, shrunk=False))
    assert record.entries[FAILURE.key] == Entry(FAILURE, times=4)
    record.entries[FAILURE.key].fails = False
    assert record.failing == []
    assert record.add(large)
    assert [entry.failure for entry in record.failing] == [large]


def test_a_spec_that_names_several_writers_is_refused() -> None:
    with pytest.raises(UsageError, match="several writers of bf16: give store-sm100@sm_100a/bf16"):
        subject_from_specs("store", dtypes=("bf16",))


def test_a_subject_has_a_writer_for_each_dtype_and_travels_by_its_specs() -> None:
    made = subject_from_specs(SPEC, "trtllm-gen")
    assert made.dtypes == ("bf16", "fp16")
    assert all(isinstance(writer, ReferenceWriter) for writer in made.writers.values())
    assert [info.id for info in made.infos] == [SPEC, "trtllm-gen"]
    make, arguments = made.__reduce__()
    assert make(*arguments).ids == made.ids
