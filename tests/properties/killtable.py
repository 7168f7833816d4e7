"""Which promise notices which planted fault, over a few cases that show all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from oracle.properties.case import StoreCase
from oracle.properties.promises import PROMISES
from oracle.subjects.base import Reader, Writer
from oracle.subjects.spec import readers_from_specs

TRTLLM: Reader = readers_from_specs(["trtllm-gen"])[0]
"""Reads K linear and V swizzled, as the writers declare to store."""

CASES = (
    # Two heads, tokens of one band and of two, in no order; the page between is left out.
    StoreCase(3, 8, 2, 64, "HND", "bf16", (17, 2, 5), "normal", 1, 0.5, 3.0),
    StoreCase(3, 8, 2, 64, "NHD", "bf16", (16, 0), "grid", 2),
    # Padding at either end and between, a slot twice, and one more page that nobody asks for.
    StoreCase(4, 8, 2, 64, "HND", "bf16", (-1, 9, 3, -(2**32), 9, -(2**32) + 4), "spread", 3),
    # One token in the only page.
    StoreCase(1, 4, 1, 128, "HND", "bf16", (1,), "special", 4),
)


def kills(writer: Writer, reader: Reader = TRTLLM, cases: Iterable[StoreCase] = CASES) -> set[str]:
    """The promises that a writer breaks in one of the cases at least."""
    return {
        name
        for name, promise in PROMISES.items()
        if promise.inapplicable(writer, reader) is None
        and any(promise.check(writer, reader, case) for case in cases)
    }


def in_words(table: Mapping[str, set[str]]) -> str:
    """The table: a row a fault, a column a promise, in the order that the first lines tell."""
    lines = [f"{place:2} {name}" for place, name in enumerate(PROMISES, 1)]
    width = max(map(len, table))
    lines.append(f"{'':{width}}{''.join(f'{place:3}' for place in range(1, len(PROMISES) + 1))}")
    for fault, killers in table.items():
        marks = "".join("  x" if name in killers else "  ." for name in PROMISES)
        lines.append(f"{fault:{width}}{marks}")
    return "\n".join(lines)
