"""Launches compiled kernels: the same effects on memory as NumPy lanes have, in native code.

Chunks of CTAs are independent, so threads may share them out; the result does not depend on how.
A launch that faults is executed again, from the memory it began with, on NumPy lanes: which lane
faults first, and with which words, is theirs to say. Launches that need something else compiled
code lacks (another reciprocal, an unknown constant) go to NumPy lanes as well, and say so.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.errors import UsageError
from oracle.machine.compiled.abi import (
    DONE,
    FAULT,
    FINISH_LANE,
    GROW,
    MAX_BANKS,
    STEP_LIMIT,
    Context,
    Site,
)
from oracle.machine.compiled.build import Build, bindings, constant_words
from oracle.machine.compiled.log import ChunkLog, overlap, replay, strays
from oracle.machine.compiled.pool import BufferPool
from oracle.machine.ir import Function
from oracle.machine.launch import CHUNK_LANES, Program, Statistics
from oracle.machine.launch import STEP_LIMIT as STEPS
from oracle.machine.memory import U8, U32, MachineFault, Mask, Memory, StoreEvent
from oracle.machine.primitives import RCP_MODELS, RcpModel, rcp_exact
from oracle.machine.state import ConstantBank

RCP_STEPS = {"exact": 0, "+1ulp": 1, "-1ulp": -1}
"""Models of the reciprocal that compiled code knows, by how far they move the exact result."""
Dim = tuple[int, int, int]

_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_numbers = itertools.count()
_link_lock = threading.Lock()


class CompiledProgram:
    """A kernel as native code, ready to launch any number of times.

    Raises NotCompiled where llvmlite is missing or the kernel has to stay on NumPy lanes.
    """

    def __init__(self, function: Function, lanes: int = 0) -> None:
        self.function = function
        self.build = Build(function, lanes)
        self.tier = "compiled"
        """Who answered the last launch: "compiled", or "numpy" and why."""
        self._constants = _by_bank(constant_words(function))
        self.stores = self.build.stores
        self.split_groups = 0
        """How many groups of the last launch were finished lane by lane."""
        self.records = 1
        """The most log records that a group has needed for a store in an earlier launch."""
        self._spare: dict[int, U8] = {}
        self.pool = BufferPool()
        """Memory for the logs."""
        self._lock = threading.Lock()
        self._chunks: dict[int, _Chunk] = {}
        self._grow = GROW(self._grow_log)
        self._first_finish = FINISH_LANE(self._finish_first)
        self._finish: Any = None
        self.grow_address = ctypes.cast(self._grow, ctypes.c_void_p).value
        """What the code calls when a log is full."""
        self.finish_address = ctypes.cast(self._first_finish, ctypes.c_void_p).value
        """Where the code that finishes single lanes begins."""
        self._library = _link(self.build.group(), "launch")
        self._launch = _LAUNCH(self._library["launch"])

    @cached_property
    def numpy(self) -> Program:
        """The same kernel on NumPy lanes."""
        return Program(self.function)

    def launch(
        self,
        grid: Dim,
        block: Dim,
        params: bytes,
        memory: Memory,
        *,
        rcp: RcpModel = rcp_exact,
        step_limit: int = STEPS,
        chunk_lanes: int = CHUNK_LANES,
        jobs: int = 1,
        log: bool = True,
    ) -> Statistics:
        """Execute ``grid`` CTAs of ``block`` threads, as `Program.launch` does.

        ``jobs`` threads share the chunks. Without ``log`` stores and strays are performed but not
        recorded. The step limit holds for each group of lanes rather than for a chunk, and the
        instructions counted are those issued to such groups. Raises MachineFault and UsageError.
        """
        threads = block[0] * block[1] * block[2]
        if min(grid) < 1 or min(block) < 1 or threads > 1024:
            raise UsageError(f"a launch of grid {grid} and block {block} is not possible")
        constants = ConstantBank.of(self.function, grid, block, params)
        step = _rcp_step(rcp)
        reason = None
        if step is None:
            reason = "this model of the reciprocal is not compiled"
        elif not self._all_known(constants):
            reason = "a constant that nothing is known of"
        if reason is not None:
            return self._on_numpy(reason, grid, block, params, memory, rcp, step_limit, chunk_lanes)
        before = _Snapshot(memory, self._spare, log)
        shared = _Shared(self, grid, block, memory, constants, int(step or 0), step_limit, log)
        shared.watch(before.touched)
        ctas = grid[0] * grid[1] * grid[2]
        per_chunk = max(1, chunk_lanes // threads)
        spans = [(first, min(per_chunk, ctas - first)) for first in range(0, ctas, per_chunk)]
        chunks = self._run(shared, spans, jobs)
        status = next((c.status for c in chunks if c.status != DONE), DONE)
        if status != DONE:
            before.restore()
        if status == FAULT:
            return self._on_numpy(
                "a fault", grid, block, params, memory, rcp, step_limit, chunk_lanes
            )
        if status == STEP_LIMIT:
            at = next(c.context.limit_pc for c in chunks if c.status == STEP_LIMIT)
            raise MachineFault(
                f"{self.function.name}: step limit of {step_limit} instructions reached at pc "
                f"{at:#06x}; the kernel may loop for ever"
            )
        self.split_groups = sum(int(c.context.split_groups) for c in chunks)
        self._record(memory, chunks, before)
        before.release()
        self.tier = "compiled"
        return Statistics(
            ctas * threads,
            sum(int(c.context.steps) for c in chunks),
            sum(int(c.context.lane_instructions) for c in chunks),
        )

    def _on_numpy(
        self, reason: str, grid: Dim, block: Dim, params: bytes, memory: Memory, rcp: RcpModel,
        step_limit: int, chunk_lanes: int,
    ) -> Statistics:  # fmt: skip
        self.tier = f"numpy: {reason}"
        return self.numpy.launch(
            grid, block, params, memory, rcp=rcp, step_limit=step_limit, chunk_lanes=chunk_lanes
        )

    def _all_known(self, constants: ConstantBank) -> bool:
        for bank, offsets in self._constants.items():
            words = constants._words.get(bank)
            if words is None or (offsets >> 2 >= words.size).any():
                return False
            if bank == 0 and not constants._known[offsets].all():
                return False
        return True

    def _run(self, shared: _Shared, spans: list[tuple[int, int]], jobs: int) -> list[_Chunk]:
        if jobs > 1 and len(spans) > 1:
            with ThreadPoolExecutor(jobs) as pool:
                return list(pool.map(lambda span: self._run_chunk(shared, *span), spans))
        chunks = []
        for span in spans:
            chunks.append(self._run_chunk(shared, *span))
            if chunks[-1].status != DONE:
                break
        return chunks

    def _run_chunk(self, shared: _Shared, first: int, count: int) -> _Chunk:
        chunk = _Chunk(shared, first, count)
        address = ctypes.addressof(chunk.context)
        self._chunks[address] = chunk
        try:
            chunk.status = self._launch(address)
        finally:
            del self._chunks[address]
        return chunk

    def _record(self, memory: Memory, chunks: list[_Chunk], before: _Snapshot) -> None:
        """Enter the logs into memory, and settle whose store stays where several met."""
        if not chunks or not chunks[0].shared.log:
            return
        events: list[StoreEvent] = []
        for chunk in chunks:
            assert chunk.log is not None
            self.records = max(self.records, -(-chunk.log.records // chunk.groups))
            events += chunk.log.events()
        memory.stores += events
        if any(chunk.context.stray_stores for chunk in chunks):
            memory.strays += strays(memory, events)
        if before.may_overlap(events) and overlap(events):
            replay(memory, events)

    # -- called by the code ---------------------------------------------------------------------

    def _grow_log(self, context: int) -> None:
        self._chunks[context].grow()

    def _finish_first(self, context: int, *rest: Any) -> int:
        """Compile, or load, what finishes single lanes; then let it."""
        with self._lock:
            if self._finish is None:
                library = _link(self.build.single(), "finish_lane")
                self._finish = library, FINISH_LANE(library["finish_lane"])
                self.finish_address = library["finish_lane"]
        self._chunks[context].context.finish_lane = self.finish_address
        return int(self._finish[1](context, *rest))


def _by_bank(words: set[tuple[int, int]]) -> dict[int, NDArray[np.int64]]:
    banks: dict[int, list[int]] = {}
    for bank, offset in words:
        banks.setdefault(bank, []).append(offset)
    return {bank: np.array(sorted(offsets), np.int64) for bank, offsets in banks.items()}


def _rcp_step(rcp: RcpModel) -> int | None:
    return next((RCP_STEPS[n] for n, m in RCP_MODELS.items() if m is rcp and n in RCP_STEPS), None)


def _link(code: bytes, symbol: str) -> Any:
    """Load an object; what it returns keeps the code alive."""
    llvm = bindings()
    with _link_lock:
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        return builder.export_symbol(symbol).link(_engine(llvm), f"kernel{next(_numbers)}")


_engines: list[Any] = []


def _engine(llvm: Any) -> Any:
    if not _engines:
        _engines.append(llvm.create_lljit_compiler())
    return _engines[0]


class _Snapshot:
    """What a launch may change, as it was before, and which bytes it stores to."""

    def __init__(self, memory: Memory, spare: dict[int, U8], watch: bool) -> None:
        self._spare = spare
        self._kept = [(r, self._copy(r.data)) for r in memory.regions if r.writable]
        self._marks: dict[int, Mask] = {}
        self.touched: dict[int, Mask] = {}
        """For regions by their base: where stores leave their marks."""
        self._fresh = True
        for region, _ in self._kept:
            if region.initialised is None:
                if watch:
                    self.touched[region.base] = np.zeros(region.data.size, bool)
                continue
            self.touched[region.base] = region.initialised
            if region.initialised.any():
                self._fresh = False
                self._marks[region.base] = region.initialised.copy()

    def _copy(self, data: U8) -> U8:
        # New memory costs more than the copy: take what an earlier launch left.
        kept = self._spare.pop(data.size, None)
        if kept is None:
            return data.copy()
        kept[:] = data
        return kept

    def restore(self) -> None:
        """Put everything back."""
        for region, data in self._kept:
            region.data[:] = data
            if region.initialised is not None:
                region.initialised[:] = self._marks.get(region.base, False)

    def release(self) -> None:
        """Leave the memory of the copies to a later launch."""
        self._spare.clear()
        for _, data in self._kept:
            self._spare[data.size] = data

    def may_overlap(self, events: list[StoreEvent]) -> bool:
        """Whether a byte may have been stored twice; False where each store marked new bytes."""
        if not self._fresh:
            return True
        marked = sum(int(np.count_nonzero(marks)) for marks in self.touched.values())
        return marked != sum(event.address.size * event.size for event in events)


class _Shared:
    """What all chunks of a launch have in common."""

    def __init__(
        self, program: CompiledProgram, grid: Dim, block: Dim, memory: Memory,
        constants: ConstantBank, rcp_step: int, step_limit: int, log: bool,
    ) -> None:  # fmt: skip
        self.program = program
        self.log = log
        self.lanes = program.build.lanes
        self.threads = block[0] * block[1] * block[2]
        self.groups_per_cta = -(-self.threads // self.lanes)
        self.tables = _thread_coordinates(block, self.groups_per_cta * self.lanes)
        self.regions = np.array(
            [
                (
                    region.base,
                    region.size,
                    _address(region.data),
                    0 if region.initialised is None else _address(region.initialised),
                    0,
                    int(region.writable),
                )
                for region in memory.regions
            ],
            np.uint64,
        )
        self.constants = constants
        context = Context()
        context.threads = self.threads
        context.grid_x, context.grid_y = grid[0], grid[1]
        context.tid_x, context.tid_y, context.tid_z = (_address(t) for t in self.tables)
        context.regions = _address(self.regions)
        context.region_count = len(memory.regions)
        context.logging = int(log)
        context.grow = program.grow_address
        context.rcp_step = rcp_step & 0xFFFF_FFFF
        context.step_limit = step_limit
        context.known_constants = _address(constants._known)
        for bank, words in constants._words.items():
            if bank < MAX_BANKS:
                context.banks[bank] = _address(words)
                context.bank_words[bank] = words.size
        self.context = context

    def watch(self, touched: Mapping[int, Mask]) -> None:
        """Let stores leave marks, for each region by its base."""
        for row in self.regions:
            marks = touched.get(int(row[0]))
            row[4] = 0 if marks is None else _address(marks)


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


@lru_cache(maxsize=16)
def _thread_coordinates(block: Dim, count: int) -> tuple[U32, U32, U32]:
    thread = np.arange(count, dtype=np.uint32)
    x, y = np.uint32(block[0]), np.uint32(block[1])
    return thread % x, thread // x % y, thread // (x * y)


class _Chunk:
    """Some CTAs of a launch: the context its code works on, and its logs."""

    def __init__(self, shared: _Shared, first: int, count: int) -> None:
        self.shared = shared
        self.status = DONE
        program = shared.program
        self.groups = count * shared.groups_per_cta
        self.sites = (Site * max(1, len(program.build.sites.all)))()
        self.context = Context.from_buffer_copy(shared.context)
        self.context.first_cta, self.context.cta_count = first, count
        self.context.sites = ctypes.addressof(self.sites)
        self.context.finish_lane = program.finish_address
        self.log: ChunkLog | None = None
        if shared.log:
            room = self.groups * program.records
            self.log = ChunkLog(self.sites, program.stores, shared.lanes, room, program.pool)

    def grow(self) -> None:
        """Make room for more records."""
        assert self.log is not None
        self.log.grow()
