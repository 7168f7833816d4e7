"""What a writer is asked to store, what came of it, and what a reader is asked to read.

The inputs are bit patterns, so that no conversion stands between a probe and its subject. T is
the number of tokens, H, D, N and B are those of the geometry. The arrays belong to the request
and are not to be written to: a writer stores into a copy of the cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.errors import UsageError
from oracle.formats import DTYPES, ByteArray, WordArray
from oracle.geometry import CacheGeometry, IntArray


@dataclass(frozen=True, eq=False)
class StoreRequest:
    """Store T tokens into a cache.

    `key` and `value` are 16-bit patterns [T, H, D] of `dtype` ("bf16" or "fp16");
    `slot_mapping` [T] says where each token goes: slot = page * N + token in the page, negative
    for "skip"; `k_scale` and `v_scale` are the global decode scales; `cache` is the image
    before the store. Raises UsageError where shapes or dtypes do not fit the geometry.
    """

    geometry: CacheGeometry
    dtype: str
    key: WordArray
    value: WordArray
    slot_mapping: IntArray
    k_scale: float
    v_scale: float
    cache: ByteArray

    def __post_init__(self) -> None:
        """Check dtypes and shapes against the geometry."""
        if self.dtype not in DTYPES:
            raise UsageError(f"dtype is {self.dtype!r}: give {' or '.join(DTYPES)}")
        geometry = self.geometry
        _check("slot_mapping", self.slot_mapping, np.int64, (self.slot_mapping.size,))
        tokens = (self.slot_mapping.size, geometry.num_heads, geometry.head_size)
        _check("key", self.key, np.uint16, tokens)
        _check("value", self.value, np.uint16, tokens)
        _check("cache", self.cache, np.uint8, (geometry.cache_bytes,))


@dataclass(frozen=True, eq=False)
class ByteStores:
    """Every byte a writer stored, in order of execution.

    `offset` int64 [n] counts from the start of the cache and may lie outside it; `value`
    uint8 [n].
    """

    offset: IntArray
    value: ByteArray


RED_ZONE = 0xA5
"""What the bytes beside the cache hold where only they tell of stores outside it."""


def _nothing() -> ByteStores:
    return ByteStores(np.zeros(0, np.int64), np.zeros(0, np.uint8))


@dataclass(frozen=True, eq=False)
class Stored:
    """What a writer did: the cache afterwards, its single stores, and what went wrong.

    `stores` is None where the executor cannot see single stores; `beside` are then the bytes
    outside the cache that were found changed, each once, RED_ZONE before. `misaligned` int64 [m]
    are the offsets of stores at addresses that are no multiples of their size, which no GPU
    executes: they are among the `stores`, but the cache is without them. `faults` are one line
    each.
    """

    cache: ByteArray
    stores: ByteStores | None = None
    faults: tuple[str, ...] = ()
    misaligned: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    beside: ByteStores = field(default_factory=_nothing)


@dataclass(frozen=True, eq=False)
class ReadRequest:
    """Read the tokens in `slots` (int64 [T], slot = page * N + token) from a cache.

    `k_scale` and `v_scale` are the global decode scales. Raises UsageError where shapes or
    dtypes do not fit the geometry.
    """

    geometry: CacheGeometry
    cache: ByteArray
    slots: IntArray
    k_scale: float
    v_scale: float

    def __post_init__(self) -> None:
        """Check dtypes and shapes against the geometry."""
        _check("slots", self.slots, np.int64, (self.slots.size,))
        _check("cache", self.cache, np.uint8, (self.geometry.cache_bytes,))


def _check(name: str, array: NDArray[Any], dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    if array.dtype != dtype or array.shape != shape:
        raise UsageError(
            f"{name} is {array.dtype} {list(array.shape)}: "
            f"give {np.dtype(dtype)} {list(shape)} for this geometry"
        )
