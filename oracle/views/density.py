"""How dense and how aligned the planes of a carving are, and which of it a reader demands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

from oracle.views.planes import Carving, Plane, Strides

TMA_ALIGNMENT = 16
"""Bytes that a TMA descriptor's base and all but its innermost stride are multiples of. Source:
CUDA driver API, `cuTensorMapEncodeTiled`."""

MOST_ALIGNED = 4096
"""Alignments are told up to this many bytes."""


@dataclass(frozen=True)
class Density:
    """What a plane's strides amount to.

    `row_is_dense`: the bytes of a row are neighbours; `rows_are_dense`: so are the rows of a head.
    `alignment`: the largest power of two (up to MOST_ALIGNED) that every row starts at a multiple
    of, counted from the start of the storage.
    """

    row_is_dense: bool
    rows_are_dense: bool
    alignment: int


def density(plane: Plane) -> Density:
    """The density of a plane; axes with one place fit everything."""
    _, _, rows, columns = plane.shape
    row_is_dense = columns == 1 or plane.strides.column == 1
    rows_are_dense = row_is_dense and (rows == 1 or plane.strides.row == columns)
    steps = gcd(plane.base, *plane.strides[:3], MOST_ALIGNED)
    return Density(row_is_dense, rows_are_dense, steps)


def loose_rows(carving: Carving, kind: str) -> Iterator[str]:
    """Planes of a kind whose rows of a head are not dense, and how they step."""
    for plane in carving.planes:
        if plane.kind == kind and not density(plane).rows_are_dense:
            yield (
                f"{plane.name} steps {plane.strides.row} bytes from row to row and "
                f"{plane.strides.column} in it, and its last two dimensions "
                f"[{plane.shape[2]}, {plane.shape[3]}] must be dense"
            )


def loose_columns(carving: Carving) -> Iterator[str]:
    """Planes whose bytes of one row are not neighbours."""
    for plane in carving.planes:
        if not density(plane).row_is_dense:
            yield f"{plane.name} steps {plane.strides.column} bytes in a row, and must step 1"


def unaligned(carving: Carving) -> Iterator[str]:
    """What of a plane a TMA descriptor cannot express."""
    for plane in carving.planes:
        if plane.base % TMA_ALIGNMENT:
            yield f"{plane.name} starts at {plane.base}, no multiple of {TMA_ALIGNMENT} as TMA asks"
        axes = ("page", "head", "row") if plane.kind == "data" else ("page", "head")
        for axis in axes:
            step = getattr(plane.strides, axis)
            if step % TMA_ALIGNMENT:
                yield (
                    f"{plane.name} steps {step} bytes from {axis} to {axis}, no multiple of "
                    f"{TMA_ALIGNMENT} as TMA asks"
                )


class Difference(NamedTuple):
    """What tells two planes apart, such as "base" or "head stride", and both its values."""

    what: str
    one: int
    other: int


def stride_difference(one: Plane, other: Plane) -> Difference | None:
    """The first stride in which two planes differ; None where they step alike."""
    for axis, mine, theirs in zip(Strides._fields, one.strides, other.strides, strict=True):
        if mine != theirs:
            return Difference(f"{axis} stride", mine, theirs)
    return None


def difference(one: Plane, other: Plane) -> Difference | None:
    """The first thing in which two planes of one name differ; None for the same bytes."""
    if one.base != other.base:
        return Difference("base", one.base, other.base)
    return stride_difference(one, other)
