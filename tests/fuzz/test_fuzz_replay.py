"""`replay`: a case is executed again, on the subject of its file or another, and explained."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from broken import PlantedWriter, one_head_off, padding_stored, planted, t_mod_4_dropped
from commandline import ROOT, Call
from hunting import LIMITS, subject_of

from oracle.errors import NothingRan, UsageError
from oracle.fuzz.affected import affected
from oracle.fuzz.again import Outcome, check_importable, execute, sections
from oracle.fuzz.coverage import Coverage
from oracle.fuzz.domain import domain_of
from oracle.fuzz.failure import UNSTEADY_ATTEMPTS, Failure
from oracle.fuzz.prose import first_again
from oracle.fuzz.record import Record
from oracle.fuzz.replayfile import Replay, load
from oracle.fuzz.subject import subject_from_specs
from oracle.properties.case import StoreCase
from oracle.properties.promises import PROMISES, Violation
from oracle.report import terminal
from oracle.report.drawing import ROWS
from oracle.report.outline import Drawing, Table
from oracle.subjects.base import Reader, Writer

SOUND, LINEAR = "reference:k=linear,v=swizzle_4x4", "reference:k=linear,v=linear"
SCHEMA = json.loads((ROOT / "reports" / "schema" / "replay.schema.json").read_text())
CASE = StoreCase(1, 4, 1, 64, "HND", "bf16", (0,))
FAILURE = Failure(
    CASE, Violation("agrees-with-reader", "V is elsewhere", {"side": "V", "plane": "scale"})
)


def written(directory: Path, **changes: Any) -> str:
    """The file of a writer that V's reader does not fit, with some fields changed."""
    told = json.loads(Replay(SOUND, "flashinfer-fa2", FAILURE).text())
    path = directory / "case.json"
    path.write_text(json.dumps({**told, **changes}))
    return str(path)


def test_what_is_written_fits_the_schema_and_is_read_back(tmp_path: Path) -> None:
    path = Path(written(tmp_path))
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    assert load(path) == Replay(SOUND, "flashinfer-fa2", FAILURE)


def test_what_may_be_left_out_may_be_left_out(tmp_path: Path) -> None:
    assert load(Path(written(tmp_path, found={"reason": "r", "witness": {}}))).failure.steady


def test_a_broken_promise_is_explained_and_drawn(call: Call, tmp_path: Path) -> None:
    outcome = call("replay", written(tmp_path))
    assert outcome.code == 1
    for words in (
        f"{SOUND} and flashinfer-fa2: head size 64, 1 head, block size 4, HND",
        "Promised (agrees-with-reader): ",
        "Broken: ",
        "V scales of head 0, each with its offset in the head's plane",
    ):
        assert words in " ".join(outcome.out.split())
    *rows, legend = outcome.out.splitlines()[-5:]
    assert [line.split() for line in rows] == [
        ["t0", "0", "4*", "8!", "12!", "t0", "0", "1*", "2!", "3!"],
        ["t1", "1!", "5", "9!", "13!", "t1", "4!", "5", "6!", "7!"],
        ["t2", "2!", "6!", "10", "14!", "t2", "8!", "9!", "10", "11!"],
        ["t3", "3!", "7!", "11!", "15", "t3", "12!", "13!", "14!", "15"],
    ]
    assert legend == "* is named above; ! differs between the two"


def test_another_reader_or_subject_may_keep_the_promise(call: Call, tmp_path: Path) -> None:
    path = written(tmp_path)
    for more in (("--reader", "trtllm-gen"), ("--subject", LINEAR)):
        outcome = call("replay", path, *more)
        assert outcome.code == 0
        assert "The promise is kept now." in outcome.out
        assert "When it was broken: V is elsewhere" in outcome.out


def test_machine_code_executes_a_case_that_was_found_elsewhere(call: Call, tmp_path: Path) -> None:
    outcome = call("replay", written(tmp_path), "--subject", "store-sm100", "--json")
    told = json.loads(outcome.out)
    assert outcome.code == told["exit_code"] == 1
    assert told["broken"]
    assert told["same"]
    assert told["subject"] == "store-sm100"
    assert told["found"]["witness"]["side"] == "V"
    assert list(told["artifacts"]) == ["store-sm100@sm_100a/bf16", "flashinfer-fa2"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"schema_version": "2.0"}, "schema_version"),
        ({"promise": "nothing"}, "promise"),
        ({"promise": ["bijective"]}, "promise"),
        ({"subject": ""}, "subject"),
        ({"reader": 1}, "reader"),
        ({"found": {"reason": "r"}}, "witness"),
        ({"found": {"reason": "r", "witness": []}}, "witness"),
        ({"found": {"reason": "r", "witness": {}, "shrunk": 1}}, "shrunk"),
        ({"case": {}}, "case: "),
        ({"case": {**CASE.document(), "head_size": 1 << 40}}, "head_size"),
        ({"case": {**CASE.document(), "slots": [4]}}, "slot"),
        ({"more": 1}, "more"),
        ({"subject": "nobody at all"}, "no writer is called 'nobody at all'"),
        ({"subject": "n" * 5_000}, "no writer is called"),
        ({"subject": "n" * 5_000 + ":store"}, "which is not in this directory"),
        ({"subject": "a\0b.cubin"}, "subject"),
        ({"subject": "a\ud800.cubin"}, "subject"),
        ({"reader": "antigravity:f,\nk.x=1"}, "reader"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(
    changes: dict[str, Any], complaint: str, call: Call, tmp_path: Path
) -> None:
    outcome = call("replay", written(tmp_path, **changes))
    assert outcome.code == 2
    assert complaint in outcome.complaint


@pytest.mark.parametrize("text", ["", "{", "7", '{"case": NaN}', "[" * 100_000])
def test_what_is_no_replay_at_all_is_refused(text: str, call: Call, tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_text(text)
    outcome = call("replay", str(path))
    assert outcome.code == 2
    assert str(path) in outcome.complaint


def test_a_file_that_is_missing_or_none_is_refused(call: Call, tmp_path: Path) -> None:
    assert call("replay", str(tmp_path / "none.json")).code == 2
    assert call("replay", str(tmp_path)).code == 2
    assert call("replay", "/dev/zero").code == 2


def test_what_a_file_says_is_shown_without_control_characters(call: Call, tmp_path: Path) -> None:
    found = {"reason": "\x1b[2Jgone", "witness": {}}
    outcome = call("replay", written(tmp_path, found=found), "--subject", LINEAR)
    assert "\x1b" not in outcome.out
    assert "\\x1b[2Jgone" in outcome.out


def test_a_case_that_the_subject_refuses_did_not_run(call: Call, tmp_path: Path) -> None:
    case = {**CASE.document(), "head_size": 16}
    outcome = call("replay", written(tmp_path, case=case))
    assert outcome.code == 5
    assert "refuses the geometry" in outcome.complaint


def test_a_promise_about_a_reader_needs_one(tmp_path: Path) -> None:
    replay = load(Path(written(tmp_path, reader=None)))
    with pytest.raises(NothingRan, match="no reader is named"):
        execute(replay, subject_from_specs(SOUND, dtypes=("bf16",)))


def test_python_is_imported_from_here_or_because_it_was_asked_for(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, subject="antigravity:fly")
    outcome = call("replay", path)
    assert outcome.code == 2
    assert "give --subject antigravity:fly" in outcome.complaint
    with pytest.raises(UsageError, match="--reader"):
        check_importable("package.module:function,k.flag=1", "--reader")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "module.py").write_text("")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    for spec in (
        "package.module:function,k.flag=1",
        "mine:store",
        SOUND,
        "store-sm100",
        "x.cubin:k",
    ):
        check_importable(spec, "--subject")


def test_what_failed_now_and_then_is_executed_more_than_once() -> None:
    class Seldom:
        """Stores as the specification does, but for one call."""

        def __init__(self, writer: Writer) -> None:
            self.info, self.unsupported_reason = writer.info, writer.unsupported_reason
            self._writer, self._calls = writer, 0

        def write(self, request: Any) -> Any:
            self._calls += 1
            stored = self._writer.write(request)
            return replace(stored, cache=stored.cache ^ (self._calls == UNSTEADY_ATTEMPTS))

    sound = subject_from_specs(SOUND, dtypes=("bf16",)).writers["bf16"]
    for steady in (True, False):
        failure = Failure(CASE, Violation("deterministic", "", {}), steady=steady)
        outcome = execute(Replay(SOUND, None, failure), subject_of(Seldom(sound)))
        assert (outcome.violation is None) == steady


def test_of_several_failures_one_of_addresses_is_shown_first() -> None:
    subject = subject_from_specs(SOUND, "flashinfer-fa2", dtypes=("bf16",))
    record = Record(0, Coverage(domain_of(subject, LIMITS)))
    assert first_again(subject, record) == []
    for violation in (
        Violation("bijective", "it raised", {}),
        Violation("round-trip", "V is wrong", {"side": "V", "plane": "scale"}),
        FAILURE.violation,
    ):
        record.add(Failure(CASE, violation))
    shown = first_again(subject, record)
    assert "Promised (agrees-with-reader)" in terminal.as_text(shown)
    assert isinstance(shown[-1], Drawing)
    # A store that was mended since keeps the promise, and a drawing of that would show nothing.
    assert first_again(subject_from_specs(SOUND, "trtllm-gen", dtypes=("bf16",)), record) == []


def drawn(
    writer: Writer, promise: str, case: StoreCase, reader: Reader | None = None
) -> tuple[Drawing, list[str]]:
    """The drawing of a promise that a case breaks, and the marks of each panel in one text."""
    violation = PROMISES[promise].check(writer, reader, case)
    assert violation is not None
    made = affected(writer, reader, case, violation)
    assert made is not None
    return made, [
        "".join(tile.mark for row in panel.tiles for tile in row) for panel in made.panels
    ]


def undeclared(writer: PlantedWriter) -> PlantedWriter:
    writer.info = replace(writer.info, declared={})
    return writer


@pytest.mark.parametrize("promise", ["bijective", "as-declared"])
def test_the_drawing_shows_all_of_a_fault_beside_what_is_declared(promise: str) -> None:
    made, marks = drawn(planted(t_mod_4_dropped), promise, replace(CASE, block_size=8))
    assert [panel.label for panel in made.panels] == [
        "t_mod_4_dropped stores here",
        "as declared, swizzle_4x4",
    ]
    assert marks == ["*===" + "!" * 12 + "====" + "!" * 12, "*   " + "!" * 12 + "    " + "!" * 12]


def test_with_nothing_declared_the_readers_plane_stands_beside() -> None:
    reader = subject_from_specs(SOUND, "trtllm-gen", dtypes=("bf16",)).reader
    writer = undeclared(planted(t_mod_4_dropped))
    made, marks = drawn(writer, "bijective", CASE, reader)
    assert [panel.label for panel in made.panels][1] == "trtllm-gen looks here"
    assert marks[1] == "*   " + "!" * 12
    assert drawn(writer, "bijective", CASE)[1] == ["*" + "=" * 15]


def test_a_head_too_far_names_the_head_and_where_in_it() -> None:
    reader = subject_from_specs(SOUND, "trtllm-gen", dtypes=("bf16",)).reader
    made, marks = drawn(
        planted(one_head_off), "agrees-with-reader", replace(CASE, num_heads=2), reader
    )
    assert made.panels[0].tiles[0][0].text == "h1:0"
    assert "h1:0 is offset 0, in the plane of head 1" in made.legend
    assert marks == ["*" + "!" * 15] * 2


@pytest.mark.parametrize(
    ("promise", "slots", "expected"),
    [
        ("in-region", (0,), " " * 12 + "!!!!"),
        ("padding-ignored", (0,), " " * 12 + "*!!!"),
        ("untouched-elsewhere", (0, -1), " " * 12 + "*!!!"),
    ],
)
def test_every_byte_of_padding_that_was_stored_is_marked(
    promise: str, slots: tuple[int, ...], expected: str
) -> None:
    _, marks = drawn(planted(padding_stored), promise, replace(CASE, slots=slots))
    assert marks == [expected]


def test_of_a_large_plane_the_rows_around_a_fault_are_drawn() -> None:
    writer = subject_from_specs(SOUND, dtypes=("bf16",)).writers["bf16"]
    case = replace(CASE, block_size=64)
    witness = {"side": "K", "plane": "scale", "token": 41, "column": 2}
    made = affected(writer, None, case, Violation("round-trip", "", witness))
    assert made is not None
    (panel,) = made.panels
    assert (panel.first, len(panel.tiles)) == ((40, 0), ROWS)
    assert panel.tiles[1][2] == (str(41 * 4 + 2), 41, "*")


def test_where_it_happened_is_told_in_one_order_and_bytes_as_in_the_words() -> None:
    """Whatever order a witness has: titles for persons, and no name of a field."""
    witness = {
        "reader": "there", "stored_codes": [1, 10], "writer": "here", "linear": "nowhere",
        "after": 72, "byte": 140, "side": "K", "plane": "scale", "with": {"token": 1, "note": "n"},
    }  # fmt: skip
    for order in (witness, dict(reversed(witness.items()))):
        violation = Violation("round-trip", "", order)
        outcome = Outcome(Replay(SOUND, None, FAILURE), subject_from_specs(SOUND), violation, None)
        (table,) = (part for part in sections(outcome) if isinstance(part, Table))
        assert dict(zip(table.columns, (cell.text for cell in table.rows[0]), strict=False)) == {
            "side": "K", "plane": "scale", "byte": "140", "with": "token 1", "stored in": "here",
            "looked for in": "there", "after": "0x48", "codes stored": "1a",
            "linear puts it in": "nowhere",
        }  # fmt: skip
        assert table.columns[3:6] == ("with", "stored in", "looked for in")


@pytest.mark.parametrize(
    "witness",
    [
        {},
        {"side": "K", "plane": "data", "token": 0},
        {"side": "X", "plane": "scale"},
        {"side": "V", "plane": ["scale"]},
    ],
)
def test_no_plane_is_drawn_where_none_is_affected(witness: dict[str, Any]) -> None:
    writer = subject_from_specs(SOUND, dtypes=("bf16",)).writers["bf16"]
    assert affected(writer, None, CASE, Violation("round-trip", "", witness)) is None
