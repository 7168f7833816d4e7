"""Hypothesis strategies of store cases, and the search for one that breaks a promise.

Everything is drawn with its simplest value first, so a failure shrinks to the smallest geometry,
the fewest tokens and the plainest values that show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeAlias

from hypothesis import Phase, find, reject, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky, NoSuchExample, Unsatisfiable

from oracle.errors import NothingRan, Refused
from oracle.formats import DTYPES
from oracle.geometry import CACHE_LAYOUTS, CacheGeometry
from oracle.properties.case import MAX_SEED, StoreCase
from oracle.properties.promise import Promise, Violation
from oracle.properties.values import KINDS
from oracle.subjects.base import Reader, Writer

HEAD_SIZES = (*range(16, 257, 16), 512, 576)
"""Every multiple of a group up to the usual sizes, and the two large ones in use (MLA)."""
NUM_HEADS = (1, 2, 3, 4, 5, 8, 16)
"""One head hides faults of head strides, powers of two others; 16 of the largest heads have more
groups than a CTA has threads (`oracle.subjects.store_abi`)."""
BLOCK_SIZES = (*range(1, 18), 20, 32, 64)
"""Around the bands of 4 rows of the swizzle, one past the usual 16, and the larger usual ones."""
MOST_PAGE_ELEMENTS = 1 << 16
"""Elements of one side of a page: room for 16 of the largest heads in the smallest pages."""
MOST_PAGES = 4
"""Enough for a page that is neither the first nor the last, with another one between."""
MOST_TOKENS = 9
"""Two bands of 4 and one more. A token is a CTA of its own, of which more do nothing else."""
PADDING_SLOTS = (-1, -2, -(2**31), -(2**32), -(2**63))
"""What engines use, and what becomes 0 or positive where a kernel keeps 32 bits or negates."""
SCALES = (1.0, 0.5, 2.0, 1 / 448, 3.0)
"""Global scales: powers of two make ties of codes likely, the others have full mantissas."""
WIDEST_SCALE = 2.0**20
"""Drawn scales lie within this factor of 1: amax / (6 * 448) of any activations does."""

_PHASES = (Phase.reuse, Phase.generate, Phase.shrink)
"""All but the one that varies the smallest case to explain it, after which that is not the last."""
_PADDING = st.sampled_from(PADDING_SLOTS)
_SCALES = st.sampled_from(SCALES) | st.floats(1 / WIDEST_SCALE, WIDEST_SCALE, width=32)


@dataclass(frozen=True)
class Limits:
    """What cases are drawn from; the defaults are the constants of this module."""

    head_sizes: Sequence[int] = HEAD_SIZES
    num_heads: Sequence[int] = NUM_HEADS
    block_sizes: Sequence[int] = BLOCK_SIZES
    cache_layouts: Sequence[str] = CACHE_LAYOUTS
    most_page_elements: int = MOST_PAGE_ELEMENTS
    most_pages: int = MOST_PAGES
    most_tokens: int = MOST_TOKENS


DEFAULT_LIMITS = Limits()

Shapes: TypeAlias = dict[int, dict[int, dict[int, list[str]]]]
"""Head size -> heads -> block size -> cache layouts."""


def store_cases(
    writer: Writer | None = None,
    reader: Reader | None = None,
    limits: Limits = DEFAULT_LIMITS,
    dtypes: Sequence[str] = tuple(DTYPES),
) -> st.SearchStrategy[StoreCase]:
    """Cases that neither a writer nor a reader refuses; each stores one token at least.

    Raises NothingRan where there are none within the limits.
    """
    shapes = {dtype: _shapes(writer, reader, limits, dtype) for dtype in dtypes}
    possible = {dtype: tree for dtype, tree in shapes.items() if tree}
    if not possible:
        names = " with ".join(party.info.id for party in (writer, reader) if party is not None)
        raise NothingRan(f"{names or 'nobody'} takes no geometry within the limits")
    return _cases(possible, limits)


def _shapes(writer: Writer | None, reader: Reader | None, limits: Limits, dtype: str) -> Shapes:
    """Every geometry of the limits that nobody refuses."""
    found: Shapes = {}
    parties = [party for party in (writer, reader) if party is not None]
    if writer is not None and dtype not in writer.info.dtypes:
        return found
    for size, heads, tokens, layout in product(
        limits.head_sizes, limits.num_heads, limits.block_sizes, limits.cache_layouts
    ):
        if size * heads * tokens > limits.most_page_elements:
            continue
        geometry = CacheGeometry(limits.most_pages, tokens, heads, size, layout)
        if all(party.unsupported_reason(geometry, dtype) is None for party in parties):
            found.setdefault(size, {}).setdefault(heads, {}).setdefault(tokens, []).append(layout)
    return found


@st.composite
def _cases(draw: st.DrawFn, shapes: Mapping[str, Shapes], limits: Limits) -> StoreCase:
    dtype = draw(st.sampled_from(list(shapes)))
    # One size after the other, so that each shrinks by itself.
    by_size = shapes[dtype]
    head_size = draw(st.sampled_from(list(by_size)))
    by_heads = by_size[head_size]
    num_heads = draw(st.sampled_from(list(by_heads)))
    by_tokens = by_heads[num_heads]
    block_size = draw(st.sampled_from(list(by_tokens)))
    cache_layout = draw(st.sampled_from(by_tokens[block_size]))
    pages = draw(st.integers(1, limits.most_pages))
    slots = st.integers(0, pages * block_size - 1)
    first = draw(slots)
    others = draw(st.lists(slots | _PADDING, max_size=limits.most_tokens - 1))
    # A store of padding alone shows nothing, so one token is real, wherever it stands.
    place = draw(st.integers(0, len(others)))
    return StoreCase(
        num_pages=pages,
        block_size=block_size,
        num_heads=num_heads,
        head_size=head_size,
        cache_layout=cache_layout,
        dtype=dtype,
        slots=(*others[:place], first, *others[place:]),
        values=draw(st.sampled_from(KINDS)),
        seed=draw(st.integers(0, MAX_SEED)),
        k_scale=draw(_SCALES),
        v_scale=draw(_SCALES),
    )


@dataclass(frozen=True)
class Found:
    """The smallest case that was found to break a promise.

    `steady` is False where it did not break it every time it was executed; there may be smaller
    ones then.
    """

    case: StoreCase
    violation: Violation
    steady: bool = True


def find_violation(
    promise: Promise,
    writer: Writer,
    reader: Reader | None,
    cases: st.SearchStrategy[StoreCase],
    chosen: settings,
) -> Found | None:
    """A case that breaks a promise, as small as Hypothesis makes it; None where none is found.

    As many `cases` are tried as the settings say. Hypothesis remembers what it finds by promise and
    id of the writer. Raises what the check raises; Refused only where every case is refused.
    """
    found: list[Found] = []
    refusals: list[Refused] = []

    def breaks(case: StoreCase) -> bool:
        try:
            violation = promise.check(writer, reader, case)
        except Refused as refused:
            refusals.append(refused)
            # Another case is drawn in its place.
            reject()
        if violation is not None:
            found[:] = [Found(case, violation)]
        return violation is not None

    key = f"{promise.name} {writer.info.id}".encode()
    try:
        find(cases, breaks, settings=settings(chosen, phases=_PHASES), database_key=key)
    except Unsatisfiable:
        raise refusals[0] from None
    except NoSuchExample:
        return None
    except Flaky:
        if not found:
            # What came and went was an error of the check itself.
            raise
        return replace(found[0], steady=False)
    return found[0]
