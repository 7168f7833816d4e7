"""`layouts`: the candidates on one scale plane, and which of them are one map at which S."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from oracle.candidates import CANDIDATES, coincidences
from oracle.quantize import GROUP
from oracle.report import terminal
from oracle.report.document import dump
from oracle.report.outline import Cell, Section, Table, Tone

HEAD_SIZES = (64, 80, 96, 112, 128, 160, 192, 256, 512, 576)
"""Head sizes of real models, for the list of coincidences."""


def run(arguments: argparse.Namespace) -> int:
    """Print the candidates for the plane that `--block-size` and `--head-size` give."""
    tokens, columns = arguments.block_size, arguments.head_size // GROUP
    sizes = sorted({*HEAD_SIZES, arguments.head_size})
    if arguments.json:
        sys.stdout.write(
            dump(
                {
                    "tokens": tokens,
                    "columns": columns,
                    "candidates": [
                        {
                            "name": each.name,
                            "description": each.description,
                            "shape_stride": _algebra(each.name, tokens, columns),
                            "undefined": each.undefined_reason(tokens, columns),
                        }
                        for each in CANDIDATES.values()
                    ],
                    "coincidences": [
                        {"head_size": size, "names": list(names)}
                        for size in sizes
                        for names in coincidences(tokens, size // GROUP)
                    ],
                }
            )
        )
    else:
        terminal.show(_sections(tokens, columns, sizes), terminal.console())
    return 0


def _algebra(name: str, tokens: int, columns: int) -> str | None:
    """The shape:stride of a candidate, or None where it is undefined."""
    if CANDIDATES[name].undefined_reason(tokens, columns) is not None:
        return None
    return str(CANDIDATES[name].layout(tokens, columns))


def _sections(tokens: int, columns: int, sizes: Iterable[int]) -> list[Section]:
    candidates = Table(
        f"Candidates on a plane of T={tokens} tokens by S={columns} scale columns",
        ("name", "shape:stride over (t, s)", "what it is, or why it is undefined here"),
        tuple(_candidate(name, tokens, columns) for name in CANDIDATES),
        "S is head size / 16; the number is the offset of the scale's byte in the plane",
    )
    same = Table(
        f"Names of one and the same map at T={tokens}",
        ("head size", "S", "same map"),
        tuple(
            (Cell(str(size)), Cell(str(size // GROUP)), Cell(" = ".join(names)))
            for size in sizes
            for names in coincidences(tokens, size // GROUP)
        ),
    )
    return [candidates, same]


def _candidate(name: str, tokens: int, columns: int) -> tuple[Cell, ...]:
    algebra = _algebra(name, tokens, columns)
    if algebra is None:
        reason = CANDIDATES[name].undefined_reason(tokens, columns) or ""
        return Cell(name), Cell("undefined", Tone.BAD), Cell(reason, Tone.QUIET)
    return Cell(name), Cell(algebra), Cell(CANDIDATES[name].description)
