"""What a search finds: a promise broken in one way, and the smallest case that shows it.

Two violations are the same failure where promise and kind of defect are the same: their messages
name coordinates, and one fault gives as many of them as there are cases.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from oracle.properties.case import StoreCase
from oracle.properties.promise import Violation
from oracle.text import printable

MAX_DEFECT = 120
"""Characters of a kind of defect: a subject's own message may be longer."""
UNSTEADY_ATTEMPTS = 20

_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_CIRCUMSTANCES = re.compile(r": |, given ")


class Key(NamedTuple):
    """What tells failures apart: the promise, and the kind of defect."""

    promise: str
    defect: str


ANY = "any"
"""The promise of a key where a store has no outcome, which breaks all promises at once."""


def key_of(violation: Violation) -> Key:
    """The key of a violation: side, plane and what is wrong there, without any coordinate."""
    witness = violation.witness
    parts = [str(witness[name]) for name in ("side", "plane", "where", "note") if name in witness]
    if parts:
        return Key(violation.promise, _kind(" ".join(parts)))
    # What has no coordinate says what happened, and then what it happened with.
    return Key(ANY, _kind(_CIRCUMSTANCES.split(violation.reason, maxsplit=1)[0]))


def _kind(text: str) -> str:
    return _NUMBER.sub("#", printable(text))[:MAX_DEFECT]


@dataclass(frozen=True)
class Failure:
    """A case that breaks a promise, and how.

    `shrunk` says that no smaller case was found in a whole search; it is False where the search was
    stopped. `steady` is False where the same case did not fail when it was executed again.
    """

    case: StoreCase
    violation: Violation
    shrunk: bool = True
    steady: bool = True

    @property
    def key(self) -> Key:
        """What tells it from others."""
        return key_of(self.violation)

    @property
    def attempts(self) -> int:
        """How often its case is executed before it counts as one that fails no longer."""
        return 1 if self.steady else UNSTEADY_ATTEMPTS

    @property
    def size(self) -> tuple[int, int]:
        """What is to be small: bytes of the cache, tokens stored."""
        return self.case.geometry.cache_bytes, len(self.case.slots)
