"""The specification itself as a subject: any pair of layouts, written or read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oracle.candidates import candidate
from oracle.geometry import CacheGeometry
from oracle.quantize import ScaleSearch
from oracle.reference import reference_read, reference_write
from oracle.requests import ReadRequest, Stored, StoreRequest
from oracle.subjects.base import SubjectInfo


def undefined_reason(geometry: CacheGeometry, k_layout: str, v_layout: str) -> str | None:
    """Why one of two layouts is undefined on a geometry's scale planes; None where both exist."""
    for side, name in (("K", k_layout), ("V", v_layout)):
        reason = candidate(name).undefined_reason(geometry.block_size, geometry.scale_columns)
        if reason is not None:
            return f"{side} scales: {reason}"
    return None


class _Reference:
    """What the reference writer and reader share: two layouts."""

    def __init__(self, info: SubjectInfo, k_layout: str, v_layout: str) -> None:
        self.info = info
        self.k_layout = candidate(k_layout).name
        self.v_layout = candidate(v_layout).name

    def unsupported_reason(self, geometry: CacheGeometry, dtype: str) -> str | None:
        """The reason one of its layouts is undefined here, if it is."""
        return undefined_reason(geometry, self.k_layout, self.v_layout)


class ReferenceWriter(_Reference):
    """`oracle.reference.reference_write` with the scale search its info names."""

    def write(self, request: StoreRequest) -> Stored:
        """Store as the specification says."""
        search: ScaleSearch = self.info.scale_search
        return Stored(reference_write(request, self.k_layout, self.v_layout, search))


class ReferenceReader(_Reference):
    """`oracle.reference.reference_read`."""

    def read(self, request: ReadRequest) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Read as the specification says."""
        return reference_read(request, self.k_layout, self.v_layout)
