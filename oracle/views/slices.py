"""Slices of a cache, by heads (tensor parallelism) or by tokens: what may be cut, and how.

Three questions, for heads h0..h1 and tokens t0..t1 of every page:

* What has to be moved: the runs of neighbouring bytes that hold the slice, plane by plane.
* Is a slice of tokens closed: do the stored rows t0..t1 of a scale plane hold the scales of just
  these tokens? A swizzle mixes the tokens of a band, so it is closed only on whole bands. Layouts
  permute the plane of one head, so slices of heads always are.
* May the tensor be sliced before it is carved, or only the carved planes? A carving that puts all
  data of a side before its scales counts heads and tokens to find the scales, so a narrowed tensor
  is carved elsewhere.

A fourth is asked of the page as such: whether it may be cut into equal parts, one for each head of
each side, as connectors do that know a page by its length alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from oracle.candidates import candidate
from oracle.errors import UsageError
from oracle.geometry import SIDES
from oracle.views.density import difference
from oracle.views.planes import Carving, Plane, carve
from oracle.views.tensor import CacheTensor


@dataclass(frozen=True)
class Runs:
    """The bytes of a slice in one plane of one page: `count` runs of `length` neighbouring bytes.

    `start` is the offset of the first run in page 0.
    """

    plane: str
    start: int
    length: int
    count: int


@dataclass(frozen=True)
class SliceVerdict:
    """What slicing a carving by heads and tokens comes to.

    `runs` in a page; `open_sides` names the sides whose scales are not those of the sliced tokens,
    with the first one that is elsewhere; `carve_first` says why the tensor must not be sliced
    before it is carved, or is None where the order makes no difference.
    """

    heads: range
    tokens: range
    runs: tuple[Runs, ...]
    open_sides: Mapping[str, str]
    carve_first: str | None

    @property
    def closed(self) -> bool:
        """Whether the stored rows of the sliced tokens hold their scales, and no others."""
        return not self.open_sides


def slice_verdict(
    carving: Carving, heads: range, tokens: range, scale_layouts: Mapping[str, str]
) -> SliceVerdict:
    """Judge a slice; `scale_layouts` gives the layout of each side's scales.

    Raises UsageError for a slice outside the cache and LayoutUndefined for a layout that these
    planes do not have.
    """
    tensor = carving.tensor
    for name, part, size in (("heads", heads, tensor.heads), ("tokens", tokens, tensor.tokens)):
        if part.step != 1 or not 0 <= part.start < part.stop <= size:
            raise UsageError(
                f"{name} {part.start}:{part.stop} is no slice of {size}: give START:STOP within "
                f"0:{size}"
            )
    planes = [plane.narrowed(heads, tokens) for plane in carving.planes]
    found = {side: _astray(tensor, tokens, scale_layouts[side]) for side in SIDES}
    return SliceVerdict(
        heads,
        tokens,
        tuple(runs(plane) for plane in planes),
        {side: words for side, words in found.items() if words is not None},
        _order_matters(carving, planes, heads, tokens),
    )


def runs(plane: Plane) -> Runs:
    """A plane's bytes in one page as runs: dimensions that follow each other densely are one."""
    length, count = 1, 1
    inner = sorted(
        (step, size)
        for step, size in zip(plane.strides[1:], plane.shape[1:], strict=True)
        if size > 1
    )
    for step, size in inner:
        if step == length:
            length *= size
        else:
            count *= size
    return Runs(plane.name, plane.base, length, count)


def unequal_parts(carving: Carving) -> str | None:
    """Why the 2H equal parts of a page are not its heads, K's first; None where they are.

    The length of a page is its stride, padding and all, as a connector that is told one number
    takes it.
    """
    tensor = carving.tensor
    parts = len(SIDES) * tensor.heads
    part = (tensor.page_stride or tensor.page_bytes) // parts
    for plane in carving.planes:
        for head in range(tensor.heads):
            number = SIDES.index(plane.side) * tensor.heads + head
            first = plane.narrowed(range(head, head + 1), range(tensor.tokens))
            low = tensor.offset + number * part
            high = first.last - (tensor.pages - 1) * plane.strides.page
            if first.base < low or high >= low + part:
                return (
                    f"part {number} of {parts} is bytes {low} to {low + part - 1}, and "
                    f"{plane.name} of head {head} is in {first.base} to {high}"
                )
    return None


def _astray(tensor: CacheTensor, tokens: range, layout: str) -> str | None:
    """The first scale of the sliced tokens that is not in their stored rows; None if all are."""
    columns = tensor.scale_columns
    stored = candidate(layout).layout(tensor.tokens, columns)
    low, high = tokens.start * columns, tokens.stop * columns
    for token in tokens:
        offsets = stored(token, np.arange(columns))
        outside = np.flatnonzero((offsets < low) | (offsets >= high))
        if outside.size:
            column = int(outside[0])
            row = int(offsets[column]) // columns
            return f"the scale of token {token} column {column} is in row {row} ({layout})"
    return None


def _order_matters(
    carving: Carving, planes: list[Plane], heads: range, tokens: range
) -> str | None:
    """Where a plane of the sliced tensor differs from the slice of the carved plane."""
    sliced = carve(narrowed(carving.tensor, heads, tokens), carving.split).planes
    for right, wrong in zip(planes, sliced, strict=True):
        found = difference(right, wrong)
        if found is not None:
            return (
                f"the {found.what} of {right.name} is {found.one} in the slice, and carving the "
                f"sliced tensor makes it {found.other}"
            )
    return None


def narrowed(tensor: CacheTensor, heads: range, tokens: range) -> CacheTensor:
    """The tensor as narrowed to some of its heads and tokens before anything is carved."""
    start = heads.start * tensor.head_stride + tokens.start * tensor.token_stride
    return replace(
        tensor,
        heads=len(heads),
        tokens=len(tokens),
        offset=tensor.offset + start,
        head_stride=tensor.head_stride if len(heads) > 1 else 0,
        token_stride=tensor.token_stride if len(tokens) > 1 else 0,
    )
