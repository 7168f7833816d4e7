"""`map`: one scale plane drawn in the terminal, for a candidate or for what a writer does."""

from __future__ import annotations

import argparse
import sys

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from oracle.candidates import CANDIDATES, candidate
from oracle.errors import UsageError
from oracle.geometry import CacheGeometry
from oracle.quantize import GROUP
from oracle.report import terminal
from oracle.report.document import dump
from oracle.report.text import enumerated, printable
from oracle.run import DEFAULT_DOMAIN, recover_table
from oracle.subjects.spec import writers_from_specs

# Backgrounds of eight stored rows in turn: two bands of four, so that a 4x4 swizzle shows. They are
# the sixteen colours' own, which every terminal has and none confuses.
_ROW_COLOURS = (
    *("bright_cyan", "bright_green", "bright_yellow", "bright_magenta"),
    *("cyan", "green", "yellow", "magenta"),
)


def run(arguments: argparse.Namespace) -> int:
    """Draw the plane of the named layout, or the map recovered from one side of a writer."""
    tokens, columns = arguments.block_size, arguments.head_size // GROUP
    title = arguments.subject
    if title in CANDIDATES:
        table = candidate(title).table(tokens, columns)
    else:
        title, table = _recovered(arguments)
    if arguments.json:
        sys.stdout.write(dump({"title": title, "table": table.tolist()}))
    else:
        console = terminal.console()
        console.print(Text(f"{printable(title)}: T={tokens} tokens, S={columns} scale columns"))
        draw(table, console)
    return 0


def _recovered(arguments: argparse.Namespace) -> tuple[str, NDArray[np.int64]]:
    dtype = DEFAULT_DOMAIN.dtypes[0]
    writers = writers_from_specs([arguments.subject], (), (dtype,))
    if len(writers) > 1:
        several = enumerated(writer.info.id for writer in writers)
        raise UsageError(f"{arguments.subject} names several writers, {several}: name one")
    geometry = CacheGeometry(1, arguments.block_size, 1, arguments.head_size)
    table, names = recover_table(writers[0], geometry, arguments.side, dtype)
    layout = " = ".join(names) or "no candidate"
    return f"{writers[0].info.id}, {arguments.side} scales ({layout})", table


def draw(
    table: NDArray[np.int64],
    console: Console,
    marked: NDArray[np.bool_] | None = None,
    first_token: int = 0,
) -> None:
    """Print a table [T, S] of plane offsets, one line a token; a `!` follows what is `marked`.

    Tokens count from `first_token`.
    A plane wider than the console is drawn in parts, some columns at a time.
    """
    tokens, columns = table.shape
    width = len(str(table.max())) + 2
    margin = len(str(first_token + tokens - 1)) + 3
    step = max(1, (console.width - margin) // width)
    for first in range(0, columns, step):
        part = range(first, min(first + step, columns))
        header = " " * margin + "".join(f"{f's{column}':>{width - 1}} " for column in part)
        console.print(Text(f"\n{header.rstrip()}", "dim"))
        for token in range(tokens):
            line = Text.assemble((f"{f't{first_token + token}':>{margin - 1}} ", "dim"))
            for column in part:
                offset = int(table[token, column])
                mark = "!" if marked is not None and marked[token, column] else " "
                line.append(f"{offset:>{width - 1}}{mark}", _style(offset // columns))
            console.print(line, no_wrap=True)


def _style(row: int) -> str:
    return f"black on {_ROW_COLOURS[row % len(_ROW_COLOURS)]}"
