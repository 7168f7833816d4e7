"""Which writers and readers of contracts.toml may be used on a carving, and why not the others.

A contract says which layout a party's scales have; this table says what it makes of strides. A
party that carves a page by itself never sees a view, so its own planes have to be those of the
carving. What is not known about a party is said, not guessed.

Sources: vLLM's `reshape_and_cache_nvfp4_dispatch` (carves both sides by itself); the documentation
of FlashInfer's `nvfp4_quantize_paged_kv_cache` (gives tensors of its own) and of its slot-mapping
append (takes views); its trtllm-gen host code `kernelParams.h` (TMA; dense scale planes; K's scale
strides for V); flashinfer-ai/flashinfer#3608 (XQA: V's scales by the strides of K's).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from oracle.contracts import Contract, contracts
from oracle.views.density import difference, loose_columns, loose_rows, stride_difference, unaligned
from oracle.views.planes import Carving, carve, view_split
from oracle.views.tensor import CacheTensor


@dataclass(frozen=True)
class Demand:
    """What a party makes of a cache tensor.

    `carves`: the split it cuts a page by itself; `own_tensors`: it keeps data and scales in tensors
    of its own; `dense_scales`: the rows of a scale plane must be dense; `tma`: bases and strides
    must be multiples of 16 bytes; `one_scale_stride`: it indexes V's scales by the strides of K's.
    """

    carves: str | None = None
    own_tensors: bool = False
    dense_scales: bool = False
    tma: bool = False
    one_scale_stride: bool = False


_TAKES_VIEWS = Demand()
_OWN_TENSORS = Demand(own_tensors=True)
_VLLM_OP = Demand(carves="contiguous")

DEMANDS: Mapping[str, Demand] = {
    "store-sm100": _VLLM_OP,
    "store-sm12x": _VLLM_OP,
    "vllm-store": _VLLM_OP,
    "flashinfer-quantize": _OWN_TENSORS,
    "flashinfer-append": _TAKES_VIEWS,
    "tensorrt-llm-store": _OWN_TENSORS,
    "tensorrt-llm-store-old": _OWN_TENSORS,
    "sglang-store-sm100": _OWN_TENSORS,
    "sglang-store-sm120": _OWN_TENSORS,
    "trtllm-gen": Demand(dense_scales=True, tma=True, one_scale_stride=True),
    "flashinfer-fa2": _TAKES_VIEWS,
    "flashinfer-xqa": Demand(one_scale_stride=True),
    "vllm-dequant-pin": _TAKES_VIEWS,
    "vllm-dequant-sm100": _TAKES_VIEWS,
    "vllm-dequant-sm12x": _TAKES_VIEWS,
}
"""Contract name -> what is known about the strides it takes."""


@dataclass(frozen=True)
class Party:
    """Whether a writer or reader may be used: None where nothing is known about its demands."""

    name: str
    role: str
    usable: bool | None
    reasons: tuple[str, ...]
    note: str | None = None


def keeps_own_tensors(name: str) -> bool:
    """Whether a contract's party is never given a cache tensor, whatever its strides are."""
    demand = DEMANDS.get(name)
    return demand is not None and demand.own_tensors


def parties(carving: Carving, sound: bool) -> list[Party]:
    """Every contract's party on a carving; `sound` says that no byte of it has two owners."""
    return [_party(contract, carving, sound) for contract in contracts().values()]


def _party(contract: Contract, carving: Carving, sound: bool) -> Party:
    demand = DEMANDS.get(contract.name)
    if demand is None:
        unknown = ("which strides it takes is not known here",)
        return Party(contract.name, contract.role, None, unknown)
    reasons = tuple(_reasons(contract, demand, carving, sound))
    note = _order_note(carving.tensor) if demand.carves and not reasons else None
    return Party(contract.name, contract.role, not reasons, reasons, note)


def _reasons(contract: Contract, demand: Demand, carving: Carving, sound: bool) -> Iterator[str]:
    if demand.own_tensors:
        yield "keeps data and scales in tensors of its own: it is never given this one"
        return
    if not sound:
        yield "the views share bytes or leave the storage"
    excluded = contract.excludes(carving.tensor.geometry)
    if excluded is not None:
        yield excluded
    if demand.carves is not None:
        yield from _carved_elsewhere(carving, demand.carves)
        return
    yield from loose_columns(carving)
    if demand.dense_scales:
        yield from loose_rows(carving, "scale")
    if demand.tma:
        yield from unaligned(carving)
    if demand.one_scale_stride:
        keys, values = carving.plane("K", "scale"), carving.plane("V", "scale")
        found = stride_difference(keys, values)
        if found is not None:
            yield (
                f"indexes V's scales by the strides of K's, but the {found.what} of K's is "
                f"{found.one} and that of V's {found.other}"
            )


def _carved_elsewhere(carving: Carving, split: str) -> Iterator[str]:
    """The first plane that a party which carves by itself would put elsewhere."""
    own = carve(carving.tensor, view_split(split))
    for mine, theirs in zip(carving.planes, own.planes, strict=True):
        found = difference(mine, theirs)
        if found is not None:
            yield (
                f"carves a page by itself ({split}): the {found.what} of {mine.name} is "
                f"{found.other} there and {found.one} here"
            )
            return


def _order_note(tensor: CacheTensor) -> str | None:
    """What a caller of vLLM's op has to do first: it takes the second dimension for the tokens."""
    heads = "P" if "P" in tensor.dims else "H"
    if tensor.dims.index(heads) < tensor.dims.index("N"):
        return (
            "takes each side as [pages, tokens, heads, bytes]: pass transposed views, or it takes "
            f"{tensor.heads} heads for the tokens of a page"
        )
    return None
