"""The shape:stride algebra: a layout is a function from coordinates to offsets.

A scale plane holds T tokens by S scale columns, one byte each. Where the byte of token t and
column s lies is a *layout*, written `shape:stride`. The shape says how far each coordinate
counts, the stride how far one step of it moves through memory:

    (3,4):(4,1)      t steps by 4, s by 1         0  1  2  3
    row-major        offset = 4*t + 1*s           4  5  6  7
                                                  8  9 10 11

    (3,4):(1,3)      t steps by 1, s by 3         0  3  6  9
    column-major     offset = 1*t + 3*s           1  4  7 10
                                                  2  5  8 11

A *mode* (one entry of the shape) may itself be a tuple. The coordinate then splits like a mixed
radix number, the first digit turning fastest:

    ((2,2),4):((1,8),2)     t = t0 + 2*t1         0  2  4  6
                            offset = 1*t0         1  3  5  7
                                   + 8*t1         8 10 12 14
                                   + 2*s          9 11 13 15

That is the whole notation; the swizzle of NVFP4 V scales is `((4,T/4),S):((1,4S),4)`. Four
conventions follow CuTe:

* A layout also takes one *index* for all its modes together. It counts colexicographically: the
  first mode turns fastest, so index 1 of the first example is (t, s) = (1, 0), at offset 4.
* The *size* is how many coordinates there are; the *cosize* is the length of the span of offsets
  from the lowest to the highest.
* A layout is *injective* when no two coordinates share an offset (no overlap), *surjective* when
  its span has no hole (no gap), and *bijective* when it is both: a permutation of its span.
* A layout always sends index 0 to offset 0. What starts elsewhere is a base plus a layout.

Layouts form an algebra. `a.compose(b)` is the layout that applies `b`, then `a`.
`a.inverse()` takes each offset of a bijection back to its index. `a.coalesce()` writes the
same function in its one shortest form: `(2,4):(1,2)` walks straight through eight bytes, so as
a single mode it is `8:1`.

The way back, from a table of offsets to its notation, is `shape_stride`. It is exact, because
of how a coalesced mode `(n1,n2,…):(d1,d2,…)` walks: in steps of d1 for exactly n1 points, then
on to d2, which is not n1*d1 or the two would have been merged. So the longest straight run from
the start *is* n1, every n1-th point spells the remaining digits, and a table that refuses this
reading at any point has no shape:stride at all.

Sources: the CuTe layout algebra of CUTLASS (`media/docs/cpp/cute/02_layout_algebra.md`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oracle.errors import UsageError

IntTuple: TypeAlias = "int | tuple[IntTuple, ...]"
"""A whole number or a nested, non-empty tuple of them."""

Offsets: TypeAlias = NDArray[np.int64]
"""Offsets or indices, in elements (bytes, for a scale plane)."""

Leaf: TypeAlias = tuple[int, int]
"""One digit of a mode: (extent, stride)."""


class LayoutUndefined(UsageError):
    """A layout does not exist here: a plane it does not fit, or an operation without a result."""


@dataclass(frozen=True)
class Layout:
    """A function from coordinates to offsets, as nested `shape` and `stride` of one form.

    Extents are positive, strides any whole number (0 repeats an offset). Raises UsageError when
    shape and stride differ in form or an extent is not positive.
    """

    shape: IntTuple
    stride: IntTuple

    def __post_init__(self) -> None:
        """Check the form."""
        if not _congruent(self.shape, self.stride):
            raise UsageError(
                f"{self} is no layout: give shape and stride the same nesting and whole, "
                "positive extents"
            )

    def __str__(self) -> str:
        """The notation without spaces, such as `((4,4),8):((1,32),4)`."""
        return f"{_spell(self.shape)}:{_spell(self.stride)}"

    @property
    def modes(self) -> tuple[Layout, ...]:
        """The top-level modes, each a layout; a layout with a plain number is its own mode."""
        if isinstance(self.shape, tuple) and isinstance(self.stride, tuple):
            return tuple(map(Layout, self.shape, self.stride))
        return (self,)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Every digit of every mode in order, the fastest first."""
        if isinstance(self.shape, tuple):
            return tuple(leaf for mode in self.modes for leaf in mode.leaves)
        assert isinstance(self.stride, int)
        return ((self.shape, self.stride),)

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return math.prod(extent for extent, _ in self.leaves)

    @property
    def cosize(self) -> int:
        """Length of the span from the lowest to the highest offset, both included."""
        return 1 + sum((extent - 1) * abs(step) for extent, step in self.leaves)

    def __call__(self, *coordinates: ArrayLike) -> Offsets:
        """Offsets of coordinates that broadcast: one index, or one coordinate for each mode.

        Raises UsageError for a wrong number of coordinates or one outside its mode.
        """
        modes = (self,) if len(coordinates) == 1 else self.modes
        if len(coordinates) != len(modes):
            raise UsageError(f"{self} takes 1 or {len(modes)} coordinates, not {len(coordinates)}")
        offsets: Offsets = np.zeros((), np.int64)
        for mode, coordinate in zip(modes, coordinates, strict=True):
            offsets = offsets + mode._walk(np.asarray(coordinate, np.int64))
        return offsets

    def _walk(self, index: Offsets) -> Offsets:
        if ((index < 0) | (index >= self.size)).any():
            raise UsageError(f"a coordinate lies outside 0..{self.size - 1}, the domain of {self}")
        offsets = np.zeros_like(index)
        for extent, step in self.leaves:
            index, digit = np.divmod(index, extent)
            offsets += digit * step
        return offsets

    def table(self) -> Offsets:
        """All offsets, as an array with one axis for each mode."""
        return self(*np.ix_(*(np.arange(mode.size) for mode in self.modes)))

    @property
    def injective(self) -> bool:
        """No overlap: every coordinate has an offset of its own."""
        return np.unique(self.table()).size == self.size

    @property
    def surjective(self) -> bool:
        """No gap: every offset of the span is used."""
        return np.unique(self.table()).size == self.cosize

    @property
    def bijective(self) -> bool:
        """No overlap and no gap: a permutation of the span."""
        return self.size == self.cosize and self.injective

    def coalesce(self) -> Layout:
        """The same function with each top-level mode in its shortest, and only such, form."""
        return _from_modes([_merge(mode.leaves) for mode in self.modes])

    def compose(self, inner: Layout) -> Layout:
        """The layout `self ∘ inner`: `inner` first, its offsets taken as indices of `self`.

        It keeps the modes of `inner` and is coalesced. Raises LayoutUndefined where `inner`
        leaves the domain of `self` or the composed function has no shape:stride. The result is
        read back from the offsets of all points, so it exists here whenever it exists at all.
        """
        indices = inner.table()
        if indices.min() < 0 or indices.max() >= self.size:
            raise LayoutUndefined(f"{inner} leaves 0..{self.size - 1}, the domain of {self}")
        composed = shape_stride(self(indices))
        if composed is None:
            raise LayoutUndefined(f"{self} after {inner} has no shape:stride")
        layout, _ = composed
        return layout if isinstance(inner.shape, tuple) else layout.modes[0]

    def inverse(self) -> Layout:
        """The layout from offsets to indices: `a.inverse()(a(i)) == i` for every index i.

        Raises LayoutUndefined unless the layout is a permutation of 0..size-1. In such a layout,
        sorted by stride, each digit starts where the faster ones end; reading the digits in that
        order counts the offsets up, and a step of each moves the index by the product of the
        extents before it in the original order.
        """
        if not self.bijective or any(step < 0 for _, step in self.leaves):
            raise LayoutUndefined(f"{self} has no inverse: not a permutation of 0..{self.size - 1}")
        index_step = 1
        digits = []
        for extent, step in self.leaves:
            if extent > 1:
                digits.append((step, extent, index_step))
            index_step *= extent
        return _from_modes([_merge((extent, back) for _, extent, back in sorted(digits))]).modes[0]


def shape_stride(table: ArrayLike) -> tuple[Layout, int] | None:
    """The layout and base with `base + layout == table` on every point, or None.

    `table` holds offsets and has one axis for each top-level mode, [T, S] for a scale plane.
    The layout is coalesced, which makes it unique; None means that no shape:stride gives this
    table. The module's opening comment says why.
    """
    offsets = np.asarray(table, np.int64)
    if offsets.size == 0:
        return None
    base = int(offsets.flat[0])
    modes = []
    for axis, extent in enumerate(offsets.shape):
        line = np.moveaxis(offsets, axis, 0).reshape(extent, -1)[:, 0] - base
        leaves = _read_digits(line)
        if leaves is None:
            return None
        modes.append(leaves)
    layout = _from_modes(modes)
    return (layout, base) if np.array_equal(base + layout.table(), offsets) else None


def _read_digits(line: Offsets) -> list[Leaf] | None:
    """The only coalesced leaves that may walk `line` (which starts at 0), still to be checked."""
    leaves = []
    while line.size > 1:
        step = int(line[1])
        straight = line == step * np.arange(line.size)
        run = line.size if straight.all() else int(straight.argmin())
        if line.size % run:
            return None
        leaves.append((run, step))
        line = line[::run]
    return leaves or [(1, 0)]


def _merge(leaves: Iterable[Leaf]) -> list[Leaf]:
    """Drop digits that never turn, and join neighbours that go on in the same step."""
    merged: list[Leaf] = []
    for extent, step in leaves:
        if extent == 1:
            continue
        if merged and step == merged[-1][0] * merged[-1][1]:
            extent, step = extent * merged[-1][0], merged[-1][1]
            merged.pop()
        merged.append((extent, step))
    return merged or [(1, 0)]


def _from_modes(modes: Sequence[list[Leaf]]) -> Layout:
    """A layout with one top-level mode for each list of leaves."""
    shape: list[IntTuple] = []
    stride: list[IntTuple] = []
    for leaves in modes:
        extents, steps = zip(*leaves, strict=True)
        shape.append(extents if len(leaves) > 1 else extents[0])
        stride.append(steps if len(leaves) > 1 else steps[0])
    return Layout(tuple(shape), tuple(stride))


def _congruent(shape: object, stride: object) -> bool:
    """Whether both have one nesting, and the shape positive extents."""
    if isinstance(shape, tuple) and isinstance(stride, tuple):
        return len(shape) == len(stride) > 0 and all(map(_congruent, shape, stride))
    return isinstance(shape, int) and isinstance(stride, int) and shape > 0


def _spell(entry: IntTuple) -> str:
    """A nested tuple without spaces."""
    return f"({','.join(map(_spell, entry))})" if isinstance(entry, tuple) else str(entry)
