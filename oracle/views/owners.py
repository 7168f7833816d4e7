"""Is every byte owned once? The questions about a carving, each answered with a witness.

The owners of a byte are the coordinates (page, side, plane, head, row, column) that address it. A
question asks whether two owners of one byte may differ in something:

=========  ==============================================================
sides      is K apart from V: no byte belongs to both
planes     are data apart from scales
pages      is page apart from page
heads      is head apart from head
bytes      is every byte owned at most once, by whatever coordinates
=========  ==============================================================

Each is a handful of equations for `oracle.views.algebra`, one for a pair of planes and a way of
differing. A pair that shares no byte at all is looked at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import combinations

from oracle.geometry import PLANES, SIDES
from oracle.views.algebra import Undecided, Variable, smallest, solvable
from oracle.views.planes import AXES, Carving, Plane

QUESTIONS = ("sides", "planes", "pages", "heads", "bytes")

_MAX_BOXES = 20_000


@dataclass(frozen=True)
class Coordinate:
    """One owner: a place of a plane. For scales `row` and `column` are the stored ones."""

    page: int
    side: str
    kind: str
    head: int
    row: int
    column: int

    @property
    def order(self) -> tuple[int, ...]:
        """What coordinates are sorted by."""
        plane = PLANES.index(self.kind)
        return (self.page, SIDES.index(self.side), plane, self.head, self.row, self.column)


@dataclass(frozen=True)
class Shared:
    """A byte of the storage with two owners, the smaller coordinate first."""

    byte: int
    first: Coordinate
    second: Coordinate


class _Mode(Enum):
    """How the coordinates of two owners relate along an axis."""

    FREE = "any two"
    EQUAL = "the same"
    MORE = "the first is larger"
    LESS = "the second is larger"


class Owners:
    """Answers the questions about one carving, each at most once."""

    def __init__(self, carving: Carving) -> None:
        self.carving = carving

    @cached_property
    def answers(self) -> dict[str, Shared | None]:
        """The smallest byte with two owners that differ so, by question; None: they are apart.

        Raises Undecided for strides that make the search hopeless.
        """
        pairs = self._meeting
        repeats = [plane for plane in self.carving.planes if self._repeats(plane)]
        asked = [*pairs, *((plane, plane) for plane in repeats)]
        candidates: dict[str, list[Shared]] = {
            "sides": [_first(a, b, _ALL_FREE) for a, b in pairs if a.side != b.side],
            "planes": [_first(a, b, _ALL_FREE) for a, b in pairs if a.kind != b.kind],
            "pages": [found for a, b in asked for found in _differing(a, b, "page")],
            "heads": [found for a, b in asked for found in _differing(a, b, "head")],
            "bytes": [_first(a, b, _ALL_FREE) for a, b in pairs]
            + [found for plane in repeats for found in self._repeats(plane)],
        }
        return {name: min(found, key=_order, default=None) for name, found in candidates.items()}

    @cached_property
    def _meeting(self) -> list[tuple[Plane, Plane]]:
        """The pairs of planes that share a byte."""
        return [
            (one, other)
            for one, other in combinations(self.carving.planes, 2)
            if solvable(*_equation(one, other, _ALL_FREE))
        ]

    def _repeats(self, plane: Plane) -> list[Shared]:
        """Bytes that a plane addresses twice, one for each axis that may differ first."""
        found = []
        for place in range(len(AXES)):
            modes = (_Mode.EQUAL,) * place + (_Mode.MORE,) + (_Mode.FREE,) * (3 - place)
            if plane.shape[place] > 1 and solvable(*_equation(plane, plane, modes)):
                found.append(_first(plane, plane, modes))
        return found

    @property
    def once(self) -> bool:
        """Whether every byte has one owner at most."""
        return self.answers["bytes"] is None

    @property
    def owned(self) -> int | None:
        """How many bytes have an owner; None where some have two, so that sizes do not add up."""
        return sum(plane.size for plane in self.carving.planes) if self.once else None

    @cached_property
    def outside(self) -> tuple[int, Coordinate] | None:
        """The smallest coordinate past the storage and its offset, or None where all are inside."""
        storage = self.carving.tensor.storage_bytes
        for plane in self.carving.planes:
            if plane.last >= storage:
                return _beyond(plane, storage)
        return None


_ALL_FREE = (_Mode.FREE,) * len(AXES)
_MIRRORED = {
    _Mode.FREE: _Mode.FREE,
    _Mode.EQUAL: _Mode.EQUAL,
    _Mode.MORE: _Mode.LESS,
    _Mode.LESS: _Mode.MORE,
}
_OF_FIRST = (_Mode.FREE, _Mode.MORE)
_OF_SECOND = (_Mode.FREE, _Mode.LESS)
_Modes = tuple[_Mode, ...]
_Ranges = tuple[range, ...]


def _order(shared: Shared) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return shared.first.order, shared.second.order


def _equation(
    one: Plane, other: Plane, modes: _Modes, ranges: tuple[_Ranges, _Ranges] | None = None
) -> tuple[list[Variable], int]:
    """The equation whose solutions are the bytes that both planes address.

    `ranges` narrow the free axes of the two. The variables are those of the first plane, then those
    of the second; a difference belongs to whose coordinate is the larger, the other one being 0.
    """
    first, second = ranges or (_everywhere(one), _everywhere(other))
    mine, theirs = [], []
    for place, mode in enumerate(modes):
        step, size = one.strides[place], one.shape[place]
        if mode is _Mode.FREE:
            a, b = first[place], second[place]
            mine.append(Variable(step, a.start, a.stop - 1))
            theirs.append(Variable(-other.strides[place], b.start, b.stop - 1))
        elif mode is _Mode.MORE:
            mine.append(Variable(step, 1, size - 1))
        elif mode is _Mode.LESS:
            theirs.append(Variable(-step, 1, size - 1))
    return mine + theirs, other.base - one.base


def _everywhere(plane: Plane) -> _Ranges:
    return tuple(map(range, plane.shape))


def _first(
    one: Plane, other: Plane, modes: _Modes, ranges: tuple[_Ranges, _Ranges] | None = None
) -> Shared:
    """The smallest byte of an equation that has a solution.

    Its smaller coordinate may be of either plane, so each of them gets to be minimised first.
    """
    turned = tuple(_MIRRORED[mode] for mode in modes)
    back = ranges and ranges[::-1]
    found = _solved(one, other, modes, ranges), _solved(other, one, turned, back)
    return min(found, key=_order)


def _solved(
    one: Plane, other: Plane, modes: _Modes, ranges: tuple[_Ranges, _Ranges] | None
) -> Shared:
    """The solution with the smallest coordinate of the first plane."""
    solution = smallest(*_equation(one, other, modes, ranges))
    assert solution is not None, "only asked where there is a solution"
    values = iter(solution)
    first = [next(values) if mode in _OF_FIRST else 0 for mode in modes]
    second = [next(values) if mode in _OF_SECOND else 0 for mode in modes]
    pair = _coordinate(one, first), _coordinate(other, second)
    return Shared(_offset(one, first), *sorted(pair, key=lambda each: each.order))


def _differing(one: Plane, other: Plane, axis: str) -> Iterator[Shared]:
    """Bytes of two planes (or of one and itself) whose owners differ along an axis."""
    place = AXES.index(axis)
    if min(one.shape[place], other.shape[place]) < 2:
        return
    if one.strides[place] == other.strides[place]:
        # Of two coordinates with one stride only the difference counts.
        for mode in (_Mode.LESS, _Mode.MORE):
            modes = (*_ALL_FREE[:place], mode, *_ALL_FREE[place + 1 :])
            if solvable(*_equation(one, other, modes)):
                yield _first(one, other, modes)
        return
    yield from _differing_boxes(one, other, place)


def _differing_boxes(one: Plane, other: Plane, place: int) -> Iterator[Shared]:
    """The same where strides differ: halves of the axis against each other, then within each."""
    waiting = [range(one.shape[place])]
    for _ in range(_MAX_BOXES):
        if not waiting:
            return
        whole = waiting.pop()
        halves = whole[: len(whole) // 2], whole[len(whole) // 2 :]
        for mine, theirs in (halves, halves[::-1]):
            ranges = _narrowed(one, place, mine), _narrowed(other, place, theirs)
            if solvable(*_equation(one, other, _ALL_FREE, ranges)):
                yield _first(one, other, _ALL_FREE, ranges)
        for half in halves:
            ranges = _narrowed(one, place, half), _narrowed(other, place, half)
            if len(half) > 1 and solvable(*_equation(one, other, _ALL_FREE, ranges)):
                waiting.append(half)
    raise Undecided("planes of different strides meet too often to tell their coordinates apart")


def _narrowed(plane: Plane, place: int, part: range) -> _Ranges:
    everywhere = _everywhere(plane)
    return (*everywhere[:place], part, *everywhere[place + 1 :])


def _coordinate(plane: Plane, place: Sequence[int]) -> Coordinate:
    page, head, row, column = place
    return Coordinate(page, plane.side, plane.kind, head, row, column)


def _offset(plane: Plane, place: Sequence[int]) -> int:
    return plane.base + sum(at * step for at, step in zip(place, plane.strides, strict=True))


def _beyond(plane: Plane, limit: int) -> tuple[int, Coordinate]:
    """The lexicographically smallest coordinate of a plane whose offset is at least `limit`."""
    missing = limit - plane.base
    reach = plane.last - plane.base
    place = []
    for size, step in zip(plane.shape, plane.strides, strict=True):
        reach -= (size - 1) * step
        at = max(0, -((reach - missing) // step)) if step else 0
        missing -= at * step
        place.append(at)
    return _offset(plane, place), _coordinate(plane, place)
