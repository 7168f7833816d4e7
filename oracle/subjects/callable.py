"""A Python function as a writer, called like vLLM's `reshape_and_cache_flash`.

    function(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale)

`key` and `value` are [T, H, D]; the caches are uint8 views [B, N, H, D/2 + S] of one allocation,
strided as HND or NHD say; `slot_mapping` is int64 [T], `kv_cache_dtype` "nvfp4", the scales float32
of one element. A module that imports torch gets torch tensors; any other gets NumPy arrays, in
which bf16 values come as float32, since NumPy has no bf16.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from oracle.errors import UsageError
from oracle.formats import DTYPES
from oracle.geometry import CacheGeometry, StridedView
from oracle.requests import Stored, StoreRequest
from oracle.subjects.base import SubjectInfo


def load_function(spec: str) -> Callable[..., Any]:
    """The function `package.module:function` names, searched for from the current directory too.

    Raises UsageError where there is none, or where importing its module fails.
    """
    module_name, _, function_name = spec.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise UsageError(f"{spec}: importing {module_name} failed: {_line(error)}") from error
    function: Callable[..., Any] | None = getattr(module, function_name, None)
    if function is None or not callable(function):
        raise UsageError(f"{spec}: {module_name} has no function {function_name!r}")
    return function


def _line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _digest(function: Callable[..., Any]) -> str | None:
    """sha256 of the file a function stands in, if it stands in one."""
    try:
        path = inspect.getsourcefile(function)
        with open(path or "", "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except (OSError, TypeError):
        return None


class CallableWriter:
    """Calls a function and compares the cache before and after."""

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self._function = load_function(spec)
        self.info = SubjectInfo(
            id=spec,
            role="writer",
            name=spec,
            executor="callable",
            artifact_sha256=_digest(self._function),
        )

    def __reduce__(self) -> tuple[type[CallableWriter], tuple[str]]:
        """Another process imports the function anew."""
        return CallableWriter, (self.spec,)

    def unsupported_reason(self, geometry: CacheGeometry, dtype: str) -> str | None:
        """A function is asked about everything."""
        return None

    def write(self, request: StoreRequest) -> Stored:
        """Call the function. Raises UsageError where it raises or stores nothing."""
        cache = request.cache.copy()
        torch = sys.modules.get("torch") if self._uses_torch() else None
        arguments = _torch_arguments(torch, request, cache) if torch else _arguments(request, cache)
        try:
            self._function(*arguments)
        except Exception as error:
            raise UsageError(f"{self.spec} raised {_line(error)}") from error
        if request.slot_mapping.size and np.array_equal(cache, request.cache):
            raise UsageError(f"{self.spec} stored nothing: the cache is as it was before the call")
        return Stored(cache)

    def _uses_torch(self) -> bool:
        return hasattr(inspect.getmodule(self._function), "torch")


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


def _torch_arguments(
    torch: Any, request: StoreRequest, cache: NDArray[np.uint8]
) -> tuple[Any, ...]:
    whole = torch.from_numpy(cache)

    def view(side: StridedView) -> Any:
        return whole.as_strided(side.shape, side.strides, side.offset)

    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}[request.dtype]
    key, value = (
        torch.from_numpy(patterns.view(np.int16).copy()).view(kind)
        for patterns in (request.key, request.value)
    )
    caches = [view(request.geometry.side_view(side)) for side in "KV"]
    slots = torch.from_numpy(request.slot_mapping.copy())
    scales = [torch.tensor([scale]) for scale in (request.k_scale, request.v_scale)]
    return (key, value, *caches, slots, "nvfp4", *scales)
