"""The work that is measured: tokens of 8 heads of 128, stored into pages of 16."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle.formats import DTYPES, bf16_encode
from oracle.geometry import CacheGeometry
from oracle.quantize import GROUP, ScaleSearch, quantize
from oracle.requests import StoreRequest
from oracle.subjects.binary import MachineWriter
from oracle.subjects.source import store_writer

NUM_HEADS = 8
HEAD_SIZE = 128
BLOCK_SIZE = 16
LANES_PER_TOKEN = NUM_HEADS * HEAD_SIZE // GROUP
FEW_TOKENS = 42
MANY_TOKENS = 65_536 // LANES_PER_TOKEN
K_LAYOUT, V_LAYOUT = "linear", "swizzle_4x4"
ARCH = "sm_100a"
SCALES = (0.0137, 0.0211)


@dataclass(frozen=True)
class Workload:
    """A store of `tokens` tokens of `dtype` under one scale search."""

    tokens: int
    dtype: str
    search: ScaleSearch

    @property
    def lanes(self) -> int:
        """Threads of the launch: one for a group of K and the same group of V."""
        return self.tokens * LANES_PER_TOKEN

    @property
    def groups(self) -> int:
        """Groups of 16 stored, of K and V together."""
        return 2 * self.lanes

    def request(self, wild: bool = False) -> StoreRequest:
        """Normally distributed values, each token in a slot of its own.

        A `wild` request has what makes conversions differ as well: every bit pattern, so NaN,
        infinities and subnormals, groups of zeros, a scale of 1, at which products fall on ties,
        and tokens to be skipped.
        """
        noise = np.random.default_rng(self.tokens)
        shape = (2, self.tokens, NUM_HEADS, HEAD_SIZE)
        encode = DTYPES[self.dtype].encode
        values = encode(noise.standard_normal(shape, dtype=np.float32))
        pages = -(-self.tokens // BLOCK_SIZE)
        geometry = CacheGeometry(pages, BLOCK_SIZE, NUM_HEADS, HEAD_SIZE, "HND")
        slots = noise.permutation(pages * BLOCK_SIZE)[: self.tokens].astype(np.int64)
        scales = SCALES
        if wild:
            groups = values.reshape(-1, GROUP)
            groups[1::4] = noise.integers(0, 1 << 16, groups[1::4].shape, np.uint16)
            groups[2::16] = 0
            groups[3::16] = encode(np.float32(2) ** noise.integers(-9, 9, groups[3::16].shape))
            groups[4::64] = bf16_encode(np.array([np.nan], np.float32))
            slots[::7] = -1
            scales = (1.0, SCALES[1])
        cache = np.zeros(geometry.cache_bytes, np.uint8)
        return StoreRequest(geometry, self.dtype, values[0], values[1], slots, *scales, cache)

    def writer(self) -> MachineWriter:
        """The store kernel under its SM100 contract, for this dtype and search."""
        return store_writer("store", "store", K_LAYOUT, V_LAYOUT, self.search, ARCH, self.dtype)


def quantise(workload: Workload, request: StoreRequest) -> None:
    """The arithmetic of the store alone, by the reference quantiser."""
    decode = DTYPES[workload.dtype].decode
    for values, scale in ((request.key, request.k_scale), (request.value, request.v_scale)):
        quantize(decode(values).reshape(-1, GROUP), scale, workload.search)
