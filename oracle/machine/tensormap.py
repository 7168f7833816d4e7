"""Tensor maps: what a TMA descriptor says, and which byte of a tile comes from where.

The descriptor's bits are NVIDIA's own; a host of this machine gives the arguments of
`cuTensorMapEncodeTiled` instead (CUDA driver API), and the kernel's pointer to the descriptor
finds them. Coordinates and boxes count elements, innermost dimension first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from oracle.errors import UsageError

IntArray = NDArray[np.int64]

CHUNK = 16
"""Bytes that a swizzle moves together; also what a row of 16 unpacked 4-bit elements takes."""
_SWIZZLE_BITS = {0: 0, 32: 1, 64: 2, 128: 3}


@dataclass(frozen=True)
class TensorMap:
    """A tiled tensor in global memory.

    `dims` and `box` in elements; `strides` in bytes, of all dimensions but the innermost, which is
    dense; `element_bits` 8, or 4 with `unpacked`: 16 elements then take 16 bytes of shared memory
    of which the first 8 hold them. `swizzle` is 0, 32, 64 or 128 bytes.
    """

    name: str
    base: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_bits: int = 8
    unpacked: bool = False
    swizzle: int = 0

    def __post_init__(self) -> None:
        """Check what the driver would check of these. Raises UsageError."""
        rank = len(self.dims)
        if len(self.box) != rank or len(self.strides) != rank - 1 or not 1 <= rank <= 5:
            raise UsageError(f"tensor map {self.name}: dims, strides and box differ in rank")
        if self.base % 16 or any(stride % 16 for stride in self.strides):
            raise UsageError(f"tensor map {self.name}: base and strides must be multiples of 16")
        if min(self.dims) < 1 or not all(1 <= extent <= 256 for extent in self.box):
            raise UsageError(f"tensor map {self.name}: a box has 1 to 256 elements a dimension")
        if self.swizzle not in _SWIZZLE_BITS or (self.element_bits, self.unpacked) not in (
            (8, False),
            (4, True),
        ):
            raise UsageError(f"tensor map {self.name}: this element or swizzle is not modelled")
        if self.unpacked and (self.box[0] % 128 or self.dims[0] % 128):
            raise UsageError(f"tensor map {self.name}: unpacked rows come in 128 elements")
        if not self.unpacked and self.box[0] % CHUNK:
            raise UsageError(f"tensor map {self.name}: a box row must be a multiple of 16 bytes")
        if self.swizzle and self.row_bytes > self.swizzle:
            raise UsageError(f"tensor map {self.name}: a box row is wider than its swizzle")

    @property
    def row_bytes(self) -> int:
        """Shared bytes from one row of a box to the next."""
        return self.box[0]

    @cached_property
    def tile_bytes(self) -> int:
        """Bytes a tile counts for on an mbarrier: the packed ones."""
        return int(np.prod(self.box)) * self.element_bits // 8

    @cached_property
    def _plan(self) -> tuple[IntArray, IntArray, tuple[IntArray, ...]]:
        """Of each byte of a tile: shared offset, global offset, and outer coordinates."""
        packed = self.box[0] * self.element_bits // 8
        grid = np.indices((*reversed(self.box[1:]), packed)).reshape(len(self.box), -1)
        inner, outer = grid[-1], tuple(grid[-2::-1])
        row = np.arange(inner.size) // packed
        place = inner // 8 * CHUNK + inner % 8 if self.unpacked else inner
        offset = inner + sum(c * s for c, s in zip(outer, self.strides, strict=True))
        return row * self.row_bytes + place, offset, (inner, *outer)

    def tile(self, coordinates: tuple[int, ...], shared: int) -> tuple[IntArray, IntArray]:
        """(global address or -1 where outside the tensor, shared address) of each byte of a tile.

        `coordinates` are those of the box's corner, `shared` is where the tile goes.
        """
        target, offset, within = self._plan
        first, *rest = coordinates
        start = first * self.element_bits // 8
        corner = start + sum(c * s for c, s in zip(rest, self.strides, strict=True))
        inside = np.ones(offset.size, dtype=bool)
        extents = (self.dims[0] * self.element_bits // 8, *self.dims[1:])
        for at, position, extent in zip((start, *rest), within, extents, strict=True):
            inside &= (position + at >= 0) & (position + at < extent)
        source = np.where(inside, self.base + corner + offset, -1)
        address = shared + target
        mask = (1 << _SWIZZLE_BITS[self.swizzle]) - 1
        return source, address ^ ((address >> 7 & mask) << 4)
