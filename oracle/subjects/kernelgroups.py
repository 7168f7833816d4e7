"""Attention kernels in groups, each with the pattern that selects it: their names alone are read.

A wheel has hundreds. Those of one arch, family, head size and page differ in mask, output, schedule
and rows of queries, none of which changes where K and V should lie.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from oracle.errors import UsageError
from oracle.subjects.attention import ANY_PAGE, KernelName


@dataclass(frozen=True, order=True)
class KernelGroup:
    """Kernels of one arch, family (Context is prefill), head size and page.

    `page` tokens, ANY_PAGE where kernels take their size at run time; `names` are theirs, sorted.
    """

    arch: str
    family: str
    head_size: int
    page: int
    names: tuple[str, ...]

    @property
    def pattern(self) -> str:
        """What selects these kernels among those of a wheel: `*Sm103a*H128*P16*Context`."""
        page = "PagedKv*Paged" if self.page == ANY_PAGE else f"P{self.page}"
        arch = self.arch.removeprefix("sm_")
        return f"*Sm{arch}*H{self.head_size}*{page}*{self.family}"


def groups_of(names: Iterable[str]) -> tuple[list[KernelGroup], list[str]]:
    """The groups in the order of their fields, and the names that tell no group."""
    found: dict[tuple[str, str, int, int], list[str]] = {}
    others = []
    for name in sorted(names):
        try:
            kernel = KernelName.parse(name)
        except UsageError:
            others.append(name)
            continue
        key = (kernel.arch, kernel.family, kernel.head_size, kernel.page)
        found.setdefault(key, []).append(name)
    return [KernelGroup(*key, tuple(found[key])) for key in sorted(found)], others
