"""Writes a verdict's files: verdict.json and verdict.md, whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oracle import __version__
from oracle.errors import UsageError
from oracle.files import replace_files
from oracle.report.markdown import FAULTS_PER_SUBJECT, as_markdown
from oracle.report.sections import outline
from oracle.verdict import Verdict, as_document

JSON_NAME = "verdict.json"
MARKDOWN_NAME = "verdict.md"
TITLE = "Layout verdict"
TOOL = {"name": "layout-oracle", "version": __version__}


def as_json(verdict: Verdict, exit_code: int) -> str:
    """The document that reports/schema/verdict.schema.json describes, in ASCII.

    `exit_code` is that of the run, which may ask for more than the verdict alone does.
    """
    return dump({**as_document(verdict, TOOL), "exit_code": exit_code})


def dump(document: Mapping[str, Any]) -> str:
    """One of the tool's JSON documents as text: a field, or an object of a list, on each line.

    Raises ValueError for a number that JSON does not have.
    """
    fields = [f" {json.dumps(name)}: {_value(value)}" for name, value in document.items()]
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _value(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        lines = ",\n  ".join(json.dumps(entry, allow_nan=False) for entry in value)
        return f"[\n  {lines}\n ]"
    return json.dumps(value, allow_nan=False)


def check_directory(directory: Path) -> None:
    """Refuse early, before anything ran, a directory that cannot be made; makes nothing.

    Raises UsageError.
    """
    existing = directory
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise UsageError(f"--output {directory}: {existing} is no directory: name another")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UsageError(f"--output {directory}: {existing} cannot be written to: name another")


def write_files(verdict: Verdict, exit_code: int, directory: Path) -> tuple[Path, ...]:
    """Write both files into `directory`, making it where needed; gives their paths.

    Everything is rendered and written beside its place first, and only then renamed into it, so
    that no reader ever finds half a file, and a failure leaves the old files. Raises UsageError
    where the directory cannot be written to.
    """
    sections = outline(verdict, exit_code, FAULTS_PER_SUBJECT)
    contents = {
        directory / JSON_NAME: as_json(verdict, exit_code),
        directory / MARKDOWN_NAME: as_markdown(TITLE, sections),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        replace_files(contents)
    except OSError as error:
        raise UsageError(
            f"--output {directory} cannot be written to: {error.strerror or error}"
        ) from error
    return tuple(contents)
