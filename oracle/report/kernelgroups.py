"""The attention kernels of a wheel by their names: groups, or the names that a pattern selects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oracle.report.outline import Cell, Listing, Paragraph, Section, Table, Tone
from oracle.subjects.attention import ANY_PAGE
from oracle.subjects.kernelgroups import KernelGroup
from oracle.text import counted, printable, shortened

_FAMILIES = {
    "Context": "prefill",
    "SwapsAbForGen": "decode",
    "KeepsAbForGen": "decode, KeepsAb",
}


def as_document(what: str, groups: Sequence[KernelGroup], others: Sequence[str]) -> dict[str, Any]:
    """The groups as a JSON document; `page` is null where kernels take its size at run time."""
    return {
        "file": what,
        "groups": [
            {
                "arch": group.arch,
                "family": group.family,
                "head_size": group.head_size,
                "page": None if group.page == ANY_PAGE else group.page,
                "pattern": group.pattern,
                "names": group.names,
            }
            for group in groups
        ],
        "others": others,
    }


def sections(what: str, groups: Sequence[KernelGroup], others: Sequence[str]) -> list[Section]:
    """A row for each group, with the pattern that selects it and how to use one."""
    found: list[Section] = [_title(what, groups, others)]
    if groups:
        found += [_table(groups), _next(what, groups[0])]
    return [*found, *_unplaced(others)]


def named(what: str, groups: Sequence[KernelGroup], others: Sequence[str]) -> list[Section]:
    """Every name."""
    names = tuple(Cell(printable(name)) for group in groups for name in group.names)
    found: list[Section] = [_title(what, groups, others)]
    if names:
        found.append(Listing("Kernels", names))
    return [*found, *_unplaced(others)]


def _title(what: str, groups: Sequence[KernelGroup], others: Sequence[str]) -> Paragraph:
    kernels = sum(len(group.names) for group in groups) + len(others)
    said = f"{shortened(what)}: {counted(kernels, 'attention kernel')} with an NVFP4 KV cache."
    return Paragraph((Cell(said),))


def _table(groups: Sequence[KernelGroup]) -> Table:
    rows = tuple(
        (
            Cell(group.arch),
            Cell(_FAMILIES[group.family]),
            Cell(str(group.head_size)),
            Cell("any" if group.page == ANY_PAGE else str(group.page)),
            Cell(str(len(group.names))),
            Cell(group.pattern),
        )
        for group in groups
    )
    columns = ("arch", "family", "head", "page", "kernels", "pattern")
    note = "page: its tokens, any: given at run time; in a pattern * stands for any characters"
    return Table("Kernels", columns, rows, note)


def _next(what: str, group: KernelGroup) -> Listing:
    spec = printable(f"'{what}:{group.pattern}'")
    return Listing(
        "A pattern stands behind a colon, in the place of a name such as",
        (
            Cell(group.names[0]),
            Cell(f"layout-oracle inspect {spec}: the names it selects"),
            Cell(f"layout-oracle verdict --reader {spec}: what these kernels read"),
        ),
    )


def _unplaced(others: Sequence[str]) -> list[Section]:
    """The kernels whose names tell too little."""
    if not others:
        return []
    names = tuple(Cell(printable(name), Tone.BAD) for name in others)
    return [Listing("Names that are not understood", names)]
