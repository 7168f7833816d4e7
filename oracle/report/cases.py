"""The cases that show what is wrong: the smallest of each fault and of each disagreement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from oracle.candidates import candidate
from oracle.report.digest import configuration_in_words, size
from oracle.report.disagreements import Disagreement
from oracle.report.drawing import drawing, scale_named
from oracle.report.faults import kinds
from oracle.report.outline import Drawing
from oracle.report.parties import Names, parties
from oracle.report.planes import Plane, named_plane, plane_of
from oracle.verdict import Agreement, Configuration, Finding, Verdict

Planes: TypeAlias = Mapping[str, Plane | None]
"""Planes by what they show; None where there is none to be drawn."""
ScaleFindings: TypeAlias = Mapping[tuple[str, str, Configuration], Finding]
"""Findings about scales by subject, side and geometry."""


def smallest_drawn(
    verdict: Verdict, differing: Sequence[Disagreement], names: Names
) -> Drawing | None:
    """The smallest case of a writer's fault or of a judged disagreement that can be drawn.

    A disagreement comes first of two that are of one size: it also shows what was expected.
    """
    found = scale_findings(verdict)
    writers = {info.id for info in verdict.subjects if info.role == "writer"}
    faults = (finding for _, finding in faults_told(verdict, names) if finding.subject in writers)
    cases: list[Disagreement | Finding] = [*(one for one in differing if one.judged), *faults]
    for case in sorted(cases, key=lambda case: size(_result(case).configuration)):
        made = _drawn(case, found, names)
        if made is not None:
            return made
    return None


def _result(case: Disagreement | Finding) -> Agreement | Finding:
    return case.smallest if isinstance(case, Disagreement) else case


def _drawn(case: Disagreement | Finding, found: ScaleFindings, names: Names) -> Drawing | None:
    """The drawing of a case; None where a plane is not known, or nothing is wrong with it."""
    result = _result(case)
    if isinstance(case, Disagreement):
        needed, planes = 2, planes_of_disagreement(case, found, names)
    else:
        needed, planes = 1, planes_of_fault(case)
    drawn = {label: plane for label, plane in planes.items() if plane is not None}
    if len(drawn) < needed:
        return None
    writer = result.writer if isinstance(result, Agreement) else result.subject
    where = configuration_in_words(result.configuration)
    return drawing(
        f"The smallest case: {result.side} scales of {names.of([writer])}, {where}",
        drawn,
        witness=scale_named(result.witness or {}, result.configuration.geometry()),
    )


def scale_findings(verdict: Verdict) -> ScaleFindings:
    """The findings about scales, to be looked up."""
    return {(f.subject, f.side, f.configuration): f for f in verdict.findings if f.plane == "scale"}


def planes_of_disagreement(one: Disagreement, found: ScaleFindings, names: Names) -> Planes:
    """The writer's plane and the reader's in the smallest case of a disagreement."""
    case = one.smallest
    return {
        f"{names.of([subject])} {deed}": plane_of(finding)
        for subject, deed in ((case.writer, "stores here"), (case.reader, "looks here"))
        if (finding := found.get((subject, one.side, case.configuration)))
    }


def faults_told(verdict: Verdict, names: Names) -> Iterable[tuple[str, Finding]]:
    """The smallest case of each kind of fault, and who has it: writers that did the same once."""
    first = {party.members[0].id: party for party in parties(verdict)}
    for info in verdict.subjects:
        if info.role == "reader":
            who = names.full[info.id]
        elif info.id in first:
            who = names.of(member.id for member in first[info.id].members)
        else:
            continue
        for group in kinds(verdict.of_subject(info.id)):
            yield who, group[0]


def planes_of_fault(finding: Finding) -> Planes:
    """The plane of a fault beside what is declared; nothing where there is no plane of it."""
    plane = plane_of(finding)
    return {} if plane is None else {f"{finding.side} scales as found": plane, **_declared(finding)}


def _declared(finding: Finding) -> Planes:
    """The plane that is declared under its name, or why there is none."""
    if finding.declared is None:
        return {}
    where = finding.configuration.geometry()
    reason = candidate(finding.declared).undefined_reason(where.block_size, where.scale_columns)
    label = f"as declared, {finding.declared}"
    if reason is not None:
        return {f"{label}: {reason}": None}
    return {label: named_plane(finding.declared, finding.configuration)}
