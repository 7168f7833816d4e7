"""Who looks elsewhere than whom stored: one line for each reader, side and extent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oracle.geometry import SIDES
from oracle.report.digest import (
    at_head_sizes,
    configuration_in_words,
    head_sizes,
    misplacement_in_words,
    place,
    smallest_case,
)
from oracle.report.extents import Extents
from oracle.report.parties import Names, Party
from oracle.text import percentages
from oracle.verdict import Agreement, Verdict


@dataclass(frozen=True)
class Disagreement:
    """A reader against writers that it contradicts on one side in the same way.

    `pairs` are the geometries in which the first of them is contradicted, `compared_sizes` the head
    sizes at which it was compared; `extents` tells how many positions were found.
    """

    reader: str
    side: str
    parties: tuple[Party, ...]
    pairs: tuple[Agreement, ...]
    compared_sizes: tuple[int, ...]
    extents: Extents

    @property
    def judged(self) -> bool:
        """Whether it is a fault: the agreement was declared or asked for."""
        return any(pair.judged for pair in self.pairs)

    @property
    def sizes(self) -> list[int]:
        """The head sizes at which they disagree, rising."""
        return head_sizes(self.pairs)

    @property
    def shares(self) -> list[float]:
        """The share of the positions found that differ, for each geometry."""
        return [self.extents.share(pair) for pair in self.pairs]

    @property
    def complete(self) -> bool:
        """Whether every position was found on both sides."""
        return all(self.extents.found(pair) == pair.positions for pair in self.pairs)

    @property
    def smallest(self) -> Agreement:
        """The case with the smallest plane."""
        return smallest_case(self.pairs)


def disagreements(verdict: Verdict, parties: Sequence[Party]) -> list[Disagreement]:
    """Every disagreement, by reader and side; parties contradicted in the same way share one.

    The readers that fit no writer come first.
    """
    found: list[Disagreement] = []
    extents = Extents(verdict.findings)
    for reader in _readers(verdict):
        for side in SIDES:
            alike: dict[object, list[Party]] = {}
            for party in parties:
                compared = _compared(party, reader, side)
                key = tuple(
                    (place(p.configuration), p.status, p.disagreeing, extents.found(p))
                    for p in compared
                )
                differing = [pair for pair in compared if pair.status == "disagree"]
                shown = _shown(smallest_case(differing)) if differing else ""
                alike.setdefault((key, shown), []).append(party)
            for group in alike.values():
                compared = _compared(group[0], reader, side)
                pairs = tuple(pair for pair in compared if pair.status == "disagree")
                if pairs:
                    sizes = tuple(head_sizes(compared))
                    found.append(Disagreement(reader, side, tuple(group), pairs, sizes, extents))
    return found


def _readers(verdict: Verdict) -> list[str]:
    differing: dict[str, set[str]] = {}
    compared: dict[str, set[str]] = {}
    for pair in verdict.agreements:
        compared.setdefault(pair.reader, set()).add(pair.writer)
        if pair.status == "disagree":
            differing.setdefault(pair.reader, set()).add(pair.writer)
    return sorted(compared, key=lambda reader: differing.get(reader) != compared[reader])


def _compared(party: Party, reader: str, side: str) -> list[Agreement]:
    return [pair for pair in party.agreements if (pair.reader, pair.side) == (reader, side)]


def _shown(pair: Agreement) -> str:
    return misplacement_in_words(pair.witness, pair.side) if pair.witness else ""


def in_words(one: Disagreement, writers: str, names: Names) -> str:
    """One line: whom, on which side, at which head sizes, how much of it, and the smallest case."""
    case = one.smallest
    shown = f", {_shown(case)}" if case.witness else ""
    where = configuration_in_words(case.configuration)
    return (
        f"{names.of([one.reader])} disagrees with {writers} on {one.side} "
        f"{at_head_sizes(one.sizes, one.compared_sizes)}: {percentages(one.shares)}, "
        f"{_counts(one)}; at {where}{shown}"
    )


def _counts(one: Disagreement) -> str:
    """`96 of 128 positions`, or `96 of 128 to 9,088 of 9,216 positions`, the found ones apart."""
    by_size = sorted(one.pairs, key=lambda pair: (pair.positions, pair.disagreeing))
    words = list(dict.fromkeys(map(one.extents.in_words, by_size)))
    counts = words[0] if len(words) == 1 else f"{words[0]} to {words[-1]}"
    return f"{counts} positions" if one.complete else counts
