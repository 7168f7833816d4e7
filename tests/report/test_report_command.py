"""The command line: what `report` takes, prints, writes and refuses."""

from __future__ import annotations

import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from commandline import Call
from documents import references
from pages import read
from verdicts import VERDICTS

from oracle.report import document, parse, terminal
from oracle.report.sections import outline


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory as `verdict --output` leaves it, of a verdict with exit code 1."""
    made = references()
    document.write_files(made, made.exit_code, tmp_path / "out")
    return tmp_path / "out" / "verdict.json"


def test_the_report_is_the_one_that_the_verdict_printed(call: Call, source: Path) -> None:
    done = call("report", str(source))
    made = references()
    printed = io.StringIO()
    console = terminal.console(printed, 80)
    terminal.show(outline(made, made.exit_code, terminal.FAULTS_PER_SUBJECT), console)
    assert (done.code, done.err) == (0, "")
    assert done.out == printed.getvalue()


def test_every_form_is_written_at_once_whatever_the_verdict(
    call: Call, source: Path, tmp_path: Path
) -> None:
    paths = [tmp_path / name for name in ("page.html", "report.md", "report.xml")]
    options = zip(("--html", "--markdown", "--junit"), map(str, paths), strict=True)
    done = call("report", str(source), *(word for option in options for word in option))
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines() == [f"wrote {path}" for path in paths]
    page, markdown, junit = (path.read_text(encoding="utf-8") for path in paths)
    assert read(page).tag == "html"
    assert markdown == (source.parent / "verdict.md").read_text(encoding="utf-8")
    assert ElementTree.fromstring(junit).tag == "testsuites"


def test_json_is_the_document_again(call: Call, source: Path) -> None:
    done = call("report", str(source), "--json")
    assert (done.code, done.out) == (0, source.read_text(encoding="utf-8"))


def test_a_dash_is_standard_output(call: Call, source: Path, tmp_path: Path) -> None:
    done = call("report", str(source), "--html", "-")
    assert (done.code, done.err) == (0, "")
    assert read(done.out).tag == "html"
    path = tmp_path / "page.html"
    both = call("report", str(source), "--markdown", "-", "--html", str(path))
    assert both.out == (source.parent / "verdict.md").read_text(encoding="utf-8")
    assert path.read_text(encoding="utf-8") == done.out


def test_a_dash_is_standard_input(
    call: Call, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Input:
        buffer = io.BytesIO(source.read_bytes())

    monkeypatch.setattr(parse.sys, "stdin", Input)
    assert call("report", "-", "--json").out == source.read_text(encoding="utf-8")
    Input.buffer = io.BytesIO(b"nothing")
    assert "standard input is no verdict" in call("report", "-").complaint


def test_a_verdict_of_version_1_0_is_written_as_one_of_today(call: Call, tmp_path: Path) -> None:
    old = json.loads(document.as_json(VERDICTS["settled"], 0))
    for finding in old["findings"]:
        del finding["table"]
    del old["launches"]
    path = tmp_path / "verdict.json"
    path.write_text(json.dumps({**old, "schema_version": "1.0"}), encoding="utf-8")
    assert call("report", str(path), "--json").out == document.as_json(VERDICTS["settled"], 0)


def test_what_is_no_verdict_leaves_no_file(call: Call, source: Path, tmp_path: Path) -> None:
    text = source.read_text(encoding="utf-8")
    source.write_text(text.replace('"status": "match"', '"status": "fine"', 1), encoding="utf-8")
    done = call("report", str(source), "--html", str(tmp_path / "page.html"))
    assert done.code == 2
    assert f"{source} is no verdict: findings[0].status: 'fine' is none of match" in done.complaint
    assert not (tmp_path / "page.html").exists()
    assert call("report", str(tmp_path / "missing.json")).code == 2


def test_two_reports_in_one_place_are_refused(call: Call, source: Path, tmp_path: Path) -> None:
    same = str(tmp_path / "a" / ".." / "report")
    for arguments, told in (
        (("--html", "-", "--junit", "-"), "--junit -: standard output already takes"),
        (("--json", "--html", "-"), "--html -: standard output already takes"),
        (("--html", same, "--junit", str(tmp_path / "report")), "already takes another report"),
        (("--junit", str(source)), "that is the verdict"),
        (("--html", str(tmp_path)), "is a directory or a device"),
        (("--html", "/dev/null"), "is a directory or a device"),
        (("--html", "."), ". is a directory or a device"),
        (("--html", "/"), "/ is a directory or a device"),
        (("--html", str(tmp_path / "nowhere" / "x")), "cannot be written: No such file"),
        (("--html", ""), "an empty name"),
    ):
        done = call("report", str(source), *arguments)
        assert done.code == 2
        assert told in done.complaint
    assert Path("/dev/null").is_char_device()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_a_path_is_told_on_one_line(call: Call, source: Path, tmp_path: Path) -> None:
    place = tmp_path / "a\n::error::b.html"
    done = call("report", str(source), "--html", str(place))
    assert done.code == 0
    assert place.is_file()
    assert len(done.err.splitlines()) == 1
