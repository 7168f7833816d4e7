"""Annotations of a GitHub Actions run: what is told, and that no text of a subject is a command."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verdicts import HOSTILE, VERDICTS, every_verdict, finding, settled, verdict, writer
from verdicts import at as geometry

from oracle.report.annotations import MOST, as_annotations, command, main
from oracle.report.document import as_json
from oracle.verdict import Verdict

LINE = re.compile(r"::(error|warning) title=(layout fault|not executed)::[^\r\n]+")


@every_verdict
def test_each_line_is_one_command(made: Verdict) -> None:
    assert all(LINE.fullmatch(line) for line in as_annotations(made))


def test_nothing_is_told_of_a_verdict_as_declared() -> None:
    assert list(as_annotations(settled())) == []


def test_faults_and_what_was_not_run_are_told() -> None:
    lines = list(as_annotations(VERDICTS["faulty"]))
    kinds = [line.split(" ")[0] for line in lines]
    assert kinds == sorted(kinds)
    assert any("overlap: V scale" in line and "share one byte" in line for line in lines)
    assert "::warning title=not executed::free is not_run: no GPU" in lines


def test_a_judged_disagreement_is_an_error() -> None:
    (line,) = as_annotations(settled(judged=True))
    assert line.startswith("::error title=layout fault::pinned does not read K scales where store")
    assert "in 2 geometries; first head size 64" in line


def test_a_reader_that_was_asked_for_and_not_compared_is_told() -> None:
    made = settled()
    asked = (
        replace(each, status="undecided", positions=0, reason="no map here", judged=True)
        for each in made.agreements
        if each.reader == "kept"
    )
    (line,) = as_annotations(replace(made, agreements=tuple(asked)))
    assert line == "::warning title=not executed::kept was not held against store: no map here"


def test_a_hostile_name_is_one_line() -> None:
    (line,) = as_annotations(settled(HOSTILE, judged=True))
    assert LINE.fullmatch(line)
    assert "\\n" in line


def test_of_many_only_ten_are_told() -> None:
    subjects = [writer(f"store{i}", "linear", "linear") for i in range(30)]
    witness = {"head": 0, "token": 1, "column": 2, "note": "stored nowhere"}
    found = [finding(each, "K", geometry(64), "gap", witness=witness) for each in subjects]
    lines = list(as_annotations(verdict(subjects, found)))
    assert len(lines) == MOST
    assert lines[-1].endswith("::21 more of this kind: see the verdict")


@given(st.text(), st.text())
def test_no_text_ends_its_command_or_its_title(title: str, message: str) -> None:
    line = command("error", title, message)
    assert not {"\r", "\n"} & set(line)
    head, told, rest = line.removeprefix("::error title=").partition("::")
    assert told == "::"
    assert not {":", ","} & set(head)
    back = {"%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ",", "%25": "%"}
    unescaped = (re.sub("%..", lambda m: back[m[0]], part) for part in (head, rest))
    assert tuple(unescaped) == (title, message)


def test_a_verdict_file_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "verdict.json"
    made = settled(judged=True)
    path.write_text(as_json(made, made.exit_code))
    assert main([str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == list(as_annotations(made))


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["no such file"], ["no\n::error::file"]])
def test_what_is_no_verdict_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
