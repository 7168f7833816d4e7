"""The loads and stores of a kernel, numbered alike wherever its code is generated."""

from __future__ import annotations

from dataclasses import dataclass

from oracle.machine.ir import Function


@dataclass(frozen=True)
class Site:
    """A load or store of the code: its number, its address and the bytes it accesses."""

    number: int
    name: str
    pc: int
    size: int


class Sites:
    """The loads and stores of a kernel, known by their address and their place in its block.

    An address has more than one where an instruction is taken apart; blocks do not share any.
    """

    def __init__(self, function: Function) -> None:
        self.all: list[Site] = []
        self._at: dict[tuple[int, int], int] = {}
        for address in sorted(function.blocks):
            seen: dict[int, int] = {}
            for op in function.blocks[address].ops:
                if op.name in ("load", "store"):
                    seen[op.pc] = seen.get(op.pc, -1) + 1
                    self._at[op.pc, seen[op.pc]] = len(self.all)
                    self.all.append(Site(len(self.all), op.name, op.pc, int(op.attrs[1])))

    def number(self, pc: int, place: int) -> int:
        """The number of the `place`-th access at an address."""
        return self._at[pc, place]
