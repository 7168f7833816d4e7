"""What the judgements say, as the tables and lists of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oracle.formats import ByteArray
from oracle.numerics.conformance import (
    ADMISSIBLE,
    BIT_EXACT,
    COUNTS,
    INADMISSIBLE,
    NOT_RUN,
    Conformance,
)
from oracle.report.outline import Cell, Listing, Paragraph, Section, Table, Tone
from oracle.text import counted, enumerated, labels, printable

_TONES = {BIT_EXACT: Tone.GOOD, ADMISSIBLE: Tone.GOOD, INADMISSIBLE: Tone.BAD, NOT_RUN: Tone.QUIET}


def hexadecimal(codes: ByteArray | Sequence[int]) -> str:
    """Codes as one digit each, in the order of the elements."""
    return "".join(f"{code:x}" for code in codes)


def conformance_sections(
    results: Sequence[Conformance], names: Mapping[str, str] | None = None
) -> list[Section]:
    """The table of all writers, and below it what is wrong with whom.

    `names` are what to call them, by id.
    """
    if names is None:
        names = labels(result.info.id for result in results)
    sections: list[Section] = [_summary(results), _table(results, names)]
    for result in results:
        if result.status == INADMISSIBLE:
            sections.append(_faults(result, names[result.info.id]))
    return sections


def _summary(results: Sequence[Conformance]) -> Paragraph:
    ran = [result for result in results if result.status != NOT_RUN]
    wrong = [result for result in ran if result.status == INADMISSIBLE]
    groups = sum(result.total.groups for result in ran)
    if not ran:
        told = Cell("Nothing ran.", Tone.BAD)
    elif wrong:
        told = Cell(
            f"{counted(len(wrong), 'writer')} of {len(ran)} stored what no conforming store can.",
            Tone.BAD,
        )
    else:
        told = Cell(
            f"All {counted(len(ran), 'writer')} stored what a conforming store may.", Tone.GOOD
        )
    return Paragraph((told, Cell(f"{counted(groups, 'group')} of 16 were compared.")))


def _table(results: Sequence[Conformance], names: Mapping[str, str]) -> Table:
    return Table(
        "Values stored",
        ("writer", "dtype", "search", "groups", "open", "near ties", "wrong", "verdict"),
        tuple(_row(result, names[result.info.id]) for result in results),
        "open: groups with several admissible outcomes, due to the reciprocal; near ties: where it "
        "decides between 4 and 6; wrong: scale bytes, codes and groups of codes that are not "
        "admissible; bit-exact: equal to the reference under this model of the reciprocal",
    )


def _row(result: Conformance, name: str) -> tuple[Cell, ...]:
    total = result.total
    tone = _TONES[result.status]
    if result.status == NOT_RUN:
        counts: tuple[Cell, ...] = (Cell("-"),) * 4
        verdict = f"not run: {printable(result.reason or '')}"
    else:
        numbers = (total.groups, total.free, total.near_ties, total.wrong)
        counts = tuple(Cell(f"{number:,}") for number in numbers)
        verdict = result.status
        if result.models:
            verdict += f" ({enumerated(result.models)})"
    return (
        Cell(name),
        Cell(result.dtype),
        Cell(result.search.value if result.search else "-"),
        *counts,
        Cell(verdict, tone),
    )


def _faults(result: Conformance, name: str) -> Listing:
    """The counts of what is wrong with one writer, why that may be, and its first witnesses."""
    total = result.total
    items = [
        Cell(
            f"not admissible: {counted(total.wrong_scales, 'scale byte')}, "
            f"{counted(total.wrong_codes, 'code')} and {counted(total.torn, 'group')} of codes, "
            f"among {counted(total.groups, 'group')}",
            Tone.BAD,
        )
    ]
    if result.reason:
        items.append(Cell(result.reason, Tone.BAD))
    items += [Cell(_witness(witness)) for witness in result.witnesses]
    return Listing(f"{name}, {result.dtype}", tuple(items))


def _witness(witness: Mapping[str, Any]) -> str:
    values = " ".join(f"{value:g}" for value in witness["values"])
    return (
        f"{witness['side']}, global scale {witness['global_scale']:g}: {values} was stored as "
        f"{witness['stored_scale']:#04x} {hexadecimal(witness['stored_codes'])}, the reference "
        f"stores {witness['reference_scale']:#04x} {hexadecimal(witness['reference_codes'])}"
    )


def conformance_entry(result: Conformance) -> dict[str, Any]:
    """A judgement as an object of the JSON document."""
    return {
        "id": result.info.id,
        "executor": result.info.executor,
        "arch": result.info.arch,
        "artifact_sha256": result.info.artifact_sha256,
        "dtype": result.dtype,
        "status": result.status,
        "scale_search": result.search.value if result.search else None,
        "conventions": list(result.conventions),
        "bit_exact_under": list(result.models),
        **{name: getattr(result.total, name) for name in COUNTS},
        "differing": result.total.differing,
        "by_kind": {
            label: {name: getattr(tally, name) for name in COUNTS}
            for label, tally in result.tallies.items()
        },
        "witnesses": [
            {**witness, "values": [_number(v) for v in witness["values"]],
             "global_scale": _number(witness["global_scale"])}
            for witness in result.witnesses
        ],
        "reason": result.reason,
    }  # fmt: skip


def _number(value: float) -> float | str:
    """A number, or the name of one that JSON does not have."""
    return value if abs(value) < float("inf") else str(value)
