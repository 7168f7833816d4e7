"""JSON files of sessions: read with a limit, written whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from oracle.errors import UsageError
from oracle.files import read_at_most, replace_files


def read_json(path: Path, most: int) -> Any:
    """What a JSON file of at most `most` bytes holds.

    Raises UsageError where it cannot be read, is too large, or is no JSON.
    """
    data = read_at_most(path, most)
    if len(data) > most:
        raise UsageError(f"{path} is larger than {most} bytes: not a file of this tool")
    try:
        return json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON: {error}") from error


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all. Raises UsageError where that fails."""
    try:
        replace_files({path: text})
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
