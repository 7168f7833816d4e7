"""Which code runs where: the documented tables, written out."""

from __future__ import annotations

import pytest

from oracle.cuda.archs import Device, unsupported_reason

CAPABILITIES = ((8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1))
# "Binary compatibility" and, for a and f, "Feature set compiler targets" in the programming guide.
RUNS_ON = {
    "sm_80": {(8, 0), (8, 6), (8, 9)},
    "sm_86": {(8, 6), (8, 9)},
    "sm_89": {(8, 9)},
    "sm_90": {(9, 0)},
    "sm_90a": {(9, 0)},
    "sm_100": {(10, 0), (10, 3)},
    "sm_100f": {(10, 0), (10, 3)},
    "sm_100a": {(10, 0)},
    "sm_103": {(10, 3)},
    "sm_103f": {(10, 3)},
    "sm_103a": {(10, 3)},
    "sm_110f": {(11, 0)},
    "sm_120": {(12, 0), (12, 1)},
    "sm_120f": {(12, 0), (12, 1)},
    "sm_120a": {(12, 0)},
    "sm_121": {(12, 1)},
    "sm_121f": {(12, 1)},
    "sm_121a": {(12, 1)},
}


def device(capability: tuple[int, int]) -> Device:
    return Device("GPU", capability, 13000)


@pytest.mark.parametrize("arch", RUNS_ON)
def test_code_runs_where_the_tables_say(arch: str) -> None:
    able = {c for c in CAPABILITIES if unsupported_reason(arch, device(c)) is None}
    assert able == RUNS_ON[arch]


def test_a_refusal_names_both_sides() -> None:
    expected = "code for sm_100 needs compute capability 10.0 or a later 10.x; GPU has 9.0"
    assert unsupported_reason("sm_100", device((9, 0))) == expected
    expected = "code for sm_120a needs compute capability 12.0; GPU has 12.1"
    assert unsupported_reason("sm_120a", device((12, 1))) == expected
    assert unsupported_reason("compute_90", device((9, 0))) == "compute_90 is no arch"


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_what_is_compiled_for_a_gpu_runs_on_it(capability: tuple[int, int]) -> None:
    assert unsupported_reason(device(capability).arch, device(capability)) is None


def test_blackwell_gets_its_own_conversions() -> None:
    archs = [device(c).arch for c in ((8, 9), (9, 0), (10, 0), (10, 3), (12, 0))]
    assert archs == ["sm_89", "sm_90", "sm_100a", "sm_103a", "sm_120a"]
