"""The smallest plane of each disagreement and of each fault, drawn without a script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from oracle.candidates import candidate
from oracle.report.answer import whom
from oracle.report.digest import configuration_in_words, witness_in_words
from oracle.report.disagreements import Disagreement, disagreements, in_words
from oracle.report.faults import kinds
from oracle.report.html.markup import Markup, element
from oracle.report.html.pictures import MAX_COLUMNS, MAX_TOKENS, Pictures, is_cut
from oracle.report.parties import Names, parties
from oracle.report.planes import Plane, named_plane, plane_of
from oracle.verdict import Configuration, Finding, Verdict

MAX_FIGURES = 24
"""Disagreements, and faults, that are drawn; the lists have them all."""


class Disagreements(NamedTuple):
    """Figures of disagreements; `anchors` leads from (writer, reader) to the id of the first."""

    figures: tuple[Markup, ...]
    anchors: Mapping[tuple[str, str], str]


def drawn_disagreements(verdict: Verdict, names: Names, pictures: Pictures) -> Disagreements:
    """A figure for each line of the report's disagreements: the case with the smallest plane."""
    alike = parties(verdict)
    found = {
        (f.subject, f.side, f.configuration): f for f in verdict.findings if f.plane == "scale"
    }
    anchors: dict[tuple[str, str], str] = {}
    figures: list[Markup] = []
    for place, one in enumerate(disagreements(verdict, alike)[:MAX_FIGURES]):
        identity = f"disagreement-{place}"
        for writer in (each for party in one.parties for each in party.ids):
            anchors.setdefault((writer, one.reader), identity)
        said = in_words(one, whom(one.parties, len(alike), names), names)
        planes = _both(one, found, names)
        figures.append(_figure(pictures, f"{said}.", planes, identity))
    return Disagreements(tuple(figures), anchors)


def _both(
    one: Disagreement, found: Mapping[tuple[str, str, Configuration], Finding], names: Names
) -> dict[str, Plane | None]:
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


def drawn_faults(verdict: Verdict, names: Names, pictures: Pictures) -> list[Markup]:
    """A figure for each kind of fault of scales that there is a plane of."""
    figures: list[Markup] = []
    for who, finding in faults_told(verdict, names):
        plane = plane_of(finding)
        if plane is None or len(figures) == MAX_FIGURES:
            continue
        where = configuration_in_words(finding.configuration)
        witness = f": {witness_in_words(finding.witness)}" if finding.witness else ""
        planes: dict[str, Plane | None] = {f"{finding.side} scales as found": plane}
        planes |= _declared(finding)
        said = f"{who}: {finding.status} of {finding.side} scales, {where}{witness}."
        figures.append(_figure(pictures, said, planes))
    return figures


def _declared(finding: Finding) -> dict[str, Plane | None]:
    """The plane that is declared under its name, or why there is none."""
    if finding.declared is None:
        return {}
    where = finding.configuration.geometry()
    reason = candidate(finding.declared).undefined_reason(where.block_size, where.scale_columns)
    label = f"as declared, {finding.declared}"
    if reason is not None:
        return {f"{label}: {reason}": None}
    return {label: named_plane(finding.declared, finding.configuration)}


def _figure(
    pictures: Pictures, said: str, planes: Mapping[str, Plane | None], identity: str | None = None
) -> Markup:
    """A figure with a panel for each plane; what differs between two is marked in both."""
    drawn = {label: plane for label, plane in planes.items() if plane is not None}
    both = list(drawn.values())
    marked = both[0].differs(both[1]) if len(both) == 2 else None
    panels = [
        element(
            "div",
            element("p", label, _head(plane), class_="panel-name"),
            pictures.panel(plane, marked, f"{label}: {said}"),
            class_="panel",
        )
        for label, plane in drawn.items()
    ]
    missing = [
        element("p", f"Not drawn: {label}.", class_="quiet")
        for label, plane in planes.items()
        if plane is None
    ]
    most = f"The first {MAX_TOKENS} tokens and {MAX_COLUMNS} columns at most."
    return element(
        "figure",
        element("figcaption", said),
        element("div", *panels, *missing, class_="panels"),
        element("p", most, class_="quiet") if any(map(is_cut, both)) else "",
        id=identity,
    )


def _head(plane: Plane) -> str:
    return "" if plane.head is None else f", head {plane.head}"
