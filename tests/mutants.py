"""The store kernel broken on purpose: each mutant is one change a review could miss.

A mutant names the text it replaces; where the kernel no longer holds that text the mutant fails to
build, so that it can not silently become the original.
"""

from __future__ import annotations

from dataclasses import dataclass

from oracle.machine.cubin import Cubin
from oracle.subjects.base import SubjectInfo
from oracle.subjects.binary import MachineWriter
from oracle.toolchain import compile_cuda, kernel_source


@dataclass(frozen=True)
class Mutant:
    name: str
    old: str
    new: str


_K_SCALE = "key_scale + plane +\n              scale_offset<K_LAYOUT>"
_V_SCALE = "value_scale + plane +\n              scale_offset<V_LAYOUT>"

MUTANTS = {
    m.name: m
    for m in (
        Mutant("t%4 dropped", "s % quarter * 4 + row;", "s % quarter * 4;"),
        Mutant("K and V exchanged", f"{_K_SCALE}", f"{_V_SCALE.replace('V_LAYOUT', 'K_LAYOUT')}"),
        Mutant(
            "NHD strides for HND",
            "head * scale_head_stride;",
            "head * (long long)columns; "
            "scale_block_offset_stride = (long long)num_heads * columns;",
        ),
        Mutant("one head off", "head * scale_head_stride;", "(head + 1) * scale_head_stride;"),
        Mutant(
            "heads rotated",
            "head * scale_head_stride;",
            "((head + 1) % num_heads) * scale_head_stride;",
        ),
        Mutant(
            "scale written twice",
            "*scale = static_cast<unsigned char>(result.scale);",
            "*(volatile unsigned char*)scale = (unsigned char)result.scale; "
            "*(volatile unsigned char*)scale = (unsigned char)result.scale;",
        ),
        Mutant(
            "scale written to two places",
            "*scale = static_cast<unsigned char>(result.scale);",
            "*scale = (unsigned char)result.scale; "
            "if (threadIdx.x == 0) scale[-1] = (unsigned char)result.scale;",
        ),
        Mutant(
            "scale never written",
            "*scale = static_cast<unsigned char>(result.scale);",
            "if (threadIdx.x != 1) *scale = static_cast<unsigned char>(result.scale);",
        ),
        Mutant(
            "one byte past the page",
            "return t * row_stride + s;",
            "return t * row_stride + s + 1;",
        ),
        Mutant("padding stored", "if (slot < 0) return;", "if (slot < -1) return;"),
        Mutant("nibbles exchanged", "codes[half] = encode_e2m1x8(scaled);",
               "{ unsigned x = encode_e2m1x8(scaled); "
               "codes[half] = (x & 0x0f0f0f0f) << 4 | (x >> 4 & 0x0f0f0f0f); }"),
        Mutant(
            "zero stored before the cache",
            "for (int group = threadIdx.x;",
            "if (threadIdx.x == 0) key_data[-4096] = 0;\n  for (int group = threadIdx.x;",
        ),
        Mutant(
            "zero stored past the cache",
            "for (int group = threadIdx.x;",
            "if (threadIdx.x == 0) key_data[4 * data_block_stride + 1000] = 0;\n"
            "  for (int group = threadIdx.x;",
        ),
        Mutant(
            "another page cleared",
            "for (int group = threadIdx.x;",
            "if (threadIdx.x == 0) value_data[3 * data_block_stride] = 0;\n"
            "  for (int group = threadIdx.x;",
        ),
        Mutant(
            "zero groups go elsewhere",
            "*scale = static_cast<unsigned char>(result.scale);",
            "if (result.scale == 0) ++scale; *scale = static_cast<unsigned char>(result.scale);",
        ),
        Mutant("K data where V data goes", "key_data + data", "value_data + data"),
    )
}  # fmt: skip


def mutant_writer(name: str, k: str = "linear", v: str = "swizzle_4x4") -> MachineWriter:
    """The mutant for SM100 and bf16, declared to keep the contract it breaks."""
    mutant = MUTANTS[name]
    source = kernel_source("nvfp4_kv_store")
    assert mutant.old in source, f"the kernel no longer holds the text mutant {name!r} replaces"
    binary = compile_cuda(
        source.replace(mutant.old, mutant.new),
        "sm_100a",
        {"K_LAYOUT": k.upper(), "V_LAYOUT": v.upper()},
    )
    info = SubjectInfo(
        f"mutant:{name}", "writer", name, "machine", "sm_100a", declared={"K": k, "V": v}
    )
    return MachineWriter(info, Cubin.parse(binary), "nvfp4_kv_store")
