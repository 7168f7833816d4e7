"""The four planes of a cache tensor, K and V, data and scales, as one way of carving cuts them.

A plane addresses `base + page*... + head*... + row*... + column*...` from the start of the storage.
The row of a data byte is its token; the row and column of a scale are those it is *stored* at,
which the scale layout (`oracle.candidates`) tells from its token and scale column. A layout
permutes the bytes of one plane of one head, so it never changes whose a byte is, only what it is
called.

The ways of carving, for a side with N tokens, H heads, D/2 data bytes and S scales:

==============  ==========================================================================
vllm            `nvfp4_split_data_scale`: the side's strides times 8/9 and 1/9 (rounded
                down), scales H*N*D/2 bytes behind the data
contiguous      the store kernel's: each side begins where the strides say, and is dense
                from there on, [data | scale], in the order (HND or NHD) of the strides
page            the whole page is dense, [K data | K scale | V data | V scale], whatever
                the strides inside it say
inline          every row is [data | scale]: the last dimension is cut
head_slots      every head of a side is dense, [data of N tokens | scales of N tokens]
==============  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oracle.errors import UsageError
from oracle.geometry import PLANES, SIDES
from oracle.views.tensor import CacheTensor

AXES = ("page", "head", "row", "column")


class Strides(NamedTuple):
    """Bytes from one page, head, row and column of a plane to the next."""

    page: int
    head: int
    row: int
    column: int


@dataclass(frozen=True)
class Plane:
    """The bytes of one side's data or scales: `shape` and `strides` over AXES, and a base.

    Strides of axes of size 1 say nothing and are 0.
    """

    side: str
    kind: str
    shape: tuple[int, int, int, int]
    strides: Strides
    base: int

    def __post_init__(self) -> None:
        """Forget the strides of axes that have one place only."""
        kept = (
            step if size > 1 else 0 for size, step in zip(self.shape, self.strides, strict=True)
        )
        object.__setattr__(self, "strides", Strides(*kept))

    @property
    def name(self) -> str:
        """Such as "K data"."""
        return f"{self.side} {self.kind}"

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        pages, heads, rows, columns = self.shape
        return pages * heads * rows * columns

    @property
    def last(self) -> int:
        """The highest offset."""
        return self.base + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))

    def offsets(
        self, page: ArrayLike, head: ArrayLike, row: ArrayLike, column: ArrayLike
    ) -> NDArray[np.int64]:
        """Offsets in the storage of coordinates that broadcast, unchecked."""
        total: NDArray[np.int64] = np.asarray(self.base, np.int64)
        for place, step in zip((page, head, row, column), self.strides, strict=True):
            total = total + np.asarray(place, np.int64) * step
        return total

    def narrowed(self, heads: range, rows: range) -> Plane:
        """The same plane with some of its heads and rows only, both of them contiguous."""
        base = self.base + heads.start * self.strides.head + rows.start * self.strides.row
        shape = (self.shape[0], len(heads), len(rows), self.shape[3])
        return replace(self, shape=shape, base=base)


class ViewSplit(Protocol):
    """A way of carving: what cuts a cache tensor into its planes."""

    @property
    def name(self) -> str:
        """What reports call it."""

    def planes(self, tensor: CacheTensor) -> tuple[Plane, ...]:
        """The planes of a tensor, in the order of SIDES and PLANES; raises OracleError."""


@dataclass(frozen=True)
class Carving:
    """The planes of a cache as a split cuts them, in the order of SIDES and PLANES."""

    split: ViewSplit
    tensor: CacheTensor
    planes: tuple[Plane, ...]

    def plane(self, side: str, kind: str) -> Plane:
        """The plane of a side ("K" or "V") and kind ("data" or "scale")."""
        return self.planes[SIDES.index(side) * len(PLANES) + PLANES.index(kind)]


def carve(tensor: CacheTensor, split: ViewSplit) -> Carving:
    """The planes of a tensor under a split; raises what the split raises."""
    return Carving(split, tensor, split.planes(tensor))


def view_split(name: str) -> ViewSplit:
    """The split of that name; raises UsageError that lists the names."""
    if name not in SPLITS:
        raise UsageError(f"no split is called {name!r}: choose {', '.join(SPLITS)}")
    return SPLITS[name]


_Cut = Callable[[CacheTensor, int, str, int], tuple[int, Strides]]
"""Base and strides of a plane, from the tensor, the side's index, the kind and the row's width."""


@dataclass(frozen=True)
class _Formula:
    """A split that is a formula for each plane."""

    name: str
    cut: _Cut

    def planes(self, tensor: CacheTensor) -> tuple[Plane, ...]:
        planes = []
        for index, side in enumerate(SIDES):
            for kind, width in zip(PLANES, (tensor.data_bytes, tensor.scale_columns), strict=True):
                base, strides = self.cut(tensor, index, kind, width)
                shape = (tensor.pages, tensor.heads, tensor.tokens, width)
                planes.append(Plane(side, kind, shape, strides, base))
        return tuple(planes)


def _side_base(tensor: CacheTensor, side: int) -> int:
    return tensor.offset + side * tensor.side_stride


def _behind_the_data(tensor: CacheTensor, kind: str) -> int:
    """Where a plane begins in a side that holds all data first."""
    return 0 if kind == "data" else tensor.heads * tensor.tokens * tensor.data_bytes


def _vllm(tensor: CacheTensor, side: int, kind: str, width: int) -> tuple[int, Strides]:
    head, token = (
        step * width // tensor.content for step in (tensor.head_stride, tensor.token_stride)
    )
    base = _side_base(tensor, side) + _behind_the_data(tensor, kind)
    return base, Strides(tensor.page_stride, head, token, 1)


def _dense(tensor: CacheTensor, width: int) -> Strides:
    if tensor.heads_first:
        return Strides(tensor.page_stride, tensor.tokens * width, width, 1)
    return Strides(tensor.page_stride, width, tensor.heads * width, 1)


def _contiguous(tensor: CacheTensor, side: int, kind: str, width: int) -> tuple[int, Strides]:
    base = _side_base(tensor, side) + _behind_the_data(tensor, kind)
    return base, _dense(tensor, width)


def _page(tensor: CacheTensor, side: int, kind: str, width: int) -> tuple[int, Strides]:
    base = tensor.offset + side * (tensor.page_bytes // len(SIDES))
    return base + _behind_the_data(tensor, kind), _dense(tensor, width)


def _inline(tensor: CacheTensor, side: int, kind: str, width: int) -> tuple[int, Strides]:
    behind = 0 if kind == "data" else tensor.data_bytes * tensor.content_stride
    steps = Strides(
        tensor.page_stride, tensor.head_stride, tensor.token_stride, tensor.content_stride
    )
    return _side_base(tensor, side) + behind, steps


def _head_slots(tensor: CacheTensor, side: int, kind: str, width: int) -> tuple[int, Strides]:
    behind = 0 if kind == "data" else tensor.tokens * tensor.data_bytes
    steps = Strides(tensor.page_stride, tensor.head_stride, width, 1)
    return _side_base(tensor, side) + behind, steps


SPLITS: Mapping[str, ViewSplit] = {
    name: _Formula(name, cut)
    for name, cut in (
        ("vllm", _vllm),
        ("contiguous", _contiguous),
        ("page", _page),
        ("inline", _inline),
        ("head_slots", _head_slots),
    )
}
"""Every way of carving by name."""
