"""Runs a lowered kernel over a grid and returns what it did.

Lanes are taken in chunks of whole CTAs. Within a chunk the group of lanes with the lowest program
counter always goes next, which brings structured code back together; lanes that must meet (at a
convergence barrier, a warp synchronisation or a CTA barrier) are parked until nothing else can
run, and then released if everyone they wait for has arrived or left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oracle.errors import UsageError
from oracle.machine.context import Unsupported
from oracle.machine.ir import Function, Terminator
from oracle.machine.lanes import CompiledBlock, compile_function
from oracle.machine.memory import MachineFault, Mask, Memory
from oracle.machine.primitives import RcpModel, rcp_exact
from oracle.machine.state import NO_SCOPE, ConstantBank, State

CHUNK_LANES = 16384
"""Lanes executed together: enough to hide the cost of a NumPy call, few enough for the cache."""
STEP_LIMIT = 200_000
"""Instructions one chunk may issue; a store kernel needs a few thousand."""


@dataclass(frozen=True)
class Statistics:
    """What a launch cost: lanes, instructions issued to a group, and their product over lanes."""

    lanes: int
    steps: int
    lane_instructions: int


@dataclass
class _Parked:
    end: Terminator
    mask: Mask
    members: NDArray[np.uint32] | None


class Program:
    """A kernel ready to launch, any number of times."""

    def __init__(self, function: Function) -> None:
        """Compile the kernel. Raises Unsupported where only a launch warp by warp can run it."""
        if function.cooperative:
            raise Unsupported(f"kernel {function.name} needs its CTAs to be run warp by warp")
        self.function = function
        self.blocks, numbering = compile_function(function)
        self._registers = [
            np.False_ if name.strip("U")[0] == "P" else np.uint32(0) for name in numbering
        ]

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        params: bytes,
        memory: Memory,
        *,
        rcp: RcpModel = rcp_exact,
        step_limit: int = STEP_LIMIT,
        chunk_lanes: int = CHUNK_LANES,
    ) -> Statistics:
        """Execute ``grid`` CTAs of ``block`` threads; ``params`` is the kernel's parameter block.

        Stores land in ``memory``. Raises MachineFault where the program's behaviour is undefined
        or the step limit is reached, UsageError for a launch no GPU would accept.
        """
        threads = block[0] * block[1] * block[2]
        if min(grid) < 1 or min(block) < 1 or threads > 1024:
            raise UsageError(f"a launch of grid {grid} and block {block} is not possible")
        constants = ConstantBank.of(self.function, grid, block, params)
        ctas = grid[0] * grid[1] * grid[2]
        per_chunk = max(1, chunk_lanes // threads)
        steps = lane_instructions = 0
        with np.errstate(all="ignore"):
            for first in range(0, ctas, per_chunk):
                count = min(per_chunk, ctas - first)
                state = State(self.function, list(self._registers), memory, constants, rcp)
                state.place(first, count, grid, block)
                chunk = _Chunk(self.blocks, state, step_limit, self.function.name)
                chunk.run()
                steps += chunk.steps
                lane_instructions += chunk.lane_instructions
        return Statistics(ctas * threads, steps, lane_instructions)


class _Chunk:
    """The scheduler of one chunk: which lanes run which block next."""

    def __init__(
        self, blocks: dict[int, CompiledBlock], state: State, step_limit: int, name: str
    ) -> None:
        self.blocks = blocks
        self.state = state
        self.step_limit = step_limit
        self.name = name
        self.alive: Mask = np.ones(state.lanes, dtype=bool)
        self.living = state.lanes
        self.ready: dict[int, Mask | None] = {0: None}
        self.parked: list[_Parked] = []
        self.steps = 0
        self.lane_instructions = 0

    def run(self) -> None:
        """Run until every lane has left."""
        while self.living:
            if not self.ready:
                self._release()
            address = min(self.ready)
            mask = self.ready.pop(address)
            # With nobody elsewhere the group is everyone alive, and nothing needs merging.
            if not self.ready and not self.parked:
                mask = None
            self._step(address, mask)

    def _step(self, address: int, mask: Mask | None) -> None:
        state = self.state
        state.merge = mask
        if mask is not None:
            state.active = mask
        else:
            state.active = None if self.living == state.lanes else self.alive
        compiled = self.blocks.get(address)
        if compiled is None:
            raise MachineFault(f"{self.name} jumps to {address:#x}, which is not a block")
        length = compiled.block.length
        self.steps += length
        if self.steps > self.step_limit:
            raise MachineFault(
                f"{self.name}: step limit of {self.step_limit} instructions reached at pc "
                f"{address:#06x}; the kernel may loop for ever"
            )
        width = self.living if mask is None else int(np.count_nonzero(mask))
        self.lane_instructions += length * width
        value = compiled.run(state)
        self._leave(compiled, mask, value)

    def _leave(
        self, compiled: CompiledBlock, mask: Mask | None, value: NDArray[np.generic]
    ) -> None:
        end = compiled.block.terminator
        if end.kind == "jump":
            self._push(end.target, mask)
        elif end.kind == "branch":
            taken, rest = self._split(mask, value)
            self._push_if(end.target, taken)
            self._push_if(end.fallthrough, rest)
        elif end.kind == "exit":
            leaving, rest = (mask, False) if value is None else self._split(mask, value)
            if not isinstance(leaving, bool):
                self._exit(leaving)
            if self.living:
                self._push_if(end.fallthrough, rest)
        elif end.kind == "ret":
            self._return(mask, value)
        else:
            self._park(end, mask, value)

    def _group(self, mask: Mask | None) -> Mask:
        return self.alive if mask is None else mask

    def _split(
        self, mask: Mask | None, value: NDArray[np.generic]
    ) -> tuple[Mask | bool | None, Mask | bool | None]:
        """Lanes of the group where value holds, and the others; False stands for none."""
        if np.ndim(value) == 0:
            return (mask, False) if value else (False, mask)
        group = self._group(mask)
        taken = group & value.astype(bool)
        count = int(np.count_nonzero(taken))
        if count == 0:
            return False, mask
        rest = group & ~taken
        return (taken, rest) if rest.any() else (mask, False)

    def _push(self, address: int, mask: Mask | None) -> None:
        other = self.ready.get(address)
        if address in self.ready and other is not None and mask is not None:
            mask = other | mask
        self.ready[address] = mask

    def _push_if(self, address: int, mask: Mask | bool | None) -> None:
        if not isinstance(mask, bool):
            self._push(address, mask)

    def _exit(self, leaving: Mask | None) -> None:
        if leaving is None:
            self.living = 0
            return
        self.alive = self.alive & ~leaving
        self.living = int(np.count_nonzero(self.alive))

    def _return(self, mask: Mask | None, value: NDArray[np.generic]) -> None:
        group = self._group(mask)
        if np.ndim(value) == 0:
            self._push(int(value), mask)
            return
        for address in np.unique(value[group]):
            self._push(int(address), group & (value == address))

    # -- meeting points -------------------------------------------------------------------------

    def _park(self, end: Terminator, mask: Mask | None, value: NDArray[np.generic]) -> None:
        if mask is None and end.kind != "warpsync":
            # Everyone alive is here, so nobody can be missing.
            self._push(end.fallthrough, None)
            return
        group = self._group(mask)
        members = np.broadcast_to(value, group.shape) if end.kind == "warpsync" else None
        self.parked.append(_Parked(end, group, members))

    def _release(self) -> None:
        """Let go every parked lane that has nobody to wait for; a fault where there is none."""
        still: list[_Parked] = []
        self.parked = _together(self.parked)
        waiting = [self._waiting(group) for group in self.parked]
        for group, waits in zip(self.parked, waiting, strict=True):
            free = group.mask & ~waits
            if free.any():
                self._push(group.end.fallthrough, free)
                group.mask = group.mask & ~free
            if group.mask.any():
                still.append(group)
        self.parked = still
        if not self.ready:
            places = ", ".join(
                f"{np.count_nonzero(g.mask)} lanes at pc {g.end.pc:#06x} ({g.end.kind})"
                for g in still
            )
            raise MachineFault(f"{self.name} deadlocks: {places} wait for lanes that never come")

    def _waiting(self, group: _Parked) -> Mask:
        """Lanes that share a meeting with a living lane which has not come to any such meeting."""
        state = self.state
        absent = self.alive.copy()
        for other in self.parked:
            # Lanes meet on a barrier or a convergence register, wherever in the code they do so.
            if (other.end.kind, other.end.token) == (group.end.kind, group.end.token):
                absent &= ~other.mask
        if group.end.kind == "barrier":
            meeting = state.cta
        elif group.end.kind == "reconverge":
            scope = state.tokens.get(group.end.token, np.full(state.lanes, NO_SCOPE))
            absent &= scope != NO_SCOPE
            meeting = scope * state.warps + state.warp
        else:
            assert group.members is not None
            meeting = state.warp
            named = np.zeros(state.warps, dtype=np.uint32)
            np.bitwise_or.at(named, state.warp[group.mask], group.members[group.mask])
            absent &= (named[state.warp] >> state.laneid) & 1 == 1
        return np.isin(meeting, meeting[absent])


def _together(parked: list[_Parked]) -> list[_Parked]:
    """Groups that reached the same place at different times, joined."""
    merged: dict[int, _Parked] = {}
    for group in parked:
        first = merged.setdefault(group.end.pc, group)
        if first is not group:
            if first.members is not None and group.members is not None:
                first.members = np.where(group.mask, group.members, first.members)
            first.mask = first.mask | group.mask
    return list(merged.values())
