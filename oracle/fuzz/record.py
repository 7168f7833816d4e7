"""What a session knows: how much was executed, what was visited, which failures there are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from oracle.fuzz.coverage import Coverage
from oracle.fuzz.failure import Failure, Key
from oracle.fuzz.messages import Tally


@dataclass
class Entry:
    """A known failure.

    `times` counts the cases that showed it, those of its shrinking left out. `fails` says whether
    its case failed when it was last executed.
    """

    failure: Failure
    times: int = 1
    fails: bool = True


@dataclass
class Record:
    """What a session learned over all its runs.

    `rounds` were begun, so the next run goes on with others; `examples` were executed in `seconds`,
    `refused` of them by the subject's host side, by name. `beyond` counts, by promise, the cases of
    failures beyond the cap.
    """

    seed: int
    coverage: Coverage
    rounds: int = 0
    examples: int = 0
    refused: int = 0
    seconds: float = 0.0
    entries: dict[Key, Entry] = field(default_factory=dict)
    beyond: Counter[str] = field(default_factory=Counter)

    @property
    def failing(self) -> list[Entry]:
        """The failures that failed when they were last executed."""
        return [entry for entry in self.entries.values() if entry.fails]

    def add(self, failure: Failure) -> bool:
        """Keep a failure unless a smaller case of it is known; whether it was kept."""
        entry = self.entries.get(failure.key)
        if entry is None:
            self.entries[failure.key] = Entry(failure)
            return True
        entry.times += 1
        known = entry.failure
        better = (not failure.shrunk, failure.size) < (not known.shrunk, known.size)
        kept = better or not entry.fails
        if kept:
            entry.failure, entry.fails = failure, True
        return kept

    def merge(self, tally: Tally) -> None:
        """Add what a worker did."""
        self.coverage.merge(tally.coverage)
        self.examples += tally.examples
        self.refused += tally.refused
        self.rounds = max(self.rounds, tally.rounds)
        self.beyond += tally.beyond
        for key, times in tally.times.items():
            if key in self.entries:
                self.entries[key].times += times
