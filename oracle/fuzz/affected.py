"""The scale plane that a violation is about, drawn: what is where, and what of it is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from oracle.addressmap import AddressMap, IntArray, Written
from oracle.errors import OracleError
from oracle.geometry import PLANES, SIDES
from oracle.properties.addresses import mapped, read_map
from oracle.properties.case import StoreCase
from oracle.properties.promises import PROMISES, Violation
from oracle.report.drawing import ROWS, Marks, drawing, scale_named
from oracle.report.outline import Drawing
from oracle.report.planes import Plane, named_plane, plane_at
from oracle.subjects.base import Reader, Writer
from oracle.verdict import Configuration

_Expected: TypeAlias = tuple[str, Callable[[int, int], Plane | None]]
"""Who expects scales elsewhere, and where on a page and head."""


def affected(
    writer: Writer,
    reader: Reader | None,
    case: StoreCase,
    violation: Violation,
    rows: int = ROWS,
) -> Drawing | None:
    """The plane of a violation that is about scales, of at most `rows` tokens.

    Marked is all that is wrong and not the witness alone: it is found with the maps of the writer.
    Where these differ from what is declared, or the reader's, both are drawn. None where the
    violation is not about scales, or nothing is known about where they are.
    """
    witness = violation.witness
    side = witness.get("side")
    if side not in SIDES or witness.get("plane") != "scale":
        return None
    try:
        written = mapped(writer, case).written
    except OracleError:
        return None
    amap = written.maps[side, "scale"]
    padding = bool(witness.get("padding"))
    head, bytes_ = _plane_of_bytes(amap, written.padding if padding else violation.wrong)
    head = witness.get("head", head)
    expected = _expected(writer, reader, case, side, PROMISES[violation.promise].reads)
    why = "was stored for padding" if padding else "breaks the promise"
    title = f"{side} scales of head {head}, each with its offset in the head's plane"
    spot = scale_named(witness, case.geometry)

    def drawn(page: int, spot: tuple[int, int] | None) -> Drawing | None:
        plane = plane_at(amap, page, head)
        planes = {f"{writer.info.id} stores here": plane}
        if expected is not None:
            label, place = expected
            other = place(page, head)
            if other is not None and plane.differs(other).any():
                planes[label] = other
        wrong = {why: np.isin(plane.place, bytes_), **_stored_wrongly(amap, written, page, head)}
        return drawing(title, planes, wrong, spot, rows)

    pages = sorted(amap.pages, key=lambda page: page != witness.get("page"))
    page = next((page for page in pages if drawn(page, None) is not None), pages[0])
    return drawn(page, spot)


def _plane_of_bytes(amap: AddressMap, bytes_: IntArray | tuple[int, ...]) -> tuple[int, IntArray]:
    """The head of the first of `bytes_` that is a scale of the map's side, 0 where there is none.

    With it come the offsets of those that are in the plane of that head and page.
    """
    where = amap.geometry.locate(np.asarray(bytes_, np.int64))
    mine = (where.side == SIDES.index(amap.side)) & (where.plane == PLANES.index("scale"))
    if not mine.any():
        return 0, np.zeros(0, np.int64)
    first = int(mine.argmax())
    mine &= (where.page == where.page[first]) & (where.head == where.head[first])
    return int(where.head[first]), (where.row * amap.geometry.scale_columns + where.col)[mine]


def _expected(
    writer: Writer, reader: Reader | None, case: StoreCase, side: str, reads: bool
) -> _Expected | None:
    """The reader's places where the promise is about it or nothing is declared, or the declared."""
    declared = writer.info.declared.get(side)
    if declared is not None and not reads:
        plane = named_plane(declared, Configuration.of(case.geometry, case.dtype))
        return f"as declared, {declared}", lambda page, head: plane
    if reader is None or reader.unsupported_reason(case.geometry, case.dtype) is not None:
        return None
    try:
        amap = read_map(reader, case).maps[side, "scale"]
    except OracleError:
        return None
    return f"{reader.info.id} looks here", lambda page, head: plane_at(amap, page, head)


def _stored_wrongly(
    amap: AddressMap, written: Written, page: int, head: int
) -> Mapping[str, Marks]:
    """Scales of a page and head that are stored too often, or where no GPU stores."""
    spot = amap.pages.index(page), head
    offset, several = amap.offset[spot], written.touched[written.times > 1]
    second = np.zeros(amap.offset.shape, np.bool_)
    second[tuple(amap.again[0].T)] = True
    return {
        "is stored more than once": np.isin(offset, several) & ~plane_at(amap, page, head).shared,
        "is stored in a second place": second[spot],
        "is misaligned": np.isin(offset, written.misaligned),
    }
