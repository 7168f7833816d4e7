"""A vLLM checkout, or an installed vLLM, as subjects: its dequantiser and its view split.

    tests/kernels/quantization/nvfp4_utils.py   dequant_nvfp4_kv_cache      a reader
    vllm/utils/torch_utils.py                   nvfp4_split_data_scale,     view splits
                                                nvfp4_kv_cache_split_views

Nothing of it is imported. Each function is taken from its file's text with what it needs
(`oracle.subjects.checkout_source`) and executed in another process (`checkout_process`). The
dequantiser is given the views that the checkout's own split makes, where there is one.

The layout that a dequantiser assumes became a flag when its public test was corrected: K is read
linearly, V by the arch's reader. Where such a flag is there, each arch is a reader of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.contracts import contract
from oracle.errors import CallFailed, OracleError, UsageError
from oracle.geometry import SIDES, CacheGeometry
from oracle.requests import ReadRequest
from oracle.subjects.base import Reader, SubjectInfo
from oracle.subjects.checkout_source import Extract
from oracle.subjects.checkout_tree import Checkout, open_checkout
from oracle.subjects.checkout_views import CheckoutSplit
from oracle.subjects.dequantiser import (
    PARAMETERS,
    TRIAL,
    Calling,
    Flags,
    calling,
    check_flags,
    flags_in_words,
    of_slots,
    parse_flags,
    result_shape,
    trial,
)
from oracle.subjects.splits import SplitReader
from oracle.views.planes import SPLITS, Plane, ViewSplit
from oracle.views.tensor import of_geometry

SWIZZLE_FLAGS = ("swizzled_scales", "swizzle_sf")
"""Flags that say whether the scales of this call are swizzled."""

ARCH_SWIZZLES: Mapping[str, Mapping[str, bool]] = {
    "sm_100": {"K": False, "V": True},
    "sm_120": {"K": False, "V": False},
}
"""What the corrected tests pass for each side. Source: vllm-project/vllm#55908."""

SPLIT_CONTRACT = "vllm-store"
"""The writer whose layouts a view split is read with, since it says nothing of them itself."""


def checkout_readers(path: str, python: str | None = None, flags: str = "") -> list[Reader]:
    """The readers of a checkout, each tried once.

    Its dequantiser, for each arch where a flag tells them apart, or with the `flags` that are given
    (`k.NAME=VALUE,v.NAME=VALUE`); and each of its view splits, with the scale layouts of vLLM's
    store. Raises UsageError for a tree without either, an unknown signature or flag, and a function
    that cannot be executed.
    """
    checkout = open_checkout(path, python)
    readers: list[Reader] = []
    if checkout.dequantiser is not None:
        readers += _dequantisers(checkout, checkout.dequantiser, flags)
    for found in checkout.splits:
        split = CheckoutSplit(checkout, found)
        split.planes(of_geometry(TRIAL))
        readers.append(_split_reader(split))
    return readers


def _dequantisers(checkout: Checkout, found: Extract, flags: str) -> list[Reader]:
    known = calling(found.name, found.parameters, found.signature)
    if not known.by_name:
        raise UsageError(
            f"{found.name}{found.signature} is a signature nobody here knows: it should have "
            f"{', '.join(PARAMETERS)}"
        )
    given = parse_flags(found.name, flags)
    check_flags(found.name, known, given)
    flag = next((name for name in SWIZZLE_FLAGS if name in known.flags), None)
    if flag is None or flags:
        return [CheckoutReader(checkout, found, known, None, given)]
    return [
        CheckoutReader(checkout, found, known, arch, {s: {flag: v} for s, v in sides.items()})
        for arch, sides in ARCH_SWIZZLES.items()
    ]


def _split_reader(split: CheckoutSplit) -> SplitReader:
    promised = contract(SPLIT_CONTRACT, "writer")
    info = SubjectInfo(
        id=split.name,
        role="reader",
        name=f"{split.found.function} of vLLM, {split.checkout.provenance.words}, "
        f"scales as {promised.name} stores them",
        executor="callable",
        artifact_sha256=split.found.sha256,
    )
    return SplitReader(info, split, promised.k, promised.v)


class CheckoutReader:
    """The dequantiser of a checkout, with the flags of one arch."""

    def __init__(
        self,
        checkout: Checkout,
        found: Extract,
        known: Calling,
        arch: str | None,
        flags: Flags,
    ) -> None:
        """Try the function once. Raises UsageError where it cannot be executed."""
        self._checkout, self._found, self._known, self._flags = checkout, found, known, flags
        self._split: ViewSplit = SPLITS["contiguous"]
        if checkout.splits:
            self._split = CheckoutSplit(checkout, checkout.splits[0])
        self.info = SubjectInfo(
            id=f"vllm:{found.function}" + (f"@{arch}" if arch else ""),
            role="reader",
            name=f"{found.function} of vLLM, {checkout.provenance.words}{_passed(known, flags)}",
            executor="callable",
            arch=arch,
            artifact_sha256=found.sha256,
        )
        try:
            self.read(trial(TRIAL))
        except CallFailed as error:
            raise UsageError(str(error)) from error

    def unsupported_reason(self, geometry: CacheGeometry, dtype: str) -> str | None:
        """Why the checkout's own split refuses a geometry; None where it does not."""
        try:
            self._split.planes(of_geometry(geometry))
        except OracleError as error:
            return str(error)
        return None

    def read(self, request: ReadRequest) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Call the function for K and V in its own process.

        Raises CallFailed where it raises for this geometry, UsageError where it hangs or
        dies.
        """
        geometry = request.geometry
        planes = self._split.planes(of_geometry(geometry))
        calls = []
        for side, scale in (("K", request.k_scale), ("V", request.v_scale)):
            views = {plane.kind: _view(plane) for plane in planes if plane.side == side}
            rest = (scale, geometry.head_size, geometry.block_size)
            _, named = self._known.arguments(side, (None, None, *rest), self._flags[side])
            own = {name: value for name, value in named.items() if name not in PARAMETERS}
            calls.append({**views, "rest": rest, "named": own})
        shape = result_shape(geometry)
        _, data = self._checkout.process.call(
            "dequantise",
            self._found.function,
            {"calls": calls, "parameters": PARAMETERS, "shape": shape},
            request.cache.tobytes(),
        )
        both = np.frombuffer(data, np.float32).reshape(len(SIDES), *shape)
        return of_slots(request, both[0]), of_slots(request, both[1])


def _passed(known: Calling, flags: Flags) -> str:
    """The flags that are passed, and those that are left at their defaults."""
    left = [flag for flag in known.flags if not any(flag in passed for passed in flags.values())]
    return flags_in_words(flags) + "".join(f", default {flag}" for flag in left)


def _view(plane: Plane) -> dict[str, Any]:
    return {"shape": plane.shape, "strides": plane.strides, "offset": plane.base}
