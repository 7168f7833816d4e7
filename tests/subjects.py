"""Writers and readers made for tests: any pair of tables, with and without a log of stores."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oracle.geometry import CacheGeometry
from oracle.quantize import ScaleSearch
from oracle.reference import reference_read, reference_write
from oracle.requests import ByteStores, ReadRequest, Stored, StoreRequest
from oracle.subjects.base import SubjectInfo

Table = NDArray[np.int64]


class TableWriter:
    """Stores scales where two tables [N, S] say; without a log, like any black box."""

    def __init__(self, k: Table | str, v: Table | str, search: str = "max6") -> None:
        self.k, self.v = k, v
        self.info = SubjectInfo(
            "tables", "writer", "tables", "callable", scale_search=ScaleSearch(search)
        )

    def unsupported_reason(self, geometry: CacheGeometry, dtype: str) -> str | None:
        return None

    def write(self, request: StoreRequest) -> Stored:
        return Stored(reference_write(request, self.k, self.v, self.info.scale_search))


class LoggedWriter(TableWriter):
    """The same with a log of every byte that differs from before, in address order."""

    def write(self, request: StoreRequest) -> Stored:
        cache = super().write(request).cache
        whole = np.arange(cache.size, dtype=np.int64)
        pages = np.isin(whole // request.geometry.page_bytes, (1, 2))
        return Stored(cache, ByteStores(whole[pages], cache[pages]))


class TableReader:
    """Reads scales where two tables say."""

    def __init__(self, k: Table | str, v: Table | str) -> None:
        self.k, self.v = k, v
        self.info = SubjectInfo("tables", "reader", "tables", "callable")

    def unsupported_reason(self, geometry: CacheGeometry, dtype: str) -> str | None:
        return None

    def read(self, request: ReadRequest) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return reference_read(request, self.k, self.v)
