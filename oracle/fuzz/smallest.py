"""The last steps of shrinking: every smaller value of each size of a geometry, one by one.

Hypothesis takes for granted that what fails small fails at most sizes in between. A layout's fault
need not: it may show on pages of 4 and 11 tokens alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from oracle.errors import UsageError
from oracle.properties.case import StoreCase
from oracle.properties.strategies import Limits


def smallest(case: StoreCase, fails: Callable[[StoreCase], bool], limits: Limits) -> StoreCase:
    """The case, or one that fails with no size that could be smaller while the others stay."""
    found: StoreCase | None = case
    while found is not None:
        case = found
        found = next(filter(fails, _smaller(case, limits)), None)
    return case


def _smaller(case: StoreCase, limits: Limits) -> Iterator[StoreCase]:
    """The case with one size smaller, the smallest first."""
    for name, sizes in (
        ("head_size", limits.head_sizes),
        ("num_heads", limits.num_heads),
        ("block_size", limits.block_sizes),
        ("num_pages", range(1, limits.most_pages + 1)),
    ):
        for size in sorted(size for size in sizes if size < getattr(case, name)):
            changed: dict[str, Any] = {name: size}
            try:
                yield replace(case, **changed)
            except UsageError:
                # Its tokens need the page that is gone.
                continue
