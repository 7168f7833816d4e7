"""`map`: one scale plane drawn in the terminal, for a candidate or for what a writer does."""

from __future__ import annotations

import argparse
import sys
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from oracle.candidates import CANDIDATES, candidate
from oracle.commands.verdict import artifact_options
from oracle.errors import NothingRan, UsageError
from oracle.geometry import CacheGeometry
from oracle.properties.builds import writers_of
from oracle.quantize import GROUP
from oracle.report import terminal
from oracle.report.document import dump
from oracle.report.drawing import whole
from oracle.report.planes import Plane
from oracle.run import DEFAULT_DOMAIN, recover_table
from oracle.text import counted, enumerated, printable


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
        title = f"{printable(title)}: T={tokens} tokens, S={columns} scale columns"
        terminal.show([whole(title, Plane(table))], terminal.console())
    return 0


def _recovered(arguments: argparse.Namespace) -> tuple[str, NDArray[np.int64]]:
    """The map of one side's scales in one head's plane, the same in every head, and its title."""
    dtype = DEFAULT_DOMAIN.dtypes[0]
    try:
        writers = writers_of(arguments.subject, (), (dtype,), artifact_options(arguments))
    except UsageError as error:
        for name in get_close_matches(arguments.subject, CANDIDATES, 1):
            raise UsageError(
                f"no layout is called {arguments.subject!r}: did you mean {name}?"
            ) from error
        raise
    if len(writers) > 1:
        several = enumerated(writer.info.id for writer in writers)
        raise UsageError(f"{arguments.subject} names several writers, {several}: name one")
    heads, order = arguments.num_heads, arguments.cache_layout
    geometry = CacheGeometry(1, arguments.block_size, heads, arguments.head_size, order)
    try:
        table, names = recover_table(writers[0], geometry, arguments.side, dtype)
    except NothingRan as error:
        # One plane cannot show what is not in it, or not the same in every head.
        where = f"--head-size {arguments.head_size} --num-heads {heads}"
        where += f" --block-size {arguments.block_size} --cache-layout {order}"
        command = f"layout-oracle verdict {arguments.subject} {where}"
        raise NothingRan(f"{error}; what it does instead says {command}") from error
    layout = " = ".join(names) or "no candidate"
    where = f"{counted(heads, 'head')}, {order}"
    return f"{writers[0].info.id}, {arguments.side} scales ({layout}), {where}", table
