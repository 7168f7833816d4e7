"""Durations on a machine that others use too.

What is to be compared takes turns (A B A B ...), so that a disturbance meets all of it, and a
ratio is the median of the ratios within each turn, so that a slow turn does not count. The time
compared is that of the CPU, which does not run while another process has the core; on an idle
machine it is the time on the wall.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Duration(NamedTuple):
    """Seconds on the wall, and seconds of CPU time of this thread."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Duration:
        """The present reading of both clocks, from which only differences mean anything."""
        return cls(time.perf_counter(), time.thread_time())

    def since(self, start: Duration) -> Duration:
        """What went by from `start` to this reading."""
        return Duration(self.wall - start.wall, self.cpu - start.cpu)


Case = Callable[[], Mapping[str, Duration]]
"""Does its work once and returns named durations."""

_LEAST_SECONDS = 5e-3


@dataclass(frozen=True)
class Samples:
    """The readings of each name, one a turn."""

    readings: Mapping[str, Sequence[Duration]]

    def cpu(self, name: str) -> float:
        """The median CPU time of a name, in seconds."""
        return statistics.median(reading.cpu for reading in self.readings[name])

    def wall(self, name: str) -> float:
        """The median time on the wall, in seconds."""
        return statistics.median(reading.wall for reading in self.readings[name])

    def spread(self, name: str) -> float:
        """Distance between the quartiles of the CPU time, as a fraction of its median."""
        readings = [reading.cpu for reading in self.readings[name]]
        first, middle, third = statistics.quantiles(readings, method="inclusive")
        return (third - first) / middle

    def ratio(self, name: str, other: str) -> float:
        """How many times the CPU time of `other` is that of `name`: the median over the turns."""
        pairs = zip(self.readings[name], self.readings[other], strict=True)
        return statistics.median(a.cpu / b.cpu for a, b in pairs)

    @property
    def core_share(self) -> float:
        """CPU time per time on the wall, over all readings: 1 where nobody disturbed."""
        every = [reading for readings in self.readings.values() for reading in readings]
        return sum(reading.cpu for reading in every) / sum(reading.wall for reading in every)


def take_turns(cases: Sequence[Case], turns: int) -> Samples:
    """Run the cases one after the other, `turns` (at least 2) times, once more to warm up."""
    for case in cases:
        case()
    readings: dict[str, list[Duration]] = {}
    for _ in range(turns):
        for case in cases:
            for name, duration in case().items():
                readings.setdefault(name, []).append(duration)
    return Samples(readings)


def clocked(name: str, work: Callable[[], object]) -> Case:
    """A case that times `work`, repeated within a turn where it is too short for the clock."""
    count = max(1, round(_LEAST_SECONDS / max(_mean(work, 1).cpu, 1e-6)))
    return lambda: {name: _mean(work, count)}


def _mean(work: Callable[[], object], count: int) -> Duration:
    start = Duration.now()
    for _ in range(count):
        work()
    total = Duration.now().since(start)
    return Duration(total.wall / count, total.cpu / count)
