"""This project's own store kernel: compiled from source, then executed as machine code."""

from __future__ import annotations

from dataclasses import dataclass

from oracle.errors import UsageError
from oracle.geometry import CacheGeometry
from oracle.machine.cubin import Cubin
from oracle.quantize import ScaleSearch
from oracle.subjects.base import SubjectInfo
from oracle.subjects.binary import MachineWriter, artifact_digest
from oracle.subjects.reference import undefined_reason
from oracle.toolchain import compile_cuda, kernel_source

KERNEL = "nvfp4_kv_store"
LAYOUTS = ("linear", "swizzle_4x4", "inverse_4x4")
"""Layouts the kernel can be compiled for."""
DATA_STORE_BYTES = 8


@dataclass(frozen=True)
class StoreHost:
    """The host side of the kernel: it refuses a geometry its layouts are undefined for.

    The kernel stores data 8 bytes at a time, so V's data must start at a multiple of 8 as well.
    """

    k_layout: str
    v_layout: str

    def __call__(self, geometry: CacheGeometry, dtype: str) -> str | None:
        """The reason for refusing, or None."""
        start = geometry.side_base("V")
        if start % DATA_STORE_BYTES:
            return (
                f"V data would start {start} bytes into the page, which is no multiple of the "
                f"{DATA_STORE_BYTES} bytes of a data store"
            )
        return undefined_reason(geometry, self.k_layout, self.v_layout)


def store_writer(
    identity: str,
    name: str,
    k_layout: str,
    v_layout: str,
    search: ScaleSearch,
    arch: str,
    dtype: str,
) -> MachineWriter:
    """The store kernel compiled for two layouts, a search, an arch and a dtype.

    Raises UsageError for a layout the kernel does not have, ToolchainError where NVRTC is missing
    or refuses the arch.
    """
    for layout in (k_layout, v_layout):
        if layout not in LAYOUTS:
            raise UsageError(
                f"the store kernel has no layout {layout!r}: choose {', '.join(LAYOUTS)}"
            )
    defines = {
        "DTYPE": dtype.upper(),
        "K_LAYOUT": k_layout.upper(),
        "V_LAYOUT": v_layout.upper(),
        "SCALE_SEARCH": search.name,
    }
    binary = compile_cuda(kernel_source(KERNEL), arch, defines, name=f"{KERNEL}.cu")
    info = SubjectInfo(
        id=f"{identity}@{arch}/{dtype}",
        role="writer",
        name=name,
        executor="machine",
        arch=arch,
        kernel=KERNEL,
        artifact_sha256=artifact_digest(binary),
        declared={"K": k_layout, "V": v_layout},
        scale_search=search,
        dtypes=(dtype,),
    )
    return MachineWriter(info, Cubin.parse(binary), KERNEL, StoreHost(k_layout, v_layout))
