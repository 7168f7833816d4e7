"""Lists what contradicts a declaration, each fault with its numbers and its witness."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from oracle.geometry import SIDES
from oracle.report.digest import (
    at_head_sizes,
    configuration_in_words,
    defects_in_words,
    faulty,
    head_sizes,
    telling_first,
    witness_in_words,
)
from oracle.report.outline import Cell, Tone
from oracle.report.text import counted, enumerated, printable
from oracle.verdict import Configuration, Finding, Verdict


def faults(verdict: Verdict, labels: Mapping[str, str], limit: int) -> Iterable[Cell]:
    """At most `limit` lines for each subject, the most telling first, then how many more.

    A fault that is the same but for the geometry is told once, with the smallest geometry's
    numbers; one that left no map at all is told once for all planes.
    """
    for info in verdict.subjects:
        alike: dict[tuple[str, ...], list[Finding]] = {}
        for finding in telling_first(faulty(verdict.of_subject(info.id))):
            alike.setdefault(_kind(finding), []).append(finding)
        groups = list(alike.values())
        for group in groups[:limit]:
            yield Cell(f"{labels[info.id]}: {_fault(group)}", Tone.BAD)
        if len(groups) > limit:
            left = len(groups) - limit
            yield Cell(f"and {left:,} more like these in verdict.json", Tone.QUIET)


def _kind(finding: Finding) -> tuple[str, ...]:
    """What two faults must share to be told as one."""
    where = (finding.side, finding.plane) if finding.positions else ()
    return (*where, finding.status, _found(finding), *_shown(finding))


def _fault(group: Sequence[Finding]) -> str:
    first = group[0]
    details = (
        f"{first.status}: {_planes(group)}, {configuration_in_words(first.configuration)}",
        _found(first),
        defects_in_words(first.defects),
        *_shown(first),
        _elsewhere(group),
    )
    return "; ".join(detail for detail in details if detail)


def _found(finding: Finding) -> str:
    if finding.status == "mismatch":
        found = " = ".join(finding.layouts) or finding.shape_stride or "a map without a name"
        return f"{found} where {finding.declared} is declared"
    if finding.status == "unrecognised" and finding.shape_stride:
        return f"shape:stride {finding.shape_stride}"
    return ""


def _shown(finding: Finding) -> tuple[str, str]:
    witness = f"first {witness_in_words(finding.witness)}" if finding.witness is not None else ""
    return witness, printable(finding.reason or "")


def _planes(group: Sequence[Finding]) -> str:
    """`V scale`, or `K and V, scale and data`."""
    sides = [side for side in SIDES if any(f.side == side for f in group)]
    planes = list(dict.fromkeys(f.plane for f in group))
    return f"{enumerated(sides)}{', ' if len(planes) > 1 else ' '}{enumerated(planes)}"


def _elsewhere(group: Sequence[Finding]) -> str:
    """The other geometries with the same fault."""
    first = group[0].configuration
    others: dict[Configuration, Finding] = {f.configuration: f for f in group}
    del others[first]
    if not others:
        return ""
    count = counted(len(others), "more geometry", "more geometries")
    return f"likewise in {count} ({at_head_sizes(head_sizes(others.values()))})"
