"""What vLLM's host side makes of the cache tensor it is handed, before it launches the store.

`reshape_and_cache_flash` receives each side of the cache as a uint8 view that it takes for
[pages, tokens, heads, bytes], and learns three things from it alone:

- the tokens of a page are its second size;
- pages are head-major (HND) where the stride of the third dimension is the larger one, else NHD;
- the distance of two pages is the stride of the first.

Heads and head size come from the keys. Everything inside a page is then computed from these numbers
and not from the strides, so a tensor whose dimensions stand in another order is not noticed: the
heads become the tokens of a page. Only a check of the page's size may stop it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from oracle.geometry import CacheGeometry
from oracle.quantize import GROUP
from oracle.subjects.store_abi import StoreAbi, StoreLaunch

BAND = 4
"""Pages hold a multiple of so many tokens."""
ORDERS = {"BNHF": (0, 1, 2, 3), "BHNF": (0, 2, 1, 3)}
"""Orders of dimensions in which a side may be handed over: pages, tokens, heads, bytes is right."""
TAKEN = "BNHF"
"""The order that the op takes every side for."""


@dataclass(frozen=True)
class SideTensor:
    """One side of a cache as the op receives it: shape and strides in bytes, of four dimensions."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, geometry: CacheGeometry, order: str = TAKEN) -> SideTensor:
        """A side of a cache with its dimensions in an order, such as "BHNF"."""
        view = geometry.side_view("K")
        dims = ORDERS[order]
        return cls(tuple(view.shape[d] for d in dims), tuple(view.strides[d] for d in dims))


@dataclass(frozen=True)
class Taken:
    """What the host side takes a tensor for.

    `geometry` has the sizes and the layout inside a page that it computes with; `page_stride` is
    the tensor's own.
    """

    geometry: CacheGeometry
    page_stride: int

    @classmethod
    def of(cls, tensor: SideTensor, num_heads: int, head_size: int) -> Taken:
        """What is made of a tensor, given the shape of the keys."""
        pages, block_size = tensor.shape[:2]
        layout = "HND" if tensor.strides[2] > tensor.strides[1] else "NHD"
        geometry = CacheGeometry(pages, block_size, num_heads, head_size, layout)
        return cls(geometry, tensor.strides[0])

    def launch(self, tokens: int, abi: StoreAbi | None = None) -> StoreLaunch:
        """The launch that stores so many densely packed tokens."""
        launch = StoreLaunch.of(self.geometry, tokens, abi)
        return replace(
            launch,
            data_strides=(self.page_stride, *launch.data_strides[1:]),
            scale_strides=(self.page_stride, *launch.scale_strides[1:]),
        )


def refusal(head_size: int, block_size: int) -> str | None:
    """What the host side refuses: everything it checks of an NVFP4 store.

    Head sizes that are multiples of 16 but not of 64 pass, although V's swizzle does not fit them.
    """
    if head_size % GROUP:
        return f"vLLM takes head sizes of a multiple of {GROUP}: this one is {head_size}"
    if block_size % BAND:
        return (
            f"vLLM takes pages of a multiple of {BAND} tokens, as V's scales are swizzled in bands "
            f"of {BAND} rows: this page has {block_size}"
        )
    return None


def host_check(geometry: CacheGeometry, dtype: str, order: str = TAKEN) -> str | None:
    """Why the host side refuses a store into a cache that is handed over in an order."""
    taken = Taken.of(SideTensor.of(geometry, order), geometry.num_heads, geometry.head_size)
    reason = refusal(geometry.head_size, taken.geometry.block_size)
    mistaken = misreading(geometry, order)
    return reason if reason is None or mistaken is None else f"{mistaken}; {reason}"


def misreading(geometry: CacheGeometry, order: str) -> str | None:
    """What the host side takes wrongly of a cache handed over in an order; None where nothing.

    As many heads as tokens make a shape that reads the same in both orders: then only the strides
    differ, which no check looks at.
    """
    if order == TAKEN:
        return None
    taken = Taken.of(SideTensor.of(geometry, order), geometry.num_heads, geometry.head_size)
    heads = "1 head" if geometry.num_heads == 1 else f"{geometry.num_heads} heads"
    if geometry.num_heads == geometry.block_size:
        return (
            f"ambiguous: with {heads} and as many tokens a page the shape [pages, heads, tokens, "
            f"bytes] is that of [pages, tokens, heads, bytes], and {geometry.cache_layout} strides "
            f"are taken for {taken.geometry.cache_layout}"
        )
    return (
        f"a side shaped [pages, heads, tokens, bytes] is taken for [pages, tokens, heads, bytes]: "
        f"{heads} become the tokens of a page, and {geometry.cache_layout} strides "
        f"{taken.geometry.cache_layout}"
    )
