"""The view split of a checkout, executed on tensors that have strides and no bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from oracle.errors import CallFailed, UsageError
from oracle.geometry import PLANES, SIDES
from oracle.subjects.checkout_source import Extract
from oracle.subjects.checkout_tree import SPLIT_FILES, SPLIT_FUNCTIONS, Checkout, open_checkout
from oracle.views.planes import Plane, Strides
from oracle.views.tensor import CacheTensor


def checkout_split(path: str, python: str | None = None) -> CheckoutSplit:
    """The first view split of a checkout. Raises UsageError where it has none."""
    checkout = open_checkout(path, python)
    if not checkout.splits:
        raise UsageError(f"{path} has no {SPLIT_FUNCTIONS[0]} in {SPLIT_FILES[0]}")
    return CheckoutSplit(checkout, checkout.splits[0])


@dataclass(frozen=True)
class CheckoutSplit:
    """A view split of a checkout, executed on tensors that have strides and no bytes."""

    checkout: Checkout
    found: Extract

    @property
    def name(self) -> str:
        """Such as "vllm:nvfp4_split_data_scale"."""
        return f"vllm:{self.found.function}"

    def planes(self, tensor: CacheTensor) -> tuple[Plane, ...]:
        """The planes it cuts. Raises UsageError where it raises or gives something else."""
        return _planes(self, tensor)

    def _cut(self, tensor: CacheTensor) -> tuple[Plane, ...]:
        planes = []
        shape = (tensor.pages, tensor.tokens, tensor.heads, tensor.content)
        steps = (tensor.page_stride, tensor.token_stride, tensor.head_stride, tensor.content_stride)
        for index, side in enumerate(SIDES):
            request = {
                "shape": shape,
                "strides": steps,
                "offset": tensor.offset + index * tensor.side_stride,
            }
            try:
                answer, _ = self.checkout.process.call("split", self.found.function, request)
            except CallFailed as error:
                raise UsageError(str(error)) from error
            planes += self._side(side, tensor, answer["views"])
        return tuple(planes)

    def _side(self, side: str, tensor: CacheTensor, views: list[dict[str, Any]]) -> list[Plane]:
        outer = [tensor.pages, tensor.tokens, tensor.heads]
        wanted = [[*outer, width] for width in (tensor.data_bytes, tensor.scale_columns)]
        if [view["shape"] for view in views] != wanted or any(v["bytes"] != 1 for v in views):
            found = " and ".join(str(view["shape"]) for view in views) or "no tensor"
            raise UsageError(
                f"{self.found.name} cut {found} from a side, not data {wanted[0]} and scales "
                f"{wanted[1]} of one byte each"
            )
        planes = []
        for kind, view in zip(PLANES, views, strict=True):
            page, token, head, byte = view["strides"]
            shape = (tensor.pages, tensor.heads, tensor.tokens, view["shape"][3])
            planes.append(
                Plane(side, kind, shape, Strides(page, head, token, byte), view["offset"])
            )
        return planes


@lru_cache(maxsize=256)
def _planes(split: CheckoutSplit, tensor: CacheTensor) -> tuple[Plane, ...]:
    return split._cut(tensor)
