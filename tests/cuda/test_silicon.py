"""What runs on a GPU as well: instructions, store kernels, the reciprocal's table.

The tests with a real GPU are those marked `gpu`. The others run the same comparisons on a GPU that
is none, once as it should be and once with a wrong bit, so that what is untested here is the
silicon alone.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import silicon
import test_user_kernels as user_kernels
from fakegpu import FakeGpu

from benchmarks.rcp_dump.dump import Kernels, measure, write_measured
from benchmarks.workload import FEW_TOKENS, Workload
from oracle.cuda.archs import Device
from oracle.cuda.driver import U8
from oracle.cuda.launcher import SMALLEST_ZONE
from oracle.geometry import CacheGeometry
from oracle.numerics.models import under_model
from oracle.quantize import ScaleSearch
from oracle.subjects.base import SubjectInfo
from oracle.subjects.binary import MachineWriter
from oracle.subjects.cuda import Gpu, GpuExecution, on_gpu
from oracle.subjects.source import LAYOUTS, store_writer
from oracle.twins import differences

GEOMETRIES = [
    CacheGeometry(4, block_size, 2, head_size, layout)
    for head_size, block_size, layout in (
        (64, 16, "HND"), (128, 16, "NHD"), (192, 8, "HND"), (576, 32, "NHD"),
    )
]  # fmt: skip


def store(gpu: Gpu, k: str, v: str, search: ScaleSearch, dtype: str) -> MachineWriter:
    return store_writer("store", "store", k, v, search, gpu.device.arch, dtype)


def on(gpu: Gpu, writer: MachineWriter) -> MachineWriter:
    return on_gpu(writer, gpu.device, GpuExecution(lambda: gpu))


@pytest.mark.gpu
@pytest.mark.parametrize("family", silicon.FAMILIES)
def test_instructions_on_silicon(gpu: Gpu, family: str) -> None:
    """Every snippet of the instruction tests gives on the GPU what it gives on the machine."""
    found = list(silicon.differences(gpu, family))
    assert not found, "\n".join(found)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("k", "v", "search", "dtype"), list(product(LAYOUTS, LAYOUTS, ScaleSearch, ["bf16", "fp16"]))
)
def test_store_kernels_on_silicon(
    gpu: Gpu, k: str, v: str, search: ScaleSearch, dtype: str
) -> None:
    """The store kernel leaves the same bytes in every layout, search and dtype."""
    writer = store(gpu, k, v, search, dtype)
    for geometry in GEOMETRIES:
        found = differences(on(gpu, writer), writer, geometry, dtype)
        assert found == {}, geometry.in_words()


@pytest.mark.gpu
@pytest.mark.parametrize("name", user_kernels.NAMES)
def test_kernels_of_users_on_silicon(gpu: Gpu, name: str) -> None:
    """Loops, shared and local memory, shuffles, calls: the same bytes."""
    assert_user_kernel_alike(gpu, name)


def assert_user_kernel_alike(gpu: Gpu, name: str) -> None:
    cubin, _ = user_kernels.from_nvrtc(gpu.device.arch, 3)
    info = SubjectInfo(name, "writer", name, "machine", gpu.device.arch, name)
    writer = MachineWriter(info, cubin, name)
    dtype = user_kernels.Source.read(name).dtype
    for geometry in user_kernels.GEOMETRIES:
        found = differences(on(gpu, writer), writer, geometry, dtype)
        assert found == {}, geometry.in_words()


@pytest.fixture(scope="session")
def table(gpu: Gpu, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The GPU's own MUFU.RCP, measured."""
    path = tmp_path_factory.mktemp("rcp") / "measured.rcp"
    assert write_measured(gpu, path) == 0
    return path


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("search", "dtype"), list(product(ScaleSearch, ["bf16", "fp16"]))
)  # fmt: skip
def test_any_values_on_silicon(gpu: Gpu, table: Path, search: ScaleSearch, dtype: str) -> None:
    """With the GPU's own reciprocal the bytes of any values are the same, NaN and ties included."""
    assert_stores_alike(gpu, f"table:{table}", search, dtype)


def assert_stores_alike(gpu: Gpu, rcp: str, search: ScaleSearch, dtype: str) -> None:
    writer = store(gpu, "linear", "swizzle_4x4", search, dtype)
    request = Workload(8 * FEW_TOKENS, dtype, search).request(wild=True)
    there = on(gpu, writer).write(request).cache
    here = under_model(writer, rcp).write(request).cache
    different = np.flatnonzero(there != here)
    where = request.geometry.plane_name(int(different[0])) if different.size else ""
    assert different.size == 0, f"{different.size} bytes differ, first in {where}"


# ---- The same comparisons on a GPU that is none --------------------------------------------------


def flip_first_output(allocation: U8) -> None:
    """A bit of what a snippet gives: its inputs and outputs are equally long, among red zones."""
    buffer = (allocation.size - 3 * SMALLEST_ZONE) // 2
    allocation[2 * SMALLEST_ZONE + buffer] ^= 1


@pytest.mark.parametrize("device", [(9, 0), (8, 9), (12, 1)])
def test_a_gpu_like_the_machine_shows_no_difference(device: tuple[int, int]) -> None:
    """Also of a generation the instruction tests are not compiled for."""
    fake = FakeGpu(Device("Nobody's GPU", device, 13000))
    assert list(silicon.differences(fake, "moves")) == []
    assert fake.runs > 0


def test_a_wrong_bit_of_an_instruction_is_told() -> None:
    fake = FakeGpu(tamper=flip_first_output)
    found = list(silicon.differences(fake, "moves"))
    assert len(found) == len(silicon.family("moves").snippets) > 0
    assert "on the GPU" in found[0]


def test_a_kernel_of_a_user_is_compared() -> None:
    assert_user_kernel_alike(FakeGpu(), "shared_amax")
    with pytest.raises(AssertionError):
        assert_user_kernel_alike(FakeGpu(tamper=flip_in_the_cache), "shared_amax")


def flip_in_the_cache(allocation: U8) -> None:
    """A bit of a page that nothing is stored to; the cache is the last buffer."""
    allocation[-SMALLEST_ZONE - 1024] ^= 1


def test_wild_values_are_alike_under_the_same_reciprocal_alone() -> None:
    assert_stores_alike(FakeGpu(), "exact", ScaleSearch.MAX_OVER_6, "bf16")
    with pytest.raises(AssertionError, match="bytes differ, first in page"):
        assert_stores_alike(FakeGpu(), "+1ulp", ScaleSearch.MAX_OVER_6, "bf16")


def test_the_reciprocal_is_measured_on_a_gpu() -> None:
    """On the machine's own model every result is the right one; with a wrong bit, one is not."""
    assert not measure(Kernels(FakeGpu()), 2048).any()
    wrong = measure(Kernels(FakeGpu(tamper=lambda all: all.__setitem__(SMALLEST_ZONE, 1))), 2048)
    assert np.flatnonzero(wrong).tolist() == [0]
