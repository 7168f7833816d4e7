"""Lists what contradicts a declaration, each fault with its numbers and its witness."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from oracle.geometry import SIDES
from oracle.report.digest import (
    at_head_sizes,
    common_names,
    configuration_in_words,
    faulty,
    head_sizes,
    telling_first,
    witness_in_words,
)
from oracle.report.faultwords import defects_in_words, landings_in_words
from oracle.report.outline import Cell, Tone
from oracle.report.patterns import in_symbols, skeleton, symbols_of
from oracle.text import counted, enumerated, printable
from oracle.verdict import Configuration, Finding, Verdict

_MAPS = frozenset({"mismatch", "unrecognised"})
"""Statuses of sound maps that are not the right ones."""


def faults(verdict: Verdict, labels: Mapping[str, str], limit: int) -> Iterable[Cell]:
    """At most `limit` lines for each subject, the most telling first, then how many more.

    A fault that is the same but for the geometry is told once, with the smallest geometry's
    numbers; one that left no map at all is told once for all planes.
    """
    for info in verdict.subjects:
        groups = kinds(verdict.of_subject(info.id))
        for group in groups[:limit]:
            yield Cell(f"{labels[info.id]}: {_fault(group, info.role)}", Tone.BAD)
        if len(groups) > limit:
            left = len(groups) - limit
            yield Cell(f"and {left:,} more like these in verdict.json", Tone.QUIET)


def kinds(findings: Iterable[Finding]) -> list[list[Finding]]:
    """The faults of one subject, those that are the same but for the geometry together.

    The most telling come first, and so do those of a group. Maps are the same where a name fits
    them all, or one shape:stride in symbols does.
    """
    ordered = telling_first(faulty(findings))
    alike: dict[tuple[object, ...], list[Finding]] = {}
    for finding in ordered:
        alike.setdefault(_kind(finding), []).append(finding)
    rank = {id(finding): place for place, finding in enumerate(ordered)}
    groups = [part for group in alike.values() for part in _one_map(group)]
    return sorted(groups, key=lambda group: rank[id(group[0])])


def _kind(finding: Finding) -> tuple[object, ...]:
    """What two faults must share to be told as one."""
    where = (finding.side, finding.plane) if finding.positions else ()
    if _has_form(finding):
        return (*where, finding.status, finding.declared, finding.reason)
    return (*where, finding.status, *_shown(finding))


def _has_form(finding: Finding) -> bool:
    return finding.status in _MAPS and bool(finding.layouts or finding.shape_stride)


def _one_map(group: list[Finding]) -> list[list[Finding]]:
    """A group of maps in parts that one name or one shape:stride describes."""
    if not _has_form(group[0]) or (all(f.layouts for f in group) and common_names(group)):
        return [group]
    similar: dict[object, list[Finding]] = {}
    for finding in group:
        similar.setdefault(finding.layouts or skeleton(finding.shape_stride or ""), []).append(
            finding
        )
    parts: list[list[Finding]] = []
    for some in similar.values():
        if some[0].layouts or in_symbols(some):
            parts.append(some)
            continue
        exact: dict[str | None, list[Finding]] = {}
        for finding in some:
            exact.setdefault(finding.shape_stride, []).append(finding)
        parts += exact.values()
    return parts


def _fault(group: Sequence[Finding], role: str) -> str:
    first = group[0]
    witness, reason = _shown(first)
    shown = "; ".join(filter(None, (_found(group), reason, f"first, {witness}" if witness else "")))
    defects = defects_in_words(first.defects, role)
    sentences = (
        f"{first.status}: {_planes(group)}, {configuration_in_words(first.configuration)}"
        f"{f': {shown}' if shown else ''}",
        f"Bytes of one page: {defects}" if defects else "",
        *landings_in_words(first),
        _elsewhere(group),
    )
    return " ".join(f"{sentence}." for sentence in sentences if sentence)


def _found(group: Sequence[Finding]) -> str:
    """What there is instead, in all geometries of the group."""
    first = group[0]
    form = in_symbols(group)
    symbols = symbols_of([form or ""])
    meaning = f" ({symbols})" if symbols else ""
    if first.status == "mismatch":
        named = " = ".join(common_names(group))
        found = named or (f"{form}{meaning}" if form else "a map without a name")
        return f"{found} where {first.declared} is declared"
    return f"shape:stride {form}{meaning}" if first.status == "unrecognised" and form else ""


def _shown(finding: Finding) -> tuple[str, str]:
    witness = witness_in_words(finding.witness) if finding.witness is not None else ""
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
    return f"Likewise in {count} ({at_head_sizes(head_sizes(others.values()))})"
