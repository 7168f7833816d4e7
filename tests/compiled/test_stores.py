"""The store kernels on both tiers: every arch and search, every 16-bit pattern, odd geometries."""

from __future__ import annotations

from functools import cache

import pytest
from agreement import compare_store, wild_request
from mutants import MUTANTS, mutant_writer

from oracle.geometry import CacheGeometry
from oracle.machine.primitives import RCP_MODELS
from oracle.quantize import ScaleSearch
from oracle.subjects.binary import MachineWriter
from oracle.subjects.source import store_writer

pytest.importorskip("llvmlite", reason="the compiled tier needs llvmlite: pip install -e .[fast]")
from oracle.machine.compiled.runtime import CompiledProgram

KERNELS = (
    ("sm_80", "bf16", "max6", "linear", "swizzle_4x4"),
    ("sm_90", "fp16", "4over6", "inverse_4x4", "linear"),
    ("sm_100a", "bf16", "max6", "linear", "swizzle_4x4"),
    ("sm_100a", "bf16", "4over6", "linear", "swizzle_4x4"),
    ("sm_120a", "fp16", "max6", "swizzle_4x4", "inverse_4x4"),
)
GEOMETRIES = (
    CacheGeometry(4, 16, 8, 128, "HND"),
    CacheGeometry(2, 16, 1, 64, "NHD"),
    CacheGeometry(2, 16, 2, 576, "HND"),
    CacheGeometry(3, 4, 3, 192, "HND"),
    CacheGeometry(4, 3, 1, 16, "HND"),
    CacheGeometry(4, 2, 1, 80, "NHD"),
    CacheGeometry(1, 4, 20, 512, "NHD"),
)
"""Legal and illegal ones; the last needs more than one group a thread."""
DEGENERATE = ((0.0, 1.0), (float("inf"), float("nan")), (1e-42, -1.0))


@cache
def kernel(arch: str, dtype: str, search: str, k: str, v: str) -> MachineWriter:
    return store_writer("store", "store", k, v, ScaleSearch(search), arch, dtype)


@cache
def compiled(*which: str) -> CompiledProgram:
    return CompiledProgram(kernel(*which).program.function)


@pytest.mark.parametrize("which", KERNELS, ids="-".join)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_store(which: tuple[str, ...], geometry: CacheGeometry) -> None:
    tokens = min(7, geometry.num_blocks * geometry.block_size)
    for odd_slots, seed in ((False, 1), (True, 2)):
        request = wild_request(geometry, which[1], tokens, seed, (0.0137, 0.0211), odd_slots)
        found, _ = compare_store(kernel(*which), compiled(*which), request)
        assert not found


@pytest.mark.parametrize("which", KERNELS, ids="-".join)
@pytest.mark.parametrize("scales", DEGENERATE)
def test_degenerate_global_scales(which: tuple[str, ...], scales: tuple[float, float]) -> None:
    request = wild_request(GEOMETRIES[0], which[1], 5, 3, scales)
    found, _ = compare_store(kernel(*which), compiled(*which), request)
    assert not found


@pytest.mark.parametrize("which", KERNELS, ids="-".join)
@pytest.mark.parametrize("model", ["+1ulp", "-1ulp"])
def test_models_of_the_reciprocal(which: tuple[str, ...], model: str) -> None:
    request = wild_request(GEOMETRIES[0], which[1], 9, 4, (0.0137, 0.0211))
    found, _ = compare_store(kernel(*which), compiled(*which), request, rcp=RCP_MODELS[model])
    assert not found


def test_threads_share_a_store() -> None:
    request = wild_request(CacheGeometry(8, 16, 8, 128, "HND"), "bf16", 128, 5, (0.02, 0.03))
    which = KERNELS[2]
    for jobs, chunk_lanes in ((1, 16384), (2, 1024), (3, 640)):
        found, _ = compare_store(
            kernel(*which), compiled(*which), request, jobs=jobs, chunk_lanes=chunk_lanes
        )
        assert not found


@pytest.mark.parametrize(
    "name", ["scale written twice", "scale written to two places", "one head off"]
)
def test_mutants_are_as_wrong_on_both_tiers(name: str) -> None:
    assert name in MUTANTS
    writer = mutant_writer(name)
    program = CompiledProgram(writer.program.function)
    request = wild_request(GEOMETRIES[0], "bf16", 20, 6, (0.02, 0.03))
    found, _ = compare_store(writer, program, request)
    assert not found
