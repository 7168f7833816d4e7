"""What is declared about who stores or reads which layout.

A contract is a promise about the K and V scale planes; a verdict checks writers against theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Contract:
    """A declared pair of layouts, by candidate name, and where the declaration comes from."""

    name: str
    title: str
    k: str
    v: str
    arch: str
    source: str

    @property
    def declared(self) -> Mapping[str, str]:
        """Side -> layout."""
        return {"K": self.k, "V": self.v}


STORE_CONTRACTS = {
    contract.name: contract
    for contract in (
        Contract(
            "sm100",
            "store kernel, SM100 contract",
            "linear",
            "swizzle_4x4",
            "sm_100a",
            "trtllm-gen attention on SM100, as vLLM's store kernel writes for it",
        ),
        Contract(
            "sm12x",
            "store kernel, SM12x contract",
            "linear",
            "linear",
            "sm_120a",
            "FlashInfer's XQA and FA2 paged attention on SM120 and SM121",
        ),
    )
}
"""What this project's own store kernel promises, one contract a consumer family."""

READER_CONTRACTS = {
    contract.name: contract
    for contract in (
        Contract(
            "sm100",
            "reader as SM100 documents it",
            "linear",
            "swizzle_4x4",
            "sm_100a",
            "trtllm-gen attention on SM100",
        ),
        Contract(
            "linear",
            "reader of linear scales",
            "linear",
            "linear",
            "sm_120a",
            "FlashInfer's XQA and FA2 paged attention",
        ),
        Contract(
            "pinned",
            "vLLM's test dequantiser at commit 5559679229bc",
            "swizzle_4x4",
            "swizzle_4x4",
            "",
            "tests/kernels/quantization/nvfp4_utils.py at 5559679229bc961848b121ccdeaa8fa5d79bec98",
        ),
    )
}
"""The readers a default verdict holds every writer against."""
