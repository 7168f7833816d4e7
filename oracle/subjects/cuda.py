"""A store kernel as machine code, executed by a GPU instead of the machine.

It is the same subject but for who executes it: the same code, host side, parameters and requests.
The GPU shows no single stores, so what it did is what changed in the cache and beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from oracle.cuda.archs import Device
from oracle.cuda.launcher import Buffer, Launch, Launched
from oracle.cuda.process import gpu_process
from oracle.machine.cubin import Cubin, KernelInfo
from oracle.requests import ByteStores, Stored, StoreRequest
from oracle.subjects.base import Writer
from oracle.subjects.binary import MachineWriter
from oracle.subjects.store_abi import POINTERS, StoreLaunch, inputs

SUFFIX = "#cuda"
"""What the id of a subject ends with where the GPU executes it."""


class Gpu(Protocol):
    """What performs launches: `Launcher` or `GpuProcess`."""

    @property
    def device(self) -> Device:
        """The GPU."""

    def run(self, launch: Launch) -> Launched:
        """Perform a launch."""


@dataclass(frozen=True)
class GpuExecution:
    """Performs stores on the GPU that a function finds whenever there is one to perform."""

    find: Callable[[], Gpu] = gpu_process

    def __call__(
        self, cubin: Cubin, kernel: KernelInfo, launch: StoreLaunch, request: StoreRequest
    ) -> Stored:
        """Perform a store. Raises what `Launcher.run` raises."""
        if not launch.tokens:
            return Stored(request.cache.copy())
        done = self.find().run(as_launch(cubin, kernel, launch, request))
        beside = ByteStores(done.strays - done.starts["cache"], done.values)
        return Stored(done.contents["cache"], None, done.faults, beside=beside)


def as_launch(
    cubin: Cubin, kernel: KernelInfo, launch: StoreLaunch, request: StoreRequest
) -> Launch:
    """A store in bytes: red zones have room for the page before and the page after the cache."""
    geometry = request.geometry
    given = {
        name: np.ascontiguousarray(array).view(np.uint8).ravel()
        for name, array in inputs(request).items()
    }
    inside = launch.cache_addresses(geometry, 0)
    offsets = {name: inside.get(name, 0) for name in POINTERS}
    return Launch(
        image=cubin.data,
        arch=cubin.arch,
        kernel=kernel.name,
        grid=launch.grid,
        block=launch.block,
        params=launch.params(kernel, offsets),
        pointers={
            param.offset: "cache" if name in inside else name
            for param, name in zip(kernel.params, POINTERS, strict=False)
        },
        buffers=(
            *(Buffer(name, contents) for name, contents in given.items()),
            Buffer("cache", request.cache, writable=True),
        ),
        zone=geometry.page_bytes,
    )


def on_gpu(
    writer: MachineWriter,
    device: Device,
    execution: GpuExecution | None = None,
    *,
    compared: bool = False,
) -> MachineWriter:
    """A writer executed by a GPU; `compared` asks that its bytes be held against the machine's."""
    info = replace(
        writer.info,
        id=f"{writer.info.id}{SUFFIX}",
        name=f"{writer.info.name}, on {device.in_words()}",
        executor="cuda",
    )
    return writer.executed_by(execution or GpuExecution(), info, writer if compared else None)


def with_executors(
    writers: Iterable[Writer], executors: Iterable[str], device: Device | None
) -> list[Writer]:
    """The writers, those that are machine code once for each executor.

    With both, what they store is compared. A GPU that is asked for must be given.
    """
    chosen = set(executors)
    executed: list[Writer] = []
    for writer in writers:
        if not isinstance(writer, MachineWriter):
            executed.append(writer)
            continue
        if "machine" in chosen:
            executed.append(writer)
        if "cuda" in chosen:
            assert device is not None
            executed.append(on_gpu(writer, device, compared="machine" in chosen))
    return executed
