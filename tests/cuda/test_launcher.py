"""Launches on a driver: red zones, parameters, and every way in which a driver says no."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fakegpu import FakeDriver
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.cuda.archs import Device
from oracle.cuda.launcher import ALIGNMENT, SMALLEST_ZONE, Arena, Buffer, Launch, Launcher
from oracle.machine.context import Unsupported
from oracle.machine.memory import MachineFault
from oracle.requests import RED_ZONE
from oracle.toolchain import compile_cuda

SOURCE = """
extern "C" __global__ void poke(unsigned char* out, const unsigned char* in, int where, int step) {
  out[where + step * (int)threadIdx.x] = in[threadIdx.x];
}
extern "C" __global__ void misaligned(unsigned char* out, const unsigned char* in, int at, int s) {
  *(int*)(out + at) = in[s];
}
extern "C" __global__ void overwrite(unsigned char* out, unsigned char* in, int where, int step) {
  out[threadIdx.x] = in[threadIdx.x];
  if (threadIdx.x == 3) in[where] = step;
}
"""
THREADS = 32


def launch(kernel: str = "poke", where: int = 0, step: int = 1) -> Launch:
    """32 bytes are copied to 32 bytes, `where` and `step` apart."""
    params = b"".join(number.to_bytes(8, "little") for number in (0, 0))
    params += b"".join(number.to_bytes(4, "little", signed=True) for number in (where, step))
    return Launch(
        compile_cuda(SOURCE, "sm_90"), "sm_90", kernel, (1, 1, 1), (THREADS, 1, 1), params,
        {0: "out", 8: "in"},
        (
            Buffer("in", np.arange(100, 100 + THREADS, dtype=np.uint8)),
            Buffer("out", np.zeros(THREADS, np.uint8), writable=True),
        ),
    )  # fmt: skip


def test_a_kernel_gets_its_buffers_and_gives_them_back() -> None:
    driver = FakeDriver()
    done = Launcher(driver).run(launch())
    assert done.contents["out"].tolist() == list(range(100, 100 + THREADS))
    assert set(done.contents) == {"out"}
    assert (done.strays.size, done.faults) == (0, ())
    assert driver.allocations == 0


@pytest.mark.parametrize(
    ("where", "words", "count"),
    [
        (THREADS, "32 bytes stored at 0 bytes past the end of out", 32),
        (THREADS - 4, "28 bytes stored at 0 bytes past the end of out", 28),
        (THREADS + 1000, "32 bytes stored at 1000 bytes past the end of out", 32),
        (-40, "32 bytes stored at 40 bytes before out", 32),
        (-8, "8 bytes stored at 8 bytes before out", 8),
        (THREADS + SMALLEST_ZONE - 64, "32 bytes stored at 65472 bytes past the end of out", 32),
    ],
)
def test_a_store_into_a_red_zone_is_seen_with_its_offset(
    where: int, words: str, count: int
) -> None:
    done = Launcher(FakeDriver()).run(launch(where=where))
    assert done.faults == (words,)
    first = done.starts["out"] + where
    inside = max(0, min(THREADS, THREADS - where if where >= 0 else THREADS + where))
    assert done.strays.size == count == THREADS - inside
    places = np.arange(first, first + THREADS)
    beyond = (places < done.starts["out"]) | (places >= done.starts["out"] + THREADS)
    assert done.strays.tolist() == places[beyond].tolist()
    assert done.values.tolist() == np.arange(100, 132)[beyond].tolist()


def test_each_run_of_stray_bytes_is_told() -> None:
    done = Launcher(FakeDriver()).run(launch(where=THREADS - 2, step=2))
    assert done.strays.size == THREADS - 1
    assert done.faults[:2] == (
        "1 bytes stored at 0 bytes past the end of out",
        "1 bytes stored at 2 bytes past the end of out",
    )


def test_a_buffer_that_is_only_read_must_stay_as_it_is() -> None:
    done = Launcher(FakeDriver()).run(launch("overwrite", where=5, step=7))
    assert done.faults == ("1 bytes stored at in+0x5",)
    assert (done.strays.tolist(), done.values.tolist()) == ([done.starts["in"] + 5], [7])


def test_a_store_beyond_the_allocation_is_a_fault_and_ends_the_context() -> None:
    launcher = Launcher(FakeDriver())
    with pytest.raises(MachineFault, match=r"kernel poke on Nobody's GPU: CUDA_ERROR_ILLEGAL_ADD"):
        launcher.run(launch(where=1 << 20))
    with pytest.raises(MachineFault, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        launcher.run(launch())


def test_a_misaligned_store_is_a_fault() -> None:
    with pytest.raises(MachineFault, match="CUDA_ERROR_MISALIGNED_ADDRESS while waiting"):
        Launcher(FakeDriver()).run(launch("misaligned", where=2))


@pytest.mark.parametrize(
    ("driver", "changed", "words"),
    [
        (FakeDriver(capacity=1000), {}, "CUDA_ERROR_OUT_OF_MEMORY while allocating"),
        (FakeDriver(most_threads=16), {}, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES while launching"),
        (FakeDriver(), {"image": b"\x7fELF"}, "CUDA_ERROR_INVALID_IMAGE while loading a cubin"),
        (FakeDriver(), {"kernel": "_Z4none"}, "CUDA_ERROR_NOT_FOUND while looking for kernel"),
        (FakeDriver(Device("B", (10, 0), 1)), {}, "code for sm_90 needs compute capability 9.0"),
        (FakeDriver(), {"arch": "sm_90x"}, "sm_90x is no arch"),
    ],
    ids=["memory", "threads", "image", "kernel", "device", "arch"],
)
def test_what_the_driver_refuses_is_unsupported(
    driver: FakeDriver, changed: dict[str, object], words: str
) -> None:
    with pytest.raises(Unsupported, match=words):
        Launcher(driver).run(replace(launch(), **changed))  # type: ignore[arg-type]
    assert driver.allocations == 0


def test_after_a_refusal_the_next_launch_runs() -> None:
    launcher = Launcher(FakeDriver(most_threads=THREADS))
    with pytest.raises(Unsupported):
        launcher.run(replace(launch(), block=(2 * THREADS, 1, 1)))
    assert launcher.run(launch()).faults == ()


def test_a_cubin_is_loaded_once() -> None:
    driver = FakeDriver()
    launcher = Launcher(driver)
    for _ in range(3):
        launcher.run(launch())
    assert (driver.launches, len(driver._modules)) == (3, 1)


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(0, 2000), min_size=1, max_size=4),
    zone=st.integers(0, 2 * SMALLEST_ZONE),
    spot=st.floats(0, 1, exclude_max=True),
)
def test_an_arena_accounts_for_every_byte(sizes: list[int], zone: int, spot: float) -> None:
    """Buffers are apart and aligned; a byte changed anywhere is in a writable one, or a stray."""
    buffers = [
        Buffer(f"b{i}", np.full(size, i, np.uint8), bool(i % 2)) for i, size in enumerate(sizes)
    ]
    arena = Arena(buffers, zone)
    before = arena.image()
    owner = np.full(arena.size, -1)
    for i, buffer in enumerate(buffers):
        start = arena.starts[buffer.name]
        assert start % ALIGNMENT == 0
        place = slice(start, start + sizes[i])
        assert (owner[place] == -1).all()
        assert (before[place] == i).all()
        owner[place] = i
    guarded = np.flatnonzero(owner == -1)
    assert (before[guarded] == RED_ZONE).all()
    edges = [(arena.starts[b.name], arena.starts[b.name] + b.contents.size) for b in buffers]
    ends = [0, *(end for _, end in edges)]
    starts = [*(start for start, _ in edges), arena.size]
    assert all(s - e >= max(zone, SMALLEST_ZONE) for s, e in zip(starts, ends, strict=True))
    for at in {int(spot * arena.size), *(i + j for edge in edges for i in edge for j in (-1, 0))}:
        after = before.copy()
        after[at] ^= 0xFF
        done = arena.outcome(before, after)
        if owner[at] >= 0 and buffers[owner[at]].writable:
            assert done.strays.size == 0
            name = f"b{owner[at]}"
            assert done.contents[name][at - arena.starts[name]] == after[at]
        else:
            assert (done.strays.tolist(), done.values.tolist()) == ([at], [after[at]])
            assert len(done.faults) == 1
