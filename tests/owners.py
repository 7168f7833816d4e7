"""The slow way to who owns what: a dict from byte to owners, filled coordinate by coordinate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations, product

from hypothesis import strategies as st

from oracle.geometry import PLANES, SIDES
from oracle.views.owners import QUESTIONS
from oracle.views.planes import Carving
from oracle.views.tensor import CacheTensor, cache_tensor

Owner = tuple[int, ...]
"""Page, side, plane, head, row, column."""

Pair = tuple[Owner, Owner]

_PLACES = {"sides": 1, "planes": 2, "pages": 0, "heads": 3}


def owner_map(carving: Carving) -> dict[int, list[Owner]]:
    """Every byte's owners, each list rising."""
    owners: dict[int, list[Owner]] = defaultdict(list)
    for plane in carving.planes:
        side, kind = SIDES.index(plane.side), PLANES.index(plane.kind)
        for page, head, row, column in product(*map(range, plane.shape)):
            offset = plane.base
            for at, step in zip((page, head, row, column), plane.strides, strict=True):
                offset += at * step
            owners[offset].append((page, side, kind, head, row, column))
    return {byte: sorted(found) for byte, found in owners.items()}


def smallest_pairs(owners: dict[int, list[Owner]]) -> dict[str, Pair | None]:
    """By question, the smallest pair of owners of one byte that differ in what it asks about."""
    smallest: dict[str, Pair | None] = dict.fromkeys(QUESTIONS)
    for found in owners.values():
        for pair in combinations(found, 2):
            for question in QUESTIONS:
                place = _PLACES.get(question)
                if place is None or pair[0][place] != pair[1][place]:
                    best = smallest[question]
                    smallest[question] = pair if best is None else min(best, pair)
    return smallest


def small_shapes() -> Iterator[tuple[int, ...]]:
    """Shapes of few pages, tokens and heads, in both ranks."""
    for pages, tokens, heads, groups in product((1, 2), (1, 3), (1, 2, 3), (1, 2)):
        yield (pages, 2, tokens, heads, 9 * groups)
        yield (pages, 2 * heads, tokens, 9 * groups)


@st.composite
def tensors(draw: st.DrawFn) -> CacheTensor:
    """Small caches with strides of all kinds: dense in any order, padded, overlapping, zero."""
    pages, tokens, heads = (draw(st.integers(1, most)) for most in (3, 4, 3))
    content = 9 * draw(st.integers(1, 2))
    packed = draw(st.booleans())
    shape = (pages, 2 * heads, tokens, content) if packed else (pages, 2, tokens, heads, content)
    strides = [0] * len(shape)
    step = 1
    for axis in (len(shape) - 1, *draw(st.permutations(range(len(shape) - 1)))):
        odd = st.sampled_from([0, 1, 2, 9, 18, 27, 31])
        strides[axis] = draw(st.one_of(st.just(step), st.just(max(1, step // 2)), odd))
        step = strides[axis] * shape[axis] + draw(st.sampled_from([0, 0, 1, 9]))
    return cache_tensor(shape, strides, draw(st.sampled_from([0, 7])))
