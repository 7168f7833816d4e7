"""What every subject offers, whatever stands behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from oracle.addressmap import Read
from oracle.formats import DTYPES
from oracle.geometry import CacheGeometry
from oracle.quantize import ScaleSearch
from oracle.requests import ReadRequest, Stored, StoreRequest

EXECUTORS = ("reference", "machine", "cuda", "callable")


@dataclass(frozen=True)
class SubjectInfo:
    """Who a subject is: the provenance a report prints.

    `id` is its spec, unique in a run. `declared` maps a side to the layout its contract promises;
    it is empty for a subject nobody declared anything about. `artifact_sha256` is the digest of the
    machine code or source that was executed.
    """

    id: str
    role: str
    name: str
    executor: str
    arch: str | None = None
    kernel: str | None = None
    artifact_sha256: str | None = None
    declared: Mapping[str, str] = field(default_factory=dict)
    scale_search: ScaleSearch = ScaleSearch.MAX_OVER_6
    dtypes: tuple[str, ...] = tuple(DTYPES)


class Writer(Protocol):
    """Stores tokens into a cache."""

    @property
    def info(self) -> SubjectInfo:
        """Who this is."""

    def unsupported_reason(self, geometry: CacheGeometry, dtype: str) -> str | None:
        """Why the writer's host side refuses a geometry or dtype; None where it does not."""

    def write(self, request: StoreRequest) -> Stored:
        """Store the request's tokens; raises OracleError where the outcome is undefined."""


@runtime_checkable
class AddressReader(Protocol):
    """A reader that can be asked where it looks, instead of what it reads."""

    def map(self, geometry: CacheGeometry) -> Read:
        """Maps of the probe's pages. Raises OracleError where it cannot be told."""


class Reader(Protocol):
    """Reads tokens back from a cache."""

    @property
    def info(self) -> SubjectInfo:
        """Who this is."""

    def unsupported_reason(self, geometry: CacheGeometry, dtype: str) -> str | None:
        """Why the reader refuses a geometry; None where it does not."""

    def read(self, request: ReadRequest) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """K and V of the request's slots, f32 [T, H, D]."""
