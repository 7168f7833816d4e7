"""Which code a driver loads: preferences written out, over all small sets of archs."""

from __future__ import annotations

from itertools import combinations

import pytest

from oracle.errors import UsageError
from oracle.machine.archs import Arch, arch_number, capability_of, loaded

# Arch-specific, family, plain; the later one first.
PREFERRED = {
    (8, 6): ("sm_86", "sm_80"),
    (8, 9): ("sm_89", "sm_86", "sm_80"),
    (9, 0): ("sm_90a", "sm_90"),
    (10, 0): ("sm_100a", "sm_100f", "sm_100"),
    (10, 3): ("sm_103a", "sm_103f", "sm_100f", "sm_103", "sm_100"),
    (12, 0): ("sm_120a", "sm_120f", "sm_120"),
    (12, 1): ("sm_121a", "sm_121f", "sm_120f", "sm_121", "sm_120"),
}
ARCHS = sorted({arch for archs in PREFERRED.values() for arch in archs})


@pytest.mark.parametrize("capability", PREFERRED)
def test_the_code_a_driver_loads(capability: tuple[int, int]) -> None:
    for count in range(4):
        for archs in combinations(ARCHS, count):
            wanted = [arch for arch in PREFERRED[capability] if arch in archs]
            assert loaded(archs, capability) == (wanted[0] if wanted else None)


def test_what_is_no_arch_is_never_loaded() -> None:
    texts = ("", "sm_", "sm_1", "sm_100b", "compute_100", "sm_4294967295", "sm_100f ", "sm_0100")
    assert [Arch.parse(text) for text in texts] == [None] * len(texts)
    assert loaded([*texts, "sm_100"], (10, 0)) == "sm_100"
    for text in texts:
        with pytest.raises(UsageError, match="is no arch: give one such as sm_100"):
            capability_of(text)


def test_an_arch_names_a_gpu_whatever_its_suffix() -> None:
    assert {capability_of(f"sm_103{suffix}") for suffix in ("", "a", "f")} == {(10, 3)}
    assert [arch_number(arch) for arch in ("sm_103a", "sm_90", "nothing")] == [103, 90, 0]
