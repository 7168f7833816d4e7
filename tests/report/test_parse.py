"""From JSON back to a verdict: nothing is lost, and nothing that is wrong gets in."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import PUBLISHED, loaded, mutants, references, spelled
from hypothesis import given, settings
from hypothesis import strategies as st
from test_schema import DAMAGE, VALIDATOR
from verdicts import VERDICTS, every_verdict

from oracle.errors import UsageError
from oracle.report import document, parse
from oracle.report.html.page import as_html
from oracle.report.junit import as_junit
from oracle.report.markdown import as_markdown
from oracle.report.sections import outline
from oracle.verdict import SCHEMA_VERSION, Verdict


def refused(made: object) -> str:
    with pytest.raises(UsageError) as complaint:
        parse.parse(made)
    told = str(complaint.value)
    assert "\n" not in told
    assert len(told) < 500
    return told


# ---- Back and forth ------------------------------------------------------------------------------


def round_trip(made: Verdict, exit_code: int) -> None:
    text = document.as_json(made, exit_code)
    read = parse.parse(json.loads(text))
    assert document.as_json(read.verdict, read.exit_code) == text
    assert read.tool == document.TOOL
    assert read.verdict.exit_code == made.exit_code


@every_verdict
def test_every_verdict_comes_back(made: Verdict) -> None:
    round_trip(made, made.exit_code)


def test_what_is_executed_comes_back() -> None:
    for made in (mutants(), references(), spelled()):
        round_trip(made, made.exit_code)
        assert not list(VALIDATOR.iter_errors(loaded(made)))


@pytest.mark.parametrize("path", PUBLISHED, ids=[path.parent.name for path in PUBLISHED])
def test_every_published_verdict_comes_back(path: Path) -> None:
    written = json.loads(path.read_text(encoding="utf-8"))
    read = parse.read(str(path))
    for finding in written["findings"]:
        finding.setdefault("table", None)
    written.setdefault("launches", [])
    written["schema_version"] = SCHEMA_VERSION
    assert json.loads(document.as_json(read.verdict, read.exit_code)) == written


def test_there_are_published_verdicts() -> None:
    assert len(PUBLISHED) >= 2


def test_a_document_of_the_version_before_has_neither_tables_nor_launches() -> None:
    old = loaded(mutants())
    for finding in old["findings"]:
        del finding["table"]
    del old["launches"]
    old["schema_version"] = "1.0"
    assert not list(VALIDATOR.iter_errors(old))
    read = parse.parse(old).verdict
    assert read.launches == ()
    assert all(finding.table is None for finding in read.findings)


def test_a_run_may_require_more_than_the_verdict_alone() -> None:
    assert parse.parse(loaded(VERDICTS["settled"], 5)).exit_code == 5
    assert "exit_code" in refused(loaded(VERDICTS["judged"], 5))
    assert "exit_code" in refused(loaded(VERDICTS["faulty"], 0))


# ---- Damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DAMAGE)
def test_what_the_schema_refuses_is_refused(name: str) -> None:
    which, path, value = DAMAGE[name]
    refused(changed(loaded(VERDICTS[which]), path, value))


def changed(made: dict[str, Any], path: list[str | int], value: Any) -> dict[str, Any]:
    place: Any = made
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return made


# What the schema cannot say: how the parts of a document belong together.
CONTRADICTIONS: dict[str, tuple[list[str | int], Any, str]] = {
    "a finding about nobody": (["findings", 3, "subject"], "nobody", "findings[3].subject"),
    "a reader that stores": (["agreements", 0, "writer"], "kept", "agreements[0]"),
    "a writer that reads": (["agreements", 0, "reader"], "store", "agreements[0]"),
    "more recovered than there is": (["findings", 2, "recovered"], 129, "129 positions"),
    "other positions than a page has": (["findings", 2, "positions"], 127, "127 positions"),
    "a match that was not found": (["findings", 2, "recovered"], 127, "recovered every position"),
    "a match with another layout": (["findings", 2, "layouts"], ["swizzle_4x4"], "declared layout"),
    "names of several maps": (["findings", 2, "layouts"], ["linear", "swizzle_4x4"], "no one map"),
    "a layout of data": (["findings", 0, "layouts"], ["linear", "tile_8x4"], "no one map"),
    "what nobody declares": (["subjects", 0, "declared", "K"], "tile_8x4", "findings[2].declared"),
    "positions compared that no page has": (["agreements", 1, "positions"], 129, "129 positions"),
    "a witness of no token": (["agreements", 1, "witness", "token"], 16, "witness.token: 16"),
    "a witness of no column": (["agreements", 1, "witness", "column"], 4, "witness.column: 4"),
    "a clash of no token": (
        ["findings", 2, "clashes"], [{"first": 0, "second": 16, "bytes": 1}], "clashes.token: 16",
    ),
    "a geometry outside the domain": (["domain", "head_sizes"], [64], "head_sizes: there are"),
    "fewer geometries than results": (["domain", "geometries"], 1, "results of 2"),
    "more geometries than there can be": (["domain", "geometries"], 3, "at most 2"),
    "more disagreeing than there is": (["agreements", 1, "disagreeing"], 129, "129 positions"),
    "a subject twice": (["subjects", 1, "id"], "store", "subjects"),
    "a newer version": (["schema_version"], "1.2", "schema_version: '1.2'"),
    "a cache beyond all bounds": (["findings", 0, "num_heads"], 2**20, "findings[0].num_heads"),
    "a count beyond all bounds": (["findings", 0, "positions"], 2**60, "findings[0].positions"),
    "a name without end": (["subjects", 0, "name"], "x" * 100_000, "subjects[0].name"),
    "true for a count": (["findings", 0, "positions"], True, "findings[0].positions"),
    "a witness in a witness in a witness": (
        ["findings", 0, "witness"], {"with": {"with": {"with": {"token": 1}}}}, "witness",
    ),
    "a place nobody has": (["findings", 0, "strays"], {"page+0 K data": 1}, "strays"),
    "too many clashes": (
        ["findings", 0, "clashes"], [{"first": 0, "second": 1, "bytes": 1}] * 33, "33 entries",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_document_that_contradicts_itself_is_refused(name: str) -> None:
    path, value, told = CONTRADICTIONS[name]
    assert told in refused(changed(loaded(VERDICTS["settled"]), path, value))


FAULTS: dict[str, tuple[list[str | int], Any, str]] = {
    "a mismatch of what is declared": (["findings", 0, "layouts"], ["linear"], "another layout"),
    "a witness of no head": (["findings", 0, "witness", "head"], 2, "witness.head: 2"),
    "more in another plane than outside": (
        ["findings", 2, "defects", "other_plane"], 9, "defects: 9 bytes in another plane of 8",
    ),
    "more clashes than there are": (
        ["findings", 2, "clashes"], [{"first": 0, "second": 1, "bytes": 1}], "1 clashes of 0",
    ),
    "a second witness of no token": (
        ["findings", 1, "witness", "with", "token"], 16, "witness.with.token: 16",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_contradicts_itself_is_refused(name: str) -> None:
    path, value, told = FAULTS[name]
    assert told in refused(changed(loaded(VERDICTS["faulty"]), path, value))


def test_an_undefined_layout_is_refused() -> None:
    """No swizzle exists where a head has one column of scales."""
    made = loaded(VERDICTS["faulty"])
    for found in made["findings"]:
        found["head_size"], found["positions"], found["recovered"] = 16, 0, 0
    made["domain"]["head_sizes"] = [16]
    assert "no one map" in refused(made)


@pytest.mark.parametrize("results", ["findings", "agreements"])
def test_a_result_that_is_there_twice_is_refused(results: str) -> None:
    made = loaded(VERDICTS["settled"])
    made[results].append(copy.deepcopy(made[results][0]))
    assert "twice" in refused(made)


TABLES: dict[str, Any] = {
    "too short": {"page": 1, "head": 0, "runs": [[0, 1, 95]]},
    "too long": {"page": 1, "head": 0, "runs": [[0, 1, 97]]},
    "of no head": {"page": 1, "head": 2, "runs": [[0, 1, 96]]},
    "of no run": {"page": 1, "head": 0, "runs": []},
    "of a run of four": {"page": 1, "head": 0, "runs": [[0, 1, 96, 0]]},
    "beyond all bounds": {"page": 1, "head": 0, "runs": [[0, 2**47, 96]]},
    "of too many runs": {"page": 1, "head": 0, "runs": [[0, 1, 1]] * 257},
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_another_plane_is_refused(name: str) -> None:
    made = loaded(spelled())
    place = next(i for i, finding in enumerate(made["findings"]) if finding["table"])
    assert f"findings[{place}].table" in refused(
        changed(made, ["findings", place, "table"], TABLES[name])
    )


def test_a_table_beside_a_name_is_refused() -> None:
    made = loaded(VERDICTS["settled"])
    table = {"page": 1, "head": 0, "runs": [[0, 1, 64]]}
    assert "table" in refused(changed(made, ["findings", 2, "table"], table))


# ---- Files ---------------------------------------------------------------------------------------

FILES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "no JSON"),
    "no JSON": (b"<html>", "no JSON"),
    "no UTF-8": (b'"\xff"', "no JSON"),
    "half a document": (document.as_json(VERDICTS["settled"], 0)[:5000].encode(), "no JSON"),
    "a list": (b"[]", "no JSON object"),
    "nested without end": (b"[" * 200_000, "no JSON|nested"),
    "a number that is none": (b'{"a": NaN}', "whole numbers"),
    "a fraction": (b'{"a": 1.5}', "whole numbers"),
    "a number without end": (b'{"a": ' + b"9" * 5000 + b"}", "no JSON"),
    "a field twice": (b'{"a": 1, "a": 2}', "twice"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_verdict_is_refused(name: str, tmp_path: Path) -> None:
    content, told = FILES[name]
    path = tmp_path / "verdict.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=told) as complaint:
        parse.read(str(path))
    assert str(complaint.value).startswith(f"{path} is no verdict: ")


def test_a_file_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "verdict.json"
    path.write_text(document.as_json(VERDICTS["settled"], 0), encoding="utf-8")
    monkeypatch.setattr(parse, "MAX_BYTES", path.stat().st_size)
    parse.read(str(path))
    monkeypatch.setattr(parse, "MAX_BYTES", path.stat().st_size - 1)
    with pytest.raises(UsageError, match="more than"):
        parse.read(str(path))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        parse.read(str(tmp_path / "verdict.json"))


# ---- Anything at all -----------------------------------------------------------------------------


def places(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a document."""
    if path:
        yield path
    steps: Any = ()
    if isinstance(node, dict):
        steps = node.items()
    elif isinstance(node, list):
        steps = enumerate(node)
    for step, child in steps:
        yield from places(child, (*path, step))


NOTES = (
    "this byte is never written", "shares its byte", "its byte is stored more than once",
    "no byte of the cache explains the value read", "stored a second time", "stored in page 1",
    "looked for elsewhere",
)  # fmt: skip
WITNESSES = st.fixed_dictionaries(
    {"note": st.sampled_from(NOTES)},
    optional={
        **dict.fromkeys(("page", "head", "token", "column", "element", "row", "col"), st.just(1)),
        **dict.fromkeys(("found", "stored", "linear"), st.just("V scale head 0 row 0 col 1")),
        "region_offset": st.integers(-9, 9),
        "padding": st.booleans(),
    },
)


@settings(max_examples=100)
@given(WITNESSES, st.none() | WITNESSES)
def test_every_witness_can_be_told(witness: dict[str, Any], other: dict[str, Any] | None) -> None:
    told = witness if other is None else {**witness, "with": other}
    read = parse.parse(changed(loaded(VERDICTS["faulty"]), ["findings", 2, "witness"], told))
    assert as_junit(read.verdict)
    assert as_markdown(document.TITLE, outline(read.verdict, read.exit_code, 5))


ODD = spelled()
PLACES = list(places(loaded(ODD)))
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 200), st.text(max_size=3),
    st.sampled_from(["match", "linear", "swizzle_4x4", "K", "scale", "agree", "undecided"]),
    st.lists(st.integers(0, 3), max_size=3), st.dictionaries(st.text(max_size=2), st.none()),
)  # fmt: skip


@settings(max_examples=150)
@given(st.sampled_from(PLACES), VALUES)
def test_what_is_taken_is_valid_and_can_be_shown(path: tuple[str | int, ...], value: Any) -> None:
    made = changed(loaded(ODD), list(path), value)
    try:
        read = parse.parse(made)
    except UsageError:
        return
    assert not list(VALIDATOR.iter_errors(made))
    as_html(read.verdict, read.exit_code, read.tool)
    as_junit(read.verdict)
    as_markdown(document.TITLE, outline(read.verdict, read.exit_code, 5))
