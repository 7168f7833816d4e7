"""`views`: who owns which byte of a cache tensor under a way of carving, and who may use it."""

from __future__ import annotations

import argparse
import sys
from itertools import islice

from oracle.errors import UsageError
from oracle.geometry import SIDES
from oracle.report import terminal
from oracle.report.document import dump
from oracle.report.outline import Cell, Listing, Paragraph, Section, Table, Tone
from oracle.subjects.checkout_views import checkout_split
from oracle.text import counted, enumerated, printable
from oracle.views.density import density
from oracle.views.document import as_document
from oracle.views.examine import SHARING, WORDS, Asked, Examination
from oracle.views.parties import keeps_own_tensors
from oracle.views.planes import ViewSplit, view_split
from oracle.views.tensor import CacheTensor, cache_tensor, dense_strides

_RUNS_SHOWN = 16


def run(arguments: argparse.Namespace) -> int:
    """Answer everything about the tensor that the arguments describe; 1 where it is not sound."""
    examination = Examination(_tensor(arguments), _split(arguments), _asked(arguments))
    code = int(bool(examination.faults))
    if arguments.json:
        sys.stdout.write(dump(as_document(examination, code)))
    else:
        terminal.show(_sections(examination), terminal.console())
    return code


def _tensor(arguments: argparse.Namespace) -> CacheTensor:
    strides = arguments.stride
    if strides is None:
        if arguments.layout is None:
            raise UsageError("neither strides nor a layout to take them from: give --stride")
        layers = arguments.layers or 1
        strides = dense_strides(arguments.shape, arguments.layout, layers, arguments.dims)
    return cache_tensor(
        arguments.shape,
        strides,
        arguments.storage_offset,
        arguments.storage_bytes,
        arguments.dims,
    )


def _split(arguments: argparse.Namespace) -> ViewSplit:
    if arguments.vllm is None:
        return view_split(arguments.split or "vllm")
    if arguments.split is not None:
        raise UsageError("--vllm brings a split of its own: give it or --split, not both")
    return checkout_split(arguments.vllm, arguments.vllm_python)


def _asked(arguments: argparse.Namespace) -> Asked:
    layouts = dict(zip(SIDES, (arguments.k_scales, arguments.v_scales), strict=True))
    reader = arguments.read_split
    return Asked(
        layout=arguments.layout,
        layers=arguments.layers,
        scale_layouts=layouts,
        judged=tuple(arguments.party),
        heads=arguments.heads,
        tokens=arguments.tokens,
        read_split=None if reader is None else view_split(reader),
    )


def _sections(examination: Examination) -> list[Section]:
    sections: list[Section] = [_answer(examination), _questions(examination)]
    sections += [_planes(examination), _parties(examination)]
    if examination.slice is not None:
        sections.append(_slice(examination))
    if examination.round_trip is not None:
        sections.append(_round_trip(examination))
    return sections


def _answer(examination: Examination) -> Paragraph:
    tensor, split = examination.carving.tensor, printable(examination.carving.split.name)
    what = (
        f"{counted(tensor.pages, 'page')} of {counted(tensor.tokens, 'token')}, "
        f"{counted(tensor.heads, 'head')} of {tensor.head_size}"
    )
    if examination.faults:
        told = [Cell(f"Not sound: {what}, carved by {split}.", Tone.BAD)]
        told += [Cell(f"{printable(fault)}.", Tone.BAD) for fault in examination.faults]
    else:
        told = [Cell(f"Sound: {what}, carved by {split}.", Tone.GOOD)]
    told.append(Cell(_coverage(examination)))
    if examination.sound_splits:
        splits = enumerated(examination.sound_splits, "or")
        told.append(Cell(f"The same tensor is sound under --split {splits}.", Tone.GOOD))
    elif examination.faults and not examination.departures:
        told.append(Cell("No split that is known here makes it sound."))
    return Paragraph(tuple(told))


def _coverage(examination: Examination) -> str:
    tensor, owned = examination.carving.tensor, examination.owners.owned
    if owned is None:
        return "Bytes are shared, so those without an owner are not counted."
    left = tensor.storage_bytes - owned
    words = f"{owned:,} of {counted(tensor.storage_bytes, 'byte')} of storage have an owner"
    if left > 0 and tensor.pages > 1:
        spare = tensor.page_stride - owned // tensor.pages
        words += f"; of the {counted(tensor.page_stride, 'byte')} of a page, {spare:,} have none"
    return f"{words}."


def _questions(examination: Examination) -> Table:
    rows = []
    for name, words in WORDS.items():
        shared = examination.owners.answers[name]
        rows.append(
            (Cell(words), Cell("yes", Tone.GOOD), Cell("-", Tone.QUIET))
            if shared is None
            else (
                Cell(words),
                Cell(f"no: {SHARING[name]}", Tone.BAD),
                Cell(examination.shared_in_words(shared)),
            )
        )
    return Table("Ownership", ("question", "answer", "the smallest byte with two owners"),
                 tuple(rows))  # fmt: skip


def _planes(examination: Examination) -> Table:
    rows = []
    for plane in examination.carving.planes:
        found = density(plane)
        rows.append(
            (
                Cell(plane.name),
                Cell(str(plane.base)),
                Cell(" ".join(map(str, plane.shape))),
                Cell(" ".join(map(str, plane.strides))),
                Cell("dense" if found.rows_are_dense else "loose"),
                Cell(str(found.alignment)),
            )
        )
    columns = ("plane", "first byte", "pages heads rows columns", "strides", "rows", "aligned to")
    note = "strides in bytes, 0 where there is one place; rows of a head are dense or loose"
    return Table("Planes", columns, tuple(rows), note)


def _parties(examination: Examination) -> Table:
    rows = []
    given = [party for party in examination.parties if not keeps_own_tensors(party.name)]
    for party in given:
        words = {True: Cell("yes", Tone.GOOD), False: Cell("no", Tone.DIFFERENT)}
        told = (*party.reasons, *([party.note] if party.note else []))
        rows.append(
            (
                Cell(party.name),
                Cell(party.role),
                words[party.usable] if party.usable is not None else Cell("unknown", Tone.QUIET),
                Cell("; ".join(told) or "-", Tone.PLAIN if told else Tone.QUIET),
            )
        )
    own = [party.name for party in examination.parties if party not in given]
    equal = examination.unequal_parts
    notes = [
        f"never given this tensor, as they keep tensors of their own: {', '.join(own)}",
        f"equal parts of a page are not its heads: {equal}" if equal else
        "equal parts of a page are its heads, K's first",
    ]  # fmt: skip
    columns = ("party", "role", "usable", "why")
    return Table("Who may use it", columns, tuple(rows), "; ".join(notes))


def _slice(examination: Examination) -> Table:
    found = examination.slice
    assert found is not None
    rows = [
        (Cell(part.plane), Cell(str(part.start)), Cell(str(part.count)), Cell(str(part.length)))
        for part in found.runs
    ]
    closed = "; ".join(f"{side}: {why}" for side, why in found.open_sides.items())
    note = f"not closed ({closed})" if closed else "closed: it holds the scales of its tokens"
    order = found.carve_first or "the tensor may be sliced before or after it is carved"
    title = (
        f"Slice of heads {found.heads.start}:{found.heads.stop}, "
        f"tokens {found.tokens.start}:{found.tokens.stop}"
    )
    columns = ("plane", "first byte in page 0", "runs in a page", "bytes of a run")
    return Table(title, columns, tuple(rows), f"{note}; {order}")


def _round_trip(examination: Examination) -> Listing:
    found = examination.round_trip
    assert found is not None
    shown = [
        f"bytes {run.start} to {run.start + run.length - 1}: "
        f"written by {run.written_by or 'nobody'}, read by {run.read_by or 'nobody'}"
        for run in islice(found.runs(), _RUNS_SHOWN)
    ]
    left = found.run_count - len(shown)
    if left:
        shown.append(f"and {counted(left, 'run')} more")
    title = (
        f"Round trip over {counted(found.pages, 'page')}, written by {printable(found.writer)}, "
        f"read by {printable(found.reader)}: "
        f"{found.kept:,} of {counted(found.coordinates, 'byte')} kept, "
        f"{found.replaced:,} replaced, {found.unwritten:,} never written"
    )
    return Listing(title, tuple(map(Cell, shown)))
