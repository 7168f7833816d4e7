"""What a run of the suite consists of, and what it says about a broken promise."""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from expectations import Expectation
from hypothesis import settings

from oracle.errors import OracleError
from oracle.fuzz.affected import affected
from oracle.fuzz.failure import Failure
from oracle.fuzz.files import write_whole
from oracle.fuzz.replayfile import Replay
from oracle.properties.promise import Promise
from oracle.properties.strategies import Found, Limits
from oracle.report import terminal
from oracle.subjects.base import Reader, Writer
from oracle.subjects.release import ArtifactOptions
from oracle.text import printable

HARNESS = Path(__file__).parents[1] / "harness.py"
_LONGEST_NAME = 120
_ROWS = 8
"""Tokens of a plane that are drawn: of two planes below each other there are twice as many."""


@dataclass(frozen=True, eq=False)
class Suite:
    """The subjects of a run, and how they are tested."""

    spec: str
    writers: tuple[Writer, ...]
    reader_spec: str | None
    reader: Reader | None
    dtypes: tuple[str, ...]
    limits: Limits
    chosen: settings
    expected: tuple[Expectation, ...]
    failures: Path
    options: ArtifactOptions

    def concerned(self, expectation: Expectation, writer: Writer) -> bool:
        """Whether an expectation is about a writer of this run."""
        return expectation.concerns((self.spec, writer.info.id), self.reader_spec)

    def expected_reason(self, promise: Promise, writer: Writer) -> tuple[str, str] | None:
        """Why a writer is expected to break a promise, and the file that says so."""
        for each in self.expected:
            if promise.name in each.promises and self.concerned(each, writer):
                return each.promises[promise.name], each.path.name
        return None

    def report(self, promise: Promise, writer: Writer, found: Found) -> str:
        """A broken promise in a few lines: what, where, the smallest case, how to see it again.

        The scale plane that it is about is drawn below.
        """
        case = json.dumps(found.case.document())
        lines = [
            f"{promise.name} is broken by {writer.info.id}",
            f"promise: {promise.text}",
            f"found: {found.violation.reason}",
            f"smallest case: {case}",
        ]
        if not found.steady:
            lines.append("it was not broken every time the same case was executed")
        try:
            path = self._written(promise, writer, found)
            lines.append(f"to see it again: {self._command(path, writer)}")
        except (OracleError, OSError) as error:
            lines.append(f"the case could not be kept: {error}")
        drawn = affected(writer, self.reader, found.case, found.violation, _ROWS)
        told = "\n".join(map(printable, lines))
        return told if drawn is None else f"{told}\n{terminal.as_text([drawn])}"

    def _written(self, promise: Promise, writer: Writer, found: Found) -> Path:
        reader = self.reader_spec if promise.reads else None
        failure = Failure(found.case, found.violation, steady=found.steady)
        name = re.sub(r"[^A-Za-z0-9.=]+", "-", f"{promise.name}-{writer.info.id}")[:_LONGEST_NAME]
        path = self.failures / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, Replay(writer.info.id, reader, failure).text())
        return path

    def _command(self, path: Path, writer: Writer) -> str:
        words = ["python", os.path.relpath(HARNESS), "replay", os.path.relpath(path)]
        # Because a file says so no function is imported; a command may ask for it.
        for option, subject in (("--subject", writer), ("--reader", self.reader)):
            if subject is not None and subject.info.executor == "callable":
                words += [option, subject.info.id]
        if self.options.wheel_dir is not None:
            words += ["--wheel-dir", str(self.options.wheel_dir)]
        return shlex.join(words)


SUITE = pytest.StashKey[Suite]()
