"""Puts a report together: the answer, the tables, who disagrees, every fault, what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oracle.report.answer import answer, whom
from oracle.report.claims import claims
from oracle.report.digest import at_head_sizes, head_sizes, obtained
from oracle.report.disagreements import disagreements, in_words
from oracle.report.faults import faults
from oracle.report.outline import Cell, Listing, Paragraph, Section, Tone
from oracle.report.parties import Names, parties
from oracle.report.tables import at_a_glance, names_by_head_size, provenance, who_agrees
from oracle.report.text import counted, printable
from oracle.verdict import NOT_OBTAINED, Finding, Verdict

_EXIT = {
    0: Cell("Everything that was executed is as declared (exit code 0).", Tone.GOOD),
    1: Cell("Something is not as declared (exit code 1).", Tone.BAD),
    5: Cell("What was asked for did not run (exit code 5).", Tone.BAD),
}
_UNDECLARED = Cell("Nothing is declared that could be contradicted (exit code 0).", Tone.GOOD)


def outline(verdict: Verdict, exit_code: int, faults_per_subject: int) -> list[Section]:
    """The sections of a report; empty ones are left out.

    `faults_per_subject` limits how many faults are listed of each subject, the most telling ones
    first, and how many reasons for what was not executed; then it is said how many more there are.
    """
    names = Names(verdict.subjects)
    alike = parties(verdict)
    differing = disagreements(verdict, alike)
    told = [
        Cell(
            in_words(one, whom(one.parties, len(alike), names), names),
            Tone.BAD if one.judged else Tone.DIFFERENT,
        )
        for one in differing
    ]
    bad = [
        *faults(verdict, names.full, faults_per_subject),
        *(cell for cell in told if cell.tone is Tone.BAD),
    ]
    sections: list[Section] = [
        answer(alike, differing, names),
        at_a_glance(verdict, "writer", names),
        who_agrees(verdict, names),
        names_by_head_size(alike, names),
        claims(alike, names),
        Listing("Disagreements", tuple(cell for cell in told if cell.tone is Tone.DIFFERENT)),
        Listing("Faults", tuple(bad)),
        Listing("Not executed", tuple(_left_out(verdict, names, faults_per_subject))),
        at_a_glance(verdict, "reader", names),
        provenance(verdict, names.full),
        Listing("Domain", tuple(_domain(verdict)), folded=True),
        Paragraph((_coverage(verdict), _last(verdict, exit_code))),
    ]
    return [section for section in sections if not _is_empty(section)]


def _is_empty(section: Section) -> bool:
    if isinstance(section, Paragraph):
        return not section.sentences
    return not (section.items if isinstance(section, Listing) else section.rows)


def _left_out(verdict: Verdict, names: Names, limit: int) -> Iterable[Cell]:
    """One line for each reason why something was not executed."""
    by_reason: dict[tuple[str, str], list[Finding]] = {}
    for finding in verdict.findings:
        if finding.status in NOT_OBTAINED:
            by_reason.setdefault((finding.status, finding.reason or ""), []).append(finding)
    for (status, reason), findings in list(by_reason.items())[:limit]:
        count = len({finding.configuration for finding in findings})
        yield Cell(
            f"{status} by {names.of(f.subject for f in findings)} "
            f"in {counted(count, 'geometry', 'geometries')} "
            f"({at_head_sizes(head_sizes(findings)).removeprefix('at ')}): {printable(reason)}"
        )
    if len(by_reason) > limit:
        yield Cell(
            f"and {counted(len(by_reason) - limit, 'more reason')} in verdict.json", Tone.QUIET
        )


def _domain(verdict: Verdict) -> Iterable[Cell]:
    for name, values in verdict.domain.items():
        listed = ", ".join(map(str, values)) if isinstance(values, list | tuple) else str(values)
        yield Cell(f"{name.replace('_', ' ')}: {printable(listed)}")


def _coverage(verdict: Verdict) -> Cell:
    """`24 geometries: head sizes 64–576 (6), 2 heads, …; all 8,225,280 positions found.`"""
    domain = verdict.domain
    heads = _range(domain["num_heads"])
    parts = (
        f"head size{_s(domain['head_sizes'])} {_range(domain['head_sizes'])}",
        f"{heads} head{'' if heads == '1' else 's'}",
        f"page{_s(domain['block_sizes'])} {_range(domain['block_sizes'])}",
        "/".join(domain["cache_layouts"]),
        "/".join(domain["dtypes"]),
    )
    ran = obtained(verdict.findings)
    found, asked = sum(f.recovered for f in ran), sum(f.positions for f in ran)
    share = "all" if found == asked else f"{found:,} of"
    recovered = f"; {share} {counted(asked, 'position')} found" if asked else ""
    geometries = counted(domain["geometries"], "geometry", "geometries")
    return Cell(f"{geometries}: {', '.join(parts)}{recovered}.")


def _s(values: Sequence[int]) -> str:
    return "" if len(values) == 1 else "s"


def _range(values: Sequence[int]) -> str:
    """`16/64`, or `64–576 (6)` where there are more than three."""
    if len(values) <= 3:
        return "/".join(map(str, values))
    return f"{min(values)}–{max(values)} ({len(values)})"


def _last(verdict: Verdict, exit_code: int) -> Cell:
    declared = any(finding.declared is not None for finding in obtained(verdict.findings))
    return _EXIT[exit_code] if declared or exit_code else _UNDECLARED
