"""JUnit XML: what CI systems count is what the exit code judges, and no name can break it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from documents import loaded, mutants, references, spelled
from hypothesis import given
from hypothesis import strategies as st
from verdicts import HOSTILE, VERDICTS, settled

from oracle.report.junit import as_junit
from oracle.report.parse import parse
from oracle.verdict import FAULTY, NOT_OBTAINED, Agreement, Finding, Verdict

COUNTS = ("tests", "failures", "errors", "skipped")
# What the schemas of Ant's and Jenkins' JUnit reports let these elements hold.
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase"},
    "properties": {"property"},
    "property": set(),
    "testcase": {"failure", "skipped", "system-out"},
    "failure": set(),
    "skipped": set(),
    "system-out": set(),
}
ATTRIBUTES = {
    "testsuites": {"name", "time", *COUNTS},
    "testsuite": {"name", "time", *COUNTS},
    "properties": set(),
    "property": {"name", "value"},
    "testcase": {"name", "classname", "time"},
    "failure": {"type", "message"},
    "skipped": {"message"},
    "system-out": set(),
}
MADE = {**VERDICTS, "mutants": mutants(), "references": references(), "spelled": spelled()}
every = pytest.mark.parametrize("made", MADE.values(), ids=MADE)


def root_of(made: Verdict) -> ElementTree.Element:
    return ElementTree.fromstring(as_junit(made))


@every
def test_it_has_the_structure_that_readers_of_it_know(made: Verdict) -> None:
    root = root_of(made)
    assert root.tag == "testsuites"
    for element in root.iter():
        assert {child.tag for child in element} <= CHILDREN[element.tag]
        assert set(element.attrib) == ATTRIBUTES[element.tag]
    for suite in root:
        tags = [child.tag for child in suite]
        assert tags == ["properties", *["testcase"] * (len(tags) - 1)]
        names = [(case.get("classname"), case.get("name")) for case in suite.iter("testcase")]
        assert len(set(names)) == len(names)
        assert all(len(case) <= 1 for case in suite.iter("testcase"))


@every
def test_the_counts_are_those_of_the_cases(made: Verdict) -> None:
    root = root_of(made)
    for part in (root, *root):
        cases = list(part.iter("testcase"))
        assert part.get("tests") == str(len(cases))
        assert part.get("failures") == str(len(list(part.iter("failure"))))
        assert part.get("skipped") == str(len(list(part.iter("skipped"))))
        assert part.get("errors") == "0"
    assert len(list(root.iter("testcase"))) == len(made.findings) + len(made.agreements)


def outcome(made: Verdict, result: Finding | Agreement) -> str:
    """What a result should be to a CI system, told from its status."""
    if result.status == "undecided" or result.status in NOT_OBTAINED:
        return "skipped"
    if isinstance(result, Agreement):
        bad = result.judged and result.status == "disagree"
    else:
        writers = {info.id for info in made.subjects if info.role == "writer"}
        bad = result.status in FAULTY and (result.subject in writers or not writers)
    return "failure" if bad else "passed"


@every
def test_failures_are_what_the_exit_code_judges(made: Verdict) -> None:
    root = root_of(made)
    assert (root.get("failures") != "0") == (made.exit_code == 1)
    expected = Counter(outcome(made, each) for each in (*made.findings, *made.agreements))
    tags = [[child.tag for child in case] for case in root.iter("testcase")]
    assert sum("failure" in each for each in tags) == expected["failure"]
    assert sum("skipped" in each for each in tags) == expected["skipped"]


def test_a_failure_says_what_was_found_where() -> None:
    (failure,) = (
        failure
        for case in root_of(VERDICTS["faulty"]).iter("testcase")
        for failure in case.iter("failure")
        if case.get("name") == "V scale, head size 64, 2 heads, block size 16, HND, bf16, max6"
        and case.get("classname") == "broken"
    )
    assert failure.get("type") == "overlap"
    told = failure.get("message") or ""
    assert failure.text == told
    assert "declared: linear" in told
    assert "56 stored on top of another" in told
    assert "share one byte" in told


def test_a_disagreement_fails_only_where_it_is_judged() -> None:
    context, judged = root_of(VERDICTS["settled"]), root_of(VERDICTS["judged"])
    assert (context.get("failures"), judged.get("failures")) == ("0", "2")
    told = [each.text or "" for each in context.iter("system-out")]
    assert len(told) == 2
    assert told[0].startswith("not judged: 96 of 128 positions disagree: head 0, token 0, column 1")


def test_what_a_reader_does_is_context_of_a_verdict_about_writers() -> None:
    made = VERDICTS["faulty"]
    broken, free = made.subjects
    beside = replace(made, subjects=(replace(broken, role="reader"), replace(free, declared={})))
    alone = replace(beside, subjects=(beside.subjects[0],), findings=made.of_subject("broken"))
    assert root_of(beside).get("failures") == "1"
    assert root_of(alone).get("failures") == "4"


def test_a_skip_says_why() -> None:
    (case, *_) = root_of(VERDICTS["refused"]).iter("skipped")
    assert case.get("message") == "refused: S=5 is no multiple of 4"


@every
def test_a_verdict_that_was_read_back_gives_the_same_bytes(made: Verdict) -> None:
    assert as_junit(parse(loaded(made)).verdict) == as_junit(made)


def test_a_name_that_is_markup_stays_a_name() -> None:
    (suite, *_) = root_of(VERDICTS["hostile name"])
    assert suite.get("name") == HOSTILE.replace("\x1b", r"\x1b").replace("\n", r"\n")


@given(st.text(min_size=1))
def test_any_name_can_be_held(name: str) -> None:
    root = root_of(settled(name))
    assert len(root) == 3
