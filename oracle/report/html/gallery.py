"""The smallest plane of each disagreement and of each fault, drawn without a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from oracle.report.answer import whom
from oracle.report.cases import (
    Planes,
    faults_told,
    planes_of_disagreement,
    planes_of_fault,
    scale_findings,
)
from oracle.report.digest import configuration_in_words, witness_in_words
from oracle.report.disagreements import disagreements, in_words
from oracle.report.html.markup import Markup, element
from oracle.report.html.pictures import MAX_COLUMNS, MAX_TOKENS, Pictures, is_cut
from oracle.report.parties import Names, parties
from oracle.report.planes import Plane
from oracle.verdict import Verdict

MAX_FIGURES = 24
"""Disagreements, and faults, that are drawn; the lists have them all."""


class Disagreements(NamedTuple):
    """Figures of disagreements; `anchors` leads from (writer, reader) to the id of the first."""

    figures: tuple[Markup, ...]
    anchors: Mapping[tuple[str, str], str]


def drawn_disagreements(verdict: Verdict, names: Names, pictures: Pictures) -> Disagreements:
    """A figure for each line of the report's disagreements: the case with the smallest plane."""
    alike = parties(verdict)
    found = scale_findings(verdict)
    anchors: dict[tuple[str, str], str] = {}
    figures: list[Markup] = []
    for place, one in enumerate(disagreements(verdict, alike)[:MAX_FIGURES]):
        identity = f"disagreement-{place}"
        for writer in (each for party in one.parties for each in party.ids):
            anchors.setdefault((writer, one.reader), identity)
        said = in_words(one, whom(one.parties, len(alike), names), names)
        planes = planes_of_disagreement(one, found, names)
        figures.append(_figure(pictures, f"{said}.", planes, identity))
    return Disagreements(tuple(figures), anchors)


def drawn_faults(verdict: Verdict, names: Names, pictures: Pictures) -> list[Markup]:
    """A figure for each kind of fault of scales that there is a plane of."""
    figures: list[Markup] = []
    for who, finding in faults_told(verdict, names):
        planes = planes_of_fault(finding)
        if not planes or len(figures) == MAX_FIGURES:
            continue
        where = configuration_in_words(finding.configuration)
        witness = f": {witness_in_words(finding.witness)}" if finding.witness else ""
        said = f"{who}: {finding.status} of {finding.side} scales, {where}{witness}."
        figures.append(_figure(pictures, said, planes))
    return figures


def _figure(pictures: Pictures, said: str, planes: Planes, identity: str | None = None) -> Markup:
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
