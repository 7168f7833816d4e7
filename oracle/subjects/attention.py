"""The host side of the SM100 attention kernels with an NVFP4 KV cache: names, parameters, launches.

What stands where in a kernel's parameters follows FlashInfer's `kernelParams.h` (the struct of
flashinfer-cubin 0.6.13, offsets in constant bank 0 as the kernels use them). Everything that does
not decide which byte of the cache is multiplied with which (queries, outputs, softmax scales) is
there, of the right size, and zero.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from oracle.errors import UsageError
from oracle.geometry import CacheGeometry
from oracle.machine.cta import CodedRegion, Launch
from oracle.machine.disassembly import Instruction
from oracle.machine.memory import Memory, Region
from oracle.machine.replicas import images
from oracle.machine.tensormap import TensorMap

_NAME = re.compile(
    r"fmhaSm(?P<arch>\d+a)Kernel_Q(?P<q>[A-Z]\w*?)Kv(?P<kv>E2m1)O(?P<o>[A-Z]\w*?)H(?P<head>\d+)"
    r"PagedKv(?P<mask>Dense|Causal|SlidingOrChunkedCausal|Custom)(?:P(?P<page>\d+)|Paged)"
    r"(?P<split>MultiCtasKvCga|MultiCtasKv)?(?:VarSeq)?Q(?P<rows>\d+)Kv(?P<keys>\d+)"
    r"(?P<schedule>Static|Persistent)(?P<family>Context|SwapsAbForGen)"
)
ANY_PAGE = 0
"""The page of a kernel that takes its size at run time."""


@dataclass(frozen=True)
class KernelName:
    """The fields of a kernel's name.

    `page` tokens (ANY_PAGE: given at run time), `rows` of queries and `keys` a tile; `family` is
    Context (prefill) or SwapsAbForGen (decode); `split` is "", MultiCtasKv or MultiCtasKvCga.
    """

    name: str
    arch: str
    query: str
    output: str
    head_size: int
    mask: str
    page: int
    split: str
    rows: int
    keys: int
    schedule: str
    family: str

    @classmethod
    def parse(cls, name: str) -> KernelName:
        """Raises UsageError where the name is not one of this family."""
        found = _NAME.fullmatch(name)
        if found is None:
            raise UsageError(f"{name} is no attention kernel with an NVFP4 KV cache by its name")
        return cls(
            name=name,
            arch=f"sm_{found['arch']}",
            query=found["q"],
            output=found["o"],
            head_size=int(found["head"]),
            mask=found["mask"],
            page=int(found["page"] or ANY_PAGE),
            split=found["split"] or "",
            rows=int(found["rows"]),
            keys=int(found["keys"]),
            schedule=found["schedule"],
            family=found["family"],
        )

    @property
    def decodes(self) -> bool:
        """Whether this is a decode kernel."""
        return self.family == "SwapsAbForGen"

    @property
    def group(self) -> str:
        """Family and schedule in words, such as "decode, persistent"."""
        words = ["decode" if self.decodes else "prefill", self.schedule.lower()]
        return ", ".join([*words, *filter(None, [self.split])])


NO_OPS: Mapping[str, str] = {
    "UTCQMMA": "the tensor core's product: it reads what the transform made, and decides nothing",
    "STTM": "tensor memory is only read by the tensor core and by LDTM",
    "LDTM": "scores and partial outputs: zero, as if every product were zero",
    "STSM": "the output tile on its way out",
    "STG": "the output in global memory",
    "MUFU.EX2": "the exponential of the softmax",
    "HMNMX2.XORSIGN": "clamping of the output to its format",
}
"""Instructions whose results no address or byte of the cache depends on, and why."""

_WORDS_A_COLUMN = {"16dp256bit": 4, "16dp128bit": 2, "16dp64bit": 1, "32dp32bit": 1}


def without_numbers(instruction: Instruction) -> Instruction:
    """An instruction of NO_OPS replaced by zeros in its results; any other as it is."""
    base, *modifiers = instruction.opcode.split(".")
    if base not in NO_OPS and f"{base}.{'.'.join(modifiers[:1])}" not in NO_OPS:
        return instruction
    counts: list[int] = []
    if base == "LDTM":
        columns = next((_WORDS_A_COLUMN[m] for m in modifiers if m in _WORDS_A_COLUMN), 1)
        times = next((int(m[1:]) for m in modifiers if re.fullmatch(r"x\d+", m)), 1)
        # With STAT the maximum of the words comes first.
        counts = [1, columns * times] if "STAT" in modifiers else [columns * times]
    elif base == "STSM":
        count = next((m for m in modifiers if m in ("2", "4")), "1")
        return replace(instruction, opcode=f"UNMODELLEDROWS.{count}")
    elif base in ("MUFU", "HMNMX2"):
        counts = [1]
    return replace(instruction, opcode=".".join(["UNMODELLED", *map(str, counts)]))


# -- parameters ---------------------------------------------------------------------------------

PARAM_BYTES = 1280
_BANK = 0x380
"""Where the parameters begin in constant bank 0."""
_DESCRIPTORS = 0x348
"""Where the driver puts the address of the parameters."""
_PARAM_ADDRESS = 0x7E00_0000_0000
_TENSOR_MAPS = {"Q": 0x00, "K": 0x80, "V": 0x180, "K scale": 0x280, "V scale": 0x300}
"""Where the tensor maps are in the parameters."""
_POINTERS = {"output": 0x710, "page_table": 0x768, "counter": 0x758, "partial_output": 0x770,
             "partial_stats": 0x778, "seq_lens": 0x7B8, "cumulative_queries": 0x728}  # fmt: skip
_INTEGERS = {"window": 0x7D8, "batch": 0x7DC, "max_queries": 0x7F8, "max_keys": 0x7FC,
             "ctas_q": 0x800, "ctas_kv": 0x804, "max_pages": 0x808, "heads_kv": 0x80C,
             "heads_q": 0x810, "heads_q_per_kv": 0x814, "page_log2": 0x838}  # fmt: skip
_FLOATS = {"output_scale": 0x840, "softmax_scale": 0x844}
_SHARED_TABLE = 0x865
"""A flag: K and V pages have one table; otherwise the table of V follows that of K."""


@dataclass(frozen=True)
class Request:
    """One attention launch.

    `geometry` is the cache; `pages` are the pages of the sequence in order, those of V too unless
    `value_pages` differ; `length` its tokens where the last page is not full; `queries` new tokens.
    `late` lets tiles arrive only when nobody can go on without; `descriptors` puts others in the
    places of tensor maps, by name, which a correct host never does.
    """

    geometry: CacheGeometry
    pages: tuple[int, ...]
    value_pages: tuple[int, ...] = ()
    length: int = 0
    queries: int = 1
    ctas_kv: int = 1
    heads_q_per_kv: int = 1
    late: bool = False
    descriptors: Mapping[str, str] = field(default_factory=dict)

    @property
    def keys(self) -> int:
        """Tokens of the sequence."""
        return self.length or len(self.pages) * self.geometry.block_size


def unsupported_reason(kernel: KernelName, geometry: CacheGeometry) -> str | None:
    """Why the host side refuses a geometry for a kernel; None where it does not."""
    if geometry.head_size != kernel.head_size:
        return f"the kernel is for head size {kernel.head_size}"
    if kernel.page != ANY_PAGE and geometry.block_size != kernel.page:
        return f"the kernel is for pages of {kernel.page} tokens"
    if kernel.page == ANY_PAGE and (geometry.block_size % kernel.keys or not _is_power(geometry)):
        return f"the kernel takes pages of a power of two of tokens from {kernel.keys} on"
    if geometry.cache_layout != "HND" and geometry.num_heads > 1:
        return "the scale descriptors take the scales of one head and page as dense: HND only"
    return None


def _is_power(geometry: CacheGeometry) -> bool:
    return geometry.block_size & (geometry.block_size - 1) == 0


def tensor_maps(
    kernel: KernelName, request: Request, cache: int, query: int
) -> dict[str, TensorMap]:
    """The tensor maps of Q, K, V and their scales; `cache` and `query` are addresses."""
    geometry = request.geometry
    size, tokens, heads = geometry.head_size, geometry.block_size, geometry.num_heads
    columns, keys = geometry.scale_columns, min(tokens, kernel.keys)
    grouped = min(request.heads_q_per_kv, kernel.rows) if kernel.decodes else 1
    heads_q = heads * request.heads_q_per_kv // grouped
    width = min(size, 128)
    rows = (kernel.rows, 1, 1) if kernel.decodes else (1, 1, kernel.rows)
    maps = {
        "Q": TensorMap(
            "Q",
            query,
            (size, grouped, heads_q, request.queries),
            (size, grouped * size, heads_q * grouped * size),
            (width, *rows),
        )
    }
    outer = (geometry.data_strides.token, geometry.data_strides.head, geometry.page_bytes)
    for side in ("K", "V"):
        base = cache + geometry.side_base(side)
        extent = (tokens, heads, geometry.num_blocks)
        if kernel.decodes and size >= 128:
            maps[side] = TensorMap(
                side, base, (size, *extent), outer, (128, keys, 1, 1), 4, True, 128
            )
        else:
            box = (width // 2, keys, 1, 1)
            maps[side] = TensorMap(side, base, (size // 2, *extent), outer, box)
        run = min(128 // columns, keys)
        strides = (columns * run, geometry.scale_strides.head, geometry.page_bytes)
        maps[f"{side} scale"] = TensorMap(
            f"{side} scale",
            cache + geometry.scale_base(side),
            (columns * run, tokens // run, heads, geometry.num_blocks),
            strides,
            (columns * run, keys // run, 1, 1),
        )
    return maps


def launch(
    kernel: KernelName, request: Request, index: tuple[int, int, int], shared_bytes: int
) -> tuple[Launch, Region]:
    """A launch of CTA `index` of a request, and the cache's region, whose bytes are coded."""
    geometry = request.geometry
    reason = unsupported_reason(kernel, geometry)
    if reason is not None:
        raise UsageError(f"{kernel.name}: {reason}")
    memory = Memory()
    heads_q = geometry.num_heads * request.heads_q_per_kv
    query = memory.map(
        "queries", np.zeros(heads_q * geometry.head_size * request.queries, np.uint8)
    )
    cache = memory.map("cache", np.zeros(geometry.cache_bytes, np.uint8))
    regions = {name: memory.map(name, data, writable=True) for name, data in _tables(request)}
    params = bytearray(PARAM_BYTES)
    for name, offset in _POINTERS.items():
        struct.pack_into("<Q", params, offset - _BANK, regions[name].base)
    for name, value in _integers(kernel, request).items():
        struct.pack_into("<i", params, _INTEGERS[name] - _BANK, value)
    for offset in _FLOATS.values():
        struct.pack_into("<f", params, offset - _BANK, 1.0)
    params[_SHARED_TABLE - _BANK] = not request.value_pages
    maps = tensor_maps(kernel, request, cache.base, query.base)
    grid = (request.ctas_kv, geometry.num_heads, 1)
    return (
        Launch(
            grid=grid,
            block=(512, 1, 1),
            index=index,
            params=bytes(params),
            memory=memory,
            shared_bytes=shared_bytes,
            tensor_maps={
                _PARAM_ADDRESS + offset: maps[request.descriptors.get(name, name)]
                for name, offset in _TENSOR_MAPS.items()
            },
            coded=(CodedRegion(cache, images(cache.size)),),
            driver=_driver_words(grid),
            late=request.late,
        ),
        cache,
    )


def _integers(kernel: KernelName, request: Request) -> dict[str, int]:
    geometry = request.geometry
    return {
        "window": 2**31 - 1,
        "batch": 1,
        "max_queries": request.queries,
        "max_keys": request.keys,
        "ctas_q": 1,
        "ctas_kv": request.ctas_kv,
        "max_pages": len(request.pages),
        "heads_kv": geometry.num_heads,
        "heads_q": geometry.num_heads * request.heads_q_per_kv,
        "heads_q_per_kv": request.heads_q_per_kv,
        "page_log2": geometry.block_size.bit_length() - 1,
    }


def _tables(request: Request) -> Sequence[tuple[str, np.ndarray]]:
    pages = [*request.pages, *request.value_pages]
    scratch = 4 * request.geometry.head_size * 128 * 16 * request.geometry.num_heads
    return (
        ("page_table", np.array(pages, np.int32)),
        ("seq_lens", np.array([request.keys], np.int32)),
        ("cumulative_queries", np.array([0, request.queries], np.int32)),
        ("counter", np.zeros(64, np.int32)),
        ("output", np.zeros(16, np.uint8)),
        ("partial_output", np.zeros(scratch, np.uint8)),
        ("partial_stats", np.zeros(scratch, np.uint8)),
    )


def _driver_words(grid: tuple[int, int, int]) -> dict[int, bytes]:
    """What else the driver puts into constant bank 0: the parameters' address, the cluster."""
    return {
        _DESCRIPTORS: struct.pack("<Q", _PARAM_ADDRESS),
        # One CTA a cluster: its dimensions, their reciprocals, and that there are clusters.
        0x200: struct.pack("<3i", 1, 1, 1),
        0x210: struct.pack("<3f", 1.0, 1.0, 1.0),
        0x36C: struct.pack("<i", 1),
    }
