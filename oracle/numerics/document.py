"""Writes docs/numerics.md: everything in it that is a number or a byte is computed here."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from oracle.contracts import contracts
from oracle.formats import e4m3_decode
from oracle.geometry import SIDES
from oracle.machine.demangle import demangle
from oracle.numerics.capture import Capture
from oracle.numerics.conformance import examine
from oracle.numerics.edges import (
    ALLOWED,
    DEFECT,
    EDGES,
    EQUAL,
    KEPT,
    Edge,
    expected,
    judge_edges,
)
from oracle.numerics.mutation import OWN, OWN_EXACT, Row, mutation_rows, oracles, score
from oracle.numerics.prose import four_over_six, introduction, openness
from oracle.numerics.readers import scale_byte_values
from oracle.numerics.sections import conformance_sections, hexadecimal
from oracle.numerics.tolerances import TOLERANCES
from oracle.quantize import ScaleSearch
from oracle.report.markdown import as_markdown
from oracle.report.outline import Cell, Section, Table, Tone
from oracle.subjects.base import Writer
from oracle.subjects.spec import readers_from_specs, writers_from_specs
from oracle.text import counted

ARCHS = ("sm_90", "sm_100a", "sm_120a")
DTYPE = "bf16"
GROUPS = 100_000

_SPECS = {
    ScaleSearch.MAX_OVER_6: "store-sm100",
    ScaleSearch.FOUR_OVER_SIX: "store-sm100:search=4over6",
}
_SHOWN_BYTES = (0x00, 0x01, 0x07, 0x08, 0x38, 0x7E, 0x7F, 0x80, 0x81, 0xB8, 0xFE, 0xFF)


def document(further: Sequence[Writer] = ()) -> str:
    """The whole document, in Markdown; `further` writers are judged besides the store kernel."""
    return as_markdown("Numbers", [*introduction(), *tables(), *measured(further)])


def tables() -> list[Section]:
    """What is computed from this project alone: what is open, mutants, edges and readers."""
    return [openness(), four_over_six(), *_mutation(), *map(_edges, ScaleSearch), _readers()]


def measured(further: Sequence[Writer]) -> list[Section]:
    """What the store kernel and `further` writers did over the whole domain."""
    own = writers_from_specs(list(_SPECS.values()), ARCHS, (DTYPE,))
    names = {writer.info.id: writer.info.id for writer in own}
    names |= {writer.info.id: _short_name(writer) for writer in further}
    results = [
        examine(writer, dtype, GROUPS)
        for writer in (*own, *further)
        for dtype in writer.info.dtypes
    ]
    searches = {(result.info.id, result.dtype): result.search for result in results}
    sections = conformance_sections(results, names)
    rows = [
        (Cell(names[writer.info.id]), Cell(dtype), *_edge_summary(writer, dtype, search))
        for writer in further
        for dtype in writer.info.dtypes
        if (search := searches[writer.info.id, dtype]) is not None
    ]
    if rows:
        sections.append(
            Table(
                "Edge vectors, further writers",
                ("writer", "dtype", "search", "as the reference", "otherwise"),
                tuple(rows),
            )
        )
    return sections


def _short_name(writer: Writer) -> str:
    """A binary by its function, arch and digest: where its file lay when this was written is
    nobody's business."""
    info = writer.info
    if info.kernel is None or info.arch is None or info.artifact_sha256 is None:
        return info.id
    function = demangle(info.kernel).partition("<")[0]
    return f"{function}, {info.arch} {info.artifact_sha256[:8]}"


def _edge_summary(writer: Writer, dtype: str, search: ScaleSearch) -> tuple[Cell, ...]:
    verdicts = [verdict for verdict, _ in judge_edges(Capture(writer, dtype), search)]
    other = [
        f"{edge.name}: {verdict}"
        for edge, verdict in zip(EDGES, verdicts, strict=True)
        if verdict != EQUAL
    ]
    tone = Tone.BAD if DEFECT in verdicts else Tone.GOOD
    return (
        Cell(search.value),
        Cell(f"{verdicts.count(EQUAL)} of {len(EDGES)}"),
        Cell("; ".join(other) or "none", tone),
    )


def _mutation() -> list[Section]:
    rows = mutation_rows()
    wrong = [row for row in rows if row.kind != "right"]
    columns = oracles()
    scores = {oracle: score(wrong, oracle) for oracle in columns}
    letters = {oracle: f"{chr(ord('A') + index)}" for index, oracle in enumerate(columns)}
    legend = Table(
        "Mutation score",
        ("", "oracle", "in use", "data", "wrong writers rejected"),
        tuple(
            (
                Cell(letters[oracle]),
                Cell(oracle),
                *_in_use(oracle),
                Cell(f"{scores[oracle][0]} of {scores[oracle][1]}"),
            )
            for oracle in columns
        ),
        "Random data of 128 tokens and 2 heads, global scales amax/448. Small: standard deviation "
        "1/4. Outliers: an eighth of the channels 30 times larger in K and twice in V.",
    )
    return [
        legend,
        Table(
            "Which wrong writers are let through",
            ("mutant", "kind", *letters.values()),
            tuple(
                (Cell(row.mutant), Cell(row.kind), *(_let_through(row, o) for o in columns))
                for row in rows
            ),
            "-: rejected; accepted: the oracle does not see the fault; 2 of 4: at so many of the "
            "head sizes 64, 128, 256 and 512. The contract is K linear, V swizzle_4x4. H asks for "
            "the very bytes of the reference, so it rejects another reciprocal.",
        ),
    ]


def _in_use(oracle: str) -> tuple[Cell, Cell]:
    for tolerance in TOLERANCES:
        if tolerance.name == oracle:
            return Cell(tolerance.source), Cell(tolerance.data)
    told = {OWN: "here", OWN_EXACT: "here, where the reciprocal is known"}
    return Cell(told[oracle]), Cell("address map; ties and drawn groups")


def _let_through(row: Row, oracle: str) -> Cell:
    count = row.accepted[oracle]
    if row.kind == "right":
        return Cell("accepted") if count else Cell("rejected", Tone.BAD)
    if count == 0:
        return Cell("-")
    return Cell("accepted" if count == row.tried else f"{count} of {row.tried}", Tone.BAD)


def _edges(search: ScaleSearch) -> Table:
    writers = writers_from_specs([_SPECS[search]], ARCHS, (DTYPE,))
    verdicts = [[v for v, _ in judge_edges(Capture(each, DTYPE), search)] for each in writers]
    return Table(
        f"Edge vectors, {search.value}, {DTYPE}",
        ("edge", "global scale", "scale byte", "codes", "open", *ARCHS, "value contract", "whose"),
        tuple(
            _edge(edge, search, [column[index] for column in verdicts])
            for index, edge in enumerate(EDGES)
        ),
        "Bytes: what the reference stores, codes in the order of the elements. Open: elements "
        "whose code, or the scale byte, depends on a reciprocal. Each edge is stored as K and as "
        "V, whose global scales always differ. By the store arithmetic a difference from these "
        "bytes, beyond what is open, is the writer's defect. The value contract is that values "
        "come back within half a step of E2M1; where it is broken the last column says whose "
        "doing it is.",
    )


_MARKS = {EQUAL: Cell("="), ALLOWED: Cell("open"), DEFECT: Cell("defect", Tone.BAD)}


def _edge(edge: Edge, search: ScaleSearch, verdicts: Sequence[str]) -> tuple[Cell, ...]:
    right = expected(edge, DTYPE, search)
    choices = [counted(right.open_codes, "code")] if right.open_codes else []
    choices += ["scale byte"] if right.open_scale else []
    return (
        Cell(edge.name),
        Cell(f"{edge.scale:.6g}"),
        Cell(f"{right.scale_byte:#04x}"),
        Cell(hexadecimal(right.codes)),
        Cell(", ".join(choices) or "-"),
        *(_MARKS[verdict] for verdict in verdicts),
        Cell(right.value, Tone.PLAIN if right.value == KEPT else Tone.DIFFERENT),
        Cell(right.blame or "-"),
    )


def _readers() -> Table:
    readers = readers_from_specs([row.name for row in contracts().values() if row.role == "reader"])
    right = e4m3_decode(np.arange(256, dtype=np.uint8))
    read = {
        reader.info.id: [scale_byte_values(reader, side) for side in SIDES] for reader in readers
    }
    agreeing = {
        name: all(np.array_equal(side, right, equal_nan=True) for side in sides)
        for name, sides in read.items()
    }
    return Table(
        "Scale bytes as readers see them",
        ("scale byte", "E4M3", *read),
        (
            *(
                (
                    Cell(f"{byte:#04x}"),
                    Cell(_value(right[byte])),
                    *(Cell(_value(sides[0][byte])) for sides in read.values()),
                )
                for byte in _SHOWN_BYTES
            ),
            (
                Cell("all 256"),
                Cell("-"),
                *(
                    Cell("as E4M3", Tone.GOOD) if agrees else Cell("otherwise", Tone.BAD)
                    for agrees in agreeing.values()
                ),
            ),
        ),
        "Readers are specifications of their contracts. A negative scale byte comes of a negative "
        "global scale, and is read as what it is.",
    )


def _value(value: np.float32) -> str:
    return "NaN" if math.isnan(value) else f"{value:g}"
