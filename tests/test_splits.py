"""Tests of view splits as readers: they see what the reference sees, or another's bytes."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from oracle.errors import UsageError
from oracle.geometry import CACHE_LAYOUTS, CacheGeometry
from oracle.reference import reference_read
from oracle.requests import ReadRequest
from oracle.run import Domain, run_verdict
from oracle.subjects.spec import writers_from_specs
from oracle.subjects.splits import SplitReader, split_reader
from oracle.views.planes import SPLITS, Plane
from oracle.views.tensor import CacheTensor

K, V = "linear", "swizzle_4x4"


def request(geometry: CacheGeometry) -> ReadRequest:
    noise = np.random.default_rng(5).integers(0, 0x78, geometry.cache_bytes, np.uint8)
    slots = np.random.default_rng(6).permutation(geometry.num_slots)[:20]
    return ReadRequest(geometry, noise, slots.astype(np.int64), 0.5, 3.0)


@pytest.mark.parametrize("split", ["vllm", "contiguous", "page"])
@pytest.mark.parametrize("cache_layout", CACHE_LAYOUTS)
def test_a_split_of_the_dense_page_reads_what_the_reference_reads(
    split: str, cache_layout: str
) -> None:
    geometry = CacheGeometry(3, 16, 3, 64, cache_layout)
    asked = request(geometry)
    reader = split_reader("s", split, K, V)
    assert reader.unsupported_reason(geometry, "bf16") is None
    for mine, reference in zip(reader.read(asked), reference_read(asked, K, V), strict=True):
        assert np.array_equal(mine, reference)


def test_other_splits_meet_other_bytes() -> None:
    domain = Domain((64,), (3,), (16,), CACHE_LAYOUTS, ("bf16",))
    writers = writers_from_specs([f"reference:k={K},v={V}"], (), ("bf16",))
    readers = [split_reader(name, name, K, V) for name in SPLITS]
    verdict = run_verdict(writers, readers, domain)
    dense = {"vllm", "contiguous", "page"}
    for each in verdict.agreements:
        assert (each.status == "agree") == (each.reader in dense)


class Shifted:
    """The dense page, a byte too late."""

    name = "shifted"

    def planes(self, tensor: CacheTensor) -> tuple[Plane, ...]:
        return tuple(replace(p, base=p.base + 1) for p in SPLITS["vllm"].planes(tensor))


def test_refusals() -> None:
    with pytest.raises(UsageError, match="no split is called 'x'"):
        split_reader("s", "x", K, V)
    with pytest.raises(UsageError, match="no layout is called 'x'"):
        split_reader("s", "vllm", "x", V)
    reader = split_reader("s", "vllm", K, V)
    assert "multiple of 4" in str(reader.unsupported_reason(CacheGeometry(1, 6, 2, 64), "bf16"))
    outside = SplitReader(reader.info, Shifted(), K, K)
    geometry = CacheGeometry(1, 16, 2, 64)
    assert outside.unsupported_reason(geometry, "bf16") == (
        f"a view leaves the cache, at byte {geometry.cache_bytes}"
    )
    for slot, heads in product((-1, 48), (1, 2)):
        geometry = CacheGeometry(3, 16, heads, 64)
        asked = ReadRequest(
            geometry, np.zeros(geometry.cache_bytes, np.uint8), np.array([slot]), 1.0, 1.0
        )
        with pytest.raises(UsageError, match="a slot lies outside"):
            reader.read(asked)
