"""The cases a session draws from: those of `oracle.properties.strategies` that a subject takes."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from oracle.errors import NothingRan
from oracle.fuzz.coverage import SLOTS
from oracle.fuzz.subject import Subject
from oracle.geometry import CacheGeometry
from oracle.properties.case import StoreCase
from oracle.properties.strategies import Limits, store_cases
from oracle.properties.values import KINDS


def cases_of(subject: Subject, limits: Limits) -> st.SearchStrategy[StoreCase]:
    """Cases within limits that a subject takes, for each of its dtypes.

    Raises NothingRan where it takes none.
    """
    strategies = []
    reasons = []
    for dtype, writer in subject.writers.items():
        try:
            strategies.append(store_cases(writer, subject.reader, limits, (dtype,)))
        except NothingRan as error:
            reasons.append(str(error))
    if not strategies:
        raise NothingRan("; ".join(dict.fromkeys(reasons)))
    return st.one_of(strategies)


def domain_of(subject: Subject, limits: Limits) -> dict[str, tuple[object, ...]]:
    """The values of each dimension of `oracle.fuzz.coverage` that some case of a subject has.

    Raises NothingRan where it takes no case.
    """
    shapes = product(limits.head_sizes, limits.block_sizes, limits.num_heads, limits.cache_layouts)
    taken = [shape for shape in shapes if _takes(subject, limits, *shape)]
    if not taken:
        raise NothingRan(f"{subject.spec} takes no geometry that cases are to be drawn from")
    sizes, pages, heads, layouts = (sorted(set(each)) for each in zip(*taken, strict=True))
    return {
        "head_size": tuple(sizes),
        "block_size": tuple(pages),
        "num_heads": tuple(heads),
        "num_pages": tuple(range(1, limits.most_pages + 1)),
        "cache_layout": tuple(layouts),
        "dtype": subject.dtypes,
        "values": KINDS,
        "slots": tuple(SLOTS),
    }


def _takes(
    subject: Subject, limits: Limits, size: int, tokens: int, heads: int, layout: str
) -> bool:
    """Whether cases of a shape are drawn and taken, with some dtype."""
    if size * tokens * heads > limits.most_page_elements:
        return False
    geometry = CacheGeometry(limits.most_pages, tokens, heads, size, layout)
    reader = subject.reader
    return any(
        writer.unsupported_reason(geometry, dtype) is None
        and (reader is None or reader.unsupported_reason(geometry, dtype) is None)
        for dtype, writer in subject.writers.items()
    )
