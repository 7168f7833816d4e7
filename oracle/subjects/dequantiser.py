"""How a dequantiser is called, whatever process it runs in.

    function(fp4_data, block_scale, global_scale, head_size, block_size, **flags)

This is vLLM's `dequant_nvfp4_kv_cache`. It is called once for each side, with views in head-major
order whatever the order in memory: `fp4_data` uint8 [pages, heads, tokens, head_size/2] and
`block_scale` [pages, heads, tokens, head_size/16]; `global_scale` is a float, the others whole
numbers. It gives float32 [pages, heads, tokens, head_size].

A function may have further parameters with defaults, its flags, and one called `side`, which is
given "K" or "V". A function with the five names is called by name, one with five other names by
position. Which flags are passed is said for each side, as in `k.swizzled_scales=False`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracle.errors import UsageError
from oracle.geometry import SIDES, CacheGeometry
from oracle.requests import ReadRequest

PARAMETERS = ("fp4_data", "block_scale", "global_scale", "head_size", "block_size")
SIDE = "side"

Flags = Mapping[str, Mapping[str, Any]]
"""Side -> flag -> value."""


class Parameter(NamedTuple):
    """One parameter of a function."""

    name: str
    required: bool


@dataclass(frozen=True)
class Calling:
    """How one function is called: by the five names or by position, with `side` or not."""

    by_name: bool
    takes_side: bool
    flags: tuple[str, ...]

    def arguments(
        self, side: str, values: Sequence[Any], flags: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments of a call for one side."""
        named = {**flags, **({SIDE: side} if self.takes_side else {})}
        if self.by_name:
            return [], {**dict(zip(PARAMETERS, values, strict=True)), **named}
        return list(values), named


def calling(subject: str, parameters: Sequence[Parameter], signature: str) -> Calling:
    """How to call a function with these parameters.

    Raises UsageError, which prints `signature`, where the function takes something else.
    """
    names = [parameter.name for parameter in parameters]
    required = [p.name for p in parameters if p.required and p.name != SIDE]
    by_name = set(PARAMETERS) <= set(names)
    if by_name and set(required) <= set(PARAMETERS):
        flags = tuple(name for name in names if name not in (*PARAMETERS, SIDE))
        return Calling(True, SIDE in names, flags)
    if not by_name and len(required) == len(PARAMETERS) and required == names[: len(required)]:
        flags = tuple(name for name in names[len(required) :] if name != SIDE)
        return Calling(False, SIDE in names, flags)
    raise UsageError(
        f"{subject}{signature} is no dequantiser known here: it should take "
        f"({', '.join(PARAMETERS)}) and flags with defaults"
    )


def parse_flags(subject: str, text: str) -> dict[str, dict[str, Any]]:
    """Flags from `k.name=value,v.name=value`; a name without a side is for both.

    Values are Python literals, or else words. Raises UsageError for anything else.
    """
    flags: dict[str, dict[str, Any]] = {side: {} for side in SIDES}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        side, dot, flag = name.partition(".")
        sides = [side.upper()] if dot else SIDES
        flag = flag if dot else name
        if not equals or not flag.isidentifier() or not set(sides) <= set(SIDES):
            raise UsageError(
                f"{subject}: {part!r} is no flag: give k.NAME=VALUE or v.NAME=VALUE; for another "
                "reader repeat --reader"
            )
        for each in sides:
            flags[each][flag] = _literal(value)
    return flags


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def check_flags(subject: str, known: Calling, flags: Flags) -> None:
    """Refuse flags that the function does not have."""
    for side in SIDES:
        for name in flags.get(side, {}):
            if name not in known.flags:
                have = ", ".join(known.flags) or "none"
                raise UsageError(f"{subject} has no flag {name!r}: it has {have}")


def flags_in_words(flags: Flags) -> str:
    """Such as ", K swizzled_scales=False, V swizzled_scales=True"; empty without flags."""
    told = [f"{side} {k}={v!r}" for side in SIDES for k, v in flags.get(side, {}).items()]
    return "".join(f", {each}" for each in told)


def result_shape(geometry: CacheGeometry) -> tuple[int, int, int, int]:
    """What a call gives for a geometry, [pages, heads, tokens, head_size]."""
    return (geometry.num_blocks, geometry.num_heads, geometry.block_size, geometry.head_size)


def of_slots(request: ReadRequest, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The tokens a request asks for, [T, H, D], of a whole cache [B, H, N, D]."""
    page, token = np.divmod(request.slots, request.geometry.block_size)
    return values[page, :, token, :]


def trial(geometry: CacheGeometry) -> ReadRequest:
    """A request any dequantiser can answer: a cache of zero bytes."""
    cache = np.zeros(geometry.cache_bytes, np.uint8)
    return ReadRequest(geometry, cache, np.arange(geometry.num_slots, dtype=np.int64), 1.0, 1.0)


TRIAL = CacheGeometry(1, 16, 2, 64)
"""A geometry that every dequantiser should know."""
