"""A GPU, what to compile for it, and why it cannot run some code (`oracle.machine.archs`)."""

from __future__ import annotations

from dataclasses import dataclass

from oracle.machine.archs import Arch, Capability

_FIRST_WITH_OWN_CONVERSIONS = 10
"""Major capability from which arch-specific code converts to E2M1 by itself."""


@dataclass(frozen=True)
class Device:
    """A GPU: its name, its compute capability (major, minor), and the CUDA version of its driver.

    The latter is 1000 * major + 10 * minor.
    """

    name: str
    capability: Capability
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
    code = Arch.parse(arch)
    if code is None:
        return f"{arch} is no arch"
    if code.runs_on(device.capability):
        return None
    major, minor = device.capability
    return (
        f"code for {arch} needs compute capability {code.needs}; {device.name} has {major}.{minor}"
    )
