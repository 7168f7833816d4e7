"""A Python function as a writer or a reader, imported into this process.

A writer is called like vLLM's `reshape_and_cache_flash`:

    function(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale)

`key` and `value` are [T, H, D]; the caches are uint8 views [B, N, H, D/2 + S] of one allocation,
strided as HND or NHD say; `slot_mapping` is int64 [T], `kv_cache_dtype` "nvfp4", the scales float32
of one element. A reader is called like vLLM's `dequant_nvfp4_kv_cache`, once for each side: see
`oracle.subjects.dequantiser`.

A function whose module imports torch gets torch tensors (block scales as float8_e4m3fn); any other
gets NumPy arrays (block scales as uint8), in which bf16 values come as float32, since NumPy has no
bf16. A writer called `package.module:function@cuda` gets its tensors on the GPU, which is what a
store in Triton or CuTe needs.

A function refuses a geometry by raising NotImplementedError with the reason.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from oracle.errors import CallFailed, NothingRan, Refused, UsageError
from oracle.formats import DTYPES
from oracle.geometry import CacheGeometry, StridedView
from oracle.requests import ReadRequest, Stored, StoreRequest
from oracle.subjects.base import SubjectInfo
from oracle.subjects.dequantiser import (
    TRIAL,
    Calling,
    Parameter,
    calling,
    check_flags,
    flags_in_words,
    of_slots,
    parse_flags,
    result_shape,
    trial,
)
from oracle.subjects.function import called, digest, load_function, uses_torch
from oracle.views.planes import SPLITS, Plane
from oracle.views.tensor import of_geometry

ARGUMENTS = (
    "key", "value", "key_cache", "value_cache", "slot_mapping", "kv_cache_dtype", "k_scale",
    "v_scale",
)  # fmt: skip
"""What a writer is called with, by position."""


class CallableWriter:
    """Calls a function and compares the cache before and after."""

    def __init__(self, spec: str) -> None:
        """Import the function of `package.module:function[@cuda]`.

        Raises UsageError for one that cannot be imported, takes other arguments, or has no use for
        tensors on a GPU.
        """
        self.spec = spec
        name, _, place = spec.partition("@")
        self._place = place or "cpu"
        self._function = load_function(name)
        _check_signature(name, self._function)
        if place and not uses_torch(self._function):
            raise UsageError(
                f"{spec}: its module uses no torch, so it gets NumPy arrays: leave @{place} out"
            )
        self.info = SubjectInfo(
            id=spec,
            role="writer",
            name=spec,
            executor="callable",
            artifact_sha256=digest(self._function),
        )

    def __reduce__(self) -> tuple[type[CallableWriter], tuple[str]]:
        """Another process imports the function anew."""
        return CallableWriter, (self.spec,)

    def unsupported_reason(self, geometry: CacheGeometry, dtype: str) -> str | None:
        """A function is asked about everything: it can refuse only as it is called."""
        return None

    def write(self, request: StoreRequest) -> Stored:
        """Call the function.

        Raises Refused where it refuses the geometry, CallFailed where it raises or stores nothing,
        UsageError where it takes too long, NothingRan where it lacks a GPU.
        """
        cache = request.cache.copy()
        torch = sys.modules.get("torch") if uses_torch(self._function) else None
        if torch is None:
            whole, arguments = None, _arguments(request, cache)
        else:
            self._check_place(torch)
            # On the CPU this is no copy.
            whole = torch.from_numpy(cache).to(self._place)
            arguments = _torch_arguments(torch, request, whole)
        with called(self.spec, self._function, request.geometry):
            self._function(*arguments)
            # A GPU may still be at it, and tells of a fault only here.
            cache = cache if whole is None else whole.cpu().numpy()
        if (request.slot_mapping >= 0).any() and np.array_equal(cache, request.cache):
            raise CallFailed(
                f"{self.spec} stored nothing, given {request.geometry.in_words()}: the cache is as "
                "it was before the call"
            )
        return Stored(cache)

    def _check_place(self, torch: Any) -> None:
        """Asked here, where the function is called: a process that forks must not touch the GPU."""
        if self._place == "cuda" and not torch.cuda.is_available():
            raise NothingRan(
                f"{self.spec}: torch {torch.__version__} finds no GPU: leave @cuda out, or run "
                "this where a GPU is"
            )


class CallableReader:
    """Calls a dequantiser for K and for V, on every page of the cache."""

    def __init__(self, spec: str) -> None:
        """Import the function of `package.module:function[,k.FLAG=VALUE…]` and try it once.

        Raises UsageError for one that cannot be imported, takes something else, or raises.
        """
        self.spec = spec
        name, _, options = spec.partition(",")
        self._function = load_function(name)
        self._calling = _calling(name, self._function)
        self._flags = parse_flags(name, options)
        check_flags(name, self._calling, self._flags)
        self.info = SubjectInfo(
            id=spec,
            role="reader",
            name=f"{name}{flags_in_words(self._flags)}",
            executor="callable",
            artifact_sha256=digest(self._function),
        )
        try:
            self.read(trial(TRIAL))
        except CallFailed as error:
            raise UsageError(str(error)) from error
        except Refused:
            # It answers for geometries of its own choice.
            pass

    def __reduce__(self) -> tuple[type[CallableReader], tuple[str]]:
        """Another process imports the function anew."""
        return CallableReader, (self.spec,)

    def unsupported_reason(self, geometry: CacheGeometry, dtype: str) -> str | None:
        """A function is asked about everything: it can refuse only as it is called."""
        return None

    def read(self, request: ReadRequest) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Call the function for each side.

        Raises Refused where it refuses the geometry, CallFailed where it raises or gives no result,
        UsageError where it takes too long.
        """
        torch = sys.modules.get("torch") if uses_torch(self._function) else None
        keys, values = (
            of_slots(request, self._side(torch, request, side, scale))
            for side, scale in (("K", request.k_scale), ("V", request.v_scale))
        )
        return keys, values

    def _side(
        self, torch: Any, request: ReadRequest, side: str, scale: float
    ) -> NDArray[np.float32]:
        geometry = request.geometry
        views = [
            _view(torch, request.cache, plane)
            for plane in SPLITS["contiguous"].planes(of_geometry(geometry))
            if plane.side == side
        ]
        inputs = (*views, scale, geometry.head_size, geometry.block_size)
        arguments, named = self._calling.arguments(side, inputs, self._flags[side])
        with called(self.spec, self._function, geometry):
            values = np.asarray(self._function(*arguments, **named), np.float32)
        if values.shape != result_shape(geometry):
            raise CallFailed(
                f"{self.spec} gave {list(values.shape)} for {side}, not "
                f"{list(result_shape(geometry))}"
            )
        return values


def _check_signature(spec: str, function: Callable[..., Any]) -> None:
    """Refuse a function that cannot be called as a store is, as far as it tells what it takes."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*ARGUMENTS)
    except TypeError as error:
        raise UsageError(
            f"{spec}{signature} cannot be called as a store, with ({', '.join(ARGUMENTS)}): see "
            "docs/adding-a-writer.md"
        ) from error


def _calling(spec: str, function: Callable[..., Any]) -> Calling:
    """How a function is called, from its signature."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{spec} has no signature: give a Python function") from error
    parameters = [
        Parameter(p.name, p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
        for p in signature.parameters.values()
    ]
    return calling(spec, parameters, str(signature))


def _view(torch: Any, cache: NDArray[np.uint8], plane: Plane) -> Any:
    """A plane [B, H, N, bytes] of a cache, as the function's own kind of array."""
    if torch is None:
        return as_strided(cache[plane.base :], plane.shape, plane.strides, writeable=False)
    # Torch has no read-only tensors, so it gets a copy of what belongs to the request.
    whole = torch.from_numpy(cache.copy())
    view = whole.as_strided(plane.shape, tuple(plane.strides), plane.base)
    return view.view(torch.float8_e4m3fn) if plane.kind == "scale" else view


def _arguments(request: StoreRequest, cache: NDArray[np.uint8]) -> tuple[Any, ...]:
    views = [
        as_strided(cache[view.offset :], view.shape, view.strides)
        for view in (request.geometry.side_view(side) for side in "KV")
    ]
    inputs = [_numbers(request.dtype, patterns) for patterns in (request.key, request.value)]
    scales = [np.array([scale], np.float32) for scale in (request.k_scale, request.v_scale)]
    return (*inputs, *views, request.slot_mapping.copy(), "nvfp4", *scales)


def _numbers(dtype: str, patterns: NDArray[np.uint16]) -> NDArray[Any]:
    if dtype == "fp16":
        return patterns.view(np.float16).copy()
    return DTYPES[dtype].decode(patterns)


def _torch_arguments(torch: Any, request: StoreRequest, whole: Any) -> tuple[Any, ...]:
    """All of them where the tensor of the `whole` cache is."""
    place = whole.device

    def view(side: StridedView) -> Any:
        return whole.as_strided(side.shape, side.strides, side.offset)

    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}[request.dtype]
    key, value = (
        torch.from_numpy(patterns.view(np.int16).copy()).view(kind).to(place)
        for patterns in (request.key, request.value)
    )
    caches = [view(request.geometry.side_view(side)) for side in "KV"]
    slots = torch.from_numpy(request.slot_mapping.copy()).to(place)
    scales = [torch.tensor([scale], device=place) for scale in (request.k_scale, request.v_scale)]
    return (key, value, *caches, slots, "nvfp4", *scales)
