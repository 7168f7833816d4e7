"""Measures MUFU.RCP on the GPU at hand and writes its table: `python dump.py FILE`.

Every one of the 2^23 mantissas is measured. Then values of all exponents and both signs, and those
at the ends of the range, are measured and compared with the model that is made of the table, so
that what the table does not hold, exponents and flushing, is not merely assumed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))

from oracle.cuda.launcher import Buffer, Launch
from oracle.cuda.process import gpu_process
from oracle.errors import OracleError, UsageError
from oracle.machine.reciprocal_table import (
    MANTISSAS,
    deltas_of,
    rcp_from_table,
    write_table,
)
from oracle.subjects.cuda import Gpu
from oracle.toolchain import compile_cuda

SOURCE = Path(__file__).with_name("rcp_dump.cu")
CHECKED = 1 << 22
THREADS = 256


class Device(Protocol):
    """What runs the kernels of rcp_dump.cu."""

    def run(self, kernel: str, count: int, values: NDArray[np.uint32] | None) -> NDArray[np.uint32]:
        """The result of a kernel over `count` threads."""


class Kernels:
    """The kernels of rcp_dump.cu, compiled for a GPU. Raises NothingRan where there is none."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._arch = gpu.device.arch
        self._image = compile_cuda(SOURCE.read_text(encoding="utf-8"), self._arch, name=SOURCE.name)

    def run(self, kernel: str, count: int, values: NDArray[np.uint32] | None) -> NDArray[np.uint32]:
        """Run a kernel (result, [values,] count) over `count` threads: its result, uint32 [count].

        Raises OracleError where the GPU or its driver fails.
        """
        buffers = [Buffer("result", np.zeros(4 * count, np.uint8), writable=True)]
        if values is not None:
            buffers.append(Buffer("values", values.view(np.uint8)))
        pointers = {8 * place: buffer.name for place, buffer in enumerate(buffers)}
        params = bytes(8 * len(buffers)) + count.to_bytes(4, "little")
        grid = (-(-count // THREADS), 1, 1)
        launch = Launch(
            self._image, self._arch, kernel, grid, (THREADS, 1, 1), params, pointers, buffers
        )
        return self._gpu.run(launch).contents["result"].view(np.uint32)


def measure(device: Device, count: int = MANTISSAS) -> NDArray[np.int64]:
    """How far the first `count` mantissas' reciprocals are from the right ones, in ulps."""
    return deltas_of(device.run("rcp_of_mantissas", count, None))


def disagreements(device: Device, table: Path, count: int = CHECKED) -> NDArray[np.uint32]:
    """The bit patterns, of `count` drawn ones and the ends of the range, a table is wrong about."""
    drawn = np.random.default_rng(0).integers(0, 1 << 32, count, np.uint32)
    ends = np.array([2.0**-126, 2.0**126, 2.0**127, 1.0, 3.0], np.float32).view(np.uint32)
    around = (ends[:, None].astype(np.int64) + np.arange(-8, 9)).astype(np.uint32).ravel()
    special = np.array([0, 1, 0x007FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7FC00000], np.uint32)
    values = np.concatenate([drawn, around, special])
    values = np.concatenate([values, values ^ np.uint32(0x80000000)])
    measured = device.run("rcp_of_values", len(values), values).view(np.float32)
    with np.errstate(all="ignore"):
        predicted = rcp_from_table(table)(values.view(np.float32))
    same = measured.view(np.uint32) == predicted.view(np.uint32)
    wrong: NDArray[np.uint32] = values[~same & ~(np.isnan(measured) & np.isnan(predicted))]
    return wrong


def write_measured(gpu: Gpu, path: Path) -> int:
    """Measure a GPU, write its table, and check it: how many values the table is wrong about."""
    kernels, device = Kernels(gpu), gpu.device
    deltas = measure(kernels)
    about = {"device": device.name, "arch": device.arch, "driver": device.driver}
    write_table(path, np.clip(deltas, -128, 127).astype(np.int8), about)
    counts = {ulps: int(np.count_nonzero(deltas == ulps)) for ulps in (-1, 0, 1)}
    print(f"{device.in_words()}: ulps from the right result, and how often: {counts}")
    print(f"wrote {path}, {path.stat().st_size:,} bytes")
    wrong = disagreements(kernels, path)
    print(f"of {CHECKED:,} drawn values and their negatives the table is wrong about {wrong.size}")
    for bits in wrong[:8]:
        print(f"  1/{bits.view(np.float32)!r} ({bits:#010x})")
    return wrong.size


def main(arguments: Sequence[str]) -> int:
    """Measure, write and check; the exit code."""
    if len(arguments) != 1:
        raise UsageError("usage: python benchmarks/rcp_dump/dump.py FILE")
    return int(write_measured(gpu_process(), Path(arguments[0])) > 0)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OracleError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
