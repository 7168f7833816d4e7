"""Writers that did the same are one party, with one short name: what a report speaks of.

Doing the same means the same names or shape:stride, defects and witness in every geometry, the same
standing towards what is declared, and the same outcome against every reader; only the dtype of the
input may differ. A specification that did the same as executed code joins it and is not named
beside it.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from oracle.report.digest import faulty, place
from oracle.subjects.base import SubjectInfo
from oracle.text import enumerated, labels
from oracle.verdict import FAULTY, Agreement, Finding, Verdict

_LONGEST = 48
_REFERENCE = "reference"


class Names:
    """Short names for subjects: without directories, and without arch and dtype where possible."""

    def __init__(self, subjects: Iterable[SubjectInfo]) -> None:
        self._infos = {info.id: info for info in subjects}
        self._base = {info.id: _base(info) for info in self._infos.values()}
        bases = list(dict.fromkeys(self._base.values()))
        tails = [base.rpartition("/")[2] for base in bases]
        shown = [
            tail if tail and tails.count(tail) == 1 else base
            for base, tail in zip(bases, tails, strict=True)
        ]
        short = labels(shown, _LONGEST)
        self._short = {base: short[name] for base, name in zip(bases, shown, strict=True)}
        self.full = labels(self._infos)
        """Each subject's id as tables show it."""

    def beside(self, info: SubjectInfo) -> str:
        """What a subject is called in a table that has its arch and dtypes beside it."""
        base = self._base[info.id]
        alike = [
            i
            for i, other in self._infos.items()
            if (self._base[i], other.arch, other.dtypes) == (base, info.arch, info.dtypes)
        ]
        return self.full[info.id] if len(alike) > 1 else self._short[base]

    def of(self, ids: Iterable[str], most: int = 4) -> str:
        """What the subjects are called together; beyond `most` names the others are counted."""
        names = self.each(ids)
        if len(names) > most:
            names = [*names[: most - 1], f"{len(names) - most + 1} more"]
        return enumerated(names)

    def each(self, ids: Iterable[str]) -> list[str]:
        """One name for all builds of a writer, one for each arch if not all are among `ids`."""
        chosen = set(ids)
        names: dict[str, None] = {}
        for identity in (i for i in self._infos if i in chosen):
            base, arch = self._base[identity], self._infos[identity].arch
            builds = {i for i, other in self._base.items() if other == base}
            alike = {i for i in builds if self._infos[i].arch == arch}
            if builds <= chosen:
                names[self._short[base]] = None
            elif alike <= chosen and alike < builds:
                names[f"{self._short[base]} on {arch}"] = None
            else:
                names[self.full[identity]] = None
        return list(names)


def _base(info: SubjectInfo) -> str:
    """A subject's id without the arch and what follows it."""
    if info.arch is None:
        return info.id
    return re.split(rf"[@:]{re.escape(info.arch)}/", info.id)[0] or info.id


@dataclass(frozen=True, eq=False)
class Party:
    """Writers that did the same: the findings and agreements are those of the first.

    `members` are the ones named; `specified` tells that a specification did the same as executed
    code; `ids` has it too.
    """

    members: tuple[SubjectInfo, ...]
    ids: frozenset[str]
    specified: bool
    findings: tuple[Finding, ...]
    agreements: tuple[Agreement, ...]

    @property
    def executed(self) -> bool:
        """Whether code was executed, rather than the specification alone."""
        return self.members[0].executor != _REFERENCE


def parties(verdict: Verdict) -> list[Party]:
    """The writers of a verdict, those that did the same together; executed code comes first."""
    writers = [info for info in verdict.subjects if info.role == "writer"]
    found = {info.id: verdict.of_subject(info.id) for info in writers}
    compared: dict[str, list[Agreement]] = {info.id: [] for info in writers}
    for pair in verdict.agreements:
        compared[pair.writer].append(pair)
    deeds = {i: (_maps(found[i]), _outcomes(compared[i])) for i in found}
    specifications = {info.id for info in writers if info.executor == _REFERENCE}
    groups: dict[Hashable, list[SubjectInfo]] = {}
    for info in sorted(writers, key=lambda info: info.id in specifications):
        key = (info.id in specifications, deeds[info.id], _standing(found[info.id]))
        groups.setdefault(key, []).append(info)
    made: list[Party] = []
    for members in groups.values():
        ids = {info.id for info in members}
        if any(ids <= party.ids for party in made):
            continue
        first = members[0].id
        same: set[str] = set()
        # Of a writer with a fault, that a specification does the same would only confuse.
        if first not in specifications and not faulty(found[first]):
            same = {i for i in specifications if deeds[i] == deeds[first]}
        made.append(
            Party(
                tuple(members),
                frozenset(ids | same),
                bool(same),
                found[first],
                tuple(compared[first]),
            )
        )
    return made


def _maps(findings: Sequence[Finding]) -> Hashable:
    return frozenset(
        (
            (f.side, f.plane, place(f.configuration)),
            (f.status, f.layouts, f.shape_stride, f.defects, f.reason),
            repr(f.witness),
        )
        for f in findings
    )


def _outcomes(agreements: Sequence[Agreement]) -> Hashable:
    return frozenset(
        (a.reader, a.side, place(a.configuration), a.status, a.disagreeing) for a in agreements
    )


def _standing(findings: Sequence[Finding]) -> Hashable:
    """What was contradicted, and whether anything was declared of the rest."""
    return frozenset(
        (f.side, f.plane, f.declared if f.status in FAULTY else f.declared is None)
        for f in findings
    )
