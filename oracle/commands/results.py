"""Leaves results in files that a user named."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from oracle.errors import UsageError
from oracle.files import replace_files
from oracle.text import printable


def write_results(contents: Mapping[Path, str], directory: Path | None = None) -> None:
    """Write files, all of them or none, and say which were written.

    A `directory` that they are in is made where it is missing. Raises UsageError where something
    cannot be written.
    """
    try:
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
        replace_files(contents)
    except OSError as error:
        where = ", ".join(map(str, contents))
        raise UsageError(f"{where} cannot be written to: {error.strerror or error}") from error
    for path in contents:
        print(printable(f"wrote {path}"), file=sys.stderr)
