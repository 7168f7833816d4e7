"""Speed of the reference quantiser and of the admissible sets, in elements a second on one core."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from oracle.formats import DTYPES
from oracle.numerics.admissible import admissible
from oracle.quantize import GROUP, ScaleSearch, quantize

GROUPS = 1 << 16
TURNS = 7
SCALES = (1.0, 0.0137)
GOALS = {"quantize": 20e6, "admissible": 5e6}
"""The least elements a second that each is meant to do."""


def rate(work: Callable[[], object]) -> float:
    """Elements a second of processor time: the best of some turns, since others compute as well."""
    best = np.inf
    for _ in range(TURNS):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return GROUPS * GROUP / best


def main() -> int:
    """Print the table; 1 where a goal is missed."""
    values = np.random.default_rng(0).standard_normal((GROUPS, GROUP), np.float32)
    met = True
    print(f"{'':12}{'dtype':7}{'search':8}{'scale':>8}{'M elements/s':>14}{'goal':>7}")
    for dtype, verbs in DTYPES.items():
        x = verbs.decode(verbs.encode(values))
        for search in ScaleSearch:
            for scale in SCALES:
                for function in (quantize, admissible):
                    name = function.__name__
                    found = rate(lambda f=function, s=scale, q=search, v=x: f(v, s, q))  # type: ignore[misc]
                    met &= found >= GOALS[name]
                    print(
                        f"{name:12}{dtype:7}{search.value:8}{scale:8g}"
                        f"{found / 1e6:14.1f}{GOALS[name] / 1e6:7g}"
                    )
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
