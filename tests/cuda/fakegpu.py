"""A GPU that is none: a driver whose memory and launches are the machine's.

What the machine does not allow becomes what a driver reports, and a context that has seen a fault
answers nothing but that fault any more, as on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from oracle.cuda.archs import Device
from oracle.cuda.driver import U8, CudaError, Dim3
from oracle.cuda.launcher import Launch, Launched, Launcher
from oracle.cuda.signatures import ILLEGAL_ADDRESS, MISALIGNED_ADDRESS, OUT_OF_MEMORY
from oracle.errors import OracleError, UsageError
from oracle.machine.cubin import Cubin
from oracle.machine.launch import Program
from oracle.machine.lower import lower
from oracle.machine.memory import MachineFault, Memory, Region

INVALID_IMAGE, NOT_FOUND, OUT_OF_RESOURCES = 200, 500, 701
NAMES = {
    INVALID_IMAGE: "CUDA_ERROR_INVALID_IMAGE",
    NOT_FOUND: "CUDA_ERROR_NOT_FOUND",
    OUT_OF_RESOURCES: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    OUT_OF_MEMORY: "CUDA_ERROR_OUT_OF_MEMORY",
    ILLEGAL_ADDRESS: "CUDA_ERROR_ILLEGAL_ADDRESS",
    MISALIGNED_ADDRESS: "CUDA_ERROR_MISALIGNED_ADDRESS",
}
SM90 = Device("Nobody's GPU", (9, 0), 13000)
AfterLaunch = Callable[[U8], None]


@cache
def _program(image: bytes, kernel: str) -> Program:
    return Program(lower(Cubin.parse(image), kernel))


class FakeDriver:
    """A `Driver`. `capacity` bytes can be allocated, `most_threads` be launched in a block.

    `tamper` may change the bytes of the allocation after each launch: a GPU that does otherwise
    than the machine.
    """

    def __init__(
        self,
        device: Device = SM90,
        capacity: int = 1 << 40,
        most_threads: int = 1024,
        tamper: AfterLaunch | None = None,
    ) -> None:
        self.device = device
        self.memory = Memory()
        self.launches = 0
        self._capacity = capacity
        self._most_threads = most_threads
        self._tamper = tamper
        self._modules: list[Cubin] = []
        self._functions: dict[int, tuple[Program, int]] = {}
        self._handles: dict[tuple[int, str], int] = {}
        self._fault: CudaError | None = None

    @property
    def allocations(self) -> int:
        """How many allocations have not been given back."""
        return len(self.memory.regions)

    def _fail(self, status: int, doing: str) -> CudaError:
        return CudaError(status, NAMES[status], "as told", doing)

    def _answer(self) -> None:
        if self._fault is not None:
            raise self._fault

    def allocate(self, size: int) -> int:
        self._answer()
        if size > self._capacity:
            raise self._fail(OUT_OF_MEMORY, f"allocating {size} bytes")
        # Memory of a GPU holds anything at first.
        return self.memory.map("allocation", np.full(size, 0xEE, np.uint8), writable=True).base

    def free(self, address: int) -> None:
        self._answer()
        self.memory.regions.remove(self._region(address))

    def upload(self, address: int, data: U8) -> None:
        self._answer()
        self._region(address).data[: data.size] = data

    def download(self, address: int, size: int) -> U8:
        self._answer()
        return self._region(address).data[:size].copy()

    def load(self, image: bytes) -> int:
        self._answer()
        try:
            self._modules.append(Cubin.parse(image))
        except UsageError as error:
            raise self._fail(INVALID_IMAGE, "loading a cubin") from error
        return len(self._modules)

    def function(self, module: int, name: str) -> int:
        self._answer()
        cubin = self._modules[module - 1]
        if name not in cubin.kernels:
            raise self._fail(NOT_FOUND, f"looking for kernel {name}")
        handle = self._handles.setdefault((module, name), len(self._handles) + 1)
        if handle not in self._functions:
            program = _program(cubin.data, name)
            self._functions[handle] = program, cubin.kernels[name].param_size
        return handle

    def launch(self, function: int, grid: Dim3, block: Dim3, params: bytes) -> None:
        self._answer()
        self.launches += 1
        if int(np.prod(block)) > self._most_threads:
            raise self._fail(OUT_OF_RESOURCES, "launching")
        program, size = self._functions[function]
        assert len(params) == size
        try:
            program.launch(grid, block, params, self.memory)
        except MachineFault as error:
            misaligned = "misaligned" in str(error)
            status = MISALIGNED_ADDRESS if misaligned else ILLEGAL_ADDRESS
            self._fault = self._fail(status, "waiting for the kernel")
        if self.memory.strays:
            self._fault = self._fail(ILLEGAL_ADDRESS, "waiting for the kernel")
        if self._tamper is not None:
            self._tamper(self.memory.regions[-1].bytes)

    def synchronise(self) -> None:
        self._answer()

    def _region(self, address: int) -> Region:
        return next(region for region in self.memory.regions if region.base == address)


class FakeGpu:
    """A GPU for `GpuExecution`: a new driver after each fault."""

    def __init__(self, device: Device = SM90, tamper: AfterLaunch | None = None) -> None:
        self.device = device
        self.runs = 0
        self._tamper = tamper
        self._launcher = self._new()

    def _new(self) -> Launcher:
        return Launcher(FakeDriver(self.device, tamper=self._tamper))

    def run(self, launch: Launch) -> Launched:
        self.runs += 1
        try:
            return self._launcher.run(launch)
        except OracleError:
            self._launcher = self._new()
            raise
