"""Speed of the reference quantiser and of the admissible sets, in elements a second on one core."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.output import Cell, Goal, Heading, Table
from benchmarks.sampling import clocked, take_turns
from oracle.formats import DTYPES
from oracle.numerics.admissible import admissible
from oracle.quantize import GROUP, ScaleSearch, quantize

GROUPS = 1 << 14
SCALES = (1.0, 0.0137)
GOALS = {"quantize": 20.0, "admissible": 5.0}
"""The least million elements a second that each is meant to do."""
HEADING = Heading("Reference quantisers", ("function", "dtype", "search", "scale", "Melement/s"))


def rates(turns: int) -> tuple[Table, list[Goal]]:
    """Every function, dtype, search and scale; and the slowest of each function."""
    noise = np.random.default_rng(0).standard_normal((GROUPS, GROUP), np.float32)
    rows: list[tuple[Cell, ...]] = []
    slowest: dict[str, float] = {}
    for function in (quantize, admissible):
        for dtype, verbs in DTYPES.items():
            values = verbs.decode(verbs.encode(noise))
            for search in ScaleSearch:
                for scale in SCALES:
                    rate = _rate(lambda v=values, s=scale, q=search, f=function: f(v, s, q), turns)
                    name = function.__name__
                    slowest[name] = min(rate, slowest.get(name, rate))
                    rows.append((name, dtype, search.value, f"{scale:g}", rate))
    goals = [
        Goal(name, limit, "M elements/s", slowest[name], at_least=True)
        for name, limit in GOALS.items()
    ]
    return HEADING.table(rows, (f"CPU time, medians over turns: {turns}",)), goals


def _rate(work: Callable[[], object], turns: int) -> float:
    return GROUPS * GROUP / take_turns([clocked("it", work)], turns).cpu("it") / 1e6
