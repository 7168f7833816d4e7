"""What the host gives an SM100 attention kernel, field by field, in the structs it had over time.

The fields are those of `KernelParams` in FlashInfer's `trtllm/fmha/kernelParams.h`; the offsets are
in constant bank 0, as the kernels of flashinfer-cubin use them. A struct is told by its size, which
the kernel's own cubin gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oracle.errors import UsageError

PARAM_BASE = 0x380
"""Where the parameters begin in constant bank 0."""


@dataclass(frozen=True)
class ParameterBlock:
    """One struct of parameters, `size` bytes long, in these releases of flashinfer-cubin.

    `contract` names what kernels that take it are declared to read (contracts.toml).
    `tensor_maps` by name, from its start; `pointers`, `integers` (32 bits) and `floats` in constant
    bank 0. `shared_table` is the flag that K and V pages have one table, None where there is no
    such flag: the table of V then stands behind that of K.
    """

    size: int
    releases: str
    contract: str
    tensor_maps: Mapping[str, int]
    pointers: Mapping[str, int]
    integers: Mapping[str, int]
    floats: Mapping[str, int]
    shared_table: int | None


_FIVE_MAPS = {"Q": 0x00, "K": 0x80, "V": 0x100, "K scale": 0x200, "V scale": 0x280}
_EARLY_POINTERS = {
    "output": 0x690, "cumulative_queries": 0x6A8, "counter": 0x6D8, "page_table": 0x6E8,
    "partial_output": 0x6F0, "partial_stats": 0x6F8, "seq_lens": 0x738,
}  # fmt: skip
BLOCKS = (
    ParameterBlock(
        size=1088,
        releases="0.4.0 to 0.5.2",
        contract="trtllm-gen-old",
        tensor_maps=_FIVE_MAPS,
        pointers=_EARLY_POINTERS,
        integers={"window": 0x748, "batch": 0x74C, "max_queries": 0x764, "max_keys": 0x768,
                  "ctas_q": 0x76C, "ctas_kv": 0x770, "max_pages": 0x774, "heads_kv": 0x778,
                  "heads_q": 0x77C, "heads_q_per_kv": 0x780},
        floats={"output_scale": 0x794, "softmax_scale": 0x798},
        shared_table=None,
    ),
    ParameterBlock(
        size=1152,
        releases="0.6.0 to 0.6.11.post3",
        contract="trtllm-gen",
        tensor_maps=_FIVE_MAPS,
        pointers=_EARLY_POINTERS,
        integers={"window": 0x750, "batch": 0x754, "max_queries": 0x770, "max_keys": 0x774,
                  "ctas_q": 0x778, "ctas_kv": 0x77C, "max_pages": 0x780, "heads_kv": 0x784,
                  "heads_q": 0x788, "heads_q_per_kv": 0x78C},
        floats={"output_scale": 0x7B4, "softmax_scale": 0x7B8},
        shared_table=0x7D9,
    ),
    ParameterBlock(
        size=1280,
        releases="0.6.12 and 0.6.13",
        contract="trtllm-gen",
        tensor_maps={"Q": 0x00, "K": 0x80, "V": 0x180, "K scale": 0x280, "V scale": 0x300},
        pointers={"output": 0x710, "page_table": 0x768, "counter": 0x758, "partial_output": 0x770,
                  "partial_stats": 0x778, "seq_lens": 0x7B8, "cumulative_queries": 0x728},
        integers={"window": 0x7D8, "batch": 0x7DC, "max_queries": 0x7F8, "max_keys": 0x7FC,
                  "ctas_q": 0x800, "ctas_kv": 0x804, "max_pages": 0x808, "heads_kv": 0x80C,
                  "heads_q": 0x810, "heads_q_per_kv": 0x814, "page_log2": 0x838},
        floats={"output_scale": 0x840, "softmax_scale": 0x844},
        shared_table=0x865,
    ),
)  # fmt: skip
"""Every struct that is known, oldest first."""


def parameter_block(size: int) -> ParameterBlock:
    """The struct of that many bytes. Raises UsageError for one that is not known."""
    for block in BLOCKS:
        if block.size == size:
            return block
    known = ", ".join(f"{b.size} (flashinfer-cubin {b.releases})" for b in BLOCKS)
    raise UsageError(f"it takes {size} bytes of parameters, a struct that is not known; of {known}")
