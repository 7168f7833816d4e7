"""Which failures need not be found again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from oracle.fuzz.failure import Key


class Known:
    """The failures that were found, and the cap on them: of each promise at most `cap`.

    `times` counts the cases that showed one of them again, `beyond` those that would have been one
    too many, by promise.
    """

    def __init__(self, cap: int, keys: Iterable[Key] = ()) -> None:
        self.cap = cap
        self.keys = set(keys)
        self.times: Counter[Key] = Counter()
        self.beyond: Counter[str] = Counter()

    def is_new(self, key: Key) -> bool:
        """Whether a failure is worth a search."""
        return key not in self.keys and not self._is_full(key.promise)

    def _is_full(self, promise: str) -> bool:
        return sum(key.promise == promise for key in self.keys) >= self.cap

    def count(self, seen: Collection[Key]) -> None:
        """Count a case that showed failures which are not new, each of them once."""
        self.times.update(key for key in seen if key in self.keys)
        full = {key.promise for key in seen if key not in self.keys and self._is_full(key.promise)}
        self.beyond.update(full)

    def take_counts(self) -> tuple[Counter[Key], Counter[str]]:
        """What `times` and `beyond` counted so far; they begin anew."""
        taken = self.times, self.beyond
        self.times, self.beyond = Counter(), Counter()
        return taken
