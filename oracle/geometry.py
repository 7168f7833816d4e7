"""The geometry of a paged NVFP4 cache: which byte belongs to which page, side, plane and head.

A page holds `[K data | K scale | V data | V scale]`. With H heads, N tokens a page, head size
D and S = D/16, a data plane region has H*N*D/2 bytes and a scale region H*N*S. Inside a region
the cache layout says what comes first:

==========  ==========================  ==========================
            HND: head, token, content   NHD: token, head, content
==========  ==========================  ==========================
data        head N*D/2, token D/2       token H*D/2, head D/2
scale       head N*S, token S           token H*S, head S
==========  ==========================  ==========================

Note that data and scales of one token are *not* neighbours: all data of a side come first. The
tensor the op receives, logically [B, 2, N, H, F] with F = D/2 + S, has strides as if they were;
only its page and side strides are real addresses. Where a scale's row and column within the
[N, S] plane of its head come from is the layout's business (`oracle.layout`), not geometry's.

Offsets are in bytes from the start of the cache. Source: vLLM's `reshape_and_cache_nvfp4`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oracle.errors import UsageError
from oracle.quantize import GROUP

SIDES = ("K", "V")
PLANES = ("data", "scale")
CACHE_LAYOUTS = ("HND", "NHD")

MAX_CACHE_BYTES = 2**40
"""Every cache is smaller than this, so that a slip in a size is refused at once."""

IntArray: TypeAlias = NDArray[np.int64]


class Strides(NamedTuple):
    """Bytes from one head, and from one token, to the next inside a region."""

    head: int
    token: int


class StridedView(NamedTuple):
    """A uint8 view of the cache: shape and strides in bytes, offset of its first byte."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Region:
    """The bytes `start` up to, not including, `stop`."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class Location:
    """Where offsets lie: arrays of one shape. `side` and `plane` index SIDES and PLANES.

    `row` is the token of a data byte or the stored row of a scale, `col` the byte in it.
    Where `inside` is False the page does not exist; the rest is as if it did.
    """

    page: IntArray
    side: IntArray
    plane: IntArray
    head: IntArray
    row: IntArray
    col: IntArray
    inside: NDArray[np.bool_]


@dataclass(frozen=True)
class CacheGeometry:
    """The shape of a cache, from which every address follows.

    `num_blocks` pages (B) of `block_size` tokens (N) with `num_heads` KV heads (H) of
    `head_size` elements (D), a multiple of 16; `cache_layout` is "HND" or "NHD". Raises
    UsageError for sizes that cannot exist.
    """

    num_blocks: int
    block_size: int
    num_heads: int
    head_size: int
    cache_layout: str = "HND"

    def __post_init__(self) -> None:
        """Check the sizes."""
        for name in ("num_blocks", "block_size", "num_heads", "head_size"):
            size = getattr(self, name)
            if not isinstance(size, int) or size < 1:
                raise UsageError(f"{name} is {size!r}: give a whole number of at least 1")
        if self.head_size % GROUP:
            raise UsageError(
                f"head_size is {self.head_size}: give a multiple of {GROUP}, "
                "the elements that share a scale"
            )
        if self.cache_layout not in CACHE_LAYOUTS:
            raise UsageError(f"cache_layout is {self.cache_layout!r}: give HND or NHD")
        if self.cache_bytes >= MAX_CACHE_BYTES:
            raise UsageError(
                f"a cache of {self.cache_bytes} bytes is beyond the limit of {MAX_CACHE_BYTES}: "
                "give smaller sizes"
            )

    @property
    def scale_columns(self) -> int:
        """S, the scales of one head of one token."""
        return self.head_size // GROUP

    @property
    def data_bytes(self) -> int:
        """D/2, the data bytes of one head of one token."""
        return self.head_size // 2

    @property
    def content_bytes(self) -> int:
        """F = D/2 + S, all bytes of one head of one token."""
        return self.data_bytes + self.scale_columns

    @property
    def side_bytes(self) -> int:
        """Bytes of one side of one page."""
        return self.num_heads * self.block_size * self.content_bytes

    @property
    def page_bytes(self) -> int:
        """Bytes from one page to the next."""
        return len(SIDES) * self.side_bytes

    @property
    def cache_bytes(self) -> int:
        """Bytes of the whole cache."""
        return self.num_blocks * self.page_bytes

    @property
    def num_slots(self) -> int:
        """Tokens the cache holds; slot = page * N + token in the page."""
        return self.num_blocks * self.block_size

    def in_words(self) -> str:
        """The geometry for a person, without the number of pages."""
        heads = f"{self.num_heads} head{'s' if self.num_heads > 1 else ''}"
        sizes = f"head size {self.head_size}, {heads}, block size {self.block_size}"
        return f"{sizes}, {self.cache_layout}"

    @property
    def data_strides(self) -> Strides:
        """Strides of head and token inside a data region."""
        return self._strides(self.data_bytes)

    @property
    def scale_strides(self) -> Strides:
        """Strides of head and stored row inside a scale region."""
        return self._strides(self.scale_columns)

    def _strides(self, width: int) -> Strides:
        if self.cache_layout == "HND":
            return Strides(head=self.block_size * width, token=width)
        return Strides(head=width, token=self.num_heads * width)

    def side_base(self, side: str) -> int:
        """Offset in the page of a side ("K" or "V"), which is also that of its data region."""
        if side not in SIDES:
            raise UsageError(f"no side is called {side!r}: give K or V")
        return SIDES.index(side) * self.side_bytes

    def scale_base(self, side: str) -> int:
        """Offset in the page of a side's scale region."""
        return self.side_base(side) + self.num_heads * self.block_size * self.data_bytes

    def data_offset(
        self, side: str, page: ArrayLike, head: ArrayLike, token: ArrayLike, byte: ArrayLike
    ) -> IntArray:
        """Offsets of data bytes; coordinates broadcast and are taken as they come, unchecked."""
        return self._offset(self.data_strides, self.side_base(side), page, head, token, byte)

    def scale_offset(
        self, side: str, page: ArrayLike, head: ArrayLike, row: ArrayLike, col: ArrayLike
    ) -> IntArray:
        """Offsets of scale bytes by stored row and column; coordinates as in `data_offset`."""
        return self._offset(self.scale_strides, self.scale_base(side), page, head, row, col)

    def _offset(self, strides: Strides, base: int, *coordinates: ArrayLike) -> IntArray:
        offsets: IntArray = np.asarray(base, np.int64)
        steps = (self.page_bytes, strides.head, strides.token, 1)
        for coordinate, step in zip(coordinates, steps, strict=True):
            offsets = offsets + np.asarray(coordinate, np.int64) * step
        return offsets

    def locate(self, offsets: ArrayLike) -> Location:
        """Where each offset lies: the exact inverse of `data_offset` and `scale_offset`."""
        page, rest = np.divmod(np.asarray(offsets, np.int64), self.page_bytes)
        side, rest = np.divmod(rest, self.side_bytes)
        data_region = self.num_heads * self.block_size * self.data_bytes
        is_scale = rest >= data_region
        width = np.where(is_scale, self.scale_columns, self.data_bytes)
        line, col = np.divmod(rest - is_scale * data_region, width)
        if self.cache_layout == "HND":
            head, row = np.divmod(line, self.block_size)
        else:
            row, head = np.divmod(line, self.num_heads)
        inside = (page >= 0) & (page < self.num_blocks)
        return Location(page, side, is_scale.astype(np.int64), head, row, col, inside)

    def plane_name(self, offset: int) -> str:
        """The region of an offset for a person, such as "page 3 K data"."""
        where = self.locate(offset)
        if not where.inside:
            return "before the allocation" if offset < 0 else "past the allocation"
        return f"page {where.page} {SIDES[int(where.side)]} {PLANES[int(where.plane)]}"

    def page_regions(self) -> list[Region]:
        """The four regions of a page, in order, offsets from the start of the page."""
        return self._carve(self.side_bytes)

    def _carve(self, side_stride: int) -> list[Region]:
        """The regions of a page whose sides lie `side_stride` apart."""
        data_region = self.num_heads * self.block_size * self.data_bytes
        regions = []
        for index, side in enumerate(SIDES):
            start = index * side_stride
            middle, stop = start + data_region, start + self.side_bytes
            regions.append(Region(f"{side} data", start, middle))
            regions.append(Region(f"{side} scale", middle, stop))
        return regions

    def cache_view(self) -> StridedView:
        """The kv_cache tensor of this geometry, logically [B, 2, N, H, F]."""
        tokens, heads, content = self.block_size, self.num_heads, self.content_bytes
        head, token = self._strides(content)
        return StridedView(
            (self.num_blocks, len(SIDES), tokens, heads, content),
            (self.page_bytes, self.side_bytes, token, head, 1),
            0,
        )

    def side_view(self, side: str) -> StridedView:
        """What the op receives for a side: `kv_cache[:, 0]` or `[:, 1]`, [B, N, H, F]."""
        shape, strides, _ = self.cache_view()
        return StridedView((shape[0], *shape[2:]), (strides[0], *strides[2:]), self.side_base(side))

    @classmethod
    def from_tensor(
        cls, shape: Sequence[int], strides: Sequence[int], cache_layout: str | None = None
    ) -> CacheGeometry:
        """The geometry of a uint8 kv_cache tensor, from its shape [B, 2, N, H, F] and strides.

        Offsets then count from the tensor's first byte. Strides of dimensions of size 1 say
        nothing and are ignored. `cache_layout` is checked where given, and needed where one
        head or one token makes HND and NHD the same bytes. Raises UsageError for anything that
        is neither. A tensor whose *logical* order is another, say [B, 2, H, N, F], cannot be told
        from this one: its H is taken for N, as the op itself would.
        """
        shape, strides = tuple(map(int, shape)), tuple(map(int, strides))
        if len(shape) != 5 or len(strides) != 5 or shape[1] != len(SIDES):
            raise UsageError(
                f"a kv_cache is [pages, 2, tokens, heads, bytes], not {list(shape)} "
                f"with {len(strides)} strides"
            )
        pages, _, tokens, heads, content = shape
        groups, rest = divmod(content, GROUP // 2 + 1)
        if rest:
            raise UsageError(
                f"a last dimension of {content} is no NVFP4 head: it holds 9 bytes for each "
                f"{GROUP} elements"
            )
        names = CACHE_LAYOUTS if cache_layout is None else (cache_layout,)
        known = [cls(pages, tokens, heads, groups * GROUP, name) for name in names]
        fitting = [each for each in known if each._has_strides(strides)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise UsageError(
                f"HND and NHD are the same bytes with block_size {tokens} and num_heads {heads}: "
                "say which is meant with cache_layout"
            )
        raise UsageError(_unknown_order(strides, known))

    @classmethod
    def from_array(cls, array: Any, cache_layout: str | None = None) -> CacheGeometry:
        """`from_tensor` of a uint8 torch tensor or NumPy array, known by its attributes."""
        if str(array.dtype).removeprefix("torch.") != "uint8":
            raise UsageError(f"a kv_cache has dtype uint8, not {array.dtype}: pass a uint8 view")
        # Of the two only torch has a method here; it counts elements, which are bytes as well.
        strides = array.stride() if hasattr(array, "stride") else array.strides
        return cls.from_tensor(array.shape, strides, cache_layout)

    def _has_strides(self, strides: Sequence[int]) -> bool:
        shape, own, _ = self.cache_view()
        return all(
            size == 1 or mine == given
            for size, mine, given in zip(shape, own, strides, strict=True)
        )


def overlaps(regions: Iterable[Region]) -> list[tuple[Region, Region]]:
    """Every pair of regions that share a byte, in the order given."""
    return [
        (one, other)
        for one, other in combinations(regions, 2)
        if max(one.start, other.start) < min(one.stop, other.stop)
    ]


def check(
    tensor: Any,
    split: str = "vllm",
    *,
    dims: str | None = None,
    layout: str | None = None,
    parties: Collection[str] = (),
) -> str | None:
    """Why a kv_cache tensor must not be used as it is carved, or None where it may be.

    Takes a torch tensor or NumPy array of bytes, on any device, and looks at its shape, strides and
    storage only, so an engine can ask as it starts: `if reason := check(cache): raise
    ValueError(reason)`. `split` names the way of carving, `dims` what the dimensions of the shape
    are, `layout` the order that the strides should be in, and `parties` contracts that must be
    usable. See `oracle.views`. Raises UsageError for a tensor that is no NVFP4 cache.
    """
    # Looked up late: `oracle.views` is built on this module, and only this entrance leads back.
    from oracle.views.examine import reason_against
    from oracle.views.planes import view_split

    return reason_against(tensor, view_split(split), dims, layout, parties)


def _unknown_order(strides: Sequence[int], known: Sequence[CacheGeometry]) -> str:
    """Why strides are refused; names regions that would share bytes if pages were carved so."""
    expected = " nor of ".join(
        f"{each.cache_layout} {list(each.cache_view().strides)}" for each in known
    )
    message = f"the strides {list(strides)} are not those of {expected}"
    clashes = overlaps(known[0]._carve(strides[1]))
    if clashes:
        one, other = clashes[0]
        message += f"; sides {strides[1]} bytes apart make {one.name} and {other.name} overlap"
    return message
