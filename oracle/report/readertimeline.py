"""The timeline of attention kernels as tables: what they are and read, release by release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oracle.geometry import SIDES
from oracle.readertimeline import Family, ReleaseRow
from oracle.report.outline import Cell, Listing, Paragraph, Section, Table, Tone
from oracle.report.sweeptable import side_in_words
from oracle.subjects.attention import KernelName
from oracle.sweep import Row
from oracle.text import counted, enumerated, printable

_COLUMNS = ("release", "arch", "family", "heads", "K scales", "V scales", "executed", "code")
_NOTE = (
    "executed: kernels whose machine code was executed, of those there are; of the others only the "
    "last column speaks. code: kernels that are byte for byte those of the release before, or not"
)
_UNNAMED = "no named layout"


def summary(rows: Sequence[ReleaseRow]) -> tuple[Cell, ...]:
    """How many releases hold such kernels, where their code changes, and what they read when."""
    held = [row for row in rows if row.holds]
    changed = [row.version for row in held if any(map(_differs, row.families))]
    said = f"{counted(len(rows), 'release')}, {len(held)} of them with such kernels."
    if changed:
        said += f" Their code changes in {enumerated(changed)}."
    return (Cell(said), *map(Cell, _spans(held)))


def sections(rows: Sequence[ReleaseRow]) -> list[Section]:
    """A summary, the table of families, and what cannot stand in a cell."""
    held = [row for row in rows if row.holds]
    found: list[Section] = [Paragraph(summary(rows))]
    if held:
        lines = tuple(_cells(row.version, family) for row in held for family in row.families)
        found.append(Table("Releases and families", _COLUMNS, lines, _NOTE))
    refused = _refused(held)
    if refused:
        found.append(Listing("Could not be executed", tuple(refused)))
    notes = [Cell(f"{row.version}: {printable(row.note)}") for row in rows if row.note]
    if notes:
        found.append(Listing("Without such kernels", tuple(notes)))
    executed = _executed(held)
    if executed:
        found.append(Listing("Executed kernels", tuple(executed), folded=True))
    return found


def as_json(rows: Sequence[ReleaseRow]) -> list[dict[str, Any]]:
    """The rows as JSON objects; digests and runs of single kernels are left out."""
    return [
        {
            "version": row.version,
            "holds": row.holds,
            "note": row.note,
            "families": [_family_as_json(family) for family in row.families],
            "refused": dict(row.refused),
        }
        for row in rows
    ]


def _family_as_json(family: Family) -> dict[str, Any]:
    return {
        "arch": family.arch,
        "family": _purpose(family.decodes),
        "kernels": len(family.digests),
        "head_sizes": list(family.head_sizes),
        "k": _side(family.rows, "K", in_full=True),
        "v": _side(family.rows, "V", in_full=True),
        "as_declared": all(row.as_declared for row in family.rows if not row.problem),
        "executed": list(family.executed),
        "not_executed": {row.kernel: row.problem for row in family.rows if row.problem},
        "code": _code(family).text,
    }


def _purpose(decodes: bool) -> str:
    return "decode" if decodes else "prefill"


def _spans(held: Sequence[ReleaseRow]) -> list[str]:
    """A sentence for each run of releases whose executed kernels read the same."""
    runs: list[tuple[str, list[str]]] = []
    for row in held:
        sides = (f"{side} scales {_side(row.rows, side, in_full=True)}" for side in SIDES)
        text = "; ".join(sides)
        if not runs or runs[-1][0] != text:
            runs.append((text, []))
        runs[-1][1].append(row.version)
    return [f"{enumerated(v) if len(v) < 3 else f'{v[0]} to {v[-1]}'}: {text}." for text, v in runs]


def _cells(version: str, family: Family) -> tuple[Cell, ...]:
    return (
        Cell(version),
        Cell(family.arch),
        Cell(_purpose(family.decodes)),
        Cell(", ".join(map(str, family.head_sizes))),
        *(Cell(_side(family.rows, s), _tone(family.rows, s)) for s in SIDES),
        Cell(f"{len(family.executed)} of {len(family.digests)}"),
        _code(family),
    )


def _tone(rows: Sequence[Row], side: str) -> Tone:
    sound = [row for row in rows if not row.problem]
    return Tone.GOOD if all(row.side_as_declared(side) for row in sound) else Tone.BAD


def _side(rows: Sequence[Row], side: str, in_full: bool = False) -> str:
    """What executed kernels read: the names that all have, then where there is none.

    `in_full` also says which archs and purposes these are, and what is read instead.
    """
    sound = [row for row in rows if not row.problem]
    named = [row for row in sound if getattr(row, side.lower())]
    texts = [_names(named, side)] if named else []
    others: dict[str, list[Row]] = {}
    for row in sound:
        if row not in named:
            others.setdefault(side_in_words(row, side) if in_full else _UNNAMED, []).append(row)
    for text, unnamed in others.items():
        where = f"head size {enumerated(sorted({row.head_size for row in unnamed}))}"
        if in_full:
            archs = sorted({row.arch for row in unnamed})
            purposes = sorted({_purpose(KernelName.parse(row.kernel).decodes) for row in unnamed})
            where = f"{enumerated(purposes)} of {where} on {enumerated(archs)}"
        texts.append(f"{where}: {text}")
    return "; ".join(texts) or "-"


def _names(rows: Sequence[Row], side: str) -> str:
    """The names that all rows have, else those of each."""
    every = [getattr(row, side.lower()).split(" = ") for row in rows]
    common = [name for name in every[0] if all(name in names for names in every)]
    return " = ".join(common) or " or ".join(dict.fromkeys(" = ".join(names) for names in every))


def _differs(family: Family) -> bool:
    """Whether the release before has other kernels, or other bytes under the same names."""
    return family.before is not None and bool(family.changed or family.added or family.gone)


def _code(family: Family) -> Cell:
    if family.before is None:
        return Cell("first", Tone.QUIET)
    if not _differs(family):
        return Cell("same")
    counts = (("changed", family.changed), ("same", family.same), ("added", family.added),
              ("gone", family.gone))  # fmt: skip
    return Cell(", ".join(f"{count} {word}" for word, count in counts if count), Tone.DIFFERENT)


def _refused(held: Sequence[ReleaseRow]) -> list[Cell]:
    """Kernels that could not be executed, by name, under the first release that holds them."""
    first: dict[str, str] = {}
    for row in held:
        for r in row.rows:
            if r.problem:
                first.setdefault(r.sha256, f"{row.version}: {r.kernel}: {r.problem}")
        for name, reason in row.refused.items():
            first.setdefault(name, f"{row.version}: {name}: {reason}")
    return [Cell(printable(text), Tone.BAD) for text in first.values()]


def _executed(held: Sequence[ReleaseRow]) -> list[Cell]:
    """Kernels that were executed, under the first release that holds their machine code."""
    first: dict[str, str] = {}
    for row in held:
        for r in row.rows:
            if not r.problem:
                first.setdefault(r.sha256, f"{row.version}: {r.kernel}")
    return list(map(Cell, first.values()))
