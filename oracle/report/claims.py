"""Which contracts executed writers keep, whom they are written for and who would misread them.

A claim holds for the head sizes at which every geometry of the run that the contract covers bears
it out; a contract that covers none of them is not mentioned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from oracle.contracts import Contract, contracts
from oracle.geometry import SIDES
from oracle.report.digest import at_head_sizes, head_sizes, scales
from oracle.report.outline import Cell, Listing
from oracle.report.parties import Names, Party
from oracle.verdict import Finding

TITLE = "Contracts, at every head size where none is named"
_SOUND = frozenset({"match", "mismatch", "unrecognised"})


def claims(parties: Sequence[Party], names: Names) -> Listing:
    """One line for each executed writer and one for each of its sides; equal lines share one."""
    lines: dict[tuple[str, str], list[str]] = {}
    for party in parties:
        sides = {side: scales(party.findings, side) for side in SIDES}
        if not party.executed or not any(map(_sound, chain(*sides.values()))):
            continue
        who = [info.id for info in party.members]
        lines.setdefault(("", _written_for(sides)), []).extend(who)
        for side, findings in sides.items():
            if any(map(_sound, findings)):
                lines.setdefault((f"{side} of ", _side(findings)), []).extend(who)
    return Listing(
        TITLE,
        tuple(Cell(f"{before}{names.of(who)}{claim}.") for (before, claim), who in lines.items()),
    )


def _sound(finding: Finding) -> bool:
    """Whether there is a whole map, be it the declared one or not."""
    return finding.positions > 0 and finding.status in _SOUND


def _written_for(sides: Mapping[str, Sequence[Finding]]) -> str:
    """The readers that look where this writer stored, for K and for V."""
    fitting = {}
    for row in _rows("reader"):
        fits = [_bears_out(findings, row, _found_by) for findings in sides.values()]
        fitting[row] = sorted(set.intersection(*map(set, fits)))
    every = head_sizes(finding for findings in sides.values() for finding in findings)
    return f": written for {_titles(fitting, every) or 'no reader that has a contract'}"


def _side(findings: Sequence[Finding]) -> str:
    every = head_sizes(findings)
    writers = [row for row in _rows("writer") if _covered(findings, row)]
    kept = {row: _bears_out(findings, row, _keeps) for row in writers}
    misread = {
        row: sorted({f.configuration.head_size for f in findings if _misread(f, row)})
        for row in _rows("reader")
    }
    if kept and all(sizes == head_sizes(_covered(findings, row)) for row, sizes in kept.items()):
        keeps = f" keeps every {_defined(findings, every)}"
    else:
        keeps = f" keeps {_titles(kept, every) or 'no writer contract'}"
    return f"{keeps}. Misread by {_titles(misread, every) or 'no reader that has a contract'}"


def _defined(findings: Sequence[Finding], every: Sequence[int]) -> str:
    """`writer contract`, with those that say nothing of some geometry named: they are not kept."""
    undefined = {
        row: head_sizes(f for f in findings if row.excludes(f.configuration.geometry()))
        for row in _rows("writer")
    }
    missing = {row: sizes for row, sizes in undefined.items() if sizes}
    if not missing:
        return "writer contract"
    nowhere = not any(_covered(findings, row) for row in missing)
    if nowhere:
        return (
            f"contract defined {at_head_sizes(every)}; undefined there: {_titles(missing, every)}"
        )
    return f"contract where it is defined; undefined in some geometries: {_titles(missing, every)}"


def _rows(role: str) -> list[Contract]:
    return [row for row in contracts().values() if row.role == role]


def _keeps(finding: Finding, row: Contract) -> bool:
    return _sound(finding) and row.name in finding.keeps


def _misread(finding: Finding, row: Contract) -> bool:
    return _sound(finding) and row.name in finding.misread_by


def _found_by(finding: Finding, row: Contract) -> bool:
    return _sound(finding) and bool(finding.layouts) and row.name not in finding.misread_by


def _covered(findings: Iterable[Finding], row: Contract) -> list[Finding]:
    return [f for f in findings if row.excludes(f.configuration.geometry()) is None]


def _bears_out(
    findings: Sequence[Finding], row: Contract, holds: Callable[[Finding, Contract], bool]
) -> list[int]:
    """The head sizes that the contract covers and at which all findings it covers hold."""
    covered = _covered(findings, row)
    failing = {f.configuration.head_size for f in covered if not holds(f, row)}
    return [size for size in head_sizes(covered) if size not in failing]


def _titles(sizes: Mapping[Contract, Sequence[int]], every: Sequence[int]) -> str:
    """Who the contracts are about, with the head sizes where those are not all of the run."""
    together: dict[tuple[int, ...], list[str]] = {}
    for row, some in sizes.items():
        if some:
            together.setdefault(tuple(some), []).append(row.title)
    return "; ".join(
        "; ".join(titles) + _part(some, every, len(titles)) for some, titles in together.items()
    )


def _part(some: Sequence[int], every: Sequence[int], titles: int) -> str:
    """The head sizes in brackets, and how many titles before them they are for."""
    if list(some) == list(every):
        return ""
    whose = f"these {titles} " if titles > 1 else ""
    return f" ({whose}{at_head_sizes(some)})"
