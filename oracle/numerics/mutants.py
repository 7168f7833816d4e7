"""Writers that are wrong on purpose: wrong layouts, scale planes in wrong places, wrong quantisers.

All are declared to keep the SM100 contract, K linear and V swizzled. A tolerance, or this tool, is
as good as the number of them it does not accept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from oracle.candidates import CANDIDATES
from oracle.formats import DTYPES, ByteArray
from oracle.geometry import SIDES, CacheGeometry
from oracle.numerics.capture import declared_places
from oracle.numerics.misquantised import WRONG_QUANTISERS, Quantiser
from oracle.quantize import GROUP, RECIPROCALS, Reciprocal, quantize
from oracle.requests import Stored, StoreRequest
from oracle.subjects.base import SubjectInfo

DECLARED = {"K": "linear", "V": "swizzle_4x4"}
"""The SM100 contract, which every mutant claims to keep."""

Planes = dict[str, ByteArray]
"""The scale planes of each side, [B, H, N, S]."""


@dataclass(frozen=True)
class MutantWriter:
    """Stores with any quantiser into any layouts, then moves scales about as `rearrange` says.

    With `exchange_scales`, each side is quantised under the other's global scale.
    """

    name: str
    layouts: Mapping[str, str]
    quantiser: Quantiser = quantize
    rearrange: Callable[[Planes], Planes] | None = None
    exchange_scales: bool = False
    declared: Mapping[str, str] = field(default_factory=lambda: DECLARED)

    @property
    def info(self) -> SubjectInfo:
        """What a mutant says about itself, as a rule that it keeps the contract."""
        return SubjectInfo(
            f"mutant:{self.name}", "writer", self.name, "callable", declared=self.declared
        )

    def unsupported_reason(self, geometry: CacheGeometry, dtype: str) -> str | None:
        """A mutant takes whatever its layouts are defined for."""
        for name in self.layouts.values():
            reason = CANDIDATES[name].undefined_reason(geometry.block_size, geometry.scale_columns)
            if reason is not None:
                return reason
        return None

    def write(self, request: StoreRequest) -> Stored:
        """Store the request's tokens, wrongly."""
        geometry = request.geometry
        cache = request.cache.copy()
        page, token = np.divmod(request.slot_mapping, geometry.block_size)
        kept = request.slot_mapping >= 0
        scales = [request.k_scale, request.v_scale]
        if self.exchange_scales:
            scales.reverse()
        for side, patterns, scale in zip(SIDES, (request.key, request.value), scales, strict=True):
            groups = DTYPES[request.dtype].decode(patterns[kept]).reshape(-1, GROUP)
            codes, scale_bytes = self.quantiser(groups, scale)
            places = declared_places(geometry, side, self.layouts[side])
            start = (page[kept] * geometry.page_bytes)[:, None, None]
            nibbles = codes.reshape(-1, geometry.num_heads, geometry.head_size)
            at = start + (places.codes[token[kept]][..., ::2] >> 1)
            cache[at] = nibbles[..., 0::2] | nibbles[..., 1::2] << np.uint8(4)
            at = start + places.scales[token[kept]]
            cache[at] = scale_bytes.reshape(at.shape)
        if self.rearrange is not None:
            _rearrange(cache, geometry, self.rearrange)
        return Stored(cache)


def _rearrange(
    cache: ByteArray, geometry: CacheGeometry, rearrange: Callable[[Planes], Planes]
) -> None:
    """Exchange the scale planes of a cache for others."""
    page = np.arange(geometry.num_blocks)[:, None, None, None]
    head = np.arange(geometry.num_heads)[:, None, None]
    row = np.arange(geometry.block_size)[:, None]
    column = np.arange(geometry.scale_columns)
    offsets = {side: geometry.scale_offset(side, page, head, row, column) for side in SIDES}
    planes = rearrange({side: cache[offsets[side]] for side in SIDES})
    for side in SIDES:
        cache[offsets[side]] = planes[side]


def layout_mutants(geometry: CacheGeometry) -> Iterator[MutantWriter]:
    """Every candidate in the place of a declared layout, where it is another map."""
    tokens, columns = geometry.block_size, geometry.scale_columns
    for side, right in DECLARED.items():
        for name, each in CANDIDATES.items():
            if each.undefined_reason(tokens, columns) is not None:
                continue
            if (each.table(tokens, columns) == CANDIDATES[right].table(tokens, columns)).all():
                continue
            yield MutantWriter(f"{side} stored {name}", {**DECLARED, side: name})


def _each(change: Callable[[ByteArray], ByteArray]) -> Callable[[Planes], Planes]:
    return lambda planes: {side: change(plane) for side, plane in planes.items()}


PLACEMENT_MUTANTS = tuple(
    MutantWriter(name, DECLARED, rearrange=rearrange)
    for name, rearrange in (
        ("scales of K and V exchanged", lambda planes: {"K": planes["V"], "V": planes["K"]}),
        ("scales of the next head", _each(lambda plane: np.roll(plane, -1, axis=1))),
        ("scales of the next row", _each(lambda plane: np.roll(plane, -1, axis=2))),
        ("scales of the next column", _each(lambda plane: np.roll(plane, -1, axis=3))),
        ("scale columns reversed", _each(lambda plane: plane[..., ::-1])),
        ("one scale for a head", _each(lambda plane: np.broadcast_to(plane[..., :1], plane.shape))),
        ("first scale lost", _each(lambda plane: np.where(np.arange(plane.shape[3]) == 0,
                                                          np.uint8(0), plane))),
    )
)  # fmt: skip
"""Right bytes with the scale planes in the wrong places."""


QUANTISER_MUTANTS = (
    *(MutantWriter(name, DECLARED, quantiser) for name, quantiser in WRONG_QUANTISERS.items()),
    MutantWriter("K quantised with V's scale, and V with K's", DECLARED, exchange_scales=True),
)
"""Right places with wrong bytes."""


def _with_reciprocal(model: Reciprocal) -> Quantiser:
    return lambda x, scale: quantize(x, scale, rcp=model)


VARIANTS = tuple(
    MutantWriter(f"reciprocal {name}", DECLARED, _with_reciprocal(model))
    for name, model in RECIPROCALS.items()
)
"""Writers that are not wrong and must be accepted: the reference, and its reciprocal an ulp off."""
