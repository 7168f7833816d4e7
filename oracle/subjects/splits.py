"""A view split as a reader: the planes it cuts, with given layouts of the scales in them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oracle.candidates import candidate
from oracle.errors import OracleError, UsageError
from oracle.formats import unpack_codes
from oracle.geometry import CacheGeometry
from oracle.quantize import GROUP, dequantize
from oracle.requests import ReadRequest
from oracle.subjects.base import SubjectInfo
from oracle.subjects.reference import undefined_reason
from oracle.views.owners import Owners
from oracle.views.planes import Plane, ViewSplit, carve, view_split
from oracle.views.tensor import of_geometry


def split_reader(spec: str, split: str, k_layout: str, v_layout: str) -> SplitReader:
    """The reader of a named split and two layouts. Raises UsageError for unknown names."""
    name = f"{split} view split: K {k_layout}, V {v_layout}"
    info = SubjectInfo(spec, "reader", name, "reference", declared={"K": k_layout, "V": v_layout})
    return SplitReader(info, view_split(split), k_layout, v_layout)


class SplitReader:
    """Dequantises, as the specification says, what a view split exposes."""

    def __init__(self, info: SubjectInfo, split: ViewSplit, k_layout: str, v_layout: str) -> None:
        """Raises UsageError for an unknown layout."""
        self.info = info
        self.split = split
        self.layouts = {"K": candidate(k_layout), "V": candidate(v_layout)}

    def unsupported_reason(self, geometry: CacheGeometry, dtype: str) -> str | None:
        """Why there are no such views of a geometry; None where there are."""
        layouts = (each.name for each in self.layouts.values())
        reason = undefined_reason(geometry, *layouts)
        if reason is not None:
            return reason
        try:
            outside = Owners(carve(of_geometry(geometry), self.split)).outside
        except OracleError as error:
            return str(error)
        return f"a view leaves the cache, at byte {outside[0]}" if outside else None

    def read(self, request: ReadRequest) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """K and V of the request's slots, f32 [T, H, D]. Raises UsageError for slots outside."""
        geometry = request.geometry
        if request.slots.size and not 0 <= request.slots.min() <= request.slots.max() < (
            geometry.num_slots
        ):
            raise UsageError(f"a slot lies outside 0..{geometry.num_slots - 1}")
        cut = {(p.side, p.kind): p for p in self.split.planes(of_geometry(geometry))}
        keys, values = (
            self._side(request, cut[side, "data"], cut[side, "scale"], scale)
            for side, scale in (("K", request.k_scale), ("V", request.v_scale))
        )
        return keys, values

    def _side(
        self, request: ReadRequest, data: Plane, scales: Plane, global_scale: float
    ) -> NDArray[np.float32]:
        geometry = request.geometry
        columns = geometry.scale_columns
        page, token = np.divmod(request.slots[:, None, None], geometry.block_size)
        head = np.arange(geometry.num_heads)[:, None]
        flat = self.layouts[data.side].table(geometry.block_size, columns)[
            token, np.arange(columns)
        ]
        stored = scales.offsets(page, head, flat // columns, flat % columns)
        bytes_ = data.offsets(page, head, token, np.arange(geometry.data_bytes))
        codes = unpack_codes(request.cache[bytes_])
        groups = codes.reshape(*codes.shape[:-1], columns, GROUP)
        return dequantize(groups, request.cache[stored], global_scale).reshape(codes.shape)
