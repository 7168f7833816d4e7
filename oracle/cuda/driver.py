"""The CUDA driver: what is asked of one, and the real one, through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oracle.cuda.archs import Device
from oracle.cuda.signatures import (
    COMPUTE_CAPABILITY_MAJOR,
    COMPUTE_CAPABILITY_MINOR,
    FAULTS,
    JIT_ERROR_LOG_BUFFER,
    JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    LAUNCH_PARAM_BUFFER_POINTER,
    LAUNCH_PARAM_BUFFER_SIZE,
    LAUNCH_PARAM_END,
    bind,
)
from oracle.errors import NothingRan, OracleError

LIBRARY = "libcuda.so.1"
U8 = NDArray[np.uint8]
Dim3 = tuple[int, int, int]
_LOG_BYTES = 4096
_NAME_BYTES = 256
_TELLING = ("cuGetErrorName", "cuGetErrorString")


class CudaError(OracleError):
    """A call of the driver failed: which status it gave, and what was being done."""

    def __init__(self, status: int, name: str, text: str, doing: str) -> None:
        super().__init__(status, name, text, doing)
        self.status = status
        self._words = f"{name} while {doing}: {text}"

    def __str__(self) -> str:
        """`CUDA_ERROR_OUT_OF_MEMORY while allocating 512 bytes: out of memory`."""
        return self._words

    @property
    def is_fault(self) -> bool:
        """Whether the kernel caused it while it ran; then the context is of no more use."""
        return self.status in FAULTS


class Driver(Protocol):
    """One GPU, with a context in which everything happens in order. All raise CudaError."""

    @property
    def device(self) -> Device:
        """The GPU."""

    def allocate(self, size: int) -> int:
        """The address of `size` bytes of its memory, a multiple of 256."""

    def free(self, address: int) -> None:
        """Give an allocation back."""

    def upload(self, address: int, data: U8) -> None:
        """Copy bytes [n] to its memory."""

    def download(self, address: int, size: int) -> U8:
        """Copy `size` bytes from its memory."""

    def load(self, image: bytes) -> int:
        """Load a cubin; its module."""

    def function(self, module: int, name: str) -> int:
        """The kernel of a module with a (mangled) name."""

    def launch(self, function: int, grid: Dim3, block: Dim3, params: bytes) -> None:
        """Start a kernel with a parameter block."""

    def synchronise(self) -> None:
        """Wait for everything that was started."""


def load_library(name: str = LIBRARY) -> Any:
    """The driver's library, its functions declared.

    Raises NothingRan where there is none or where it lacks a function.
    """
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise NothingRan(f"there is no CUDA driver ({name}): run this where a GPU is") from error
    try:
        bind(library)
    except AttributeError as error:
        raise NothingRan(f"{name} is no CUDA driver that can be used: {error}") from error
    return library


class CudaDriver:
    """The first visible GPU, with its primary context. Raises NothingRan where there is none.

    CUDA_VISIBLE_DEVICES says which GPU is the first.
    """

    def __init__(self, library: Any = None) -> None:
        self._library = library if library is not None else load_library()
        self._start("initialising the driver", "cuInit", 0)
        count, device = ctypes.c_int(), ctypes.c_int()
        self._start("counting GPUs", "cuDeviceGetCount", ctypes.byref(count))
        if not count.value:
            raise NothingRan("the CUDA driver finds no GPU: none is visible")
        self._start("taking the first GPU", "cuDeviceGet", ctypes.byref(device), 0)
        self._device = device.value
        self.device = self._described()
        context = ctypes.c_void_p()
        self._start(
            "making a context", "cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device
        )
        self._start("entering the context", "cuCtxSetCurrent", context)

    def _start(self, doing: str, name: str, *arguments: Any) -> None:
        """A call without which there is no GPU to speak of."""
        try:
            self._call(doing, name, *arguments)
        except CudaError as error:
            raise NothingRan(f"the CUDA driver gives no GPU: {error}") from error

    def _described(self) -> Device:
        name = ctypes.create_string_buffer(_NAME_BYTES)
        self._call("asking for the GPU's name", "cuDeviceGetName", name, _NAME_BYTES, self._device)
        version = ctypes.c_int()
        self._call("asking for its version", "cuDriverGetVersion", ctypes.byref(version))
        capability = (
            self._attribute(COMPUTE_CAPABILITY_MAJOR),
            self._attribute(COMPUTE_CAPABILITY_MINOR),
        )
        return Device(name.value.decode(errors="replace"), capability, version.value)

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        doing = f"asking for attribute {number} of the GPU"
        self._call(doing, "cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value

    def allocate(self, size: int) -> int:
        """The address of `size` bytes of its memory."""
        address = ctypes.c_uint64()
        self._call(f"allocating {size:,} bytes", "cuMemAlloc_v2", ctypes.byref(address), size)
        return address.value

    def free(self, address: int) -> None:
        """Give an allocation back."""
        self._call(f"freeing {address:#x}", "cuMemFree_v2", address)

    def upload(self, address: int, data: U8) -> None:
        """Copy bytes [n] to its memory."""
        data = np.ascontiguousarray(data)
        doing = f"copying {data.nbytes:,} bytes to the GPU"
        self._call(doing, "cuMemcpyHtoD_v2", address, data.ctypes.data, data.nbytes)

    def download(self, address: int, size: int) -> U8:
        """Copy `size` bytes from its memory."""
        data = np.empty(size, np.uint8)
        doing = f"copying {size:,} bytes from the GPU"
        self._call(doing, "cuMemcpyDtoH_v2", data.ctypes.data, address, size)
        return data

    def copy(self, target: int, source: int, size: int) -> None:
        """Start a copy of `size` bytes within its memory."""
        self._call(f"copying {size:,} bytes", "cuMemcpyDtoDAsync_v2", target, source, size, None)

    def load(self, image: bytes) -> int:
        """Load a cubin; its module. A failure tells what the driver's log says first."""
        module = ctypes.c_void_p()
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (ctypes.c_int * 2)(JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        doing = f"loading a cubin of {len(image):,} bytes"
        try:
            self._call(doing, "cuModuleLoadDataEx", ctypes.byref(module), image, 2, options, values)
        except CudaError as error:
            said = log.value.decode(errors="replace").strip().splitlines()
            status, name, text, _ = error.args
            raise CudaError(status, name, said[0] if said else text, doing) from error
        return module.value or 0

    def function(self, module: int, name: str) -> int:
        """The kernel of a module with a (mangled) name."""
        function = ctypes.c_void_p()
        found = ctypes.byref(function)
        self._call(
            f"looking for kernel {name}", "cuModuleGetFunction", found, module, name.encode()
        )
        return function.value or 0

    def launch(self, function: int, grid: Dim3, block: Dim3, params: bytes) -> None:
        """Start a kernel with a parameter block."""
        block_of_params = ctypes.create_string_buffer(params, len(params))
        size = ctypes.c_size_t(len(params))
        extra = (ctypes.c_void_p * 5)(
            LAUNCH_PARAM_BUFFER_POINTER, ctypes.addressof(block_of_params),
            LAUNCH_PARAM_BUFFER_SIZE, ctypes.addressof(size),
            LAUNCH_PARAM_END,
        )  # fmt: skip
        doing = f"launching a grid of {grid} and blocks of {block}"
        self._call(doing, "cuLaunchKernel", function, *grid, *block, 0, None, None, extra)

    def synchronise(self) -> None:
        """Wait for everything that was started."""
        self._call("waiting for the kernel", "cuCtxSynchronize")

    def milliseconds(self, work: Callable[[], None]) -> float:
        """How long the GPU takes over the work that a function starts."""
        events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for event in events:
            self._call("making an event", "cuEventCreate", ctypes.byref(event), 0)
        self._call("recording an event", "cuEventRecord", events[0], None)
        work()
        self._call("recording an event", "cuEventRecord", events[1], None)
        self._call("waiting for an event", "cuEventSynchronize", events[1])
        elapsed = ctypes.c_float()
        self._call("reading the time", "cuEventElapsedTime", ctypes.byref(elapsed), *events)
        for event in events:
            self._call("destroying an event", "cuEventDestroy_v2", event)
        return elapsed.value

    def _call(self, doing: str, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            name, text = (self._told(each, status) for each in _TELLING)
            raise CudaError(status, name, text, doing)

    def _told(self, function: str, status: int) -> str:
        """A status in the driver's words."""
        text = ctypes.c_char_p()
        unknown = getattr(self._library, function)(status, ctypes.byref(text))
        if unknown or not text.value:
            return f"status {status}"
        return text.value.decode(errors="replace")
