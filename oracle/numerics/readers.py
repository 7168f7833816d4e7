"""What readers make of scale bytes: all 256 of them, under a code of 1 and a global scale of 1."""

from __future__ import annotations

import numpy as np

from oracle.formats import FloatArray
from oracle.geometry import SIDES, CacheGeometry
from oracle.requests import ReadRequest
from oracle.subjects.base import Reader

_CODE_ONE = 0x2
_BYTES = 256


def scale_byte_values(reader: Reader, side: str) -> FloatArray:
    """The value a reader gives each scale byte, float32 [256].

    Page b of a cache holds nothing but byte b on its scale planes, so where the reader looks for a
    scale makes no difference.
    """
    geometry = CacheGeometry(_BYTES, 16, 1, 64)
    pages = np.full((_BYTES, geometry.page_bytes), _CODE_ONE | _CODE_ONE << 4, np.uint8)
    for region in geometry.page_regions():
        if region.name.endswith("scale"):
            pages[:, region.start : region.stop] = np.arange(_BYTES, dtype=np.uint8)[:, None]
    slots = np.arange(_BYTES, dtype=np.int64) * geometry.block_size
    values = reader.read(ReadRequest(geometry, pages.ravel(), slots, 1.0, 1.0))
    return values[SIDES.index(side)][:, 0, 0]
