"""The named layouts that writers and readers of NVFP4 scale planes are known to use.

A candidate is a family of layouts: given T tokens and S scale columns it yields the layout of
one [T, S] scale plane, or the reason why it has none there. Most are written down as
shape:stride (see `oracle.layout`). Two are derived, so that they cannot drift from what they
are named after. With P the permutation of flat offsets that the swizzle makes of a row-major
plane, `P = swizzle ∘ linear⁻¹`:

    inverse_4x4        = P⁻¹ ∘ linear  =  linear ∘ swizzle⁻¹ ∘ linear
    double_swizzle_4x4 = P∘P ∘ linear  =  swizzle ∘ linear⁻¹ ∘ swizzle

Within a band of four tokens P multiplies the flat offset by 4 modulo 4S-1, so its order is the
multiplicative order of 4: 2 at S=4 (its own inverse), 3 at S=16 (twice is the inverse), 5, 23
and 7 at S=8, 12 and 32.

Sources: the swizzle is the V scale layout of the vLLM and FlashInfer NVFP4 stores for the SM100
attention kernels; the 128x4 tile is the block scale layout of cuBLAS ("Block Scaling Factors
Layout" in its documentation), the 8x4 tile its small-batch sibling in TensorRT-LLM; the transpose
is how FlashMLA's 352-byte NVFP4 record orders the 32 scales of its 512 elements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from oracle.errors import UsageError
from oracle.layout import Layout, LayoutUndefined, Offsets


class Multiple(NamedTuple):
    """What a plane's extent must be a multiple of, and what is wrong where it is not."""

    of: int
    otherwise: str


@dataclass(frozen=True)
class Candidate:
    """A named family of layouts, one for every [T, S] scale plane that its blocks fill."""

    name: str
    description: str
    tokens: Multiple
    columns: Multiple
    build: Callable[[int, int], Layout]

    def undefined_reason(self, tokens: int, columns: int) -> str | None:
        """Why there is no such layout of a [tokens, columns] plane, or None where there is."""
        for letter, extent, multiple in (("T", tokens, self.tokens), ("S", columns, self.columns)):
            if extent < 1:
                return (
                    f"a scale plane needs at least one token and one column, not {letter}={extent}"
                )
            if extent % multiple.of:
                return (
                    f"{self.name} needs {letter} to be a multiple of {multiple.of}, "
                    f"not {letter}={extent}: {multiple.otherwise}"
                )
        return None

    def layout(self, tokens: int, columns: int) -> Layout:
        """The coalesced layout over (t, s); raises LayoutUndefined with the reason."""
        reason = self.undefined_reason(tokens, columns)
        if reason is not None:
            raise LayoutUndefined(reason)
        return self.build(tokens, columns).coalesce()

    def table(self, tokens: int, columns: int) -> Offsets:
        """Flat offsets in the plane, int64 [T, S], not to be written to; raises LayoutUndefined."""
        return _table(self, tokens, columns)


@lru_cache(maxsize=256)
def _table(each: Candidate, tokens: int, columns: int) -> Offsets:
    table = each.layout(tokens, columns).table()
    table.flags.writeable = False
    return table


def candidate(name: str) -> Candidate:
    """The candidate of that name; raises UsageError that lists the names."""
    try:
        return CANDIDATES[name]
    except KeyError:
        raise UsageError(
            f"no layout is called {name!r}: choose one of {', '.join(CANDIDATES)}"
        ) from None


def coincidences(tokens: int, columns: int) -> list[tuple[str, ...]]:
    """The groups of candidates, two names or more each, that are one map on this plane.

    Names and groups keep the order of `CANDIDATES`; a candidate undefined here is in no group.
    """
    groups: dict[bytes, list[str]] = {}
    for each in CANDIDATES.values():
        if each.undefined_reason(tokens, columns) is None:
            groups.setdefault(each.table(tokens, columns).tobytes(), []).append(each.name)
    return [tuple(names) for names in groups.values() if len(names) > 1]


def _linear(tokens: int, columns: int) -> Layout:
    return Layout((tokens, columns), (columns, 1))


def _swizzle(tokens: int, columns: int) -> Layout:
    return Layout(((4, tokens // 4), columns), ((1, 4 * columns), 4))


def _inverse(tokens: int, columns: int) -> Layout:
    linear = _linear(tokens, columns)
    return linear.compose(_swizzle(tokens, columns).inverse().compose(linear))


def _double_swizzle(tokens: int, columns: int) -> Layout:
    swizzle = _swizzle(tokens, columns)
    return swizzle.compose(_linear(tokens, columns).inverse().compose(swizzle))


def _tile_128x4(tokens: int, columns: int) -> Layout:
    return Layout(((32, 4, tokens // 128), (4, columns // 4)), ((16, 4, 128 * columns), (1, 512)))


def _tile_8x4(tokens: int, columns: int) -> Layout:
    return Layout(((8, tokens // 8), (4, columns // 4)), ((4, 8 * columns), (1, 32)))


def _transpose_8x4(tokens: int, columns: int) -> Layout:
    return Layout((tokens, (4, 8, columns // 32)), (columns, (8, 1, 32)))


_ANY = Multiple(1, "")
_BANDS = Multiple(4, "the last band of 4 tokens would reach beyond the plane")
_TWO_FORMS = Multiple(
    4,
    "there the flat and the 2-D form of the swizzle part, "
    "and the 2-D form leaves the plane or divides by zero",
)
_TILES_OF_128, _TILES_OF_8, _TILES_OF_4 = (
    Multiple(of, "the plane would cut a tile, and the tile needs all its bytes")
    for of in (128, 8, 4)
)

CANDIDATES: dict[str, Candidate] = {
    each.name: each
    for each in (
        Candidate("linear", "row-major: t*S + s", _ANY, _ANY, _linear),
        Candidate(
            "swizzle_4x4",
            "bands of 4 tokens stored column by column: (t//4)*4S + 4s + t%4",
            _BANDS,
            _TWO_FORMS,
            _swizzle,
        ),
        Candidate(
            "inverse_4x4",
            "the permutation that undoes swizzle_4x4",
            _BANDS,
            _TWO_FORMS,
            _inverse,
        ),
        Candidate(
            "double_swizzle_4x4",
            "swizzle_4x4 applied to a plane already swizzled",
            _BANDS,
            _TWO_FORMS,
            _double_swizzle,
        ),
        Candidate(
            "tile_128x4",
            "GEMM tiles of 512 bytes, row of tiles by row: (t%32)*16 + (t//32%4)*4 + s%4 in each",
            _TILES_OF_128,
            _TILES_OF_4,
            _tile_128x4,
        ),
        Candidate(
            "tile_8x4",
            "GEMM tiles of 32 bytes, row of tiles by row: (t%8)*4 + s%4 in each",
            _TILES_OF_8,
            _TILES_OF_4,
            _tile_8x4,
        ),
        Candidate(
            "transpose_8x4",
            "32 scales of a token, read as 8x4, stored as 4x8: tS + s//32*32 + s%4*8 + s%32//4",
            _ANY,
            Multiple(32, "the transpose moves 32 scales of a token at a time"),
            _transpose_8x4,
        ),
    )
}
"""Every candidate by name, in the order in which reports list them."""
