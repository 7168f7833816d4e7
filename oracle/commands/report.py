"""`report`: a verdict.json shown again, in any of the forms that a verdict has."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from oracle.errors import UsageError
from oracle.files import replace_files
from oracle.report import document, kerneltable, terminal
from oracle.report.html.page import as_html
from oracle.report.junit import as_junit
from oracle.report.markdown import FAULTS_PER_SUBJECT, as_markdown
from oracle.report.parse import Document, read
from oracle.report.sections import outline
from oracle.text import printable

_STANDARD_OUTPUT = "-"


def run(arguments: argparse.Namespace) -> int:
    """Write what is asked for, or print the report; raises UsageError for a file that is none."""
    asked: dict[str, str] = {
        option: path for option in RENDERERS if (path := getattr(arguments, option)) is not None
    }
    _check(asked, arguments.verdict, arguments.json)
    _check_file(arguments.verdict)
    found = read(arguments.verdict)
    made = {path: RENDERERS[option](found) for option, path in asked.items()}
    printed = made.pop(_STANDARD_OUTPUT, None)
    if arguments.json:
        printed = document.as_json(found.verdict, found.exit_code)
    _write(made)
    if printed is not None:
        sys.stdout.write(printed)
    elif not asked:
        sections = kerneltable.sections(found.verdict)
        sections += outline(found.verdict, found.exit_code, terminal.FAULTS_PER_SUBJECT)
        terminal.show(sections, terminal.console())
    return 0


def _markdown(found: Document) -> str:
    sections = outline(found.verdict, found.exit_code, FAULTS_PER_SUBJECT)
    return as_markdown(document.TITLE, sections)


RENDERERS: Mapping[str, Callable[[Document], str]] = {
    "html": lambda found: as_html(found.verdict, found.exit_code, found.tool),
    "markdown": _markdown,
    "junit": lambda found: as_junit(found.verdict),
}
"""What makes each of the files, by the name of its option."""


def _check(asked: Mapping[str, str], source: str, json: bool) -> None:
    """Refuse two results in one place, and a result in the place of the verdict."""
    places = [_STANDARD_OUTPUT] if json else []
    for option, path in asked.items():
        place = path if path == _STANDARD_OUTPUT else str(Path(path).resolve())
        if place in places:
            where = "standard output" if path == _STANDARD_OUTPUT else path
            raise UsageError(f"--{option} {path}: {where} already takes another report")
        if place == str(Path(source).resolve()) and source != _STANDARD_OUTPUT:
            raise UsageError(f"--{option} {path}: that is the verdict: name another file")
        places.append(place)


def _check_file(source: str) -> None:
    """Refuse a directory that a verdict was written to, and say where in it the verdict is."""
    inside = os.path.join(source, document.JSON_NAME)
    if os.path.isfile(inside):
        raise UsageError(f"{source} is a directory: give {inside}")


def _write(made: Mapping[str, str]) -> None:
    try:
        replace_files({Path(path): text for path, text in made.items()})
    except OSError as error:
        where = ", ".join(made)
        raise UsageError(f"{where} cannot be written: {error.strerror or error}") from error
    for path in made:
        print(printable(f"wrote {path}"), file=sys.stderr)
