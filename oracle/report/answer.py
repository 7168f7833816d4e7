"""Answers the question in one paragraph: where does each writer put the scales, and who agrees?

Every word comes from the findings and agreements. Writers that did the same share a sentence, and
so do disagreements of the same extent; what shows them stands in lists further down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from oracle.report.digest import (
    at_head_sizes,
    by_geometry,
    deeds_in_words,
    faulty,
    obtained,
    sizes_in_words,
)
from oracle.report.disagreements import Disagreement
from oracle.report.faults import kinds
from oracle.report.outline import Cell, Paragraph, Tone
from oracle.report.parties import Names, Party
from oracle.subjects.base import SubjectInfo
from oracle.text import counted, enumerated, percentages, printable
from oracle.verdict import Finding

PARTIES_TOLD = 4
"""Writers that get a sentence, those that did the same counted once; the tables have them all."""
EXTENTS_TOLD = 3
"""Sentences about disagreements; the list of them has them all."""


def answer(parties: Sequence[Party], differing: Iterable[Disagreement], names: Names) -> Paragraph:
    """What the writers store and who reads it there, then who does not, and how much of it."""
    sentences = [_party(party, names) for party in parties[:PARTIES_TOLD]]
    rest = parties[PARTIES_TOLD:]
    if rest:
        bad = sum(_tone(party) is Tone.BAD for party in rest)
        faults = f", {bad} of them with faults," if bad else ""
        count = counted(sum(len(party.members) for party in rest), "more writer")
        sentences.append(Cell(f"The table has {count}{faults} that did otherwise.", _tone(*rest)))
    if any(_data_faults(party) and party.agreements for party in parties):
        sentences.append(Cell("Readers are compared with the scales alone."))
    extents = _by_extent(differing)
    told = [
        Cell(f"{_clauses(group, len(parties), names)}: {extent}.", _blame(group))
        for extent, group in extents.items()
    ]
    sentences += told[:EXTENTS_TOLD]
    if told[EXTENTS_TOLD:]:
        sentences.append(Cell("Disagreements of another extent are listed below."))
    return Paragraph(tuple(sentences))


def _party(party: Party, names: Names) -> Cell:
    """`store (machine code for sm_100a) stores K and V scales linear, as declared; a fits it.`"""
    called = names.each(info.id for info in party.members)
    who = f"{names.of(info.id for info in party.members)}{_origin(party.members)}"
    ran = obtained(party.findings)
    if not any(finding.positions for finding in ran):
        reasons = (
            f"{finding.status}: {printable(finding.reason or '')}"
            for finding in (*faulty(ran), *party.findings)
        )
        why = next(reasons, "no geometry was asked for")
        return Cell(f"{who} give{'s' if len(called) == 1 else ''} no map ({why}).", Tone.BAD)
    verb = "stores" if len(called) == 1 else "store"
    return Cell(
        f"{who} {verb} {deeds_in_words(ran)}{_coverage(party.findings)}"
        f"{_standing(party)}{_readers(party, names)}.",
        _tone(party),
    )


def _origin(members: Sequence[SubjectInfo]) -> str:
    """What was executed; nothing for a specification."""
    executors = {info.executor for info in members}
    archs = enumerated(dict.fromkeys(info.arch for info in members if info.arch))
    if executors == {"machine"} and archs:
        return f" (machine code for {archs})"
    if executors == {"cuda"}:
        return f" (executed on a GPU{', ' if archs else ''}{archs})"
    return " (a Python function)" if executors == {"callable"} else ""


def _coverage(findings: Sequence[Finding]) -> str:
    done, asked = len(by_geometry(obtained(findings))), len(by_geometry(findings))
    return f" in {done} of {asked} geometries" if done < asked else ""


def _standing(party: Party) -> str:
    ran = obtained(party.findings)
    declared = _is_declared(party)
    nothing = "; nothing is declared about it" if not declared else ""
    if faulty(ran):
        return f", not as it should be: {_faults(party.findings)}{nothing}"
    same = "as the specification does" if party.specified else ""
    if declared:
        return f", as declared{' and ' if same else ''}{same}"
    return f"{', ' if same else ''}{same}{nothing}"


def _is_declared(party: Party) -> bool:
    return any(finding.declared is not None for finding in obtained(party.findings))


def _faults(findings: Sequence[Finding]) -> str:
    """`1 fault, in all 24 geometries: mismatch of V scale`; of several the first is named."""
    groups = kinds(findings)
    first = groups[0][0]
    bad, asked = len(by_geometry(faulty(findings))), len(by_geometry(findings))
    everywhere = "both" if asked == 2 else f"all {asked:,}"
    extent = f"{everywhere} geometries" if bad == asked else f"{bad:,} of {asked:,} geometries"
    where = f", in {extent}" if asked > 1 else ""
    told = f"{first.status} of {first.side} {first.plane}"
    if len(groups) > 1 or bad < asked:
        told += f" {at_head_sizes([first.configuration.head_size])}"
    lead = ": " if len(groups) == 1 else "; first "
    return f"{counted(len(groups), 'fault')}{where}{lead}{told}"


def _data_faults(party: Party) -> bool:
    return any(finding.plane == "data" for finding in faulty(party.findings))


def _readers(party: Party, names: Names) -> str:
    """The readers that look where this writer stored, on both sides and in every geometry.

    They are compared with its scales, so that they fit no more than those where data has faults.
    """
    outcomes: dict[str, set[str]] = {}
    for pair in party.agreements:
        outcomes.setdefault(pair.reader, set()).add(pair.status)
    if not outcomes:
        return ""
    fitting = [reader for reader, statuses in outcomes.items() if statuses == {"agree"}]
    unclear = [r for r, s in outcomes.items() if "undecided" in s and "disagree" not in s]
    parts = []
    if fitting:
        whole = "its scales, not its data" if _data_faults(party) else "it"
        parts.append(f"{names.of(fitting)} fit{'s' if len(fitting) == 1 else ''} {whole}")
    if unclear:
        parts.append(f"{names.of(unclear)} {_is(unclear)} undecided")
    return f"; {enumerated(parts) or 'no reader here fits it'}"


def _is(subjects: Sequence[str]) -> str:
    return "is" if len(subjects) == 1 else "are"


def _tone(*parties: Party) -> Tone:
    """Good is what is as declared; that no reader fits an undeclared writer stands out."""
    if any(faulty(party.findings) for party in parties):
        return Tone.BAD
    if all(map(_is_declared, parties)):
        return Tone.GOOD
    return Tone.DIFFERENT if any(map(_unread, parties)) else Tone.PLAIN


def _unread(party: Party) -> bool:
    """Whether every reader it was compared with disagrees somewhere."""
    differing = {pair.reader for pair in party.agreements if pair.status == "disagree"}
    return bool(differing) and differing == {pair.reader for pair in party.agreements}


def _blame(group: Iterable[Disagreement]) -> Tone:
    return Tone.BAD if any(one.judged for one in group) else Tone.DIFFERENT


def _by_extent(found: Iterable[Disagreement]) -> Mapping[str, list[Disagreement]]:
    extents: dict[str, list[Disagreement]] = {}
    for one in found:
        extents.setdefault(_extent(one), []).append(one)
    return extents


def _extent(one: Disagreement) -> str:
    case = one.smallest
    return (
        f"{at_head_sizes(one.sizes, one.compared_sizes)}, {percentages(one.shares)} of the "
        f"positions{'' if one.complete else ' found'}, {one.extents.in_words(case)} in the "
        f"smallest case "
        f"({sizes_in_words(case.configuration)})"
    )


def _clauses(group: Sequence[Disagreement], parties: int, names: Names) -> str:
    """`a disagrees on K with every writer and on V with b, c on V with d`."""
    by_reader: dict[str, dict[tuple[Party, ...], list[str]]] = {}
    for one in group:
        sides = by_reader.setdefault(one.reader, {}).setdefault(one.parties, [])
        sides.append(one.side)
    clauses: list[str] = []
    for reader, against in by_reader.items():
        verb = "" if clauses else "disagrees "
        objects = [
            f"on {enumerated(sides)} with {whom(who, parties, names)}"
            for who, sides in against.items()
        ]
        clauses.append(f"{names.of([reader])} {verb}{enumerated(objects)}")
    return ", ".join(clauses[:-1]) + (", and " if clauses[1:] else "") + clauses[-1]


def whom(some: Sequence[Party], parties: int, names: Names) -> str:
    """The writers by name, or `every writer` where it is all of several."""
    if len(some) == parties > 1:
        return "every writer"
    return names.of(info.id for party in some for info in party.members)
