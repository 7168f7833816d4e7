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
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.errors import UsageError
from oracle.machine.compiled.abi import DONE, FAULT, FINISH_LANE, GROW, STEP_LIMIT
from oracle.machine.compiled.build import Build, bindings, constant_words
from oracle.machine.compiled.chunks import Chunk, Dim, Shared, Snapshot
from oracle.machine.compiled.log import overlap, replay, strays
from oracle.machine.compiled.pool import BufferPool
from oracle.machine.ir import Function
from oracle.machine.launch import CHUNK_LANES, Program, Statistics
from oracle.machine.launch import STEP_LIMIT as STEPS
from oracle.machine.memory import MAX_LOGGED, U8, MachineFault, Memory, StoreEvent
from oracle.machine.primitives import RCP_MODELS, RcpModel, rcp_exact
from oracle.machine.state import ConstantBank

RCP_STEPS = {"exact": 0, "+1ulp": 1, "-1ulp": -1}
"""Models of the reciprocal that compiled code knows, by how far they move the exact result."""
_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_numbers = itertools.count()
_link_lock = threading.Lock()


class CompiledProgram:
    """A kernel as native code, ready to launch any number of times.

    Raises NotCompiled where llvmlite is missing or the kernel has to stay on NumPy lanes.
    """

    def __init__(self, function: Function, lanes: int = 0, build: Build | None = None) -> None:
        self.function = function
        self.build = build or Build(function, lanes)
        self.reason = ""
        """Why NumPy lanes executed the last launch; empty where native code did."""
        self._constants = _by_bank(constant_words(function))
        self._log_shape = self.build.log_shape
        self.split_groups = 0
        """How many groups of the last launch were finished lane by lane."""
        self.records = 1
        """The most log records that a group has needed for a store in an earlier launch."""
        self._latest: tuple[Dim, Dim, bytes] | None = None
        """Of the launch that `_bank` was made for: the same one often comes again."""
        self._spare: dict[int, U8] = {}
        self.pool = BufferPool()
        """Memory for the logs."""
        self._lock = threading.Lock()
        self._chunks: dict[int, Chunk] = {}
        self._grow = GROW(self._grow_log)
        self._first_finish = FINISH_LANE(self._finish_first)
        self._finish: Any = None
        self.grow_address = ctypes.cast(self._grow, ctypes.c_void_p).value
        """What the code calls when a log is full."""
        self.finish_address = ctypes.cast(self._first_finish, ctypes.c_void_p).value
        """Where the code that finishes single lanes begins."""
        self._library = self._linked("group", "launch")
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
        if (grid, block, params) != self._latest:
            self._latest = grid, block, params
            self._bank = ConstantBank.of(self.function, grid, block, params)
            self._bank_suffices = self._all_known(self._bank)
        step = _rcp_step(rcp)
        reason = None
        if step is None:
            reason = "this model of the reciprocal is not compiled"
        elif not self._bank_suffices:
            reason = "a constant that nothing is known of"
        if reason is not None:
            return self._on_numpy(reason, grid, block, params, memory, rcp, step_limit, chunk_lanes)
        before = Snapshot(memory, self._spare, log)
        shared = Shared(self.build.lanes, grid, block, memory, self._bank, before.touched)
        shared.context.logging, shared.context.grow = int(log), self.grow_address
        shared.context.rcp_step = int(step or 0) & 0xFFFF_FFFF
        shared.context.step_limit = step_limit
        ctas = grid[0] * grid[1] * grid[2]
        per_chunk = max(1, chunk_lanes // threads)
        spans = [(first, min(per_chunk, ctas - first)) for first in range(0, ctas, per_chunk)]
        chunks = self._run(shared, spans, jobs, log)
        status = next((c.status for c in chunks if c.status != DONE), DONE)
        if self.build.lanes * sum(sum(chunk.counts) for chunk in chunks) > MAX_LOGGED:
            # What NumPy lanes make of so many stores is theirs to say.
            status = FAULT
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
        self.split_groups = sum(chunk.context.split_groups for chunk in chunks)
        self._record(memory, chunks, before)
        before.release()
        self.reason = ""
        return Statistics(
            ctas * threads,
            sum(chunk.context.steps for chunk in chunks),
            sum(chunk.context.lane_instructions for chunk in chunks),
        )

    def _linked(self, part: str, symbol: str) -> Any:
        """One of the kernel's objects, loaded."""
        try:
            return _link(self.build.code(part), symbol)
        except RuntimeError:
            # The cache has something under its name that is no object.
            return _link(self.build.compile(part), symbol)

    def _on_numpy(
        self, reason: str, grid: Dim, block: Dim, params: bytes, memory: Memory, rcp: RcpModel,
        step_limit: int, chunk_lanes: int,
    ) -> Statistics:  # fmt: skip
        self.reason = reason
        return self.numpy.launch(
            grid, block, params, memory, rcp=rcp, step_limit=step_limit, chunk_lanes=chunk_lanes
        )

    def _all_known(self, constants: ConstantBank) -> bool:
        """Whether the constants are known whose place is known before the kernel runs."""
        for bank, offsets in self._constants.items():
            words = constants.words.get(bank)
            if words is None or offsets[-1] >> 2 >= words.size:
                return False
            if bank == 0 and not constants.known[offsets].all():
                return False
        return True

    def _run(
        self, shared: Shared, spans: list[tuple[int, int]], jobs: int, log: bool
    ) -> list[Chunk]:
        def run(span: tuple[int, int]) -> Chunk:
            records = self.records if log else None
            chunk = Chunk(shared, *span, self._log_shape, self.pool, records)
            chunk.context.finish_lane = self.finish_address
            self._chunks[chunk.address] = chunk
            try:
                chunk.over(self._launch(chunk.address))
            finally:
                del self._chunks[chunk.address]
            return chunk

        if jobs > 1 and len(spans) > 1:
            with ThreadPoolExecutor(jobs) as pool:
                return list(pool.map(run, spans))
        chunks = []
        for span in spans:
            chunks.append(run(span))
            if chunks[-1].status != DONE:
                break
        return chunks

    def _record(self, memory: Memory, chunks: list[Chunk], before: Snapshot) -> None:
        """Enter the logs into memory, and settle whose store stays where several met."""
        events: list[StoreEvent] = []
        for chunk in chunks:
            self.records = max(self.records, -(-max(chunk.counts, default=0) // chunk.groups))
            events += chunk.events()
        if not events:
            return
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
                library = self._linked("single", "finish_lane")
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
