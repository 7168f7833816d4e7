"""How much of what a writer and a reader share they disagree about.

A disagreement is about the positions that were found on both sides; an agreement counts all.
"""

from __future__ import annotations

from collections.abc import Iterable

from oracle.verdict import Agreement, Configuration, Finding


class Extents:
    """The positions of scales that pairs of subjects can be compared at."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._recovered: dict[tuple[str, str, Configuration], int] = {
            (f.subject, f.side, f.configuration): f.recovered
            for f in findings
            if f.plane == "scale" and f.positions
        }

    def found(self, pair: Agreement) -> int:
        """Positions found in both; where both lack some, the most that it can be."""
        return max(pair.disagreeing, min(self._each(pair)))

    def share(self, pair: Agreement) -> float:
        """The share (0..1) of the positions found that differ."""
        return pair.disagreeing / self.found(pair)

    def in_words(self, pair: Agreement) -> str:
        """`96 of 128`, or `1 of the 8 found; 120 not found`."""
        found = self.found(pair)
        if found == pair.positions:
            return f"{pair.disagreeing:,} of {pair.positions:,}"
        lost = pair.positions - found
        if max(self._each(pair)) < pair.positions:
            return f"{pair.disagreeing:,} of at most {found:,} found; at least {lost:,} not found"
        return f"{pair.disagreeing:,} of the {found:,} found; {lost:,} not found"

    def _each(self, pair: Agreement) -> tuple[int, int]:
        """Positions found in the writer and in the reader."""
        writer, reader = (
            self._recovered.get((subject, pair.side, pair.configuration), pair.positions)
            for subject in (pair.writer, pair.reader)
        )
        return writer, reader
