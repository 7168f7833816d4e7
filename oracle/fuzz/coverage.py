"""Which part of the domain of cases was visited, one dimension at a time.

A dimension is a property of cases with a few values; a case has one of them, or of its slots
several. What is counted is how many cases had each value. Combinations of values are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from oracle import fields
from oracle.properties.case import StoreCase

SLOTS: Mapping[str, Callable[[StoreCase], bool]] = {
    "rising": lambda case: len(case.slots) > 1 and list(case.slots) == sorted(case.slots),
    "shuffled": lambda case: list(case.slots) != sorted(case.slots),
    "repeated": lambda case: len(_stored(case)) < sum(slot >= 0 for slot in case.slots),
    "padding": lambda case: any(slot < 0 for slot in case.slots),
    "first slot": lambda case: 0 in case.slots,
    "last slot": lambda case: case.geometry.num_slots - 1 in case.slots,
    "several pages": lambda case: len(_pages(case)) > 1,
    "whole page": lambda case: case.block_size in _pages(case).values(),
}
"""What the slots of a case may be; each says whether they are."""

DIMENSIONS = {
    "head_size": "head sizes",
    "block_size": "page sizes",
    "num_heads": "heads",
    "num_pages": "pages",
    "cache_layout": "cache layouts",
    "dtype": "dtypes",
    "values": "values",
    "slots": "slots",
}
"""The dimensions, and what their values are called."""


def _stored(case: StoreCase) -> set[int]:
    return {slot for slot in case.slots if slot >= 0}


def _pages(case: StoreCase) -> Counter[int]:
    """How many tokens of each page are stored."""
    return Counter(slot // case.block_size for slot in _stored(case))


def values_of(case: StoreCase, dimension: str) -> list[str]:
    """The values that a case has in a dimension, as texts."""
    if dimension == "slots":
        return [name for name, holds in SLOTS.items() if holds(case)]
    return [str(getattr(case, dimension))]


class Coverage:
    """How many cases had each value of each dimension.

    `counts` maps a dimension to the values of its domain in order, and each of them to a number.
    """

    def __init__(self, domain: Mapping[str, tuple[object, ...]]) -> None:
        self.counts = {
            dimension: dict.fromkeys(map(str, domain[dimension]), 0) for dimension in DIMENSIONS
        }

    def add(self, case: StoreCase) -> None:
        """Count a case. One outside the domain, as a database may hold, counts where it fits."""
        for dimension, counts in self.counts.items():
            for value in values_of(case, dimension):
                if value in counts:
                    counts[value] += 1

    def merge(self, other: Coverage) -> None:
        """Add what another one counted."""
        for dimension, counts in self.counts.items():
            for value, count in other.counts[dimension].items():
                if value in counts:
                    counts[value] += count

    def visited(self, dimension: str) -> tuple[int, int]:
        """How many values were visited, of how many."""
        counts = self.counts[dimension].values()
        return sum(count > 0 for count in counts), len(counts)

    def in_words(self) -> str:
        """`head sizes 6/6, page sizes 3/7, …`: how many were visited, of how many."""
        return ", ".join(
            f"{name} {visited}/{total}"
            for dimension, name in DIMENSIONS.items()
            for visited, total in (self.visited(dimension),)
        )

    def document(self) -> dict[str, dict[str, int]]:
        """The counts as a JSON object, which `restore` takes."""
        return {dimension: dict(counts) for dimension, counts in self.counts.items()}

    def restore(self, told: object) -> None:
        """Add the counts of a JSON object. Raises UsageError for one that holds no counts.

        What the domain does not have is left out: it is another session's, or an older one's.
        """
        kept = fields.record(told, "coverage", DIMENSIONS)
        for dimension, counts in self.counts.items():
            where = f"coverage.{dimension}"
            each = kept[dimension]
            if not isinstance(each, dict):
                fields.refuse(where, "is no object")
            for value in counts:
                counts[value] += fields.integer()(each.get(value, 0), where)
