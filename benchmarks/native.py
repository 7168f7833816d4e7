"""The same store in C: compiled where a compiler is there, and called through ctypes."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.workload import Workload
from oracle.formats import ByteArray
from oracle.geometry import SIDES
from oracle.quantize import ScaleSearch
from oracle.requests import StoreRequest
from oracle.subjects.store_abi import StoreLaunch

VARIANTS = ("branchy", "vector")
SOURCE = Path(__file__).with_name("native_store.c")
# Contraction would change results; the others only promise not to look at flags and errno.
_FLAGS = ("-O3", "-ffp-contract=off", "-fno-trapping-math", "-fno-math-errno", "-shared", "-fPIC")
_NATIVE = ("-march=native", "-mcpu=native")


class NoCompiler(Exception):
    """There is no C compiler, or it does not compile the source."""


class BytesDiffer(Exception):
    """A native store left other bytes in the cache than the machine did."""


class _Launch(ctypes.Structure):
    """`struct launch` of native_store.c."""

    _fields_ = (
        ("source", ctypes.c_void_p * 2),
        ("data", ctypes.c_void_p * 2),
        ("scale", ctypes.c_void_p * 2),
        ("slot_mapping", ctypes.c_void_p),
        ("tokens", ctypes.c_int64),
        ("token_stride", ctypes.c_int64 * 2),
        ("num_heads", ctypes.c_int64),
        ("head_size", ctypes.c_int64),
        ("block_size", ctypes.c_int64),
        ("data_strides", ctypes.c_int64 * 3),
        ("scale_strides", ctypes.c_int64 * 3),
        ("global_scale", ctypes.c_float * 2),
    )


def find_compiler() -> str | None:
    """The C compiler to use: $CC, else cc, gcc or clang; None where there is none."""
    names = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    return next((name for name in names if name and shutil.which(name)), None)


@dataclass(frozen=True)
class NativeStore:
    """The compiled library, and how it was made."""

    library: ctypes.CDLL
    command: str

    @classmethod
    def build(cls, directory: Path, source: Path = SOURCE) -> NativeStore:
        """Compile `source` into `directory`. Raises NoCompiler with the reason."""
        compiler = find_compiler()
        if compiler is None:
            raise NoCompiler("there is no C compiler (cc, gcc or clang)")
        product = directory / "native_store.so"
        reason = ""
        # Not every compiler knows how to ask for this machine's own instructions.
        for tuning in (*((flag,) for flag in _NATIVE), ()):
            flags = (*_FLAGS, *tuning)
            command = [compiler, *flags, "-o", str(product), str(source), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return cls(ctypes.CDLL(str(product)), " ".join((compiler, *flags)))
            reason = reason or (done.stderr.strip().splitlines() or ["no reason given"])[0]
        raise NoCompiler(f"{compiler} does not compile {source.name}: {reason}")

    def store(
        self, variant: str, workload: Workload, request: StoreRequest, cache: ByteArray
    ) -> NativeCall:
        """A call that stores the request into `cache`, with one of VARIANTS."""
        function = getattr(self.library, f"store_{variant}")
        function.argtypes = (ctypes.POINTER(_Launch), ctypes.c_int32, ctypes.c_int32)
        function.restype = None
        fp16 = workload.dtype == "fp16"
        four_over_six = workload.search is ScaleSearch.FOUR_OVER_SIX
        return NativeCall(function, (_launch(request, cache), fp16, four_over_six), request, cache)


@dataclass(frozen=True, eq=False)
class NativeCall:
    """One native store, any number of times; it keeps alive what its launch points to."""

    function: Callable[..., None]
    arguments: tuple[_Launch, bool, bool]
    request: StoreRequest
    cache: ByteArray

    def __call__(self) -> None:
        """Store the request into the cache."""
        self.function(*self.arguments)


def _launch(request: StoreRequest, cache: ByteArray) -> _Launch:
    geometry = request.geometry
    shape = StoreLaunch.of(geometry, request.slot_mapping.size)
    base = cache.ctypes.data
    pointers = ctypes.c_void_p * 2
    return _Launch(
        pointers(request.key.ctypes.data, request.value.ctypes.data),
        pointers(*(base + geometry.side_base(side) for side in SIDES)),
        pointers(*(base + geometry.scale_base(side) for side in SIDES)),
        request.slot_mapping.ctypes.data,
        shape.tokens,
        (shape.key_stride, shape.value_stride),
        shape.num_heads,
        shape.head_size,
        shape.block_size,
        shape.data_strides,
        shape.scale_strides,
        (request.k_scale, request.v_scale),
    )


def check_equal(native: NativeStore, workload: Workload) -> int:
    """Compare both variants with the machine on a wild request; the number of bytes compared.

    Raises BytesDiffer with the first byte that differs.
    """
    request = workload.request(wild=True)
    expected = workload.writer().write(request).cache
    for variant in VARIANTS:
        cache = request.cache.copy()
        native.store(variant, workload, request, cache)()
        different = np.flatnonzero(cache != expected)
        if different.size:
            first = int(different[0])
            raise BytesDiffer(
                f"{variant} C and the machine differ in {different.size} bytes of "
                f"{workload.dtype} {workload.search.value}: byte {first} is {cache[first]:#04x} "
                f"and {expected[first]:#04x}"
            )
    return expected.size
