"""The releases of a package in a range, oldest first, with a row made of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from oracle.errors import NothingRan
from oracle.run import Progress
from oracle.subjects.release import (
    PACKAGE,
    ArtifactOptions,
    published_versions,
    version_key,
    versions_at_hand,
)


class Released(Protocol):
    """What a row of any timeline says of its release.

    `holds` is None where the wheel could not be had, False where nothing of interest is in it; the
    `note` says why.
    """

    @property
    def version(self) -> str:
        """The release."""

    @property
    def holds(self) -> bool | None:
        """Whether there is something in it."""

    @property
    def note(self) -> str | None:
        """Why there is not."""


_Row = TypeVar("_Row", bound=Released)


def versions_between(
    first: str, last: str, options: ArtifactOptions, package: str = PACKAGE
) -> list[str]:
    """The releases from `first` to `last`, either of which may be empty; offline those at hand.

    Raises UsageError where they cannot be listed, NothingRan where there are none.
    """
    known = versions_at_hand(options, package) if options.offline else published_versions(package)
    low, high = version_key(first), version_key(last)
    chosen = [v for v in known if low <= version_key(v) and (not last or version_key(v) <= high)]
    if not chosen:
        where = "at hand" if options.offline else "published"
        raise NothingRan(
            f"no release from {first or 'the first'} to {last or 'the latest'} is {where} "
            f"(there are: {', '.join(known) or 'none'})"
        )
    return chosen


def rows_between(
    versions: Sequence[str],
    row_of: Callable[[str], _Row],
    compared: Callable[[_Row, _Row], _Row],
    package: str,
    progress: Progress | None = None,
) -> list[_Row]:
    """A row for each release, `compared` with the one before that holds something.

    Raises NothingRan where no wheel could be had.
    """
    rows: list[_Row] = []
    before: _Row | None = None
    for index, version in enumerate(versions):
        if progress is not None:
            progress(index, len(versions), f"{package} {version}")
        row = row_of(version)
        if row.holds:
            row = row if before is None else compared(row, before)
            before = row
        rows.append(row)
    if all(row.holds is None for row in rows):
        raise NothingRan(f"no release could be had; {rows[0].version}: {rows[0].note}")
    return rows
