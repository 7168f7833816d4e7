"""Measure the store kernel's memory bandwidth on a GPU: `benchmarks/bandwidth.py [--output DIR]`.

The store reads keys and values and writes codes and scales, all of them once, so the best it can do
is to take as long as a copy that moves as many bytes. Both are measured in the same run, in turns.
Before a time is believed every byte of the cache is compared with the specification.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Protocol

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.output import Goal, Table, environment, goals_table, write_json
from benchmarks.workload import BLOCK_SIZE, HEAD_SIZE, K_LAYOUT, NUM_HEADS, V_LAYOUT
from oracle.cuda.archs import Device
from oracle.cuda.driver import CudaDriver, Driver
from oracle.cuda.launcher import Launch, Launched, Launcher
from oracle.errors import OracleError
from oracle.formats import DTYPES, e2m1_decode, e4m3_decode
from oracle.geometry import CacheGeometry
from oracle.quantize import GROUP, ScaleSearch
from oracle.reference import reference_write
from oracle.requests import StoreRequest
from oracle.subjects.cuda import GpuExecution, on_gpu
from oracle.subjects.source import store_writer

TOKENS = 1 << 16
"""Enough for several hundred MB, more than any cache of a GPU holds."""
PATTERN_TOKENS = 128
"""Tokens that differ; they are repeated."""
TURNS = 21
GOAL_PERCENT = 90.0


class TimedDriver(Driver, Protocol):
    """A driver that copies and tells the time."""

    def copy(self, target: int, source: int, size: int) -> None:
        """Start a copy of `size` bytes within its memory."""

    def milliseconds(self, work: Callable[[], None]) -> float:
        """How long the GPU takes over the work that a function starts."""


class BytesDiffer(Exception):
    """The store did not leave the bytes of the specification."""


class Timing:
    """Performs launches many times over, each beside a copy that moves as many bytes."""

    def __init__(self, driver: TimedDriver, moved: int, turns: int) -> None:
        self._driver = driver
        self._launcher = Launcher(driver)
        self._half = moved // 2
        self._turns = turns
        self.store: list[float] = []
        self.copy: list[float] = []

    @property
    def device(self) -> Device:
        """The GPU."""
        return self._driver.device

    def run(self, launch: Launch) -> Launched:
        """Perform a launch; `store` and `copy` are then the milliseconds of each turn."""
        driver = self._driver
        source, target = (driver.allocate(self._half) for _ in range(2))
        with self._launcher.placed(launch) as placed:
            placed.start()
            driver.copy(target, source, self._half)
            for _ in range(self._turns):
                self.store.append(driver.milliseconds(placed.start))
                self.copy.append(
                    driver.milliseconds(lambda: driver.copy(target, source, self._half))
                )
            done = placed.outcome()
        driver.free(source)
        driver.free(target)
        return done


def request_of(tokens: int, dtype: str) -> StoreRequest:
    """Tokens in order, 128 of them over and over; no byte of them depends on a reciprocal's ulp."""
    noise = np.random.default_rng(0)
    shape = (2, PATTERN_TOKENS, NUM_HEADS, HEAD_SIZE // GROUP)
    codes = noise.integers(0, 16, (*shape, GROUP), np.uint8)
    # +6 fixes the scale, +0.5 keeps the search for one from preferring another.
    codes[..., 0], codes[..., GROUP // 2] = 7, 1
    scales = noise.integers(0x28, 0x58, shape, np.uint8)
    values = e2m1_decode(codes) * e4m3_decode(scales)[..., None]
    patterns = DTYPES[dtype].encode(values).reshape(2, PATTERN_TOKENS, NUM_HEADS, HEAD_SIZE)
    key, value = (np.tile(side, (tokens // PATTERN_TOKENS, 1, 1)) for side in patterns)
    geometry = CacheGeometry(tokens // BLOCK_SIZE, BLOCK_SIZE, NUM_HEADS, HEAD_SIZE, "HND")
    slots = np.arange(tokens, dtype=np.int64)
    cache = np.zeros(geometry.cache_bytes, np.uint8)
    return StoreRequest(geometry, dtype, key, value, slots, 1.0, 1.0, cache)


def moved_bytes(request: StoreRequest) -> int:
    """What a store must read and write at the least: each input and each byte of the cache once."""
    inputs = request.key.nbytes + request.value.nbytes + request.slot_mapping.nbytes
    return inputs + request.cache.nbytes


def measure(
    driver: TimedDriver, dtype: str, search: ScaleSearch, tokens: int = TOKENS, turns: int = TURNS
) -> tuple[str, str, float, float, float, float]:
    """A row: dtype, search, ms of a store, GB/s of the store and of the copy, percent.

    Raises BytesDiffer where the store leaves other bytes than it should.
    """
    request = request_of(tokens, dtype)
    timing = Timing(driver, moved_bytes(request), turns)
    writer = store_writer(
        "store", "store", K_LAYOUT, V_LAYOUT, search, timing.device.arch, dtype
    )  # fmt: skip
    stored = on_gpu(writer, timing.device, GpuExecution(lambda: timing)).write(request)
    few = request_of(PATTERN_TOKENS, dtype)
    expected = reference_write(few, K_LAYOUT, V_LAYOUT, search)
    different = np.count_nonzero(stored.cache.reshape(-1, expected.size) != expected)
    if different or stored.faults:
        told = "; ".join((f"{different} bytes of the cache are wrong", *stored.faults[:3]))
        raise BytesDiffer(f"{dtype}, {search.value}: {told}")
    took, copying = median(timing.store), median(timing.copy)
    moved = moved_bytes(request) / 1e6
    return dtype, search.value, took, moved / took, moved / copying, 100 * copying / took


def measure_all(
    driver: TimedDriver, tokens: int = TOKENS, turns: int = TURNS
) -> tuple[Table, Goal]:  # fmt: skip
    """The store of every dtype and search, and the goal for the slowest."""
    rows = [measure(driver, d, search, tokens, turns) for d in DTYPES for search in ScaleSearch]
    moved = moved_bytes(request_of(tokens, "bf16"))
    title = f"Store of {tokens:,} tokens x {NUM_HEADS} heads x {HEAD_SIZE}"
    columns = ("dtype", "search", "store ms", "store GB/s", "copy GB/s", "%")
    notes = (
        driver.device.in_words(),
        f"medians of {turns} turns; {moved:,} bytes read and written, by the copy as well",
        "every byte of the cache was compared with the specification",
    )
    goal = Goal(
        "store against a copy", GOAL_PERCENT, "%", min(row[-1] for row in rows), at_least=True
    )
    return Table(title, columns, rows, notes), goal


def write_files(directory: Path, device: Device, table: Table, goal: Goal) -> None:
    """Write bandwidth.md and bandwidth.json."""
    directory.mkdir(parents=True, exist_ok=True)
    facts = {**environment(None), "device": device.name, "arch": device.arch,
             "driver": device.driver}  # fmt: skip
    write_json(directory / "bandwidth.json", facts, [table], [goal])
    lines = [*table.lines(), *goals_table([goal]).lines()]
    text = "\n".join(["# Bandwidth of the store kernel", "", "```text", *lines[:-1], "```", ""])
    (directory / "bandwidth.md").write_text(text, encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and give the exit code: 1 where bytes differ, 5 without a GPU."""
    parser = argparse.ArgumentParser(description="Measure the store kernel's bandwidth on a GPU.")
    parser.add_argument("--output", type=Path, metavar="DIR", help="write bandwidth.md and .json")
    arguments = parser.parse_args(argv)
    try:
        driver = CudaDriver()
        table, goal = measure_all(driver)
    except (BytesDiffer, OracleError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, OracleError) else 1
    print("\n".join([*table.lines(), *goals_table([goal]).lines()]))
    if arguments.output is not None:
        write_files(arguments.output, driver.device, table, goal)
        print(f"wrote bandwidth.md and bandwidth.json into {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
