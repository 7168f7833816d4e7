"""How many lanes are run together changes nothing: neither the cache nor any single store."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from test_user_kernels import GEOMETRIES, Source, expected, from_nvrtc, lowered, request

from oracle.machine.launch import Program, Statistics
from oracle.subjects.base import SubjectInfo
from oracle.subjects.binary import MachineWriter

ARCH, LEVEL = "sm_100a", 3
KERNELS = ("device_calls", "grid_stride", "shared_amax", "split_sides", "vector_loads")


@dataclass
class Chunked:
    """A program that runs so many lanes together, whatever its caller says."""

    program: Program
    lanes: int
    statistics: Statistics | None = None

    def launch(self, *launch: Any, **how: Any) -> Statistics:
        how["chunk_lanes"] = self.lanes
        self.statistics = self.program.launch(*launch, **how)
        return self.statistics


def stores(name: str, lanes: int) -> tuple[np.ndarray, list[tuple[int, int]], Statistics]:
    """The cache, every byte stored (in no order), and what the launch cost."""
    source = Source.read(name)
    cubin = from_nvrtc(ARCH, LEVEL)[0]
    writer = MachineWriter(SubjectInfo(name, "writer", name, "machine"), cubin, name)
    chunked = Chunked(Program(lowered(ARCH, LEVEL, name)), lanes)
    writer.program = chunked
    asked = request(GEOMETRIES[1], source.dtype)
    stored = writer.write(asked)
    assert (stored.cache == expected(asked, source)).all()
    pairs = zip(stored.stores.offset.tolist(), stored.stores.value.tolist(), strict=True)
    assert chunked.statistics is not None
    return stored.cache, sorted(pairs), chunked.statistics


@pytest.mark.parametrize("name", KERNELS)
def test_the_number_of_lanes_together(name: str) -> None:
    cache, written, statistics = stores(name, 8192)
    for lanes in (32, 100, 1000):
        other_cache, other_written, other = stores(name, lanes)
        assert (other_cache == cache).all()
        assert other_written == written
        assert other.lanes == statistics.lanes
        # The same work, issued to fewer lanes at a time.
        assert other.lane_instructions == statistics.lane_instructions
        assert other.steps >= statistics.steps
