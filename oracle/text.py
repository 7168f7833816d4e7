"""Names, counts and lists in words, the same in every rendering."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LONGEST_NAME = 120
"""Characters of a subject's or kernel's name that a report shows."""

NO_BREAK = "\N{NO-BREAK SPACE}"


_COMMAND = "##["
"""Starts a command of GitHub Actions wherever in a line of a log it stands."""


def printable(text: str) -> str:
    """`text` on one line and safe for a terminal: what cannot be printed is spelled as an escape.

    Names come from files and command lines, and may carry control sequences, or what the log of a
    CI job takes for a command.
    """
    spelled = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return spelled.replace(_COMMAND, r"#\x23[")


def shortened(name: str, longest: int = LONGEST_NAME) -> str:
    """A printable name with its middle left out where it is longer than `longest`."""
    name = printable(name)
    if len(name) <= longest:
        return name
    head = (longest - 1) // 2
    return f"{name[:head]}…{name[head + 1 - longest :]}"


def labels(names: Iterable[str], longest: int = LONGEST_NAME) -> dict[str, str]:
    """Each name shortened, with a number behind those that would look the same."""
    given: dict[str, str] = {}
    used: dict[str, int] = {}
    for name in dict.fromkeys(names):
        label = shortened(name, longest)
        used[label] = used.get(label, 0) + 1
        given[name] = label if used[label] == 1 else f"{label} #{used[label]}"
    return given


def enumerated(items: Iterable[object], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    words = [str(item) for item in items]
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 geometry`, `1,024 geometries`: the noun's plural ends in s unless given."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def percentages(shares: Sequence[float]) -> str:
    """The range of shares (0..1): `75 %`, or `75–98.6 %`, the space before % a no-break space.

    A share that is neither nothing nor all is never rounded to either.
    """
    low, high = _percentage(min(shares)), _percentage(max(shares))
    return f"{low}{NO_BREAK}%" if low == high else f"{low}–{high}{NO_BREAK}%"


def _percentage(share: float) -> str:
    percent = 100 * share
    if 0 < percent < 0.1:
        return "under 0.1"
    if 99.9 < percent < 100:
        return "over 99.9"
    return f"{percent:.1f}".removesuffix(".0")
