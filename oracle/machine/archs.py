"""Which GPUs run the machine code for an arch, and which code a driver chooses for a GPU.

A cubin for sm_XY runs on GPUs of compute capability X.Z with Z >= Y. A family target (f) has the
same rule; an arch-specific one (a) runs on X.Y alone. Where the driver is stricter, as between
embedded and other GPUs, loading fails by name. Sources: "Binary compatibility" and "Feature set
compiler targets" in the CUDA programming guide; the Blackwell compatibility guide, section 1.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from oracle.errors import UsageError

_ARCH = re.compile(r"sm_([1-9][0-9]?)([0-9])([af]?)")
_SPECIFIC = ("", "f", "a")
"""Suffixes, the one that fits the most GPUs first."""

Capability = tuple[int, int]
"""A GPU's compute capability: major, minor."""


@dataclass(frozen=True)
class Arch:
    """What code is compiled for, such as sm_100f: `suffix` is "", f (family) or a (this one)."""

    major: int
    minor: int
    suffix: str

    @classmethod
    def parse(cls, text: str) -> Arch | None:
        """The arch of that name; None where the text is none."""
        match = _ARCH.fullmatch(text)
        return match and cls(int(match[1]), int(match[2]), match[3])

    def runs_on(self, capability: Capability) -> bool:
        """Whether a GPU runs the code."""
        major, minor = capability
        able = minor == self.minor if self.suffix == "a" else minor >= self.minor
        return major == self.major and able

    @property
    def needs(self) -> str:
        """The compute capabilities that run the code, such as `10.0 or a later 10.x`."""
        later = "" if self.suffix == "a" else f" or a later {self.major}.x"
        return f"{self.major}.{self.minor}{later}"


def arch_number(arch: str) -> int:
    """100 of "sm_100f"; 0 where the text has no number."""
    return int(re.sub(r"[^0-9]", "", arch) or 0)


def capability_of(arch: str) -> Capability:
    """The GPU that an arch names, whatever its suffix. Raises UsageError for what is none."""
    parsed = Arch.parse(arch)
    if parsed is None:
        raise UsageError(f"{arch!r} is no arch: give one such as sm_100")
    return parsed.major, parsed.minor


def loaded(archs: Iterable[str], capability: Capability) -> str | None:
    """Of the archs that there is code for, the one that a driver loads on a GPU.

    Arch-specific code goes first, then that of a family, then plain code; of two the later one.
    None where the GPU runs none of them.
    """
    able = {
        (_SPECIFIC.index(arch.suffix), arch.minor): text
        for text in archs
        if (arch := Arch.parse(text)) is not None and arch.runs_on(capability)
    }
    return able[max(able)] if able else None
