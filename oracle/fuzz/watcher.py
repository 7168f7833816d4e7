"""Tells on standard error what a session is doing."""

from __future__ import annotations

import shutil
import sys
import time

from oracle.fuzz.prose import time_in_words
from oracle.fuzz.record import Entry
from oracle.fuzz.session import Session, Watcher
from oracle.text import counted, printable

_TERMINAL_SECONDS = 1.0
_LOG_SECONDS = 10.0


class StderrWatcher(Watcher):
    """One line that is kept up to date on a terminal; elsewhere a line now and then."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._every = _TERMINAL_SECONDS if self._live else _LOG_SECONDS
        self._told = time.monotonic()
        self._shown = 0

    def progress(self, session: Session) -> None:
        """How far the session is: examples, their rate, failures, coverage."""
        now = time.monotonic()
        if now - self._told < self._every:
            return
        self._told = now
        rate = session.executed / session.elapsed
        line = (
            f"{time_in_words(session.elapsed)}: {counted(session.executed, 'example')} "
            f"({rate:.0f}/s), {counted(len(session.record.failing), 'failure')}; "
            f"{session.record.coverage.in_words()}"
        )
        if not self._live:
            self._line(line)
            return
        self._clear()
        # A line that wraps could not be taken back.
        shown = line[: shutil.get_terminal_size().columns - 1]
        print(shown, end="\r", file=sys.stderr, flush=True)
        self._shown = len(shown)

    def found(self, entry: Entry) -> None:
        """A line on a failure."""
        failure = entry.failure
        self._line(f"found: {failure.violation.promise}: {printable(failure.violation.reason)}")

    def rechecked(self, entry: Entry) -> None:
        """A line on a known failure."""
        says = "still fails" if entry.fails else "fails no longer"
        self._line(f"known: {says}: {entry.failure.violation.promise}, {entry.failure.key.defect}")

    def ended(self) -> None:
        """Takes the line on the terminal back."""
        self._clear()

    def _line(self, text: str) -> None:
        self._clear()
        print(text, file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._shown:
            print(" " * self._shown, end="\r", file=sys.stderr)
            self._shown = 0
