"""A kv_cache tensor as its shape and strides tell it: pages, sides, tokens, heads and bytes.

What a dimension of the shape is, is said by a letter: B pages, 2 the two sides, N tokens, H heads,
F the bytes of one head of one token (data and scales), and P heads of both sides in one dimension,
K's first. `B2NHF` is what vLLM's op is given, `BPNF` the packed shape of newer releases.

The order of bytes in memory has names of its own. `HND` and `NHD` are those of one layer; the
global ones spell the order of L layers, B blocks (pages), H heads of both sides, N tokens and C
content (F bytes), the outermost first: vLLM's LBHNC, BLHNC, LBNHC and BLNHC. With B before L a page
of one layer lies between those of the other layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from oracle.errors import UsageError
from oracle.geometry import SIDES, CacheGeometry
from oracle.quantize import GROUP

DIMS = {5: "B2NHF", 4: "BPNF"}
"""What the dimensions of a shape are where nothing else is said."""

LAYOUTS = ("HND", "NHD", "LBHNC", "BLHNC", "LBNHC", "BLNHC")

MAX_OFFSET = 2**63 - 1
"""Offsets are 64-bit in every engine: what lies beyond cannot be addressed."""

_BYTE_TYPES = ("uint8", "int8", "float8_e4m3fn")


@dataclass(frozen=True)
class CacheTensor:
    """The sizes and strides (in bytes) of a cache, whatever the order of its dimensions was.

    Strides of dimensions of size 1 say nothing and are 0 here. `storage_bytes` is the size of the
    storage; where it was not given, that of the tensor from the storage's start to its last byte.
    """

    dims: str
    pages: int
    tokens: int
    heads: int
    content: int
    page_stride: int
    side_stride: int
    token_stride: int
    head_stride: int
    content_stride: int
    offset: int
    storage_bytes: int

    @property
    def head_size(self) -> int:
        """D, the elements of a head."""
        return self.content // (GROUP // 2 + 1) * GROUP

    @property
    def data_bytes(self) -> int:
        """D/2, the data bytes of one head of one token."""
        return self.head_size // 2

    @property
    def scale_columns(self) -> int:
        """S = D/16, the scales of one head of one token."""
        return self.head_size // GROUP

    @property
    def page_bytes(self) -> int:
        """Bytes that the two sides of a page hold, without padding."""
        return len(SIDES) * self.heads * self.tokens * self.content

    @property
    def heads_first(self) -> bool:
        """Whether the op takes the inner order for HND: the stride of heads is the larger."""
        return self.head_stride > self.token_stride

    @property
    def geometry(self) -> CacheGeometry:
        """The geometry of one page, for contracts, which do not depend on the number of pages."""
        order = "HND" if self.heads_first else "NHD"
        return CacheGeometry(1, self.tokens, self.heads, self.head_size, order)


def cache_tensor(
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int = 0,
    storage_bytes: int | None = None,
    dims: str | None = None,
) -> CacheTensor:
    """A kv_cache tensor of bytes from its shape, strides and storage offset.

    `dims` names the dimensions (default: by their number). Raises UsageError for sizes that are
    not positive or overflow, negative strides, strides that leave the storage, and shapes that are
    no NVFP4 cache.
    """
    names = _dims(shape, dims)
    if len(strides) != len(shape):
        raise UsageError(
            f"{len(shape)} sizes have {len(strides)} strides: give a stride for each size"
        )
    if min(strides) < 0 or offset < 0:
        raise UsageError("a negative stride or storage offset: give ones that step forward")
    last = offset + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    if last > MAX_OFFSET or prod(shape) > MAX_OFFSET:
        raise UsageError(f"shape {list(shape)} with strides {list(strides)} overflows 64 bits")
    if storage_bytes is not None and last >= storage_bytes:
        raise UsageError(
            f"the strides leave the storage: the last byte of the tensor is at {last}, and the "
            f"storage has {storage_bytes} bytes"
        )
    sizes = dict(zip(names, shape, strict=True))
    steps = {
        name: step if size > 1 else 0
        for name, size, step in zip(names, shape, strides, strict=True)
    }
    if "P" in sizes:
        heads, odd = divmod(sizes["P"], len(SIDES))
        if odd:
            raise UsageError(f"{sizes['P']} heads of both sides: give an even number")
        sizes |= {"2": len(SIDES), "H": heads}
        steps |= {"2": heads * steps["P"], "H": steps["P"] if heads > 1 else 0}
    if sizes["2"] != len(SIDES):
        raise UsageError(f"dims {names}: the size of '2' is {sizes['2']}, and there are two sides")
    if sizes["F"] % (GROUP // 2 + 1):
        raise UsageError(
            f"{sizes['F']} bytes are no NVFP4 head: it holds 9 bytes for each {GROUP} elements"
        )
    return CacheTensor(
        names, sizes["B"], sizes["N"], sizes["H"], sizes["F"],
        steps["B"], steps["2"], steps["N"], steps["H"], steps["F"],
        offset, last + 1 if storage_bytes is None else storage_bytes,
    )  # fmt: skip


def from_array(array: Any, dims: str | None = None) -> CacheTensor:
    """`cache_tensor` of a torch tensor or NumPy array of bytes, known by its attributes.

    Only torch tells the storage; a NumPy array is taken for one of its own.
    """
    kind = str(array.dtype).removeprefix("torch.")
    if kind not in _BYTE_TYPES:
        raise UsageError(f"a kv_cache has dtype uint8, not {kind}: pass a view of bytes")
    shape = tuple(map(int, array.shape))
    if not hasattr(array, "untyped_storage"):
        return cache_tensor(shape, tuple(map(int, array.strides)), dims=dims)
    storage = int(array.untyped_storage().nbytes())
    strides = tuple(map(int, array.stride()))
    return cache_tensor(shape, strides, int(array.storage_offset()), storage, dims)


def of_geometry(geometry: CacheGeometry) -> CacheTensor:
    """The kv_cache tensor of a geometry, [B, 2, N, H, F]."""
    view = geometry.cache_view()
    return cache_tensor(view.shape, view.strides, view.offset)


def dense_strides(
    shape: Sequence[int], layout: str, layers: int = 1, dims: str | None = None
) -> tuple[int, ...]:
    """The strides of a dense allocation in a named order, for a shape of the given dimensions."""
    names = _dims(shape, dims)
    sizes = dict(zip(names, shape, strict=True))
    steps: dict[str, int] = {}
    step = 1
    for letter in reversed(_order(layout, names)):
        steps[letter] = step
        step *= sizes[letter]
    steps["B"] = step * (layers if layout.startswith("BL") else 1)
    return tuple(steps[letter] for letter in names)


def departures(tensor: CacheTensor, layout: str, layers: int | None = None) -> list[str]:
    """How the strides differ from those of a named order, one line each; empty where they do not.

    Without `layers` any whole number of layers will do for the orders that begin with B.
    """
    shape = (tensor.pages, len(SIDES), tensor.tokens, tensor.heads, tensor.content)
    if "P" in tensor.dims and layout == "NHD":
        layout = "LBNHC"
    if layout.startswith("BL") and layers is None:
        layers = max(1, tensor.page_stride // tensor.page_bytes)
    expected = dense_strides(shape, layout, layers or 1)
    found = (tensor.page_stride, tensor.side_stride, tensor.token_stride, tensor.head_stride,
             tensor.content_stride)  # fmt: skip
    words = ("page", "side", "token", "head", "byte")
    return [
        f"{layout} steps {wanted} bytes from one {word} to the next, not {given}"
        for size, word, wanted, given in zip(shape, words, expected, found, strict=True)
        if size > 1 and wanted != given
    ]


def _dims(shape: Sequence[int], dims: str | None) -> str:
    names = dims or DIMS.get(len(shape), "")
    if sorted(names) not in (sorted(known) for known in DIMS.values()) or len(names) != len(shape):
        raise UsageError(
            f"a shape of {len(shape)} dimensions{f' as {dims}' if dims else ''}: give 5 (letters "
            f"of {DIMS[5]} in any order) or 4 ({DIMS[4]})"
        )
    if min(shape) < 1:
        raise UsageError(f"shape {list(shape)}: give sizes of at least 1")
    return names


def _order(layout: str, names: str) -> str:
    """The dimensions inside a page in a named order, the outermost first, by their letters."""
    if layout not in LAYOUTS:
        raise UsageError(f"no layout is called {layout!r}: choose {', '.join(LAYOUTS)}")
    packed = "P" in names
    heads = "P" if packed else "2H"
    if layout == "NHD" and not packed:
        return "2NHF"
    heads_first = layout == "HND" or "HN" in layout
    return f"{heads}NF" if heads_first else f"N{heads}F"
