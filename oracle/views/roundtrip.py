"""Write through one party's planes and read through another's: who wrote each byte, who reads it?

The writer stores every coordinate in the order of `oracle.reference`: K data, K scales, V data, V
scales, each by page, token, head and column. The reader then looks for the same coordinates. Each
finds its own byte, another's, or one that nobody wrote; that is told from addresses alone.

This is the one answer here that looks at bytes one by one, so it takes the first pages only, as
many as `MAX_BYTES` allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from oracle.candidates import candidate
from oracle.errors import UsageError
from oracle.geometry import SIDES
from oracle.views.planes import Carving, Plane

MAX_BYTES = 2**20
"""Bytes of planes that a round trip looks at."""

NOBODY = -1

_Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Run:
    """`length` neighbouring bytes from `start`, each written and read by the next coordinate.

    The coordinates are those of the first byte, in words, or None where nobody wrote or reads it.
    """

    start: int
    length: int
    written_by: str | None
    read_by: str | None


@dataclass(frozen=True)
class RoundTrip:
    """What a reader finds of what a writer stored, counted over `coordinates`.

    `kept` found their own byte, `replaced` another coordinate's, `unwritten` nobody's; `witness` is
    the first that did not find its own, in words. `writer` and `reader` are splits and layouts.
    `touched` are the bytes that somebody wrote or reads, rising; `written_by` and `read_by` number
    the last writer and the first reader of each, NOBODY for none.
    """

    writer: str
    reader: str
    pages: int
    coordinates: int
    kept: int
    replaced: int
    unwritten: int
    witness: str | None
    touched: _Ids
    written_by: _Ids
    read_by: _Ids
    _catalogue: _Catalogue

    @cached_property
    def _run_starts(self) -> _Ids:
        """Positions in `touched` at which a run begins."""
        ids = np.stack([self.written_by, self.read_by])
        before, after = ids[:, :-1], ids[:, 1:]
        nobody = (before == NOBODY) & (after == NOBODY)
        goes_on = (nobody | (before != NOBODY) & (after == before + 1)).all(axis=0)
        goes_on &= np.diff(self.touched) == 1
        return np.concatenate([[0], np.flatnonzero(~goes_on) + 1])

    @property
    def run_count(self) -> int:
        """How many runs there are."""
        return self._run_starts.size

    def runs(self) -> Iterator[Run]:
        """Every byte that somebody wrote or reads, in runs; the last writer, the first reader."""
        lengths = np.diff(self._run_starts, append=self.touched.size)
        for first, length in zip(self._run_starts, lengths, strict=True):
            yield Run(
                int(self.touched[first]),
                int(length),
                self._catalogue.words(int(self.written_by[first])),
                self._catalogue.words(int(self.read_by[first])),
            )


class _Catalogue:
    """Numbers the coordinates of four planes: plane by plane, page, token, head, column."""

    def __init__(self, planes: tuple[Plane, ...], pages: int) -> None:
        self.planes = planes
        self.shapes = [(pages, plane.shape[2], plane.shape[1], plane.shape[3]) for plane in planes]
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        self.starts = np.concatenate([[0], np.cumsum(sizes)])

    def words(self, number: int) -> str | None:
        """A coordinate in words; None for nobody's."""
        if number == NOBODY:
            return None
        index = int(np.searchsorted(self.starts, number, side="right")) - 1
        plane, shape = self.planes[index], self.shapes[index]
        page, token, head, column = np.unravel_index(number - int(self.starts[index]), shape)
        place = "byte" if plane.kind == "data" else "column"
        return f"page {page} {plane.name} head {head} token {token} {place} {column}"


def round_trip(
    writer: Carving,
    reader: Carving,
    write_layouts: Mapping[str, str],
    read_layouts: Mapping[str, str],
) -> RoundTrip:
    """Write through one carving and read through another, of tensors with the same coordinates.

    The layouts are those of each side's scales. Raises UsageError where the two have different
    coordinates, where a page is too large, and LayoutUndefined for a layout that the planes do not
    have.
    """
    shapes = [[plane.shape for plane in carving.planes] for carving in (writer, reader)]
    if shapes[0] != shapes[1]:
        raise UsageError("a round trip needs the same pages, heads, tokens and bytes on both ways")
    in_a_page = sum(plane.size // plane.shape[0] for plane in writer.planes)
    pages = min(writer.tensor.pages, MAX_BYTES // in_a_page)
    if not pages:
        raise UsageError(
            f"a page of {in_a_page} bytes is too large for a round trip: give at most {MAX_BYTES}"
        )
    catalogue = _Catalogue(writer.planes, pages)
    stored = [_addresses(p, pages, write_layouts) for p in writer.planes]
    sought = [_addresses(p, pages, read_layouts) for p in reader.planes]
    everything = np.arange(int(catalogue.starts[-1]))
    touched, place = np.unique(np.concatenate([*stored, *sought]), return_inverse=True)
    written_by, read_by = np.full((2, touched.size), NOBODY, np.int64)
    # Of several stores to one byte NumPy keeps the last, as the reference does.
    written_by[place[: everything.size]] = everything
    read_by[place[: everything.size - 1 : -1]] = everything[::-1]
    found = written_by[place[everything.size :]]
    lost = np.flatnonzero(found != everything)
    unwritten = int(np.count_nonzero(found == NOBODY))
    return RoundTrip(
        _names(writer, write_layouts),
        _names(reader, read_layouts),
        pages,
        everything.size,
        everything.size - lost.size,
        lost.size - unwritten,
        unwritten,
        _witness(catalogue, found, int(lost[0])) if lost.size else None,
        touched,
        written_by,
        read_by,
        catalogue,
    )


def _addresses(plane: Plane, pages: int, layouts: Mapping[str, str]) -> NDArray[np.int64]:
    """Offsets of a plane's coordinates in the order of the catalogue, flat."""
    _, heads, tokens, columns = plane.shape
    page, head = np.arange(pages)[:, None, None, None], np.arange(heads)[:, None]
    row = np.arange(tokens)[:, None, None]
    column = np.arange(columns)
    if plane.kind == "scale":
        flat = candidate(layouts[plane.side]).table(tokens, columns)[:, None, :]
        row, column = flat // columns, flat % columns
    return np.broadcast_to(
        plane.offsets(page, head, row, column), (pages, tokens, heads, columns)
    ).ravel()


def _names(carving: Carving, layouts: Mapping[str, str]) -> str:
    scales = ", ".join(f"{side} {layouts[side]}" for side in SIDES)
    return f"{carving.split.name} (scales {scales})"


def _witness(catalogue: _Catalogue, found: _Ids, lost: int) -> str:
    other = catalogue.words(int(found[lost]))
    return f"{catalogue.words(lost)} finds {f'what {other} stored' if other else 'nothing stored'}"
