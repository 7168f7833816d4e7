"""What the parts of a verdict must have to do with each other, as the table in oracle.verdict says.

Everything here raises UsageError with one line, where the first contradiction stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import prod

from oracle.candidates import candidate
from oracle.fields import refuse, unique
from oracle.findings import declared_layout
from oracle.quantize import GROUP
from oracle.report.planes import MAX_CELLS
from oracle.verdict import (
    NOT_OBTAINED,
    Agreement,
    Configuration,
    Defects,
    Finding,
    Verdict,
    Witness,
)

_NO_DEFECTS = Defects()
_NOTHING_RAN = 5
_LISTED = {
    "head_size": "head_sizes",
    "num_heads": "num_heads",
    "block_size": "block_sizes",
    "cache_layout": "cache_layouts",
    "dtype": "dtypes",
}
"""Where a domain lists what a field of a configuration may be."""


def check_finding(finding: Finding, where: str) -> None:
    """Whether a finding carries what its status asks for, and nothing that it rules out."""
    configuration = finding.configuration
    _check_positions(finding.positions, finding.plane, configuration, where)
    if finding.recovered > finding.positions:
        refuse(where, f"{finding.recovered} positions were recovered of {finding.positions}")
    if not _is_one_map(finding.layouts, finding.plane, configuration):
        refuse(f"{where}.layouts", f"{' = '.join(finding.layouts)} is no one map there")
    if finding.witness is not None:
        _check_witness(finding.witness, configuration, f"{where}.witness")
    for clash in finding.clashes:
        _check_witness({"token": max(clash.first, clash.second)}, configuration, f"{where}.clashes")
    broken = [name for name, holds in _demands(finding).items() if not holds]
    if broken:
        refuse(where, f"status {finding.status} asks that a finding {broken[0]}")
    _check_counts(finding, f"{where}.defects")
    if finding.table is not None:
        _check_table(finding, where)


def _check_counts(finding: Finding, where: str) -> None:
    """Whether defects that are part of others, or that are listed beside them, are so many."""
    defects = finding.defects
    outside = defects.below_region + defects.above_region
    if defects.other_plane > outside:
        refuse(where, f"{defects.other_plane} bytes in another plane of {outside} that leave it")
    if len(finding.clashes) > defects.clashing_pairs:
        refuse(where, f"{len(finding.clashes)} clashes of {defects.clashing_pairs}")


def _demands(finding: Finding) -> Mapping[str, bool]:
    """What the status of a finding asks for, and whether it is so."""
    defects, named = finding.defects, bool(finding.layouts)
    witness, reason = finding.witness is not None, finding.reason is not None
    if finding.status in NOT_OBTAINED:
        counted = finding.positions or finding.recovered or defects != _NO_DEFECTS
        described = named or finding.shape_stride or finding.table or witness
        told = finding.strays or finding.clashes or finding.keeps or finding.misread_by
        return {"has a reason": reason, "has no map": not (counted or described or told)}
    return {
        "match": {
            "has a layout": named,
            "has the declared layout": finding.declared in {None, *finding.layouts},
            "has recovered every position": 0 < finding.positions == finding.recovered,
            "has no defect": defects == _NO_DEFECTS,
            "has no witness": not witness,
        },
        "mismatch": {
            "has a declaration": finding.declared is not None,
            "has another layout than is declared": finding.declared not in finding.layouts,
            "has a witness": witness,
            "says what it found": named or finding.shape_stride is not None or reason,
        },
        "overlap": {"has a witness": witness, "has a collision": defects.collisions > 0},
        "out_of_region": {
            "has a witness": witness,
            "has a byte outside": defects.below_region + defects.above_region > 0,
        },
        "gap": {"has a witness": witness},
        "undefined": {"has a reason": reason},
        "unrecognised": {"has no layout": not named, "has a witness or reason": witness or reason},
    }[finding.status]


def _check_positions(count: int, plane: str, configuration: Configuration, where: str) -> None:
    """A page has so many coordinates, and a subject that gave no map none."""
    elements = configuration.block_size * configuration.num_heads * configuration.head_size
    size = elements // GROUP if plane == "scale" else elements
    if count not in {0, size}:
        refuse(where, f"{count} positions, where a page has {size}")


def _is_one_map(layouts: tuple[str, ...], plane: str, configuration: Configuration) -> bool:
    """Whether several names stand for one map, as far as planes are small enough to be drawn."""
    if plane == "data":
        return layouts in {(), ("linear",)}
    tokens, columns = configuration.block_size, configuration.head_size // GROUP
    return tokens * columns > MAX_CELLS or _are_equal(layouts, tokens, columns)


@cache
def _are_equal(layouts: tuple[str, ...], tokens: int, columns: int) -> bool:
    every = [candidate(name) for name in layouts]
    if any(each.undefined_reason(tokens, columns) is not None for each in every):
        return False
    return len({each.table(tokens, columns).tobytes() for each in every}) <= 1


def _check_witness(witness: Witness, configuration: Configuration, where: str) -> None:
    """Whether the coordinates of a witness, and of one in it, are in the page."""
    ends = {
        "head": configuration.num_heads,
        "token": configuration.block_size,
        "column": configuration.head_size // GROUP,
        "element": configuration.head_size,
    }
    for name, end in ends.items():
        if witness.get(name, 0) >= end:
            refuse(f"{where}.{name}", f"{witness[name]}, where there are {end}")
    if "with" in witness:
        _check_witness(witness["with"], configuration, f"{where}.with")


def _check_table(finding: Finding, where: str) -> None:
    configuration, table = finding.configuration, finding.table
    assert table is not None
    if finding.plane != "scale" or finding.layouts or finding.shape_stride or not finding.positions:
        refuse(f"{where}.table", "only scales that nothing else describes have a table")
    size = configuration.block_size * configuration.head_size // GROUP
    if sum(count for _, _, count in table.runs) != size:
        refuse(f"{where}.table", f"its runs are not {size} offsets")
    if table.head >= configuration.num_heads:
        refuse(f"{where}.table", f"there is no head {table.head}")


def check_agreement(agreement: Agreement, where: str) -> None:
    """Whether an agreement carries what its status asks for."""
    _check_positions(agreement.positions, "scale", agreement.configuration, where)
    if agreement.witness is not None:
        _check_witness(agreement.witness, agreement.configuration, f"{where}.witness")
    if agreement.disagreeing > agreement.positions:
        refuse(where, f"{agreement.disagreeing} positions disagree of {agreement.positions}")
    differs = agreement.status == "disagree"
    if differs != (agreement.disagreeing > 0) or differs != (agreement.witness is not None):
        refuse(where, f"status {agreement.status} contradicts disagreeing or witness")
    if agreement.status == "undecided":
        if agreement.reason is None:
            refuse(where, "undecided without a reason")
    elif not agreement.positions:
        refuse(where, f"status {agreement.status} about no position")


def check(verdict: Verdict, exit_code: int) -> None:
    """Whether results are of the subjects and domain, each there once, and bear out the code."""
    subjects = {info.id: info for info in verdict.subjects}
    roles = {identity: info.role for identity, info in subjects.items()}
    unique([info.id for info in verdict.subjects], "subjects")
    for place, finding in enumerate(verdict.findings):
        if finding.subject not in subjects:
            refuse(f"findings[{place}].subject", "no subject has this id")
        declared = declared_layout(subjects[finding.subject], finding.side, finding.plane)
        if finding.declared != declared:
            told = f"{finding.declared}, where its subject has {declared}"
            refuse(f"findings[{place}].declared", told)
    unique([(f.subject, f.side, f.plane, f.configuration) for f in verdict.findings], "findings")
    for place, pair in enumerate(verdict.agreements):
        if (roles.get(pair.writer), roles.get(pair.reader)) != ("writer", "reader"):
            refuse(f"agreements[{place}]", "no writer and reader have these ids")
    compared = [(a.writer, a.reader, a.side, a.configuration) for a in verdict.agreements]
    unique(compared, "agreements")
    for place, launches in enumerate(verdict.launches):
        if launches.subject not in subjects:
            refuse(f"launches[{place}].subject", "no subject has this id")
    _check_domain(verdict)
    # A run may have required what was not run, which the verdict alone does not know.
    if exit_code != verdict.exit_code and (exit_code, verdict.exit_code) != (_NOTHING_RAN, 0):
        refuse("exit_code", f"{exit_code}, where its results make it {verdict.exit_code}")


def _check_domain(verdict: Verdict) -> None:
    """Whether the domain has what the results are about, and as many geometries as it can."""
    listed = {name: frozenset(verdict.domain[plural]) for name, plural in _LISTED.items()}
    results = {f.configuration for f in verdict.findings}
    for configuration in results | {a.configuration for a in verdict.agreements}:
        for name, values in listed.items():
            value = getattr(configuration, name)
            if value not in values:
                refuse(f"domain.{_LISTED[name]}", f"there are results of {value}")
    count, most = verdict.domain["geometries"], prod(map(len, listed.values()))
    if not len(results) <= count <= most:
        refuse("domain.geometries", f"{count}, with results of {len(results)}, at most {most}")
