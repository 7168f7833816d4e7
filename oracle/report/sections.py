"""Puts a report together: the answer, the tables, every fault, who disagrees, what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oracle.geometry import SIDES
from oracle.report.answer import answer, whom
from oracle.report.cases import smallest_drawn
from oracle.report.claims import claims
from oracle.report.digest import at_head_sizes, head_sizes, obtained
from oracle.report.disagreements import disagreements, in_words
from oracle.report.faults import faults
from oracle.report.outline import Cell, Drawing, Listing, Paragraph, Section, Tone
from oracle.report.parties import Names, parties
from oracle.report.tables import at_a_glance, names_by_head_size, provenance, who_agrees
from oracle.text import counted, enumerated, printable
from oracle.verdict import NOT_OBTAINED, Finding, Verdict

_FAULTS = Cell("Faults were found (exit code 1).", Tone.BAD)
_NOTHING_RAN = Cell("What was asked for did not run (exit code 5).", Tone.BAD)
_AS_DECLARED = Cell("Everything that was executed is as declared (exit code 0).", Tone.GOOD)
_PARTLY = Cell("What is declared is as declared; the rest was not judged (exit code 0).", Tone.GOOD)
_COMPARED = Cell(
    "No fault was found, and no reader that was named looks elsewhere (exit code 0).", Tone.GOOD
)


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
    drawn = smallest_drawn(verdict, differing, names)
    sections: list[Section] = [
        answer(alike, differing, names),
        at_a_glance(verdict, "writer", names),
        who_agrees(verdict, names),
        names_by_head_size(alike, names),
        Listing("Faults", tuple(bad)),
        *([] if drawn is None else [drawn]),
        claims(alike, names),
        Listing("Disagreements", tuple(cell for cell in told if cell.tone is Tone.DIFFERENT)),
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
    if isinstance(section, Drawing):
        return not section.panels
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
    """`24 geometries: head sizes 64–576 (6), …; found: all 8,225,280 positions of scales and data`.

    The positions are those of whom the verdict is about.
    """
    domain = verdict.domain
    heads = _range(domain["num_heads"])
    parts = (
        f"head size{_s(domain['head_sizes'])} {_range(domain['head_sizes'])}",
        f"{heads} head{'' if heads == '1' else 's'}",
        f"block size{_s(domain['block_sizes'])} {_range(domain['block_sizes'])}",
        "/".join(domain["cache_layouts"]),
        "/".join(domain["dtypes"]),
    )
    role, judged = verdict.judged[0].role, verdict.judged
    ran = obtained(finding for info in judged for finding in verdict.of_subject(info.id))
    found, asked = sum(f.recovered for f in ran), sum(f.positions for f in ran)
    share = "all" if found == asked else f"{found:,} of"
    planes = {f.plane: "scales" if f.plane == "scale" else "data" for f in ran if f.positions}
    sides = [side for side in SIDES if any(f.side == side and f.positions for f in ran)]
    what = (
        f"{enumerated(planes[p] for p in ('scale', 'data') if p in planes)}, "
        f"{'both sides' if len(sides) == len(SIDES) else enumerated(sides)}, "
        f"of {'the' if len(judged) == 1 else 'every'} {role}"
    )
    recovered = f"; found: {share} {counted(asked, 'position')} of {what}" if asked else ""
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
    if exit_code:
        return _FAULTS if exit_code == 1 else _NOTHING_RAN
    role = verdict.judged[0].role
    ran = [found for info in verdict.judged if (found := obtained(verdict.of_subject(info.id)))]
    declared = [any(f.declared is not None for f in found) for found in ran]
    if all(declared):
        return _AS_DECLARED
    if any(pair.judged for pair in verdict.agreements):
        return _COMPARED
    if any(declared):
        return _PARTLY
    deed = {"writer": "store", "reader": "look"}[role]
    who = f"it {deed}s" if len(ran) == 1 else f"they {deed}"
    advice = ": name a reader with --reader" if role == "writer" else ""
    return Cell(
        f"No fault in where {who}. Nothing is declared, so nothing was judged{advice} "
        "(exit code 0)."
    )
