"""What a session and its workers tell each other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from oracle.fuzz.coverage import Coverage
from oracle.fuzz.failure import Failure, Key
from oracle.properties.strategies import DEFAULT_LIMITS, Limits


@dataclass(frozen=True)
class Task:
    """What one worker of a session does.

    It executes what is `doubtful`, failures that were known, and then, if it is to `remember`, what
    the database holds. Then it begins the rounds `first`, `first + step`, … of `seed`, until it is
    told to end or has executed `examples`. What is `known` it does not look for; of a promise it
    keeps at most `cap` failures. Cases are drawn within `limits`. It works for the process whose id
    is `session`.
    """

    seed: int
    first: int
    step: int
    cap: int
    database: Path
    session: int
    limits: Limits = DEFAULT_LIMITS
    examples: int | None = None
    known: tuple[Key, ...] = ()
    doubtful: tuple[Failure, ...] = ()
    remember: bool = False


class Order(Enum):
    """What a session tells a worker: to finish what it shrinks, or to stop at once."""

    FINISH = "finish"
    STOP = "stop"


@dataclass
class Tally:
    """What a worker did since it told so last; `rounds` is one more than the latest round."""

    coverage: Coverage
    examples: int = 0
    refused: int = 0
    rounds: int = 0
    times: Counter[Key] = field(default_factory=Counter)
    beyond: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Rechecked:
    """Whether a failure that was known still fails."""

    key: Key
    fails: bool


@dataclass(frozen=True)
class Ready:
    """What was known is executed, by the worker that was to `remember`: the search begins."""


@dataclass(frozen=True)
class Ended:
    """The last that a worker tells. `exit_code` is that of an `error`, and 0 without one."""

    error: str = ""
    exit_code: int = 0


Told: TypeAlias = Tally | Rechecked | Failure | Ready | Ended
"""From a worker to its session."""
Asked: TypeAlias = Order | Key
"""From a session to a worker; a key is that of a failure somebody else found."""
