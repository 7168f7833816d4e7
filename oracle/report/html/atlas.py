"""Every scale plane of a verdict, in the form that the page's script draws from.

A plane is listed once however many geometries and subjects share it; the rest are indices into the
lists of planes, geometries and subjects. page.js reads exactly what `atlas` makes:

    subjects     name and role of each
    geometries   name, tokens, columns, heads; `base` of the scales of K and V, and the strides of
                 a head and a stored row, in bytes from the start of the page
    planes       runs of places over tokens and columns (see oracle.offsettable): a flat offset in
                 the head's own plane, null for nowhere, -2 - i for elsewhere[i]
    found        [subject][side][geometry]: a plane, or -1
    layouts      names of layouts to compare with, and their [geometry]: a plane, or -1
    declared     [subject][side]: the name of a layout, or null
    pairs        [writer, reader, [side][geometry]]: positions that differ, -1 for undecided, null
                 where the two were not compared
    fault        [subject, side, geometry] of the first fault with a plane, or null
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from oracle.candidates import CANDIDATES
from oracle.geometry import SIDES
from oracle.offsettable import runs_of
from oracle.report.cases import faults_told
from oracle.report.digest import configuration_in_words
from oracle.report.parties import Names
from oracle.report.planes import NOWHERE, Plane, named_plane, plane_of
from oracle.verdict import Agreement, Configuration, Verdict

MAX_GEOMETRIES = 200
"""Geometries with a picture: the smallest ones."""
_ALWAYS = ("linear", "swizzle_4x4")
"""Layouts that anything can be compared with; those that are declared come to them."""


class _Planes:
    """The distinct planes, each with an index."""

    def __init__(self) -> None:
        self.listed: list[dict[str, Any]] = []
        self._index: dict[Hashable, int] = {}

    def index(self, plane: Plane | None) -> int:
        """Where a plane is in the list; -1 for none."""
        if plane is None:
            return -1
        if plane.key not in self._index:
            self._index[plane.key] = len(self.listed)
            places = plane.place.ravel().tolist()
            runs = runs_of(None if place == NOWHERE else place for place in places)
            self.listed.append({"runs": runs, "elsewhere": plane.elsewhere, "head": plane.head})
        return self._index[plane.key]


def configurations(verdict: Verdict) -> list[Configuration]:
    """The geometries with a picture, in the order of the verdict."""
    listed = list(dict.fromkeys(f.configuration for f in verdict.findings if f.positions))
    smallest = sorted(listed, key=lambda c: c.block_size * c.head_size * c.num_heads)
    chosen = set(smallest[:MAX_GEOMETRIES])
    return [configuration for configuration in listed if configuration in chosen]


def atlas(verdict: Verdict, names: Names) -> dict[str, Any]:
    """What the script draws from."""
    shown = {configuration: place for place, configuration in enumerate(configurations(verdict))}
    subjects = {info.id: place for place, info in enumerate(verdict.subjects)}
    planes = _Planes()
    found = [[[-1] * len(shown) for _ in SIDES] for _ in subjects]
    for finding in verdict.findings:
        if finding.plane == "scale" and finding.configuration in shown:
            row = found[subjects[finding.subject]][SIDES.index(finding.side)]
            row[shown[finding.configuration]] = planes.index(plane_of(finding))
    declared = {layout for info in verdict.subjects for layout in info.declared.values()}
    layouts = {
        name: [planes.index(named_plane(name, configuration)) for configuration in shown]
        for name in CANDIDATES
        if name in declared or name in _ALWAYS
    }
    return {
        "subjects": [{"name": names.beside(info), "role": info.role} for info in verdict.subjects],
        "geometries": [_geometry(configuration) for configuration in shown],
        "planes": planes.listed,
        "found": found,
        "layouts": layouts,
        "declared": [[info.declared.get(side) for side in SIDES] for info in verdict.subjects],
        "pairs": _pairs(verdict, subjects, shown),
        "fault": _fault(verdict, names, subjects, shown),
    }


def _geometry(configuration: Configuration) -> dict[str, Any]:
    geometry = configuration.geometry()
    head, row = geometry.scale_strides
    return {
        "name": configuration_in_words(configuration),
        "tokens": geometry.block_size,
        "columns": geometry.scale_columns,
        "heads": geometry.num_heads,
        "base": [geometry.scale_base(side) for side in SIDES],
        "head": head,
        "row": row,
        "bytes": geometry.page_bytes,
    }


def _fault(
    verdict: Verdict, names: Names, subjects: dict[str, int], shown: dict[Configuration, int]
) -> list[int] | None:
    judged = {info.id for info in verdict.judged}
    for _, finding in faults_told(verdict, names):
        if finding.subject in judged and finding.configuration in shown and plane_of(finding):
            side = SIDES.index(finding.side)
            return [subjects[finding.subject], side, shown[finding.configuration]]
    return None


def _pairs(
    verdict: Verdict, subjects: dict[str, int], shown: dict[Configuration, int]
) -> list[list[Any]]:
    compared: dict[tuple[int, int], list[list[int | None]]] = {}
    for pair in verdict.agreements:
        if pair.configuration in shown:
            key = (subjects[pair.writer], subjects[pair.reader])
            sides = compared.setdefault(key, [[None] * len(shown) for _ in SIDES])
            sides[SIDES.index(pair.side)][shown[pair.configuration]] = _differing(pair)
    return [[writer, reader, sides] for (writer, reader), sides in compared.items()]


def _differing(pair: Agreement) -> int:
    return -1 if pair.status == "undecided" else pair.disagreeing
