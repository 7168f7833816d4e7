"""Runs one whole CTA, warp by warp.

Each warp has its own registers and groups of lanes by program counter, of which the lowest goes
first; warps take turns. A group that asks an mbarrier for a phase that is not over yet, in vain,
steps aside until that barrier moves on. Where nobody can go on the run is stuck, and the error
says who waits for what. Asynchronous tiles arrive where they are asked for, or, with `late`, only
when nobody can go on without one: what comes out must not depend on which.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.errors import UsageError
from oracle.machine.ir import Function, Terminator
from oracle.machine.lanes import CompiledBlock, compile_function
from oracle.machine.memory import U64, MachineFault, Memory, Region
from oracle.machine.primitives import RcpModel, rcp_exact
from oracle.machine.shared import SharedMemory
from oracle.machine.state import WARP, ConstantBank, Dim
from oracle.machine.sync import MBarrier, NamedBarrier
from oracle.machine.tensormap import TensorMap
from oracle.machine.warpstate import EVERYONE, Warp, lanes_of, mask_of

STEP_LIMIT = 2_000_000
"""Instructions a CTA may issue."""
TURN_BLOCKS = 200
"""Blocks a warp may run before it is another's turn."""
PATIENCE = 8
"""Rounds in which every wait is tried again before a CTA counts as stuck."""


@dataclass(frozen=True, eq=False)
class Observation:
    """One QMUL4: which nibbles of a word of codes met which bytes of a word of scales.

    `codes` and `scales` uint32 [replicas, n] for the n lanes that took part.
    """

    pc: int
    warp: int
    nibbles: str
    places: str
    codes: NDArray[np.uint32]
    scales: NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class CodedRegion:
    """A region of global memory and its image in each replica, uint8 [replicas, size]."""

    region: Region
    images: NDArray[np.uint8]


@dataclass
class Launch:
    """What a CTA is launched with.

    `tensor_maps` by the address of their descriptor; `driver` are further bytes of constant bank 0
    by offset; `shared_bytes` are those asked for at launch, on top of the kernel's own.
    """

    grid: Dim
    block: Dim
    index: Dim
    params: bytes
    memory: Memory
    shared_bytes: int = 0
    tensor_maps: Mapping[int, TensorMap] = field(default_factory=dict)
    coded: tuple[CodedRegion, ...] = ()
    driver: Mapping[int, bytes] = field(default_factory=dict)
    rcp: RcpModel = rcp_exact
    step_limit: int = STEP_LIMIT
    late: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a CTA did: its multiplications in order, and the instructions its warps issued."""

    observations: tuple[Observation, ...]
    steps: int
    tiles: Mapping[str, int]


class CtaProgram:
    """A kernel ready to be run CTA by CTA."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self._blocks, numbering = compile_function(function, one_warp=True)
        self._registers = [
            np.False_ if name.strip("U")[0] == "P" else np.uint32(0) for name in numbering
        ]

    def block(self, address: int) -> CompiledBlock:
        """The block at an address. Raises MachineFault where there is none."""
        found = self._blocks.get(address)
        if found is None:
            raise MachineFault(f"{self.function.name} jumps to {address:#x}, which is no block")
        return found

    def run(self, launch: Launch) -> Outcome:
        """Run one CTA to its end.

        Raises MachineFault where its behaviour is undefined, depends on coded memory, or is stuck;
        UsageError for a launch no GPU would accept.
        """
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        if threads % WARP or not 0 < threads <= 1024:
            raise UsageError(f"a CTA of {threads} threads cannot be run warp by warp")
        with np.errstate(all="ignore"):
            return Cta(self, launch, list(self._registers), threads // WARP).run()


@dataclass
class _Parked:
    """A group that waits for other lanes of its warp, or (`end` None) at a named barrier."""

    mask: int
    end: Terminator
    members: int


@dataclass
class _Waiter:
    worker: _Worker
    mask: int
    address: int


class Cta:
    """The objects that the warps of one CTA share."""

    def __init__(
        self, program: CtaProgram, launch: Launch, registers: list[Any], warps: int
    ) -> None:
        function = program.function
        self.program = program
        self.block = launch.block
        self.index = launch.index
        self.memory = launch.memory
        self.rcp = launch.rcp
        self.local_bytes = function.local_bytes
        self.constants = ConstantBank.of(
            function, launch.grid, launch.block, launch.params, launch.driver
        )
        self.shared = SharedMemory(function.shared_bytes + launch.shared_bytes)
        self.barriers: dict[int, MBarrier] = {}
        self.named: dict[int, NamedBarrier[_Waiter]] = {}
        self.events = 0
        self.steps = 0
        self._launch = launch
        self._observations: list[Observation] = []
        self._tiles: dict[str, int] = {}
        self._under_way: deque[Callable[[], None]] = deque()
        self.workers = [_Worker(self, Warp(self, w, list(registers))) for w in range(warps)]

    # -- running --------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Give the warps turns until all have left."""
        tried = 0
        while any(worker.alive for worker in self.workers):
            before = self.events
            progress = [worker.turn() for worker in self.workers]
            if any(progress) or self.events != before:
                tried = 0 if self.events != before else tried
                if any(progress):
                    continue
            if self._under_way:
                self._under_way.popleft()()
                tried = 0
                continue
            tried += 1
            if tried > PATIENCE:
                raise MachineFault(f"{self.program.function.name} is stuck: {self._waits()}")
            for worker in self.workers:
                worker.stalled.clear()
        open_counts = [str(b) for b in self.barriers.values() if b.outstanding]
        if open_counts:
            raise MachineFault(
                f"{self.program.function.name} ends with bytes to come: {'; '.join(open_counts)}"
            )
        return Outcome(tuple(self._observations), self.steps, dict(self._tiles))

    def _waits(self) -> str:
        return "; ".join(text for worker in self.workers for text in worker.waits())

    def count(self, instructions: int, pc: int) -> None:
        """Count issued instructions. Raises MachineFault past the limit."""
        self.steps += instructions
        if self.steps > self._launch.step_limit:
            raise MachineFault(
                f"{self.program.function.name}: step limit of {self._launch.step_limit} "
                f"instructions reached at pc {pc:#06x}; the kernel may loop for ever"
            )

    # -- barriers -------------------------------------------------------------------------------

    def barrier(self, address: int, pc: int) -> MBarrier:
        """The mbarrier at a shared address."""
        found = self.barriers.get(address)
        if found is None:
            raise MachineFault(f"pc {pc:#06x}: there is no mbarrier at {address:#x}")
        return found

    def synchronise(self, operation: str, address: int, arrivals: int, value: int, pc: int) -> None:
        """Change an mbarrier: init, arrive, expect or complete."""
        self.events += 1
        if operation == "init":
            self.barriers[address] = MBarrier.initialised(address, value)
            return
        barrier = self.barrier(address, pc)
        if operation == "arrive":
            barrier.arrive(arrivals, value)
        elif operation == "arrive_many":
            barrier.arrive(value)
        elif operation == "expect":
            barrier.outstanding += value
        else:
            barrier.complete(value)

    def meet(self, worker: _Worker, number: int, expected: int, mask: int, address: int) -> None:
        """Wait at a named barrier, or let everyone go."""
        self.events += 1
        barrier = self.named.setdefault(number, NamedBarrier(expected))
        if not barrier.waiting:
            barrier.expected = expected
        if barrier.expected != expected:
            raise MachineFault(f"barrier {number} is used for {barrier.expected} and {expected}")
        for waiter in barrier.join(_Waiter(worker, mask, address), mask.bit_count()):
            waiter.worker.resume(waiter.address, waiter.mask)

    def left(self) -> None:
        """Lanes have left: the barrier of the whole CTA expects fewer."""
        self.events += 1
        barrier = self.named.get(WHOLE_CTA)
        if barrier is not None and barrier.waiting:
            barrier.expected = self.living
            if barrier.arrived >= barrier.expected:
                for waiter in barrier.release():
                    waiter.worker.resume(waiter.address, waiter.mask)

    @property
    def living(self) -> int:
        """Lanes that have not left."""
        return sum(worker.alive.bit_count() for worker in self.workers)

    # -- memory ---------------------------------------------------------------------------------

    def load_global(self, address: U64, size: int, pc: int) -> tuple[Any, ...]:
        """Words of global memory; [replicas, n] where they are coded."""
        for coded in self._launch.coded:
            offset = address - np.uint64(coded.region.base)
            inside = offset < np.uint64(coded.region.size)
            if inside.all():
                at = offset.astype(np.int64)[:, None] + np.arange(max(size, 4)) % size
                chunks = np.ascontiguousarray(coded.images[:, at]).view(np.uint32)
                return tuple(chunks[..., i] for i in range(max(1, size // 4)))
            if inside.any():
                raise MachineFault(f"pc {pc:#06x}: one load of coded and of other memory")
        return self.memory.load(address, size, pc)

    def load_tile(
        self, pointer: int, corner: tuple[int, ...], shared: int, barrier: int, pc: int
    ) -> None:
        """Copy a tile and count its bytes."""
        tensor_map = self._launch.tensor_maps.get(pointer)
        if tensor_map is None or len(tensor_map.dims) != len(corner):
            raise MachineFault(f"pc {pc:#06x}: no tensor map of {len(corner)}D at {pointer:#x}")
        source, target = tensor_map.tile(corner, shared)
        name, size = tensor_map.name, tensor_map.tile_bytes

        def arrive() -> None:
            self.shared.fill(target, self._bytes_at(source, name, pc), pc)
            self._tiles[name] = self._tiles.get(name, 0) + 1
            self.synchronise("complete", barrier, 1, size, pc)

        if self._launch.late:
            self._under_way.append(arrive)
        else:
            arrive()

    def _bytes_at(self, source: NDArray[np.int64], name: str, pc: int) -> NDArray[np.uint8]:
        """Bytes of global addresses, 0 for an address of -1."""
        outside = source < 0
        first = int(source[~outside][0]) if not outside.all() else -1
        for coded in self._launch.coded:
            if coded.region.base <= first < coded.region.base + coded.region.size:
                offset = np.where(outside, 0, source - coded.region.base)
                if offset.min() < 0 or offset.max() >= coded.region.size:
                    raise MachineFault(f"pc {pc:#06x}: a tile of {name} leaves its memory")
                return np.where(outside, np.uint8(0), coded.images[:, offset])
        values = np.zeros(source.size, np.uint8)
        inside = ~outside
        if inside.any():
            (words,) = self.memory.load(source[inside].astype(np.uint64), 1, pc)
            values[inside] = words.astype(np.uint8)
        return values

    def observe(
        self, pc: int, warp: int, nibbles: str, places: str, codes: Any, scales: Any, lanes: Any
    ) -> None:
        """Keep what a multiplication multiplied."""
        shape = (self._replicas, WARP)
        both = (np.broadcast_to(v, shape)[:, lanes] for v in (codes, scales))
        self._observations.append(Observation(pc, warp, nibbles, places, *both))

    @property
    def _replicas(self) -> int:
        return self._launch.coded[0].images.shape[0] if self._launch.coded else 1


WHOLE_CTA = 0
"""The number of the barrier that __syncthreads() uses."""


class _Worker:
    """Schedules the groups of one warp; masks are integers, lane 0 in bit 0."""

    def __init__(self, cta: Cta, warp: Warp) -> None:
        self.cta = cta
        self.warp = warp
        self.alive = EVERYONE
        self.ready: dict[int, int] = {0: EVERYONE}
        self.stalled: dict[int, list[tuple[MBarrier, int, int]]] = {}
        self.parked: list[_Parked] = []

    def turn(self) -> bool:
        """Run blocks until nothing can go on or the turn is over; whether anything ran."""
        ran = 0
        while ran < TURN_BLOCKS:
            address = self._next()
            if address is None:
                break
            self._step(address)
            ran += 1
        return ran > 0

    def _next(self) -> int | None:
        while True:
            free = [a for a in self.ready if not self._is_stalled(a)]
            if free:
                return min(free)
            if not self._release():
                return None

    def _is_stalled(self, address: int) -> bool:
        waits = self.stalled.get(address)
        if not waits:
            return False
        if any(barrier.phases != phases for barrier, phases, _ in waits):
            del self.stalled[address]
            return False
        return True

    def _step(self, address: int) -> None:
        mask = self.ready.pop(address)
        self.stalled.pop(address, None)
        warp = self.warp
        warp.merge = None if mask == self.alive else lanes_of(mask)
        warp.active = None if mask == EVERYONE else lanes_of(mask)
        warp.failed = []
        compiled = self.cta.program.block(address)
        self.cta.count(compiled.block.length, address)
        value = compiled.run(warp)
        self._leave(compiled.block.terminator, mask, value)

    def _leave(self, end: Terminator, mask: int, value: Any) -> None:
        if end.kind == "jump":
            self._push(end.target, mask)
        elif end.kind == "branch":
            taken = self._where(value, mask, end.pc)
            self._push(end.target, taken)
            self._push(end.fallthrough, mask & ~taken)
        elif end.kind == "exit":
            leaving = mask if value is None else self._where(value, mask, end.pc)
            self.alive &= ~leaving
            self._push(end.fallthrough, mask & ~leaving)
            if leaving:
                self.cta.left()
        elif end.kind == "ret":
            self._return(end, mask, value)
        elif end.kind == "barrier":
            self.cta.meet(self, WHOLE_CTA, self.cta.living, mask, end.fallthrough)
        elif end.kind == "meet":
            packed = int(self.warp.agreed(value, lanes_of(mask), "a meeting", end.pc))
            self.cta.meet(self, packed & 0xFFFF, packed >> 16, mask, end.fallthrough)
        elif mask == self.alive:
            # Everyone of the warp is here.
            self._push(end.fallthrough, mask)
        else:
            members = EVERYONE
            if end.kind == "warpsync":
                members = int(self.warp.agreed(value, lanes_of(mask), "a meeting", end.pc))
            self.parked.append(_Parked(mask, end, members))

    def _where(self, value: Any, mask: int, pc: int) -> int:
        """Lanes of the group where a condition holds."""
        if np.ndim(value) == 0:
            return mask if value else 0
        return mask & mask_of(self.warp.plain(value, lanes_of(mask), "control flow", pc))

    def _return(self, end: Terminator, mask: int, value: Any) -> None:
        targets = self.warp.plain(value, lanes_of(mask), "control flow", end.pc)
        for address in np.unique(targets[lanes_of(mask)]):
            self._push(int(address), mask & mask_of(targets == address))

    def _push(self, address: int, mask: int) -> None:
        if not mask:
            return
        waits = [wait for wait in self.warp.failed if wait[2] & mask]
        if address in self.ready:
            # Lanes that need not wait take those along that do: they try again together.
            waits = [*waits, *self.stalled[address]] if waits and address in self.stalled else []
            self.stalled.pop(address, None)
        self.ready[address] = self.ready.get(address, 0) | mask
        if waits:
            self.stalled[address] = waits

    def resume(self, address: int, mask: int) -> None:
        """Go on after a barrier."""
        self.warp.failed = []
        self._push(address, mask)

    # -- meeting points of the warp -------------------------------------------------------------

    def _release(self) -> bool:
        """Let parked groups go whose company has arrived or left; whether there was any."""
        freed = False
        still: list[_Parked] = []
        self.warp.failed = []
        arrived: dict[tuple[str, int], int] = {}
        for group in self.parked:
            key = (group.end.kind, group.end.token)
            arrived[key] = arrived.get(key, 0) | group.mask
        for group in self.parked:
            here = arrived[group.end.kind, group.end.token]
            free = sum(
                1 << lane
                for lane in range(WARP)
                if group.mask >> lane & 1 and not self._company(group, lane) & ~here
            )
            if free:
                freed = True
                self._push(group.end.fallthrough, free)
            if group.mask & ~free:
                still.append(_Parked(group.mask & ~free, group.end, group.members))
        self.parked = still
        return freed

    def _company(self, group: _Parked, lane: int) -> int:
        """Living lanes that a parked lane waits for."""
        if group.end.kind == "warpsync":
            return group.members & self.alive
        scope = self.warp.scopes.get(group.end.token)
        return int(scope[lane]) & self.alive if scope is not None else 0

    def waits(self) -> list[str]:
        """Who waits for what, in words."""
        name = f"warp {self.warp.index}"
        texts = []
        for address, mask in self.ready.items():
            waits = ", ".join(str(barrier) for barrier, _, _ in self.stalled.get(address, ()))
            lanes = mask.bit_count()
            texts.append(f"{name} ({lanes} lanes at {address:#06x}) for {waits or 'a condition'}")
        for group in self.parked:
            lanes = group.mask.bit_count()
            texts.append(f"{name} ({lanes} lanes at {group.end.pc:#06x}) for lanes of the warp")
        for number, barrier in self.cta.named.items():
            if any(waiter.worker is self for waiter in barrier.waiting):
                here = f"{barrier.arrived} of {barrier.expected} threads"
                texts.append(f"{name} at barrier {number}, where {here} have come")
        return texts
