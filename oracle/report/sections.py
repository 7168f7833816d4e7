"""Puts a report together: the answer, the tables, every fault, what was left out, the coverage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from oracle.report.answer import answer
from oracle.report.digest import (
    configuration_in_words,
    defects_in_words,
    faulty,
    head_sizes,
    obtained,
    telling_first,
    witness_in_words,
)
from oracle.report.outline import Cell, Listing, Paragraph, Section, Tone
from oracle.report.tables import at_a_glance, names_by_head_size, provenance, who_agrees
from oracle.report.text import counted, enumerated, labels, printable
from oracle.verdict import NOT_OBTAINED, Agreement, Finding, Verdict

_EXIT = {
    0: Cell("Everything that was executed is as declared (exit code 0).", Tone.GOOD),
    1: Cell("Something is not as declared (exit code 1).", Tone.BAD),
    5: Cell("What was asked for did not run (exit code 5).", Tone.BAD),
}


def outline(verdict: Verdict, exit_code: int, faults_per_subject: int) -> list[Section]:
    """The sections of a report; empty ones are left out.

    `faults_per_subject` limits how many faults are listed of each subject: the most telling ones
    first, then how many more there are.
    """
    named = labels(info.id for info in verdict.subjects)
    sections: list[Section] = [
        *answer(verdict, named),
        at_a_glance(verdict, "writer", named),
        who_agrees(verdict, named),
        Listing("Faults", tuple(_faults(verdict, named, faults_per_subject))),
        names_by_head_size(verdict, named),
        at_a_glance(verdict, "reader", named),
        Listing("Not executed", tuple(_left_out(verdict, named))),
        provenance(verdict, named),
        Listing("Domain and coverage", tuple(_coverage(verdict))),
        Paragraph((_EXIT[exit_code],)),
    ]
    return [section for section in sections if not _is_empty(section)]


def _is_empty(section: Section) -> bool:
    if isinstance(section, Paragraph):
        return not section.sentences
    return not (section.items if isinstance(section, Listing) else section.rows)


def _faults(verdict: Verdict, named: Mapping[str, str], limit: int) -> Iterable[Cell]:
    for info in verdict.subjects:
        bad = telling_first(faulty(verdict.of_subject(info.id)))
        yield from _limited([f"{named[info.id]}: {_finding(f)}" for f in bad], limit)
    judged: dict[str, list[Agreement]] = {}
    for pair in verdict.agreements:
        if pair.judged and pair.status == "disagree":
            judged.setdefault(pair.reader, []).append(pair)
    for pairs in judged.values():
        yield from _limited([_disagreement(pair, named) for pair in pairs], limit)


def _limited(lines: Sequence[str], limit: int) -> Iterable[Cell]:
    yield from (Cell(line, Tone.BAD) for line in lines[:limit])
    if len(lines) > limit:
        yield Cell(f"and {len(lines) - limit:,} more like these in verdict.json", Tone.QUIET)


def _finding(finding: Finding) -> str:
    where = f"{finding.side} {finding.plane}, {configuration_in_words(finding.configuration)}"
    details = [f"{finding.status}: {where}"]
    if finding.status == "mismatch":
        found = " = ".join(finding.layouts) or finding.shape_stride or "a map without a name"
        details.append(f"{found} where {finding.declared} is declared")
    elif finding.status == "unrecognised" and finding.shape_stride:
        details.append(f"shape:stride {finding.shape_stride}")
    details.append(defects_in_words(finding.defects))
    if finding.witness is not None:
        details.append(f"first {witness_in_words(finding.witness)}")
    details.append(printable(finding.reason or ""))
    return "; ".join(detail for detail in details if detail)


def _disagreement(pair: Agreement, named: Mapping[str, str]) -> str:
    witness = f"; first {witness_in_words(pair.witness)}" if pair.witness else ""
    return (
        f"{named[pair.reader]} disagrees with {named[pair.writer]}: {pair.side} scale, "
        f"{configuration_in_words(pair.configuration)}; {pair.disagreeing:,} of "
        f"{counted(pair.positions, 'position')}{witness}"
    )


def _left_out(verdict: Verdict, named: Mapping[str, str]) -> Iterable[Cell]:
    """One line for each reason why something was not executed."""
    by_reason: dict[tuple[str, str], list[Finding]] = {}
    for finding in verdict.findings:
        if finding.status in NOT_OBTAINED:
            by_reason.setdefault((finding.status, finding.reason or ""), []).append(finding)
    for (status, reason), findings in by_reason.items():
        who = enumerated(dict.fromkeys(named[f.subject] for f in findings))
        count = len({finding.configuration for finding in findings})
        sizes = enumerated(head_sizes(findings))
        yield Cell(
            f"{status} by {who} in {counted(count, 'geometry', 'geometries')} "
            f"(head size {sizes}): {printable(reason)}"
        )


def _coverage(verdict: Verdict) -> Iterable[Cell]:
    for name, values in verdict.domain.items():
        listed = ", ".join(map(str, values)) if isinstance(values, list | tuple) else str(values)
        yield Cell(f"{name.replace('_', ' ')}: {printable(listed)}")
    ran = obtained(verdict.findings)
    found, asked = sum(f.recovered for f in ran), sum(f.positions for f in ran)
    yield Cell(f"recovered: {found:,} of {counted(asked, 'position')} of scales and data")
