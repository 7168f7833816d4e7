"""The host side of the SM100 attention kernels with an NVFP4 KV cache: names, parameters, launches.

What stands where in a kernel's parameters says `oracle.subjects.attentionparams`. Everything that
does not decide which byte of the cache is multiplied with which (queries, outputs, softmax scales)
is there, of the right size, and zero.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from oracle.errors import UsageError
from oracle.geometry import CacheGeometry
from oracle.machine.cta import CodedRegion, Launch
from oracle.machine.memory import Memory, Region
from oracle.machine.replicas import images
from oracle.machine.tensormap import TensorMap
from oracle.subjects.attentionparams import PARAM_BASE, ParameterBlock

_SIZE = r"[1-9]\d{0,3}"
"""More than any size in a name: a wheel may be anybody's."""
_NAME = re.compile(
    r"fmhaSm(?P<arch>\d{2,3}a)Kernel_Q(?P<q>[A-Z]\w*?)Kv(?P<kv>E2m1)O(?P<o>[A-Z]\w*?)"
    rf"H(?P<head>{_SIZE})(?:HVPerCta(?P=head))?"
    rf"PagedKv(?P<mask>Dense|Causal|SlidingOrChunkedCausal|Custom)(?:P(?P<page>{_SIZE})|Paged)"
    rf"(?P<split>MultiCtasKvCga|MultiCtasKv)?(?:VarSeq)?Q(?P<rows>{_SIZE})Kv(?P<keys>{_SIZE})"
    r"(?P<schedule>Static|Persistent)(?P<family>Context|SwapsAbForGen|KeepsAbForGen)",
    re.ASCII,
)
ANY_PAGE = 0
"""The page of a kernel that takes its size at run time."""


@dataclass(frozen=True)
class KernelName:
    """The fields of a kernel's name.

    `page` tokens (ANY_PAGE: given at run time), `rows` of queries and `keys` a tile; `family` is
    Context (prefill), SwapsAbForGen or KeepsAbForGen (decode); `split` is "", MultiCtasKv or
    MultiCtasKvCga.
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
        return self.family != "Context"

    @property
    def swaps(self) -> bool:
        """Whether K and V are the left operand of the tensor core, queries the right one."""
        return self.family == "SwapsAbForGen"

    @property
    def group(self) -> str:
        """Family and schedule in words, such as "decode, persistent"."""
        return group_in_words(self.family, self.schedule, self.split)


def group_in_words(family: str, schedule: str, split: str) -> str:
    """Family, schedule and split of a kernel's name in words, such as "decode, persistent"."""
    words = ["prefill" if family == "Context" else "decode", schedule.lower(), split]
    return ", ".join(filter(None, [*words, "KeepsAb" if family == "KeepsAbForGen" else ""]))


# -- launches -----------------------------------------------------------------------------------

_DESCRIPTORS = 0x348
"""Where the driver puts the address of the parameters."""
_PARAM_ADDRESS = 0x7E00_0000_0000


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
        if kernel.swaps and size >= 128:
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
    kernel: KernelName,
    block: ParameterBlock,
    request: Request,
    index: tuple[int, int, int],
    shared_bytes: int,
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
    params = bytearray(block.size)
    for name, offset in block.pointers.items():
        struct.pack_into("<Q", params, offset - PARAM_BASE, regions[name].base)
    values = _integers(request)
    for name, offset in block.integers.items():
        struct.pack_into("<i", params, offset - PARAM_BASE, values[name])
    for offset in block.floats.values():
        struct.pack_into("<f", params, offset - PARAM_BASE, 1.0)
    if block.shared_table is not None:
        params[block.shared_table - PARAM_BASE] = not request.value_pages
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
                for name, offset in block.tensor_maps.items()
            },
            coded=(CodedRegion(cache, images(cache.size)),),
            driver=_driver_words(grid),
            late=request.late,
        ),
        cache,
    )


def _integers(request: Request) -> dict[str, int]:
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
    # The table of V stands behind that of K for kernels that look for it there.
    pages = [*request.pages, *(request.value_pages or request.pages)]
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
