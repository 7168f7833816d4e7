"""The binding of the driver: what is declared, and what is said where something is missing.

There is no driver here. The declarations are compared with the prototypes of the driver API
reference, written down by hand; the calls are made to a library made up in Python.
"""

from __future__ import annotations

import ctypes
import re
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import partial
from typing import Any

import numpy as np
import pytest

from oracle.cuda.driver import CudaDriver, CudaError, load_library
from oracle.cuda.signatures import SIGNATURES
from oracle.errors import NothingRan

# As in https://docs.nvidia.com/cuda/cuda-driver-api/, names of arguments left out.
PROTOTYPES = """
cuInit(unsigned int)
cuDriverGetVersion(int*)
cuGetErrorName(CUresult, const char**)
cuGetErrorString(CUresult, const char**)
cuDeviceGetCount(int*)
cuDeviceGet(CUdevice*, int)
cuDeviceGetName(char*, int, CUdevice)
cuDeviceGetAttribute(int*, CUdevice_attribute, CUdevice)
cuDevicePrimaryCtxRetain(CUcontext*, CUdevice)
cuCtxSetCurrent(CUcontext)
cuCtxSynchronize(void)
cuModuleLoadDataEx(CUmodule*, const void*, unsigned int, CUjit_option*, void**)
cuModuleGetFunction(CUfunction*, CUmodule, const char*)
cuMemAlloc(CUdeviceptr*, size_t)
cuMemFree(CUdeviceptr)
cuMemcpyHtoD(CUdeviceptr, const void*, size_t)
cuMemcpyDtoH(void*, CUdeviceptr, size_t)
cuMemcpyDtoDAsync(CUdeviceptr, CUdeviceptr, size_t, CUstream)
cuLaunchKernel(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
 unsigned int, unsigned int, CUstream, void**, void**)
cuEventCreate(CUevent*, unsigned int)
cuEventRecord(CUevent, CUstream)
cuEventSynchronize(CUevent)
cuEventElapsedTime(float*, CUevent, CUevent)
cuEventDestroy(CUevent)
"""
# "typedef int CUdevice", "typedef unsigned long long CUdeviceptr" on 64-bit systems; enumerations
# are ints; the other handles point to structures nobody sees.
TYPES: dict[str, type[Any]] = {
    "void": type(None),
    "int": c_int,
    "unsigned int": c_uint,
    "float": c_float,
    "size_t": c_size_t,
    "CUresult": c_int,
    "CUdevice": c_int,
    "CUdevice_attribute": c_int,
    "CUjit_option": c_int,
    "CUdeviceptr": c_uint64,
    "CUcontext": c_void_p,
    "CUmodule": c_void_p,
    "CUfunction": c_void_p,
    "CUstream": c_void_p,
    "CUevent": c_void_p,
}


CONTEXT, MODULE, FUNCTION = (0x7F00_0000_0000 + i for i in (1, 2, 3))
"""Handles that need all their 64 bits."""
WRONG = 9998
"""The status of a call with arguments it should not have."""


def as_ctypes(declared: str) -> type[Any]:
    """The ctypes type of an argument of a C prototype."""
    name = declared.replace("const ", "")
    base, stars = name.rstrip("*"), name.count("*")
    if base in ("char", "void") and stars:
        pointer: type[Any] = c_char_p if base == "char" else c_void_p
        return POINTER(pointer) if stars == 2 else pointer
    return POINTER(TYPES[base]) if stars else TYPES[base]


def prototypes() -> dict[str, tuple[type[Any], ...]]:
    found = {}
    for name, arguments in re.findall(r"(cu\w+)\(([^)]*)\)", PROTOTYPES):
        declared = [" ".join(each.split()) for each in arguments.split(",")]
        found[name] = tuple(as_ctypes(each) for each in declared if each != "void")
    return found


def test_the_declarations_are_those_of_the_reference() -> None:
    declared = {name.removesuffix("_v2"): types for name, types in SIGNATURES.items()}
    assert declared == prototypes()


def test_a_pointer_has_64_bits() -> None:
    assert ctypes.sizeof(c_void_p) == ctypes.sizeof(c_uint64) == ctypes.sizeof(c_size_t) == 8


def test_without_a_driver_it_says_so() -> None:
    with pytest.raises(NothingRan, match=r"there is no CUDA driver \(libno-such-driver\.so\)"):
        load_library("libno-such-driver.so")


def test_another_library_is_no_driver() -> None:
    with pytest.raises(
        NothingRan, match=r"libc\.so\.6 is no CUDA driver that can be used: .*cuInit"
    ):
        load_library("libc.so.6")


class Library:
    """A driver in Python behind C functions: it notes its calls and answers each with a status.

    Its one GPU is of capability 10.3; its memory is this process's own.
    """

    def __init__(self, devices: int = 1, **statuses: int) -> None:
        self.calls: list[str] = []
        self.params = b""
        self._buffers: list[Any] = []
        self._devices = devices
        self._statuses = statuses
        for name, argtypes in SIGNATURES.items():
            # A callback gets a copy of a char*, so that one to be written to must be a void*.
            raw = [c_void_p if name == "cuDeviceGetName" and t is c_char_p else t for t in argtypes]
            function = ctypes.CFUNCTYPE(c_int, *raw)(partial(self._called, name))
            setattr(self, name, function)

    def _called(self, name: str, *arguments: Any) -> int:
        self.calls.append(name)
        if name in self._statuses:
            return self._statuses[name]
        answer = getattr(self, f"answer_{name}", None)
        if answer is not None:
            try:
                answer(*arguments)
            except AssertionError:
                # An exception cannot leave a C function.
                return WRONG
        return 0

    def answer_cuDeviceGetCount(self, count: Any) -> None:  # noqa: N802
        count[0] = self._devices

    def answer_cuDeviceGetName(self, name: int, size: int, device: int) -> None:  # noqa: N802
        assert size == 256
        ctypes.memmove(name, b"Made up\0", 8)

    def answer_cuDeviceGetAttribute(self, value: Any, which: int, device: int) -> None:  # noqa: N802
        value[0] = {75: 10, 76: 3}[which]

    def answer_cuDriverGetVersion(self, value: Any) -> None:  # noqa: N802
        value[0] = 13010

    def answer_cuDevicePrimaryCtxRetain(self, context: Any, device: int) -> None:  # noqa: N802
        context[0] = CONTEXT

    def answer_cuCtxSetCurrent(self, context: int) -> None:  # noqa: N802
        assert context == CONTEXT

    def answer_cuMemAlloc_v2(self, address: Any, size: int) -> None:  # noqa: N802
        self._buffers.append(ctypes.create_string_buffer(size))
        address[0] = ctypes.addressof(self._buffers[-1])

    def answer_cuMemcpyHtoD_v2(self, target: int, source: int, size: int) -> None:  # noqa: N802
        ctypes.memmove(target, source, size)

    def answer_cuMemcpyDtoH_v2(self, target: int, source: int, size: int) -> None:  # noqa: N802
        ctypes.memmove(target, source, size)

    def answer_cuMemcpyDtoDAsync_v2(  # noqa: N802
        self, target: int, source: int, size: int, stream: int | None
    ) -> None:
        assert stream is None
        ctypes.memmove(target, source, size)

    def answer_cuModuleLoadDataEx(  # noqa: N802
        self, module: Any, image: int, count: int, options: Any, values: Any
    ) -> None:
        assert ctypes.string_at(image, 5) == b"cubin"
        assert (options[:count], values[1]) == ([5, 6], 4096)
        module[0] = MODULE

    def answer_cuModuleGetFunction(self, function: Any, module: int, name: bytes) -> None:  # noqa: N802
        assert (module, name) == (MODULE, b"_Z5store")
        function[0] = FUNCTION

    def answer_cuLaunchKernel(self, function: int, *rest: Any) -> None:  # noqa: N802
        *sizes, stream, ordinary, extra = rest
        assert (function, sizes, stream) == (FUNCTION, [3, 2, 1, 64, 4, 1, 0], None)
        assert not ordinary
        # A null pointer reads as None; that is the end.
        assert (extra[0], extra[2], extra[4]) == (1, 2, None)
        size = c_size_t.from_address(extra[3]).value
        self.params = ctypes.string_at(extra[1], size)

    def answer_cuEventElapsedTime(self, value: Any, start: int, end: int) -> None:  # noqa: N802
        value[0] = 2.5

    def answer_cuGetErrorName(self, status: int, text: Any) -> None:  # noqa: N802
        names = {100: b"CUDA_ERROR_NO_DEVICE", 700: b"CUDA_ERROR_ILLEGAL_ADDRESS"}
        text[0] = names.get(status)

    def answer_cuGetErrorString(self, status: int, text: Any) -> None:  # noqa: N802
        text[0] = b"no CUDA-capable device is detected" if status == 100 else None


def test_it_takes_the_first_gpu() -> None:
    library = Library()
    driver = CudaDriver(library)
    assert driver.device.in_words() == "Made up (compute capability 10.3, CUDA 13.1)"
    assert library.calls[0] == "cuInit"
    assert library.calls[-2:] == ["cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"]


@pytest.mark.parametrize("failing", ["cuInit", "cuDeviceGetCount", "cuDevicePrimaryCtxRetain"])
def test_where_it_cannot_start_there_is_no_gpu(failing: str) -> None:
    expected = "gives no GPU: CUDA_ERROR_NO_DEVICE while .*: no CUDA-capable device is detected"
    with pytest.raises(NothingRan, match=expected):
        CudaDriver(Library(**{failing: 100}))


def test_no_visible_gpu_is_none() -> None:
    with pytest.raises(NothingRan, match="finds no GPU: none is visible"):
        CudaDriver(Library(devices=0))


def test_a_failure_is_told_by_name_and_by_what_was_being_done() -> None:
    driver = CudaDriver(Library(cuCtxSynchronize=700, cuMemAlloc_v2=9999))
    with pytest.raises(CudaError, match="CUDA_ERROR_ILLEGAL_ADDRESS while waiting for the kernel"):
        driver.synchronise()
    with pytest.raises(CudaError, match="status 9999 while allocating 4,096 bytes") as raised:
        driver.allocate(4096)
    assert not raised.value.is_fault


def test_a_cubin_that_is_refused_is_told_with_the_drivers_log() -> None:
    driver = CudaDriver(Library(cuModuleLoadDataEx=100))
    with pytest.raises(CudaError, match="while loading a cubin of 3 bytes: no CUDA-capable"):
        driver.load(b"abc")


def test_every_call_is_made_as_declared() -> None:
    library = Library()
    driver = CudaDriver(library)
    address = driver.allocate(8)
    driver.upload(address, np.arange(8, dtype=np.uint8))
    assert driver.download(address, 8).tolist() == list(range(8))
    driver.copy(address, address, 8)
    function = driver.function(driver.load(b"cubin"), "_Z5store")
    driver.launch(function, (3, 2, 1), (64, 4, 1), b"\0parameters\0")
    driver.synchronise()
    assert library.params == b"\0parameters\0"
    assert driver.milliseconds(lambda: None) == 2.5
    driver.free(address)
    assert set(library.calls) | {"cuGetErrorName", "cuGetErrorString"} == set(SIGNATURES)
