"""Shows an outline in a terminal, with colour as a help and never as the only carrier."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from typing import IO

from rich import box
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from oracle.report import textgrid
from oracle.report.outline import Cell, Drawing, Listing, Paragraph, Section, Table, Tone
from oracle.text import NO_BREAK

FAULTS_PER_SUBJECT = 6
"""A screen's worth; the files hold more and verdict.json all."""

_STYLES = {
    Tone.PLAIN: "",
    Tone.GOOD: "green",
    Tone.BAD: "bold red",
    Tone.DIFFERENT: "yellow",
    Tone.QUIET: "dim",
}
# Backgrounds of eight stored rows in turn: two bands of four, so that a 4x4 swizzle shows. They are
# the sixteen colours' own, which every terminal has and none confuses.
_ROW_COLOURS = (
    *("bright_cyan", "bright_green", "bright_yellow", "bright_magenta"),
    *("cyan", "green", "yellow", "magenta"),
)
_PIECES = {textgrid.NAME: "", textgrid.AXIS: "dim", textgrid.OUTSIDE: "bright_white on red"}
# Where a text is broken: between words; a word that is too long, behind the punctuation of specs
# and paths; and what is still too long, behind an underscore.
_BREAKS = (re.compile(r"(?<= )(?=[^ ])"), re.compile(r"(?<=[,:@/=-])"), re.compile(r"(?<=_)"))
# At the start of a line GitHub Actions takes this for a command, whoever wrote what follows.
_COMMAND = re.compile(r"^( *):(?=:)", re.MULTILINE)
_NARROWEST = 5
# A terminal that says it is narrower, as some say 0 columns, gets lines that are too long.
_NARROWEST_SCREEN = 20


class _Console(Console):
    """A console that leaves a closed pipe to its caller, where the exit code is decided."""

    def on_broken_pipe(self) -> None:
        """Raise again the BrokenPipeError this is called for."""
        raise


def console(file: IO[str] | None = None, width: int | None = None, plain: bool = False) -> Console:
    """A console for results, on standard output by default; a `plain` one never has colours.

    Nothing in a text is taken for markup, and the width is the terminal's, or 80 columns.
    """
    made = _Console(
        file=file,
        width=width,
        color_system=None if plain else "auto",
        markup=False,
        highlight=False,
        emoji=False,
    )
    made.width = max(made.width, _NARROWEST_SCREEN)
    return made


def show(sections: Iterable[Section], console: Console) -> None:
    """Print the sections, an empty line between them; folded ones are left to the files."""
    told = (s for s in sections if isinstance(s, Paragraph | Drawing) or not s.folded)
    for index, section in enumerate(told):
        if index:
            console.print()
        if isinstance(section, Paragraph):
            for sentence in section.sentences:
                console.print(_wrapped(sentence, console.width))
        elif isinstance(section, Listing):
            console.print(Text(section.title, "bold"))
            for item in section.items:
                console.print(_hanging(item, console.width))
        elif isinstance(section, Drawing):
            _show_drawing(section, console)
        else:
            _show_table(section, console)


def as_text(sections: Iterable[Section]) -> str:
    """The sections as they are shown where there are no colours."""
    file = io.StringIO()
    show(sections, console(file, plain=True))
    return "\n".join(map(str.rstrip, file.getvalue().splitlines()))


def _wrapped(cell: Cell, width: int) -> Text:
    """A cell's text in lines of at most `width` columns, broken between words where it can be."""
    lines = [""]
    for part in _parts(cell.text, width):
        if cell_len(lines[-1] + part.rstrip()) <= width:
            lines[-1] += part
        elif cell_len(part.rstrip()) <= width:
            lines.append(part)
        else:
            # What is too long for any line starts where it stands, so that no line is left empty.
            *full, rest = chop_cells(lines.pop() + part, width)
            lines += [*full, rest]
    # Once nothing can break there, a plain space prints in every encoding.
    text = "\n".join(line.rstrip() for line in lines).replace(NO_BREAK, " ")
    return Text(_COMMAND.sub(r"\1\\x3a", text), _STYLES[cell.tone])


def _parts(text: str, width: int, breaks: Sequence[re.Pattern[str]] = _BREAKS) -> Iterable[str]:
    """Words with the spaces behind them, or pieces of the words that are too long for a line."""
    if not breaks:
        yield text
        return
    for part in breaks[0].split(text):
        yield from [part] if cell_len(part.rstrip()) <= width else _parts(part, width, breaks[1:])


def _hanging(item: Cell, width: int) -> Text:
    """A list item whose further lines stand under its first."""
    lines = _wrapped(item, width - 2).plain
    return Text("- " + lines.replace("\n", "\n  "), _STYLES[item.tone])


def _show_drawing(section: Drawing, console: Console) -> None:
    console.print(_wrapped(Cell(section.title), console.width), style="bold")
    for line in textgrid.lines(section, console.width):
        shown = Text()
        for piece in line:
            shown.append(_COMMAND.sub(r"\1\\x3a", piece.text), _piece_style(piece))
        console.print(shown, no_wrap=True)
    if section.legend:
        console.print(_wrapped(Cell(section.legend, Tone.QUIET), console.width))


def _piece_style(piece: textgrid.Piece) -> str:
    if piece.kind == textgrid.INSIDE:
        return f"black on {_ROW_COLOURS[piece.row % len(_ROW_COLOURS)]}"
    return _PIECES[piece.kind]


def _show_table(section: Table, console: Console) -> None:
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
    # The box puts one column between two cells.
    widths = _widths(section, console.width - len(section.columns) + 1)
    for column, width in zip(section.columns, widths, strict=True):
        table.add_column(_wrapped(Cell(column), width), width=width, no_wrap=True)
    for row in section.rows:
        table.add_row(*map(_wrapped, row, widths))
    console.print(Text(section.title, "bold"))
    console.print(table)
    if section.note:
        console.print(_wrapped(Cell(section.note, Tone.QUIET), console.width))


def _widths(section: Table, available: int) -> list[int]:
    """A width for each column; where they are too wide, the widest give way first.

    They give way down to their longest name, then to the longest part of one, and further only if
    they must.
    """
    rows: list[Sequence[Cell]] = [[Cell(name) for name in section.columns], *section.rows]
    columns = [[cell.text for cell in column] for column in zip(*rows, strict=True)]
    widths = [max(map(cell_len, texts)) for texts in columns]
    whole, parted = (
        [
            max(cell_len(p.rstrip()) for text in texts for p in _parts(text, 0, breaks))
            for texts in columns
        ]
        for breaks in (_BREAKS[:2], _BREAKS)
    )
    for least in (whole, parted, [_NARROWEST] * len(widths)):
        while sum(widths) > available:
            slack = [(width, -i) for i, width in enumerate(widths) if width > least[i]]
            if not slack:
                break
            widths[-max(slack)[1]] -= 1
    return widths
