"""What is known of a kernel's values before it runs: who follows whom, what lives, what is uniform.

Registers carry everything between blocks, so each analysis is a set of register names at the entry
of each block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from oracle.machine.ir import Block, Function, Terminator, Value

Registers = frozenset[str]

PER_LANE = frozenset({"tid.x", "tid.y", "tid.z", "laneid", "warpid", "lt_mask"})
"""Coordinates that differ between the lanes of one CTA."""


def successors(function: Function, end: Terminator) -> tuple[int, ...]:
    """Addresses a terminator may go to."""
    if end.kind == "ret":
        return function.return_points
    return tuple(dict.fromkeys(a for a in (end.target, end.fallthrough) if a >= 0))


def predecessors(function: Function) -> dict[int, set[int]]:
    """The blocks that may precede each block."""
    found: dict[int, set[int]] = {address: set() for address in function.blocks}
    for address, block in function.blocks.items():
        for successor in successors(function, block.terminator):
            if successor in found:
                found[successor].add(address)
    return found


def reachable(function: Function) -> list[int]:
    """Addresses of the blocks that can be reached from the entry, rising."""
    seen: set[int] = set()
    left = [0]
    while left:
        address = left.pop()
        if address in seen or address not in function.blocks:
            continue
        seen.add(address)
        left += successors(function, function.blocks[address].terminator)
    return sorted(seen)


def gets(block: Block) -> set[str]:
    """Registers a block reads from before it."""
    return {str(op.attrs[0]) for op in block.ops if op.name == "get"}


def sets(block: Block) -> dict[str, Value]:
    """The registers a block writes and their values at its end."""
    return {str(op.attrs[0]): op.args[0] for op in block.ops if op.name == "set"}


def live_in(function: Function) -> dict[int, Registers]:
    """The registers that hold something needed, at the entry of each block."""
    reads = {a: frozenset(gets(b)) for a, b in function.blocks.items()}
    writes = {a: frozenset(sets(b)) for a, b in function.blocks.items()}
    live = dict(reads)
    changed = True
    while changed:
        changed = False
        for address in sorted(function.blocks, reverse=True):
            after: frozenset[str] = frozenset()
            for successor in successors(function, function.blocks[address].terminator):
                after |= live.get(successor, frozenset())
            now = reads[address] | (after - writes[address])
            if now != live[address]:
                live[address], changed = now, True
    return live


def varying_values(block: Block, varying: Iterable[str]) -> set[Value]:
    """Values of a block that may differ between lanes, given the registers that do at its entry."""
    registers = set(varying)
    found: set[Value] = set()
    for op in block.ops:
        if op.name == "get":
            differs = op.attrs[0] in registers
        elif op.name == "special":
            differs = op.attrs[0] in PER_LANE
        else:
            differs = any(arg in found for arg in op.args)
        if differs:
            found.update(op.results)
    return found


def varying_registers(function: Function) -> dict[int, Registers]:
    """The registers that may differ between lanes at the entry of each block.

    Holds where the lanes of a group always run the same block, as those of a vector do.
    """
    entry: dict[int, Registers] = {address: frozenset() for address in function.blocks}
    left = reachable(function)
    visited: set[int] = set()
    while left:
        address = left.pop(0)
        visited.add(address)
        block = function.blocks[address]
        out = _varying_at_exit(block, entry[address])
        for successor in successors(function, block.terminator):
            if successor in entry and not out <= entry[successor]:
                entry[successor] |= out
                if successor in visited and successor not in left:
                    left.append(successor)
    return entry


def _varying_at_exit(block: Block, entry: Registers) -> Registers:
    values = varying_values(block, entry)
    written = sets(block)
    changed = {name for name, value in written.items() if value in values}
    return frozenset(name for name in entry if name not in written) | frozenset(changed)


def constants(block: Block) -> Mapping[Value, int]:
    """The constants of a block and their bits."""
    return {op.results[0]: int(op.attrs[0]) for op in block.ops if op.name == "const"}
