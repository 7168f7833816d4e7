"""A store kernel as machine code, executed by the machine."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from oracle.errors import UsageError
from oracle.geometry import CacheGeometry
from oracle.machine.cubin import Cubin
from oracle.machine.launch import Program
from oracle.machine.lower import lower
from oracle.machine.memory import MachineFault, Memory, StoreEvent
from oracle.machine.primitives import RCP_MODELS
from oracle.machine.tiers import TieredProgram
from oracle.requests import ByteStores, Stored, StoreRequest
from oracle.subjects.base import SubjectInfo
from oracle.subjects.store_abi import StoreLaunch, unsupported_params

HostCheck = Callable[[CacheGeometry, str], str | None]


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
            apart = _part(event, bad)
            self.stores.append(apart)
            self.misaligned.append(apart)
            event = _part(event, ~bad)
        super().store(event)


def _part(event: StoreEvent, keep: NDArray[np.bool_]) -> StoreEvent:
    words = tuple(word[keep] for word in event.words)
    return StoreEvent(event.pc, event.size, event.lane[keep], event.address[keep], words)


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
        self._hastened = False
        reason = unsupported_params(self._kernel)
        if reason is not None:
            raise UsageError(f"kernel {kernel} cannot be launched: {reason}")

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the compiled program, which another process makes anew."""
        return {name: value for name, value in self.__dict__.items() if name != "program"}

    @cached_property
    def program(self) -> Program | TieredProgram:
        """The kernel, lowered and ready to launch. Raises Unsupported."""
        function = lower(self._cubin, self._kernel.name)
        return TieredProgram(function) if self._hastened else Program(function)

    def hastened(self) -> Self:
        """The same writer for very many launches: they become native code where that can be had."""
        other = copy(self)
        other._hastened = True
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

    def write(self, request: StoreRequest) -> Stored:
        """Run the kernel over the request; every byte stored is reported, strays included."""
        geometry = request.geometry
        memory = StoreMemory()
        inputs: dict[str, NDArray[Any]] = {
            "key": request.key,
            "value": request.value,
            "slot_mapping": request.slot_mapping,
            "k_scale": np.array([request.k_scale], np.float32),
            "v_scale": np.array([request.v_scale], np.float32),
        }
        addresses = {name: memory.map(name, data).base for name, data in inputs.items()}
        cache = memory.map("cache", request.cache, writable=True, initialised=False)
        launch = self.launch(geometry, request.slot_mapping.size)
        self._check_block(launch.block)
        for side, prefix in (("K", "key"), ("V", "value")):
            addresses[f"{prefix}_data"] = cache.base + geometry.side_base(side)
            addresses[f"{prefix}_scale"] = addresses[f"{prefix}_data"] + launch.scale_base
        if launch.tokens:
            params = launch.params(self._kernel, addresses)
            self.program.launch(
                launch.grid, launch.block, params, memory, rcp=RCP_MODELS[self._rcp]
            )
        faults = (
            *(f"{_in_words(memory, event)}, misaligned" for event in memory.misaligned),
            *(_in_words(memory, event) for event in memory.strays),
        )
        misaligned = [_offsets(event, cache.base) for event in memory.misaligned]
        return Stored(
            cache.bytes.copy(),
            _byte_stores(memory.stores, cache.base),
            faults,
            np.concatenate([np.zeros(0, np.int64), *misaligned]),
        )


def _in_words(memory: Memory, event: StoreEvent) -> str:
    where = memory.describe(int(event.address[0]))
    return f"pc {event.pc:#06x} stores {event.size} bytes at {where}"


def _offsets(event: StoreEvent, base: int) -> NDArray[np.int64]:
    """Where an event's stores begin, counted from an address; they may lie before it."""
    return (event.address - np.uint64(base)).astype(np.int64)


def _byte_stores(events: list[StoreEvent], base: int) -> ByteStores:
    if not events:
        return ByteStores(np.zeros(0, np.int64), np.zeros(0, np.uint8))
    count = sum(event.address.size * event.size for event in events)
    offset, value = np.empty(count, np.int64), np.empty(count, np.uint8)
    start = 0
    for event in events:
        shape = event.address.size, event.size
        stop = start + event.address.size * event.size
        np.add.outer(
            _offsets(event, base), np.arange(event.size), out=offset[start:stop].reshape(shape)
        )
        value[start:stop].reshape(shape)[:] = event.byte_values()
        start = stop
    return ByteStores(offset, value)


def artifact_digest(data: bytes) -> str:
    """sha256 of what was executed, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
