"""Answers the question in sentences: where does each writer put the scales, and who agrees?

Every word comes from the findings and agreements; subjects that did the same share a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oracle.geometry import SIDES
from oracle.report.digest import (
    at_head_sizes,
    by_geometry,
    common_names,
    configuration_in_words,
    faulty,
    head_sizes,
    map_in_words,
    misplacement_in_words,
    obtained,
    scales,
    smallest_case,
    telling_first,
    witness_in_words,
)
from oracle.report.outline import Cell, Paragraph, Tone
from oracle.report.text import counted, enumerated, percentages, printable
from oracle.subjects.base import SubjectInfo
from oracle.verdict import Agreement, Finding, Verdict


def answer(verdict: Verdict, labels: Mapping[str, str]) -> list[Paragraph]:
    """A paragraph about the writers and one about each reader; empty ones are left out.

    `labels` gives the name to show for each subject's id.
    """
    writers = [info for info in verdict.subjects if info.role == "writer"]
    readers = [info for info in verdict.subjects if info.role == "reader"]
    told = [(*_writers(verdict, writers, labels), *_same_maps(verdict))]
    told += [_reader(verdict, info, len(writers), labels) for info in readers]
    return [Paragraph(sentences) for sentences in told if sentences]


@dataclass(frozen=True)
class _Account:
    """What is said of a writer; equal accounts are said once."""

    verb: str
    deeds: str
    tone: Tone


def _writers(
    verdict: Verdict, writers: Sequence[SubjectInfo], labels: Mapping[str, str]
) -> tuple[Cell, ...]:
    groups: dict[_Account, list[str]] = {}
    for info in writers:
        account = _account(verdict.of_subject(info.id))
        groups.setdefault(account, []).append(labels[info.id])
    return tuple(
        Cell(
            f"{enumerated(names)} {account.verb if len(names) == 1 else account.verb[:-1]} "
            f"{account.deeds}.",
            account.tone,
        )
        for account, names in groups.items()
    )


def _account(findings: Sequence[Finding]) -> _Account:
    ran = obtained(findings)
    if not any(finding.positions for finding in ran):
        reasons = (f"{f.status}: {printable(f.reason or '')}" for f in (*faulty(ran), *findings))
        why = next(reasons, "no geometry was asked for")
        return _Account("gives", f"no map ({why})", Tone.BAD)
    bad = faulty(ran)
    if bad:
        standing = f", not as it should be: {_fault(telling_first(bad)[0], len(bad))}"
    elif all(finding.declared is None for finding in ran):
        standing = ", with nothing declared"
    else:
        standing = ", as declared"
    deeds = f"{_deeds(ran)}{standing}{_coverage(findings)}"
    return _Account("stores", deeds, Tone.BAD if bad else Tone.GOOD)


def _deeds(findings: Sequence[Finding]) -> str:
    """`K scales linear and V scales swizzle_4x4`, or `K and V scales linear`."""
    maps = {side: map_in_words(scales(findings, side), "in no named layout") for side in SIDES}
    if len(set(maps.values())) == 1:
        return f"{enumerated(SIDES)} scales {maps[SIDES[0]]}"
    return enumerated(f"{side} scales {words}" for side, words in maps.items())


def _fault(first: Finding, count: int) -> str:
    witness = f" ({witness_in_words(first.witness)})" if first.witness else ""
    return (
        f"{counted(count, 'fault')}, first {first.status} of {first.side} {first.plane} "
        f"at {configuration_in_words(first.configuration)}{witness}"
    )


def _coverage(findings: Sequence[Finding]) -> str:
    ran = obtained(findings)
    done, asked = len(by_geometry(ran)), len(by_geometry(findings))
    positions = sum(f.positions for f in ran if f.plane == "scale")
    text = f", over {counted(positions, 'position')} in {_geometries(done)}"
    return text + (f"; {_geometries(asked - done)} not executed" if done < asked else "")


def _geometries(count: int) -> str:
    return counted(count, "geometry", "geometries")


def _same_maps(verdict: Verdict) -> tuple[Cell, ...]:
    """Names that fit the same finding at some head sizes but not at all of them.

    They are other names of one map there, which a reader of the verdict must not tell apart.
    """
    also: dict[tuple[str, tuple[str, ...]], set[int]] = {}
    for info in verdict.subjects:
        for side in SIDES:
            mine = scales(verdict.of_subject(info.id), side)
            common = common_names(mine)
            for size in head_sizes(mine) if common else ():
                here = common_names(f for f in mine if f.configuration.head_size == size)
                other = tuple(name for name in here if name not in common)
                if other:
                    also.setdefault((" = ".join(common), other), set()).add(size)
    by_sizes: dict[tuple[int, ...], list[str]] = {}
    for (name, other), sizes in also.items():
        clause = f"{name} is the same map as {enumerated(other)}"
        by_sizes.setdefault(tuple(sorted(sizes)), []).append(clause)
    return tuple(
        Cell(f"{at_head_sizes(sizes).capitalize()} {enumerated(clauses)}.")
        for sizes, clauses in sorted(by_sizes.items())
    )


def _reader(
    verdict: Verdict, info: SubjectInfo, writers: int, labels: Mapping[str, str]
) -> tuple[Cell, ...]:
    """What a reader expects, which writers it agrees with, and where it does not."""
    name = labels[info.id]
    findings = obtained(verdict.of_subject(info.id))
    mine = [agreement for agreement in verdict.agreements if agreement.reader == info.id]
    deeds = f"reads {_deeds(findings)}" if findings else "was not executed"
    if not mine:
        return (Cell(f"{name} {deeds}, and was compared with no writer."),)
    by_writer: dict[str, list[Agreement]] = {}
    for agreement in mine:
        by_writer.setdefault(agreement.writer, []).append(agreement)
    found = {writer: {pair.status for pair in pairs} for writer, pairs in by_writer.items()}
    fitting = [writer for writer, statuses in found.items() if statuses == {"agree"}]
    unclear = [w for w, statuses in found.items() if statuses - {"agree"} == {"undecided"}]
    parts = []
    if fitting:
        count = sum(pair.positions for pair in by_writer[fitting[0]])
        who = _whom(fitting, writers, labels)
        parts.append(f"agrees with {who} at all {counted(count, 'position')}")
    else:
        parts.append("agrees with no writer")
    if unclear:
        parts.append(f"is undecided against {_whom(unclear, writers, labels)}")
    tone = Tone.GOOD if fitting else Tone.PLAIN
    sentences = [Cell(f"{name} {deeds} and {enumerated(parts)}.", tone)]
    sentences += [
        Cell(f"It {clause}.", _tone(mine))
        for side in SIDES
        for clause in _disagreements([a for a in mine if a.side == side], writers, labels)
    ]
    return tuple(sentences)


def _tone(agreements: Sequence[Agreement]) -> Tone:
    differing = [agreement for agreement in agreements if agreement.status == "disagree"]
    if not differing:
        return Tone.GOOD
    return Tone.BAD if any(agreement.judged for agreement in differing) else Tone.DIFFERENT


def _whom(subjects: Sequence[str], writers: int, labels: Mapping[str, str]) -> str:
    """The writers by name, or `every writer` where it is all of several."""
    if len(subjects) == writers > 1:
        return "every writer"
    return enumerated(labels[subject] for subject in subjects)


def _disagreements(mine: Sequence[Agreement], writers: int, labels: Mapping[str, str]) -> list[str]:
    """One clause for all writers that are contradicted on this side in the same way."""
    compared: dict[str, list[Agreement]] = {}
    for pair in mine:
        compared.setdefault(pair.writer, []).append(pair)
    alike: dict[str, list[str]] = {}
    for writer, pairs in compared.items():
        differing = [pair for pair in pairs if pair.status == "disagree"]
        if differing:
            alike.setdefault(_extent(differing, pairs), []).append(writer)
    return [
        f"disagrees on {mine[0].side} with {_whom(subjects, writers, labels)} {extent}"
        for extent, subjects in alike.items()
    ]


def _extent(differing: Sequence[Agreement], compared: Sequence[Agreement]) -> str:
    """At which head sizes, at how many positions, and the smallest case."""
    case = smallest_case(differing)
    witness = f", where {misplacement_in_words(case.witness)}" if case.witness else ""
    count, total = sum(a.disagreeing for a in differing), sum(a.positions for a in compared)
    return (
        f"{at_head_sizes(head_sizes(differing), head_sizes(compared))}, over "
        f"{percentages([a.disagreeing / a.positions for a in differing])} of the positions "
        f"({count:,} of {total:,} in all); smallest case: "
        f"{configuration_in_words(case.configuration)}, "
        f"{case.disagreeing:,} of {counted(case.positions, 'position')}{witness}"
    )
