"""The tolerances that public tests of NVFP4 caches use, each on data like that test's own.

A test stores random keys and values, reads them back (or lets attention read them), and accepts
what is close enough to the input. How close that is decides which faults it can see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from oracle.formats import FloatArray

NORMAL, SMALL, OUTLIERS = "normal", "small", "outliers"
"""Kinds of data: standard normal; a quarter of that, as values of many models are; and standard
normal with some channels of K and of V enlarged."""

_QUERIES = 64


class RoundTrip(NamedTuple):
    """Keys and values as they were stored and as they are read back, float32 [T, H, D] each."""

    key: FloatArray
    value: FloatArray
    read_key: FloatArray
    read_value: FloatArray

    @property
    def sides(self) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
        """(what was read, what was stored) of K and of V."""
        return (self.read_key, self.key), (self.read_value, self.value)


@dataclass(frozen=True)
class Tolerance:
    """A way to accept a round trip. `source` says where it is in use, `data` on what."""

    name: str
    source: str
    data: str
    accepts: Callable[[RoundTrip], bool]


def random_data(kind: str, shape: tuple[int, int, int], seed: int) -> tuple[FloatArray, FloatArray]:
    """Keys and values [T, H, D] of a kind; outliers are an eighth of the channels, 16 at most."""
    rng = np.random.default_rng(seed)
    deviation = np.float32(0.25 if kind == SMALL else 1)
    key, value = (rng.standard_normal(shape, np.float32) * deviation for _ in "KV")
    if kind == OUTLIERS:
        start = shape[-1] // 4
        channels = slice(start, start + min(16, shape[-1] // 8))
        key[..., channels] *= np.float32(30)
        value[..., channels] *= np.float32(2)
    return key, value


def attention(key: FloatArray, value: FloatArray) -> FloatArray:
    """Softmax attention of 64 random queries a head over all tokens [T, H, D]: [64, H, D]."""
    _, heads, size = key.shape
    query = np.random.default_rng(1).standard_normal((_QUERIES, heads, size), np.float32)
    logits = np.einsum("qhd,thd->qht", query, key) / np.sqrt(np.float32(size))
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    output: FloatArray = np.einsum("qht,thd->qhd", weights, value)
    return output


def close(actual: FloatArray, expected: FloatArray, atol: float, rtol: float) -> float:
    """The share of elements within atol + rtol * |expected|; a NaN is not."""
    with np.errstate(invalid="ignore"):
        return float((np.abs(actual - expected) <= atol + rtol * np.abs(expected)).mean())


def relative_l2(actual: FloatArray, expected: FloatArray) -> float:
    """|actual - expected| / |expected| in the Euclidean norm."""
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


def cosine(actual: FloatArray, expected: FloatArray) -> float:
    """The cosine of the angle between two tensors as vectors; 0 where one is zero."""
    lengths = np.linalg.norm(actual) * np.linalg.norm(expected)
    return float(np.vdot(actual, expected) / lengths) if lengths else 0.0


def _elementwise(trip: RoundTrip) -> bool:
    return all(close(*side, atol=1.5, rtol=0.5) == 1 for side in trip.sides)


def _within(limit: float) -> Callable[[RoundTrip], bool]:
    return lambda trip: all(relative_l2(*side) <= limit for side in trip.sides)


def _similar(actual: FloatArray, expected: FloatArray) -> bool:
    return close(actual, expected, atol=0.5, rtol=0.5) >= 0.9 and cosine(actual, expected) > 0.86


def _similar_output(trip: RoundTrip) -> bool:
    with np.errstate(invalid="ignore"):
        return _similar(attention(trip.read_key, trip.read_value), attention(trip.key, trip.value))


def _similar_values(trip: RoundTrip) -> bool:
    return all(_similar(*side) for side in trip.sides)


TOLERANCES = (
    Tolerance("atol 1.5, rtol 0.5", "vLLM's test of the store", NORMAL, _elementwise),
    Tolerance("atol 1.5, rtol 0.5, small values", "the same test, other data", SMALL, _elementwise),
    Tolerance("relative L2 0.2", "ports", NORMAL, _within(0.2)),
    Tolerance("relative L2 0.15", "ports", NORMAL, _within(0.15)),
    Tolerance(
        "cosine 0.86, 10 % mismatches, attention",
        "FlashInfer's test of trtllm-gen attention, with atol 0.5 and rtol 0.5",
        OUTLIERS,
        _similar_output,
    ),
    Tolerance(
        "cosine 0.86, 10 % mismatches, values", "the same on what is read back", OUTLIERS,
        _similar_values,
    ),
)  # fmt: skip
"""Every tolerance in the order of the table."""
