"""How reports look: in a terminal, as Markdown, as files. No name can break any of them."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console
from verdicts import HOSTILE, VERDICTS, every_verdict, faulty, settled

from oracle.errors import UsageError
from oracle.report import document, markdown, terminal
from oracle.report.outline import Cell, Drawing, Listing, Paragraph, Table, Tone
from oracle.report.sections import outline
from oracle.text import NO_BREAK, printable
from oracle.verdict import Verdict

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def shown(made: Verdict, width: int = 120) -> str:
    return printed(made, terminal.console(io.StringIO(), width))


def printed(made: Verdict, console: Console) -> str:
    terminal.show(outline(made, made.exit_code, terminal.FAULTS_PER_SUBJECT), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def written(made: Verdict) -> str:
    return markdown.as_markdown(
        "Layout verdict", outline(made, made.exit_code, markdown.FAULTS_PER_SUBJECT)
    )


# ---- In a terminal ----------------------------------------------------------------------


@every_verdict
@pytest.mark.parametrize("width", [50, 80, 120])
def test_no_line_is_wider_than_the_terminal(made: Verdict, width: int) -> None:
    lines = shown(made, width).splitlines()
    assert len(lines) > 10
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_is_cut_off(width: int) -> None:
    for made in (settled(), settled(judged=True), faulty()):
        assert "…" not in shown(made, width)


def test_names_of_layouts_stay_whole_at_80_columns() -> None:
    text = shown(settled(), 80)
    for line in ("swizzle_4x4 =", "inverse_4x4", "linear = tile_8x4"):
        assert re.search(rf"(?<!\S){re.escape(line)}(?!\S)", text)


@every_verdict
def test_colour_adds_nothing_but_colour(made: Verdict) -> None:
    plain = shown(made)
    console = Console(
        file=io.StringIO(), width=120, force_terminal=True, color_system="truecolor",
        markup=False, highlight=False, emoji=False, no_color=False,
    )  # fmt: skip
    text = printed(made, console)
    assert "\x1b[" not in plain
    assert "\x1b[" in text
    assert re.sub(r"\x1b\[[0-9;]*m", "", text) == plain


def test_control_sequences_in_names_are_spelled_out() -> None:
    text = shown(settled(HOSTILE), 200)
    assert "[red]" in text
    assert r"\x1b[31m\nsecond line" in text
    assert not re.search(r"[^\n -~–─…≠✓]", text)


@pytest.mark.parametrize("width", range(40, 130, 7))
def test_no_line_is_a_command_to_a_ci_job(width: int) -> None:
    """GitHub Actions obeys `::…` at the start of a line of a log, and `##[…]` anywhere in it."""
    name = f"::error::a b-::error::c {'d' * 90}::error::e ##[error]f"
    for line in shown(settled(name), width).splitlines():
        assert not line.lstrip().startswith("::")
        assert "##[" not in line


def test_names_of_c_plus_plus_are_left_alone() -> None:
    assert "c10::BFloat16" in shown(settled("store<c10::BFloat16>"), 200)


def test_a_number_and_its_percent_sign_stay_on_one_line() -> None:
    """With a space that every encoding has."""
    for width in range(50, 120):
        text = shown(settled(), width)
        assert not re.search(r"^ *%", text, re.MULTILINE)
        assert NO_BREAK not in text
    assert f"97.7{NO_BREAK}%" in written(settled())


# ---- As Markdown ------------------------------------------------------------------------


def inline(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        if token.type == "inline":
            yield from token.children or ()


def plain_text(source: str) -> str:
    """What a reader of rendered Markdown sees; fails where it is more than text."""
    children = list(inline(PARSER.parse(source)))
    assert {child.type for child in children} <= {"text", "softbreak", "text_special"}
    return "".join(child.content for child in children)


@given(st.text(min_size=1).map(printable).map(str.strip).filter(bool))
@example("<script src=x")
@example("<!-- x")
@example("<b>x</b>")
@example("&lt;")
@example("1. x")
@example("12) x")
@example("- x")
@example("+ x")
@example("# x")
@example("===")
@example("[x](y) ![x](y) **x** __x__ ~~x~~ `x` |x| \\| x_y _x_")
def test_escaped_text_reads_as_it_is(text: str) -> None:
    source = markdown.escaped(text)
    assert [token.type for token in PARSER.parse(source)] == [
        "paragraph_open", "inline", "paragraph_close"
    ]  # fmt: skip
    assert plain_text(source) == text


@given(st.lists(st.text().map(printable), min_size=2, max_size=2))
def test_a_cell_stays_one_cell(cells: list[str]) -> None:
    table = Table("t", ("a", "b"), (tuple(map(Cell, cells)),))
    parsed = PARSER.parse(markdown.as_markdown("t", [table]))
    bodies = [parsed[i + 1] for i, token in enumerate(parsed) if token.type == "td_open"]
    assert ["".join(c.content for c in body.children or ()) for body in bodies] == [
        cell.strip() for cell in cells
    ]


@every_verdict
def test_markdown_holds_what_the_outline_holds(made: Verdict) -> None:
    parts = [
        part
        for part in outline(made, made.exit_code, markdown.FAULTS_PER_SUBJECT)
        if not isinstance(part, Paragraph)
    ]
    tokens = PARSER.parse(written(made))
    assert {child.type for child in inline(tokens)} <= {"text", "text_special"}
    headings = [tokens[i + 1].content for i, t in enumerate(tokens) if t.type == "heading_open"]
    folded = [part for part in parts if not isinstance(part, Drawing) and part.folded]
    assert headings == ["Layout verdict", *(part.title for part in parts if part not in folded)]
    blocks = sum(token.type == "code_block" for token in tokens)
    assert blocks == sum(isinstance(part, Drawing) for part in parts)
    folds = [token.content for token in tokens if token.type == "html_block"]
    assert folds == [
        text
        for part in folded
        for text in (f"<details>\n<summary>{part.title}</summary>\n", "</details>\n")
    ]
    cells = sum(token.type == "td_open" for token in tokens)
    tables = [part for part in parts if isinstance(part, Table)]
    assert cells == sum(len(table.rows) * len(table.columns) for table in tables)


def test_markdown_says_the_tone_without_colour() -> None:
    told = Paragraph((Cell("a", Tone.GOOD), Cell("b", Tone.BAD), Cell("c", Tone.DIFFERENT)))
    assert markdown.as_markdown("t", [told]) == "# t\n\n✓ a\n\n✗ b\n\n≠ c\n"


def test_markdown_is_cut_at_a_line_and_says_so() -> None:
    listing = Listing("many", tuple(Cell(f"line {n:04} ≠") for n in range(1000)))
    whole = markdown.as_markdown("t", [listing])
    assert "Shortened" not in whole
    assert markdown.as_markdown("t", [listing], len(whole.encode())) == whole
    cut = markdown.as_markdown("t", [listing], 2000)
    assert len(cut.encode()) <= 2000
    assert cut.endswith("≠\n\n*Shortened here: verdict.json has everything.*\n")
    assert markdown.MAX_BYTES < 2**20


def test_a_cut_leaves_no_fold_open() -> None:
    many = tuple(Cell(f"line {n:04}") for n in range(100))
    parts = [Listing("a", many[:2], folded=True), Listing("b", many, folded=True)]
    whole = markdown.as_markdown("t", parts)
    assert whole.count("<details>") == whole.count("</details>") == 2
    for longest in range(100, len(whole.encode())):
        cut = markdown.as_markdown("t", parts, longest)
        assert len(cut.encode()) <= longest
        assert cut.count("<details>") == cut.count("</details>")
        assert cut.endswith("\n\n*Shortened here: verdict.json has everything.*\n")


def test_a_title_cannot_leave_its_fold() -> None:
    text = markdown.as_markdown("t", [Listing("</summary><b>", (Cell("x"),), folded=True)])
    assert "<summary>&lt;/summary&gt;&lt;b&gt;</summary>" in text


@every_verdict
def test_details_are_left_to_the_files(made: Verdict) -> None:
    parts = outline(made, made.exit_code, terminal.FAULTS_PER_SUBJECT)
    folded = [part for part in parts if isinstance(part, Listing | Table) and part.folded]
    assert {part.title for part in folded} <= {"Readers", "Subjects", "Domain"}
    assert "Subjects" in {part.title for part in folded}
    lines = shown(made).splitlines()
    for part in parts:
        if not isinstance(part, Paragraph):
            assert (part.title in lines) is (part not in folded)
    assert "abababababab" not in shown(made)
    assert "abababababab" in written(made)


@pytest.mark.parametrize("name", ["settled", "judged", "refused"])
def test_the_answer_takes_seven_lines_of_a_terminal_at_most(name: str) -> None:
    lines = shown(VERDICTS[name], 100).splitlines()
    assert lines.index("") <= 7


# ---- Files ------------------------------------------------------------------------------


def test_files_are_the_same_in_every_run_and_hold_no_more(tmp_path: Path) -> None:
    first = document.write_files(settled(), 0, tmp_path / "a" / "b")
    second = document.write_files(settled(), 0, tmp_path / "c")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert [path.name for path in first] == ["verdict.json", "verdict.md"]
    assert set(first[0].parent.iterdir()) == set(first)
    assert first[0].read_text() == document.as_json(settled(), 0)


def test_each_finding_stands_on_its_own_line() -> None:
    lines = document.as_json(settled(), 0).splitlines()
    starting = [line for line in lines if line.startswith('  {"subject": ')]
    assert len(starting) == len(settled().findings)
    assert all(json.loads(line.rstrip(",")) for line in starting)


def test_the_document_carries_the_exit_code_of_the_run() -> None:
    assert json.loads(document.as_json(settled(), 5))["exit_code"] == 5


def test_a_place_that_cannot_be_written_leaves_the_old_files(tmp_path: Path) -> None:
    old, blocked = tmp_path / "verdict.json", tmp_path / "verdict.md"
    old.write_text("old")
    blocked.mkdir()
    with pytest.raises(UsageError, match="cannot be written to"):
        document.write_files(settled(), 0, tmp_path)
    assert old.read_text() == "old"
    assert set(tmp_path.iterdir()) == {old, blocked}


def test_a_failure_while_writing_leaves_the_old_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document.write_files(settled(), 0, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    write = Path.write_text

    def full_disk(path: Path, text: str, **options: Any) -> int:
        if path.name.startswith(".verdict.md"):
            write(path, text[:10], **options)
            raise OSError(28, "No space left on device")
        return write(path, text, **options)

    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(UsageError, match="No space left"):
        document.write_files(faulty(), 1, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_directory_is_checked_before_anything_runs(tmp_path: Path) -> None:
    document.check_directory(tmp_path / "new" / "deeper")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UsageError, match="file is no directory"):
            document.check_directory(path)
