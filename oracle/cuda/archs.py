"""Which machine code a GPU can run, and what to compile for it.

A cubin for sm_XY runs on GPUs of compute capability X.Z with Z >= Y. A family target (f) has the
same rule; an arch-specific one (a) runs on X.Y alone. Where the driver is stricter, as between
embedded and other GPUs, loading fails by name. Sources: "Binary compatibility" and "Feature set
compiler targets" in the CUDA programming guide; the Blackwell compatibility guide, section 1.2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ARCH = re.compile(r"sm_([1-9][0-9]?)([0-9])([af]?)")
_FIRST_WITH_OWN_CONVERSIONS = 10
"""Major capability from which arch-specific code converts to E2M1 by itself."""


@dataclass(frozen=True)
class Device:
    """A GPU: its name, its compute capability (major, minor), and the CUDA version of its driver.

    The latter is 1000 * major + 10 * minor.
    """

    name: str
    capability: tuple[int, int]
    driver: int

    @property
    def arch(self) -> str:
        """What to compile for this GPU: "sm_90", and "sm_100a" from capability 10.0 on."""
        major, minor = self.capability
        return f"sm_{major}{minor}{'a' if major >= _FIRST_WITH_OWN_CONVERSIONS else ''}"

    def in_words(self) -> str:
        """`NVIDIA H200 (compute capability 9.0, CUDA 13.0)`."""
        major, minor = self.capability
        cuda = f"CUDA {self.driver // 1000}.{self.driver % 1000 // 10}"
        return f"{self.name} (compute capability {major}.{minor}, {cuda})"


def unsupported_reason(arch: str, device: Device) -> str | None:
    """Why a GPU cannot run code for an arch; None where it can."""
    match = _ARCH.fullmatch(arch)
    if match is None:
        return f"{arch} is no arch"
    major, minor, suffix = int(match[1]), int(match[2]), match[3]
    here, there = device.capability
    able = here == major and (there == minor if suffix == "a" else there >= minor)
    if able:
        return None
    needed = f"{major}.{minor}{'' if suffix == 'a' else f' or a later {major}.x'}"
    return f"code for {arch} needs compute capability {needed}; {device.name} has {here}.{there}"
