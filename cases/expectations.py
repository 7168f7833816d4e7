"""Failures that are known: files that say which promises which subject is expected to break.

A file of `expected/` is a heading and then one promise a line, with the reason:

    # Anything after a hash.
    subject: vllm==0.2[0-3]*
    reader: trtllm-gen
    bijective: its host side lets head sizes pass that V's swizzle does not fit

`subject` is a glob of the spec that was asked for, or of a writer's id; `reader` one of the spec of
the reader, and may be left out for any and for none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from oracle.errors import UsageError
from oracle.properties.promises import PROMISES


class Stale(UserWarning):
    """An expected failure that did not happen."""


@dataclass(frozen=True)
class Expectation:
    """The promises that subjects matching a glob are expected to break, each with its reason."""

    path: Path
    subject: str
    reader: str | None
    promises: Mapping[str, str]

    def concerns(self, names: tuple[str, ...], reader: str | None) -> bool:
        """Whether a subject of these names beside a reader is meant."""
        fits = self.reader is None or (reader is not None and fnmatchcase(reader, self.reader))
        return fits and any(fnmatchcase(name, self.subject) for name in names)


def expectations(directory: Path) -> list[Expectation]:
    """What the files of a directory say. Raises UsageError for what is not understood."""
    if not directory.is_dir():
        raise UsageError(f"{directory} is no directory of expected failures")
    return [_parse(path) for path in sorted(directory.glob("*.txt"))]


def _parse(path: Path) -> Expectation:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    told: dict[str, str] = {}
    for number, name, value in _entries(path, text):
        if name not in PROMISES and name not in ("subject", "reader"):
            raise UsageError(f"{path}:{number}: no promise is called {name!r}")
        if name in told:
            raise UsageError(f"{path}:{number}: {name} stands there twice")
        told[name] = value
    if "subject" not in told:
        raise UsageError(f"{path} does not say which subject it is about")
    promises = {name: value for name, value in told.items() if name in PROMISES}
    return Expectation(path, told["subject"], told.get("reader"), promises)


def _entries(path: Path, text: str) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.partition("#")[0].strip()
        name, colon, value = (part.strip() for part in stripped.partition(":"))
        if not stripped:
            continue
        if not colon or not value:
            raise UsageError(f"{path}:{number}: {line.strip()!r} is not of the form NAME: REASON")
        yield number, name, value
