"""Performs a launch on a driver, with guards around everything the kernel is given.

All buffers of a launch lie in one allocation, each after a red zone: bytes of one known value that
the kernel has no business with. The whole of it is copied back afterwards, so that a store into a
red zone, or into a buffer that is only to be read, shows with its offset. What a kernel stores
beyond the allocation the GPU may refuse, or not notice; what it loads is not seen at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oracle.cuda.archs import Device, unsupported_reason
from oracle.cuda.driver import U8, CudaError, Dim3, Driver
from oracle.machine.context import Unsupported
from oracle.machine.memory import MachineFault
from oracle.requests import RED_ZONE

ALIGNMENT = 512
"""Every buffer begins at a multiple of this, as on the machine."""
SMALLEST_ZONE = 1 << 16
POINTER_BYTES = 8


@dataclass(frozen=True, eq=False)
class Buffer:
    """What a kernel is given: a name, the bytes [n] in it, and whether it may store to them."""

    name: str
    contents: U8
    writable: bool = False


@dataclass(frozen=True, eq=False)
class Launch:
    """A kernel of a cubin with everything it is given.

    `params` is its parameter block; at each offset of `pointers` the address of the buffer named
    there is added to the 8 bytes that stand there. Red zones have at least `zone` bytes.
    """

    image: bytes
    arch: str
    kernel: str
    grid: Dim3
    block: Dim3
    params: bytes
    pointers: Mapping[int, str]
    buffers: Sequence[Buffer]
    zone: int = SMALLEST_ZONE


@dataclass(frozen=True, eq=False)
class Launched:
    """What is there afterwards.

    `contents` are the bytes of the writable buffers; `starts` says where each buffer begins, and
    `strays` int64 [n] which bytes outside the writable ones changed to the `values` uint8 [n], all
    counted from the start of the allocation. `faults` tells the strays in words.
    """

    contents: Mapping[str, U8]
    starts: Mapping[str, int]
    strays: NDArray[np.int64]
    values: U8
    faults: tuple[str, ...]


class Arena:
    """Where the buffers of a launch lie in its allocation: a red zone, a buffer, a red zone, …"""

    def __init__(self, buffers: Sequence[Buffer], zone: int) -> None:
        self.buffers = buffers
        gap = _aligned(max(zone, SMALLEST_ZONE))
        self.starts: dict[str, int] = {}
        end = 0
        for buffer in buffers:
            self.starts[buffer.name] = _aligned(end) + gap
            end = self.starts[buffer.name] + buffer.contents.size
        self.size = _aligned(end) + gap

    def image(self) -> U8:
        """The bytes of the whole allocation before the launch."""
        image = np.full(self.size, RED_ZONE, np.uint8)
        for buffer in self.buffers:
            start = self.starts[buffer.name]
            image[start : start + buffer.contents.size] = buffer.contents
        return image

    def outcome(self, before: U8, after: U8) -> Launched:
        """What a launch did to the allocation."""
        changed = before != after
        contents = {}
        for buffer in self.buffers:
            if buffer.writable:
                start = self.starts[buffer.name]
                mine = slice(start, start + buffer.contents.size)
                contents[buffer.name] = after[mine].copy()
                changed[mine] = False
        strays = np.flatnonzero(changed).astype(np.int64)
        runs = np.split(strays, np.flatnonzero(np.diff(strays) != 1) + 1) if strays.size else []
        faults = tuple(f"{run.size} bytes stored at {self.describe(int(run[0]))}" for run in runs)
        return Launched(contents, self.starts, strays, after[strays], faults)

    def describe(self, offset: int) -> str:
        """Where an offset in the allocation lies, in the words of the machine's memory."""
        near = []
        for buffer in self.buffers:
            start = self.starts[buffer.name]
            end = start + buffer.contents.size
            if start <= offset < end:
                return f"{buffer.name}+{offset - start:#x}"
            if offset < start:
                near.append((start - offset, f"{start - offset} bytes before {buffer.name}"))
            else:
                near.append((offset - end, f"{offset - end} bytes past the end of {buffer.name}"))
        return min(near)[1]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, eq=False)
class Placed:
    """A launch whose buffers lie on the GPU, `arena` from `base` on, with the bytes of `before`."""

    driver: Driver
    launch: Launch
    function: int
    params: bytes
    arena: Arena
    base: int
    before: U8

    def start(self) -> None:
        """Start the kernel, which may be done again and again."""
        self.driver.launch(self.function, self.launch.grid, self.launch.block, self.params)

    def outcome(self) -> Launched:
        """Wait for the kernel and look at everything it was given."""
        self.driver.synchronise()
        return self.arena.outcome(self.before, self.driver.download(self.base, self.arena.size))


class Launcher:
    """Performs launches on a driver, in this process."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._modules: dict[bytes, int] = {}

    @property
    def device(self) -> Device:
        """The GPU."""
        return self._driver.device

    def run(self, launch: Launch) -> Launched:
        """Perform a launch and look at everything it was given.

        Raises Unsupported where the GPU cannot run the code or the driver refuses it, MachineFault
        where the kernel faults. After a fault nothing else can be run in this process.
        """
        with self.placed(launch) as placed:
            placed.start()
            return placed.outcome()

    @contextmanager
    def placed(self, launch: Launch) -> Iterator[Placed]:
        """A launch with everything it is given on the GPU, to be started. Raises as `run` does."""
        reason = unsupported_reason(launch.arch, self.device)
        if reason is not None:
            raise Unsupported(reason)
        try:
            with self._placed(launch) as placed:
                yield placed
        except CudaError as error:
            kind = MachineFault if error.is_fault else Unsupported
            raise kind(f"kernel {launch.kernel} on {self.device.name}: {error}") from error

    @contextmanager
    def _placed(self, launch: Launch) -> Iterator[Placed]:
        driver = self._driver
        if launch.image not in self._modules:
            self._modules[launch.image] = driver.load(launch.image)
        function = driver.function(self._modules[launch.image], launch.kernel)
        arena = Arena(launch.buffers, launch.zone)
        before = arena.image()
        with _allocated(driver, arena.size) as base:
            driver.upload(base, before)
            params = bytearray(launch.params)
            for offset, name in launch.pointers.items():
                place = slice(offset, offset + POINTER_BYTES)
                address = int.from_bytes(params[place], "little") + base + arena.starts[name]
                params[place] = address.to_bytes(POINTER_BYTES, "little")
            yield Placed(driver, launch, function, bytes(params), arena, base, before)


@contextmanager
def _allocated(driver: Driver, size: int) -> Iterator[int]:
    """An allocation, given back unless the context is of no more use."""
    address = driver.allocate(size)
    try:
        yield address
    except CudaError as error:
        if not error.is_fault:
            driver.free(address)
        raise
    driver.free(address)
