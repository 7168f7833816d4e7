"""As much of the CUDA driver as it takes to run a kernel over an array, through ctypes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.errors import NothingRan, OracleError

THREADS = 256


class Gpu:
    """The first GPU, with a cubin loaded. Raises NothingRan where there is none."""

    def __init__(self) -> None:
        try:
            self._driver = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise NothingRan("there is no CUDA driver (libcuda.so.1): run this on a GPU") from error
        if self._driver.cuInit(0):
            raise NothingRan("the CUDA driver finds no GPU: run this on one")
        self._device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(self._device), 0)
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._call("cuCtxSetCurrent", context)
        self._module = ctypes.c_void_p()

    @property
    def name(self) -> str:
        """What the GPU calls itself."""
        buffer = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", buffer, len(buffer), self._device)
        return buffer.value.decode(errors="replace")

    @property
    def arch(self) -> str:
        """The arch to compile for, such as "sm_90"."""
        major, minor = self._attribute(75), self._attribute(76)
        return f"sm_{major}{minor}"

    @property
    def driver_version(self) -> int:
        """The CUDA version of the driver, 1000 * major + 10 * minor."""
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        return version.value

    def load(self, cubin: bytes) -> None:
        """Load the kernels that `run` may name."""
        self._call("cuModuleLoadData", ctypes.byref(self._module), cubin)

    def run(self, kernel: str, count: int, values: NDArray[np.uint32] | None) -> NDArray[np.uint32]:
        """Run a kernel (result, [values,] count) over `count` threads: its result, uint32 [count].

        Raises OracleError where the driver reports a failure.
        """
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), self._module, kernel.encode())
        result = np.empty(count, np.uint32)
        pointers = [self._allocate(result.nbytes)]
        if values is not None:
            pointers.append(self._allocate(values.nbytes))
            source = values.ctypes.data_as(ctypes.c_void_p)
            self._call("cuMemcpyHtoD_v2", pointers[1], source, ctypes.c_size_t(values.nbytes))
        arguments = [*pointers, ctypes.c_uint(count)]
        addresses = (ctypes.c_void_p * len(arguments))(
            *(ctypes.cast(ctypes.byref(each), ctypes.c_void_p) for each in arguments)
        )
        blocks = -(-count // THREADS)
        self._call(
            "cuLaunchKernel", function, blocks, 1, 1, THREADS, 1, 1, 0, None, addresses, None
        )
        target = result.ctypes.data_as(ctypes.c_void_p)
        self._call("cuMemcpyDtoH_v2", target, pointers[0], ctypes.c_size_t(result.nbytes))
        for pointer in pointers:
            self._call("cuMemFree_v2", pointer)
        return result

    def _allocate(self, size: int) -> ctypes.c_uint64:
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._driver, name)(*arguments)
        if status:
            raise OracleError(f"the CUDA driver's {name} failed with status {status}")
