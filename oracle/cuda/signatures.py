"""The functions of the CUDA driver that are called, with the types of their arguments.

Each returns a CUresult, an int. Names with `_v2` are what cuda.h makes of the documented names.
Source: the CUDA driver API reference, https://docs.nvidia.com/cuda/cuda-driver-api/.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

_HANDLE = c_void_p
_ADDRESS = c_uint64
_DEVICE = c_int

SIGNATURES: dict[str, tuple[type[Any], ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(_DEVICE), c_int),
    "cuDeviceGetName": (c_char_p, c_int, _DEVICE),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, _DEVICE),
    "cuDevicePrimaryCtxRetain": (POINTER(_HANDLE), _DEVICE),
    "cuCtxSetCurrent": (_HANDLE,),
    "cuCtxSynchronize": (),
    "cuModuleLoadDataEx": (
        POINTER(_HANDLE), c_void_p, c_uint, POINTER(c_int), POINTER(c_void_p),
    ),
    "cuModuleGetFunction": (POINTER(_HANDLE), _HANDLE, c_char_p),
    "cuMemAlloc_v2": (POINTER(_ADDRESS), c_size_t),
    "cuMemFree_v2": (_ADDRESS,),
    "cuMemcpyHtoD_v2": (_ADDRESS, c_void_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, _ADDRESS, c_size_t),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, c_size_t, _HANDLE),
    "cuLaunchKernel": (
        _HANDLE, *(c_uint,) * 7, _HANDLE, POINTER(c_void_p), POINTER(c_void_p),
    ),
    "cuEventCreate": (POINTER(_HANDLE), c_uint),
    "cuEventRecord": (_HANDLE, _HANDLE),
    "cuEventSynchronize": (_HANDLE,),
    "cuEventElapsedTime": (POINTER(c_float), _HANDLE, _HANDLE),
    "cuEventDestroy_v2": (_HANDLE,),
}  # fmt: skip
"""Name to argument types. A device is an int, an address 64 bits wide, another handle a pointer."""

COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR = 75, 76
"""Members of CUdevice_attribute."""
JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 5, 6
"""Members of CUjit_option."""
LAUNCH_PARAM_END, LAUNCH_PARAM_BUFFER_POINTER, LAUNCH_PARAM_BUFFER_SIZE = 0, 1, 2
"""What precedes each part of the last argument of cuLaunchKernel."""

ILLEGAL_ADDRESS, MISALIGNED_ADDRESS, OUT_OF_MEMORY = 700, 716, 2
FAULTS = frozenset({ILLEGAL_ADDRESS, 702, 710, 714, 715, MISALIGNED_ADDRESS, 717, 718, 719})
"""Values of CUresult that a running kernel causes, after which its context is of no more use.

In this order: illegal address, launch timeout, assert, hardware stack error, illegal instruction,
misaligned address, invalid address space, invalid pc, launch failed.
"""


def bind(library: Any) -> None:
    """Declare every function of a loaded driver. Raises AttributeError for one it does not have."""
    for name, argtypes in SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = argtypes, ctypes.c_int
