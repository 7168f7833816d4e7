"""Checks of a JSON document, one for each kind of field, with limits on all that can grow.

A check takes a value and where it stands, such as `findings[3].status`, and gives the value with
its type known, or raises UsageError with one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable
from typing import NoReturn, TypeAlias, TypeVar

from oracle.errors import UsageError
from oracle.text import shortened

T = TypeVar("T")
Check: TypeAlias = Callable[[object, str], T]

LONGEST_TEXT = 20_000
"""Characters of a name, a kernel's mangled name or a reason."""
MOST = 2**48
"""No count, size or offset is larger."""


def refuse(where: str, what: str) -> NoReturn:
    """Raise UsageError for what stands at `where`."""
    raise UsageError(f"{where}: {what}")


def _shown(value: object) -> str:
    return shortened(repr(value), 40)


def record(
    value: object, where: str, names: Collection[str], optional: Collection[str] = ()
) -> dict[str, object]:
    """An object with these fields and no others; the optional ones may be missing."""
    if not isinstance(value, dict):
        refuse(where, f"{_shown(value)} is no object")
    missing = [name for name in names if name not in value]
    unknown = [name for name in value if name not in names and name not in optional]
    if missing:
        refuse(where, f"there is no {missing[0]!r}")
    if unknown:
        refuse(where, f"no field is called {_shown(unknown[0])}")
    return value


def integer(least: int = 0, most: int = MOST) -> Check[int]:
    """A whole number within limits; true and false are none."""

    def check(value: object, where: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            refuse(where, f"{_shown(value)} is no whole number from {least} to {most}")
        return value

    return check


def text(value: object, where: str) -> str:
    """A text that is neither empty nor too long."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_TEXT:
        refuse(where, f"{_shown(value)} is no text of 1 to {LONGEST_TEXT} characters")
    return value


def spelled(pattern: str) -> Check[str]:
    """A text that is all of a pattern."""

    def check(value: object, where: str) -> str:
        if re.fullmatch(pattern, text(value, where), re.ASCII) is None:
            refuse(where, f"{_shown(value)} is not of the form {pattern}")
        return str(value)

    return check


def one_of(names: Collection[str]) -> Check[str]:
    """One of a few names."""

    def check(value: object, where: str) -> str:
        if not isinstance(value, str) or value not in names:
            refuse(where, f"{_shown(value)} is none of {', '.join(names)}")
        return value

    return check


def boolean(value: object, where: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        refuse(where, f"{_shown(value)} is neither true nor false")
    return value


def optional(check: Check[T]) -> Check[T | None]:
    """What `check` takes, or null."""
    return lambda value, where: None if value is None else check(value, where)


def many(check: Check[T], most: int, least: int = 0) -> Check[tuple[T, ...]]:
    """A list of `least` to `most` entries."""

    def check_all(value: object, where: str) -> tuple[T, ...]:
        if not isinstance(value, list):
            refuse(where, f"{_shown(value)} is no list")
        if not least <= len(value) <= most:
            refuse(where, f"a list of {len(value):,} entries: give {least:,} to {most:,}")
        return tuple(check(entry, f"{where}[{place}]") for place, entry in enumerate(value))

    return check_all


def distinct(check: Check[T], most: int, least: int = 0) -> Check[tuple[T, ...]]:
    """A list of entries that all differ."""
    of_any = many(check, most, least)

    def check_all(value: object, where: str) -> tuple[T, ...]:
        entries = of_any(value, where)
        unique(entries, where)
        return entries

    return check_all


def unique(keys: Collection[Hashable], where: str) -> None:
    """Refuse keys of which one is there twice."""
    if len(set(keys)) < len(keys):
        refuse(where, "an entry is there twice")
