"""The declared contracts: well formed, sourced, and consistent with what this tool executes."""

from __future__ import annotations

import pytest

from oracle.candidates import CANDIDATES
from oracle.contracts import DEFAULT_READERS, STORE_CONTRACTS, contract, contracts
from oracle.errors import UsageError
from oracle.geometry import CacheGeometry


def geometry(head_size: int, block_size: int = 16) -> CacheGeometry:
    return CacheGeometry(4, block_size, 2, head_size)


def test_every_contract_says_where_it_comes_from() -> None:
    assert len(contracts()) >= 15
    for row in contracts().values():
        assert row.source
        assert row.title
        assert row.global_scale in ("decode", "encode")
        assert all(arch.startswith("sm_") for arch in row.archs)


@pytest.mark.parametrize("name", contracts())
def test_a_contract_speaks_only_where_its_layouts_exist(name: str) -> None:
    row = contracts()[name]
    spoken = 0
    for head_size in range(16, 577, 16):
        for block_size in (1, 2, 4, 8, 16, 64):
            plane = geometry(head_size, block_size)
            if row.excludes(plane) is None:
                spoken += 1
                for layout in row.declared.values():
                    reason = CANDIDATES[layout].undefined_reason(block_size, plane.scale_columns)
                    assert reason is None
    assert spoken


def test_an_excluded_geometry_has_its_reason() -> None:
    reader = contract("trtllm-gen", "reader")
    assert reader.excludes(geometry(128)) is None
    assert reader.excludes(geometry(192)) == "trtllm-gen takes head sizes 64, 128, 256"
    store = contract("vllm-store", "writer")
    assert store.excludes(geometry(96)) == "vllm-store takes head sizes in multiples of 64"
    assert store.excludes(geometry(64, 6)) == "vllm-store takes pages in multiples of 4 tokens"


def test_the_store_kernel_and_the_default_readers_are_declared() -> None:
    assert [contract(n, "writer").declared for n in STORE_CONTRACTS] == [
        {"K": "linear", "V": "swizzle_4x4"},
        {"K": "linear", "V": "linear"},
    ]
    assert [tuple(contract(n, "reader").declared.values()) for n in DEFAULT_READERS] == [
        ("linear", "swizzle_4x4"),
        ("linear", "linear"),
        ("swizzle_4x4", "swizzle_4x4"),
    ]


def test_an_unknown_contract_lists_the_known() -> None:
    with pytest.raises(UsageError, match=r"no reader contract is called 'vllm-store'.*trtllm-gen"):
        contract("vllm-store", "reader")
