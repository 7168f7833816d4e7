"""An attention kernel with an NVFP4 KV cache as a reader: executed, and asked where it looks."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.addressmap import Read
from oracle.contracts import contract
from oracle.errors import OracleError, UsageError
from oracle.geometry import CacheGeometry
from oracle.machine.context import Unsupported
from oracle.machine.cta import CtaProgram, Observation
from oracle.machine.cubin import Cubin
from oracle.machine.disassembly import Instruction, disassemble
from oracle.machine.launch import Program
from oracle.machine.lower import lower
from oracle.machine.memory import Memory
from oracle.multiplications import Multiplications, ReaderMap, narrowed, reader_map
from oracle.probe import PROBED_PAGES
from oracle.readerprobe import check_size
from oracle.requests import ReadRequest
from oracle.subjects.attention import (
    ANY_PAGE,
    KernelName,
    Request,
    launch,
    unsupported_reason,
)
from oracle.subjects.attentionnoops import without_numbers
from oracle.subjects.attentionparams import ParameterBlock, parameter_block
from oracle.subjects.base import SubjectInfo
from oracle.subjects.binary import artifact_digest

Rewrite = Callable[[Instruction], Instruction]

SHARED_SIZE_SUFFIX = "GetSmemSize"
"""A kernel of the same cubin that stores how much shared memory the kernel is launched with."""
TILES = 4
"""KV tiles of a probing run: the first, the last, and two in between."""
SPARE_PAGES = 3
"""Pages of the probing run's cache that the sequence does not use."""

_MADE = ("program", "shared_bytes", "instructions", "_decoded")


class ReaderFault(OracleError):
    """A run of a reader was not sound, so that its map would say nothing."""

    exit_code = 1


@dataclass(frozen=True)
class Probe:
    """How a kernel is asked: cache and page order; the head of each CTA is run in turn."""

    request: Request
    heads: tuple[int, ...]


def probe_geometry(kernel: KernelName, num_heads: int = 2, block_size: int = 0) -> CacheGeometry:
    """The cache of a probing run: TILES tiles of KV and some spare pages."""
    tokens = block_size or kernel.page or kernel.keys
    used = max(-(-TILES * kernel.keys // tokens), max(PROBED_PAGES) + 1)
    return CacheGeometry(used + SPARE_PAGES, tokens, num_heads, kernel.head_size)


def probe_request(
    kernel: KernelName, geometry: CacheGeometry, seed: int = 1, **options: Any
) -> Request:
    """A sequence over the pages of a cache in a shuffled order, PROBED_PAGES among them."""
    order = np.random.default_rng(seed).permutation(geometry.num_blocks)
    spare = [page for page in order if page not in PROBED_PAGES][:SPARE_PAGES]
    pages = tuple(int(page) for page in order if page not in spare)
    queries = 1 if kernel.decodes else kernel.rows
    per_head = kernel.rows if kernel.decodes else 1
    return Request(geometry, pages, queries=queries, heads_q_per_kv=per_head, **options)


class AttentionKernel:
    """One kernel of a cubin. `rewrite` changes instructions before anything is executed."""

    def __init__(
        self, cubin: Cubin, name: str, identity: str = "", rewrite: Rewrite | None = None
    ) -> None:
        self.kernel = KernelName.parse(name)
        self.info = SubjectInfo(
            id=identity or name,
            role="reader",
            name=f"{self.kernel.group} attention, head {self.kernel.head_size}",
            executor="machine",
            arch=cubin.arch,
            kernel=name,
            artifact_sha256=artifact_digest(cubin.data),
            declared=_declared(cubin, name),
        )
        self._cubin = cubin
        self._rewrite = rewrite
        self._maps: dict[CacheGeometry, ReaderMap] = {}

    def __getstate__(self) -> Mapping[str, Any]:
        """Everything but compiled programs, which another process makes anew."""
        return {k: v for k, v in self.__dict__.items() if k not in _MADE}

    @cached_property
    def program(self) -> CtaProgram:
        """The kernel, lowered. Raises Unsupported with everything that has no meaning."""

        return CtaProgram(lower(self._cubin, self.kernel.name, self.instructions))

    @cached_property
    def block(self) -> ParameterBlock:
        """The struct of its parameters. Raises UsageError where it is not known."""
        return parameter_block(self._cubin.kernel(self.kernel.name).param_size)

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """What is executed: the kernel's code without NO_OPS, and rewritten."""
        plain = map(without_numbers, self._decoded[self.kernel.name])
        return tuple(map(self._rewrite, plain) if self._rewrite is not None else plain)

    @cached_property
    def _decoded(self) -> Mapping[str, Sequence[Instruction]]:
        return disassemble(self._cubin)

    @cached_property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a launch, which the cubin's own helper kernel tells."""
        name = self.kernel.name + SHARED_SIZE_SUFFIX
        if name not in self._cubin.kernels:
            raise UsageError(f"the cubin has no {name}, which tells the shared memory of a launch")
        memory = Memory()
        answer = memory.map("answer", np.zeros(4, np.uint8), writable=True)
        params = struct.pack("<Q", answer.base)
        program = Program(lower(self._cubin, name, self._decoded[name]))
        program.launch((1, 1, 1), (1, 1, 1), params, memory)
        return int(answer.bytes.view(np.uint32)[0])

    def unsupported_reason(self, geometry: CacheGeometry, dtype: str = "") -> str | None:
        """Why the host side refuses a geometry, or is not known; None where it does not."""
        try:
            _ = self.block
        except UsageError as error:
            return str(error)
        return unsupported_reason(self.kernel, geometry)

    def multiplications(
        self, request: Request, heads: tuple[int, ...], cta: int = 0
    ) -> Multiplications:
        """What CTA `cta` of each head multiplies. Raises MachineFault where a run is not sound."""
        seen: list[Observation] = []
        for head in heads:
            index = (cta, head, 0)
            start, _ = launch(self.kernel, self.block, request, index, self.shared_bytes)
            seen += self.program.run(start).observations
        return Multiplications.of(seen)

    def probe(self, geometry: CacheGeometry | None = None) -> ReaderMap:
        """Where the kernel looks, from a run over a cache of the probe's size; kept."""
        geometry = geometry or probe_geometry(self.kernel)
        if geometry not in self._maps:
            request = probe_request(self.kernel, geometry)
            heads = tuple(range(geometry.num_heads))
            found = self.multiplications(request, heads)
            self._maps[geometry] = reader_map(found, geometry, request.pages, heads)
        return self._maps[geometry]

    def probe_pages(self, block_size: int) -> ReaderMap:
        """Where the kernel looks in a cache of pages of that size."""
        return self.probe(probe_geometry(self.kernel, block_size=block_size))

    def map(self, geometry: CacheGeometry) -> Read:
        """Where the kernel looks in PROBED_PAGES of a cache like `geometry`.

        Raises ReaderFault where the run was not sound, UsageError for a cache that is too large.
        """
        check_size(geometry)
        wide = probe_geometry(self.kernel, geometry.num_heads, geometry.block_size)
        wide = replace(wide, cache_layout=geometry.cache_layout)
        result = self.probe(wide)
        if result.faults:
            raise ReaderFault(f"{self.kernel.name}: {'; '.join(result.faults)}")
        return narrowed(result.read, geometry, PROBED_PAGES)

    def read(self, request: ReadRequest) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """A kernel's output is no copy of K and V: its addresses are asked for with `map`."""
        raise Unsupported(f"{self.info.id} is asked where it looks, not for values")


def _declared(cubin: Cubin, name: str) -> Mapping[str, str]:
    """What a kernel is declared to read: by its parameters, as it does not name its release."""
    try:
        block = parameter_block(cubin.kernel(name).param_size)
    except UsageError:
        # Nobody declares anything about it, and it is refused when it is asked.
        return {}
    return contract(block.contract, "reader").declared


def page_sizes(kernel: KernelName) -> tuple[int, ...]:
    """Page sizes a kernel can be probed with."""
    return (kernel.page,) if kernel.page != ANY_PAGE else (kernel.keys, 2 * kernel.keys)
