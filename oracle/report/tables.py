"""The tables of a report: subjects at a glance, who agrees with whom, names by head size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from oracle.geometry import SIDES
from oracle.report.digest import (
    by_geometry,
    deeds_in_words,
    faulty,
    head_sizes,
    listed,
    map_in_words,
    obtained,
    scales,
)
from oracle.report.extents import Extents
from oracle.report.outline import Cell, Table, Tone
from oracle.report.parties import Names, Party
from oracle.report.patterns import symbols_of
from oracle.subjects.base import SubjectInfo
from oracle.text import counted, enumerated, percentages, printable, shortened
from oracle.verdict import FAULTY, Agreement, Finding, Launches, Verdict

MATRIX = "Who reads where whom stored"
"""Title of the table of writers and readers."""
PROVENANCE = "Subjects"
"""Title of the table of what was executed."""

_DIGEST_DIGITS = 12


def at_a_glance(verdict: Verdict, role: str, names: Names) -> Table:
    """One row for each subject of a role: where its scales are and whether that is as declared.

    The readers are the context of a verdict about writers, and so a detail.
    """
    rows = tuple(
        _glance(info, verdict.of_subject(info.id), names.beside(info))
        for info in verdict.subjects
        if info.role == role
    )
    symbols = symbols_of(cell.text for row in rows for cell in row[3:6])
    return _without_empty_columns(
        Table(
            f"{role.capitalize()}s",
            (role, "arch", "dtype", "K scales", "V scales", "data", "as decl.", "geom.", "status"),
            rows,
            "as decl.: as declared; geom.: geometries executed, of those asked for"
            + (f"; {symbols}" if symbols else ""),
            folded=role == "reader",
        )
    )


def _without_empty_columns(table: Table) -> Table:
    """The table without the columns that say nothing about any row, and so only take room."""
    kept = [
        place
        for place in range(len(table.columns))
        if any(row[place].text != "-" for row in table.rows)
    ]
    return replace(
        table,
        columns=tuple(table.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in table.rows),
    )


def _glance(info: SubjectInfo, findings: Sequence[Finding], label: str) -> tuple[Cell, ...]:
    ran = obtained(findings)
    geometries = by_geometry(findings)
    dtypes = dict.fromkeys(configuration.dtype for configuration in geometries)
    data = [finding for finding in ran if finding.plane == "data"]
    return (
        Cell(label),
        Cell(info.arch or "-"),
        Cell(" ".join(dtypes) or "-"),
        *(_plane(scales(findings, side)) for side in SIDES),
        _plane(data),
        _declared(ran),
        Cell(f"{len(by_geometry(ran))}/{len(geometries)}"),
        _status(list(geometries.values())),
    )


def _plane(findings: Sequence[Finding]) -> Cell:
    return Cell(map_in_words(findings), Tone.BAD if faulty(findings) else Tone.PLAIN)


def _declared(ran: Sequence[Finding]) -> Cell:
    if not ran:
        return Cell("-", Tone.QUIET)
    if faulty(ran):
        return Cell("no", Tone.BAD)
    if all(finding.declared is None for finding in ran):
        return Cell("nothing", Tone.QUIET)
    return Cell("yes", Tone.GOOD)


def _status(statuses: Sequence[str]) -> Cell:
    counts = Counter(statuses)
    passed = Tone.GOOD if counts["match"] else Tone.QUIET
    tone = Tone.BAD if FAULTY & counts.keys() else passed
    if len(counts) == 1:
        return Cell(statuses[0], tone)
    return Cell(", ".join(f"{status} {n}" for status, n in counts.items()) or "-", tone)


def who_agrees(verdict: Verdict, names: Names) -> Table:
    """Writers down, readers across; only those that were compared."""
    pairs: dict[tuple[str, str], list[Agreement]] = {}
    for agreement in verdict.agreements:
        pairs.setdefault((agreement.writer, agreement.reader), []).append(agreement)
    writers = dict.fromkeys(writer for writer, _ in pairs)
    readers = dict.fromkeys(reader for _, reader in pairs)
    extents = Extents(verdict.findings)
    looks = [
        f"{names.of([reader])} reads {deeds_in_words(found)}"
        for reader in readers
        if (found := obtained(verdict.of_subject(reader)))
    ]
    return Table(
        MATRIX,
        ("writer", *(names.of([reader]) for reader in readers)),
        tuple(
            (
                Cell(names.of([writer])),
                *(_pair((writer, reader), pairs, extents) for reader in readers),
            )
            for writer in writers
        ),
        "; ".join(
            (
                "scales only; shares of the positions found in a geometry, least to most",
                *looks,
            )
        ),
    )


def _pair(
    pair: tuple[str, str], pairs: Mapping[tuple[str, str], Sequence[Agreement]], extents: Extents
) -> Cell:
    agreements = pairs.get(pair)
    if not agreements:
        return Cell("-", Tone.QUIET)
    differing = [a for a in agreements if a.status == "disagree"]
    if differing:
        sides: dict[str, list[str]] = {}
        for side in SIDES:
            shares = [extents.share(a) for a in differing if a.side == side]
            if shares:
                sides.setdefault(percentages(shares), []).append(side)
        clauses = [
            f"{enumerated(which)} disagree{'s' if len(which) == 1 else ''} {share}"
            for share, which in sides.items()
        ]
        judged = any(a.judged for a in differing)
        return Cell("; ".join(clauses), Tone.BAD if judged else Tone.DIFFERENT, pair)
    undecided = sum(a.status == "undecided" for a in agreements)
    if undecided == len(agreements):
        return Cell("undecided", Tone.QUIET, pair)
    return Cell("agree" + (f" ({undecided} undecided)" if undecided else ""), Tone.GOOD, pair)


def names_by_head_size(parties: Sequence[Party], names: Names) -> Table:
    """The names that fit at each head size; head sizes and writers that share them share a row.

    Empty where no writer's names change with the head size: then the writers' table has them all.
    """
    stored: dict[tuple[str, str, int], list[Party]] = {}
    for party in parties:
        mine = [finding for finding in obtained(party.findings) if finding.positions]
        for size in head_sizes(mine):
            here = [finding for finding in mine if finding.configuration.head_size == size]
            key, value = (map_in_words(scales(here, side)) for side in SIDES)
            stored.setdefault((key, value, size), []).append(party)
    sizes: dict[tuple[str, str, tuple[Party, ...]], list[int]] = {}
    for (key, value, size), who in stored.items():
        sizes.setdefault((key, value, tuple(who)), []).append(size)
    of_party = Counter(party for _, _, who in sizes for party in who)
    rows = sorted(sizes.items(), key=lambda row: min(row[1]))
    return Table(
        "Scale layouts by head size",
        ("head size", "K scales", "V scales", "stored so by"),
        tuple(
            tuple(
                map(
                    Cell,
                    (
                        listed(sorted(group)).replace("head sizes ", ""),
                        key,
                        value,
                        names.of(info.id for party in who for info in party.members),
                    ),
                )
            )
            for (key, value, who), group in rows
        )
        if any(count > 1 for count in of_party.values())
        else (),
        "a = b: both names are the same map there",
    )


def provenance(verdict: Verdict, labels: Mapping[str, str]) -> Table:
    """Who each subject is, and the digest of what was executed."""
    table = Table(
        PROVENANCE,
        ("subject", "what it is", "executor", "arch", "kernel", "sha256"),
        tuple(
            (
                Cell(labels[info.id]),
                Cell(printable(info.name)),
                Cell(info.executor),
                Cell(info.arch or "-"),
                Cell(shortened(info.kernel) if info.kernel else "-"),
                Cell((info.artifact_sha256 or "-")[:_DIGEST_DIGITS], Tone.QUIET),
            )
            for info in verdict.subjects
        ),
        executed_by(verdict.launches),
        folded=True,
    )
    return _without_empty_columns(table)


def executed_by(launches: Sequence[Launches]) -> str:
    """Which tiers of the machine executed how many launches, of all subjects together, and why."""
    counts: Counter[tuple[str, str | None]] = Counter()
    for each in launches:
        counts[each.tier, each.reason] += each.count
    parts = []
    for (tier, reason), count in counts.most_common():
        why = f" ({printable(reason)})" if reason else ""
        parts.append(f"{tier} {counted(count, 'launch', 'launches')}{why}")
    return f"executed by: {', '.join(parts)}" if parts else ""
