"""The rows of a sweep as a table: kernels of a family and head size that read alike are a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oracle.geometry import SIDES
from oracle.report.outline import Cell, Paragraph, Section, Table, Tone
from oracle.subjects.attention import group_in_words
from oracle.sweep import Row

HEADINGS = ("arch", "family", "head", "pages", "masks", "K scales", "V scales", "kernels")


@dataclass(frozen=True)
class Line:
    """Rows that are alike in everything but page, mask, and rows of queries."""

    arch: str
    family: str
    head_size: int
    k: str
    v: str
    rows: tuple[Row, ...]

    @property
    def kernels(self) -> int:
        """How many kernels the line stands for."""
        return len({row.kernel for row in self.rows})

    @property
    def as_declared(self) -> bool:
        """Whether all of them read both sides as declared, each byte once."""
        return all(row.as_declared for row in self.rows)


def family_of(row: Row) -> str:
    """Family and schedule in words."""
    return group_in_words(row.family, row.schedule, row.split)


def lines_of(rows: Iterable[Row]) -> list[Line]:
    """Rows grouped by arch, family, head size and what they read, in that order."""
    groups: dict[tuple[str, str, int, str, str], list[Row]] = {}
    for row in rows:
        k, v = (side_in_words(row, side) for side in SIDES)
        groups.setdefault((row.arch, family_of(row), row.head_size, k, v), []).append(row)
    return [Line(*key, tuple(groups[key])) for key in sorted(groups)]


def side_in_words(row: Row, side: str) -> str:
    """What a row says of one side, in words that do not depend on the page size."""
    if row.problem:
        return f"not executed: {row.problem}"
    side = side.lower()
    name = getattr(row, side)
    if name:
        return str(name)
    form = str(getattr(row, f"{side}_form"))
    # The tokens of a page are the only extent that page sizes differ in.
    shape, colon, stride = form.partition(":")
    shape = shape.replace(f"(4,{row.block_size // 4})", "(4,T/4)", 1)
    text = f"no named layout, {shape}{colon}{stride}"
    if not getattr(row, f"{side}_one_to_one"):
        unread = getattr(row, f"{side}_unread")
        total = row.elements // 2 // 16
        text += f"; not one-to-one, {unread / total:.1%} of the bytes are never read"
    return text


def sections(rows: Sequence[Row], what: str) -> list[Section]:
    """A summary and the table."""
    lines = lines_of(rows)
    kernels = {row.kernel for row in rows}
    sound = {row.kernel for row in rows if not row.problem}
    declared = kernels - {row.kernel for row in rows if not row.as_declared}
    sentences = [
        Cell(
            f"{len(kernels)} attention kernels with an NVFP4 KV cache in {what}: {len(sound)} were "
            f"executed whole, {len(declared)} of them read as declared{_declaration(rows)}, each "
            "byte once."
        )
    ]
    different = sorted({(line.family, line.head_size) for line in lines if not line.as_declared})
    for family, head in different:
        sentences.append(Cell(f"Different: {family}, head size {head}.", Tone.BAD))
    return [Paragraph(tuple(sentences)), _table(lines)]


def _declaration(rows: Sequence[Row]) -> str:
    """What all rows are declared to read, in brackets; empty where they differ in that."""
    known = (row for row in rows if row.k_declared)
    found = {f" (K scales {row.k_declared}, V scales {row.v_declared})" for row in known}
    return found.pop() if len(found) == 1 else ""


def _table(lines: Sequence[Line]) -> Table:
    return Table(
        "Families",
        HEADINGS,
        tuple(
            (
                Cell(line.arch),
                Cell(line.family),
                Cell(str(line.head_size)),
                Cell(_pages(line.rows)),
                Cell(", ".join(sorted({row.mask for row in line.rows}))),
                Cell(line.k, _tone(line, "K")),
                Cell(line.v, _tone(line, "V")),
                Cell(f"{line.kernels}"),
            )
            for line in lines
        ),
    )


def _tone(line: Line, side: str) -> Tone:
    return Tone.GOOD if all(row.side_as_declared(side) for row in line.rows) else Tone.BAD


def _pages(rows: Sequence[Row]) -> str:
    fixed = sorted({row.page for row in rows if row.page})
    free = sorted({row.block_size for row in rows if not row.page})
    text = ", ".join(map(str, fixed))
    if free:
        text += ("; " if text else "") + f"given at run time ({', '.join(map(str, free))})"
    return text
