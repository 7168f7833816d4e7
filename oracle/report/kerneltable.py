"""The verdict on attention kernels as a summary and one row a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from oracle.errors import UsageError
from oracle.geometry import SIDES
from oracle.report.digest import obtained, scales
from oracle.report.outline import Cell, Paragraph, Section, Table, Tone
from oracle.subjects.attention import KernelName
from oracle.subjects.base import SubjectInfo
from oracle.text import counted, enumerated, printable
from oracle.verdict import FAULTY, Finding, Verdict

_COLUMNS = ("arch", "family", "mask", "rows", "head", "page", "K scales", "V scales", "as decl.")
_NOTE = "rows: of queries in a tile; page: its tokens, as executed; as decl.: as declared"


def sections(verdict: Verdict) -> list[Section]:
    """A summary first, then every kernel, of a verdict on attention kernels; none of any other."""
    try:
        rows = sorted((_Row(info, verdict.of_subject(info.id)) for info in verdict.subjects),
                      key=lambda row: row.key)  # fmt: skip
    except (UsageError, ValueError):
        # Also a number in a forged name may be too long for one.
        return []
    executed = [row for row in rows if row.executed]
    declared = [row for row in executed if row.as_declared]
    said = (
        f"{counted(len(rows), 'attention kernel')}, {len(executed)} of them executed: "
        f"{len(declared)} read as declared."
    )
    different = dict.fromkeys(
        f"{row.arch}, {row.name.group}, head size {row.name.head_size}"
        for row in executed
        if not row.as_declared
    )
    sentences = [Cell(said), *map(Cell, _what(declared))]
    if different:
        sentences.append(Cell(f"Otherwise: {'; '.join(different)}.", Tone.BAD))
    note = "; ".join([_NOTE, *_coincidences(rows)])
    table = Table("Kernels", _COLUMNS, tuple(row.cells for row in rows), note)
    return [Paragraph(tuple(sentences)), table]


def _coincidences(rows: Sequence[_Row]) -> list[str]:
    """The maps that have several names, of which the table shows the first."""
    found = {
        (finding.configuration.head_size, finding.layouts): None
        for row in rows
        for side in SIDES
        for finding in scales(row.findings, side)
        if len(finding.layouts) > 1
    }
    return [f"at head size {size} {' = '.join(names)}" for size, names in found]


def _what(rows: Sequence[_Row]) -> list[str]:
    """What the kernels that read as declared are declared to read, a sentence for each contract."""
    found = dict.fromkeys(tuple(row.info.declared.items()) for row in rows)
    return [
        f"Declared: {enumerated(f'{side} scales {layout}' for side, layout in declared)}."
        for declared in found
    ]


class _Row:
    """What was found about one kernel."""

    def __init__(self, info: SubjectInfo, findings: Sequence[Finding]) -> None:
        self.info, self.findings = info, findings
        self.name = KernelName.parse(info.kernel or "")
        self.arch = self.name.arch
        self.executed = bool(obtained(findings))
        self.as_declared = self.executed and not any(f.status in FAULTY for f in findings)

    @property
    def key(self) -> tuple[str, bool, str, int, str]:
        """Arch, prefill before decode, and so on."""
        name = self.name
        return (self.arch, name.decodes, name.group, name.head_size, name.name)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """A row of the table."""
        pages = sorted({f.configuration.block_size for f in obtained(self.findings)})
        verdict = Cell("yes", Tone.GOOD) if self.as_declared else Cell("no", Tone.BAD)
        return (
            Cell(self.arch),
            Cell(self.name.group),
            Cell(self.name.mask),
            Cell(str(self.name.rows)),
            Cell(str(self.name.head_size)),
            Cell(", ".join(map(str, pages)) or "-"),
            *(self._side(side) for side in SIDES),
            verdict if self.executed else Cell("-", Tone.QUIET),
        )

    def _side(self, side: str) -> Cell:
        found = scales(self.findings, side)
        if not found:
            # Why is said below, in the list of what was not executed.
            return Cell(" or ".join(dict.fromkeys(f.status for f in self.findings)), Tone.BAD)
        texts = dict.fromkeys(
            f.layouts[0] if f.layouts else f.shape_stride or f.reason or f.status for f in found
        )
        bad = any(f.status in FAULTY for f in found)
        return Cell(printable(" or ".join(texts)), Tone.BAD if bad else Tone.GOOD)
