"""A store kernel as machine code, executed by the machine."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import Any, Self

import numpy as np

from oracle.errors import UsageError
from oracle.geometry import CacheGeometry
from oracle.machine.cubin import Cubin, KernelInfo
from oracle.machine.lower import lower
from oracle.machine.memory import MachineFault, Memory, StoreEvent
from oracle.machine.primitives import RCP_MODELS
from oracle.machine.tiers import Answer, TieredProgram
from oracle.requests import Stored, StoreRequest
from oracle.subjects.base import SubjectInfo
from oracle.subjects.store_abi import StoreLaunch, inputs, unsupported_params
from oracle.subjects.storelog import ByteLog, begins

HostCheck = Callable[[CacheGeometry, str], str | None]
Execution = Callable[[Cubin, KernelInfo, StoreLaunch, StoreRequest], Stored]
"""Performs a launch of a kernel for a request."""


def no_check(geometry: CacheGeometry, dtype: str) -> str | None:
    """A host side that refuses nothing."""
    return None


class StoreMemory(Memory):
    """Memory that keeps misaligned stores apart and goes on, where the hardware would stop.

    They are logged, so that all of them can be counted, and leave the memory as it is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.misaligned: list[StoreEvent] = []

    def store(self, event: StoreEvent) -> None:
        """Log and perform one store; strays and misaligned ones are recorded."""
        bad = event.address & np.uint64(event.size - 1) != 0
        if bad.any():
            apart = event.part(bad)
            self.stores.append(apart)
            self.misaligned.append(apart)
            event = event.part(~bad)
        super().store(event)


class MachineWriter:
    """Launches one kernel of a cubin as its host side would, on the machine.

    `host_check` stands for the host side: the reason it would refuse a geometry or dtype. `rcp`
    names one of the machine's models of the reciprocal.
    """

    def __init__(
        self,
        info: SubjectInfo,
        cubin: Cubin,
        kernel: str,
        host_check: HostCheck = no_check,
        rcp: str = "exact",
    ) -> None:
        self.info = info
        self._cubin = cubin
        self._kernel = cubin.kernel(kernel)
        self._host_check = host_check
        self._rcp = rcp
        self._tier: str | None = None
        self._log = ByteLog()
        self._elsewhere: Execution | None = None
        self.twin: Self | None = None
        reason = unsupported_params(self._kernel)
        if reason is not None:
            raise UsageError(f"kernel {kernel} cannot be launched: {reason}")

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the compiled program, which another process makes anew."""
        return {name: value for name, value in self.__dict__.items() if name != "program"}

    @cached_property
    def program(self) -> TieredProgram:
        """The kernel, lowered and ready to launch. Raises Unsupported."""
        return TieredProgram(lower(self._cubin, self._kernel.name), self._tier)

    def on_tier(self, tier: str) -> Self:
        """The same writer on one of the machine's tiers (`oracle.machine.tiers`)."""
        other = copy(self)
        other._tier = tier
        other.__dict__.pop("program", None)
        return other

    @property
    def answered(self) -> Counter[Answer]:
        """How many launches so far each tier has executed in this process, and why it did."""
        return Counter(self.program.answered) if "program" in self.__dict__ else Counter()

    def executed_by(self, elsewhere: Execution, info: SubjectInfo, twin: Self | None) -> Self:
        """The same kernel and host side, executed by something else than the machine.

        `twin` is the one on the machine that every byte is to be compared with, if any.
        """
        other = copy(self)
        other.info, other.twin, other._elsewhere = info, twin, elsewhere
        other.__dict__.pop("program", None)
        return other

    def unsupported_reason(self, geometry: CacheGeometry, dtype: str) -> str | None:
        """What the host side says to a geometry and dtype."""
        return self._host_check(geometry, dtype)

    def _check_block(self, block: tuple[int, int, int]) -> None:
        """Raise MachineFault for a block that the kernel's own bounds forbid."""
        threads = math.prod(block)
        most, exact = self._kernel.max_threads, self._kernel.required_threads
        if exact is not None and exact != block:
            raise MachineFault(f"the kernel is built for blocks of {exact} threads, not {block}")
        if most is not None and threads > math.prod(most):
            raise MachineFault(
                f"the kernel is built for at most {math.prod(most)} threads a block; this launch "
                f"has {threads}"
            )

    def launch(self, geometry: CacheGeometry, tokens: int) -> StoreLaunch:
        """The launch the host side makes of a store of so many tokens."""
        return StoreLaunch.of(geometry, tokens)

    def map(self, request: StoreRequest, memory: Memory) -> bytes:
        """Map what the launch for a request works on into a memory; the kernel's parameters."""
        launch = self.launch(request.geometry, request.slot_mapping.size)
        addresses = {name: memory.map(name, data).base for name, data in inputs(request).items()}
        cache = memory.map("cache", request.cache, writable=True, initialised=False)
        addresses |= launch.cache_addresses(request.geometry, cache.base)
        return launch.params(self._kernel, addresses)

    def write(self, request: StoreRequest) -> Stored:
        """Run the kernel over the request; every byte stored is reported, strays included."""
        launch = self.launch(request.geometry, request.slot_mapping.size)
        self._check_block(launch.block)
        if self._elsewhere is not None:
            return self._elsewhere(self._cubin, self._kernel, launch, request)
        memory = StoreMemory()
        params = self.map(request, memory)
        if launch.tokens:
            self.program.launch(
                launch.grid, launch.block, params, memory, rcp=RCP_MODELS[self._rcp]
            )
        cache = memory.region("cache")
        faults = (
            *(f"{_in_words(memory, event)}, misaligned" for event in memory.misaligned),
            *(_in_words(memory, event) for event in memory.strays),
        )
        misaligned = [begins(event, cache.base) for event in memory.misaligned]
        return Stored(
            cache.bytes.copy(),
            self._log.of(memory.stores, cache.base),
            faults,
            np.concatenate([np.zeros(0, np.int64), *misaligned]),
        )


def _in_words(memory: Memory, event: StoreEvent) -> str:
    where = memory.describe(int(event.address[0]))
    return f"pc {event.pc:#06x} stores {event.size} bytes at {where}"


def artifact_digest(data: bytes) -> str:
    """sha256 of what was executed, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
