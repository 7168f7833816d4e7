"""A process of a session: executes cases, tells what it found, and does as it is told.

The subject may print, hang or end its process, none of which may happen to the session.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from itertools import count
from multiprocessing.connection import Connection

from hypothesis.configuration import set_hypothesis_home_dir

from oracle.diskcache import cache_dir
from oracle.errors import NothingRan, OracleError
from oracle.fuzz.coverage import Coverage
from oracle.fuzz.domain import cases_of, domain_of
from oracle.fuzz.failure import Failure, key_of
from oracle.fuzz.known import Known
from oracle.fuzz.messages import Asked, Ended, Order, Ready, Rechecked, Tally, Task, Told
from oracle.fuzz.search import Search, Stopped
from oracle.fuzz.subject import Subject
from oracle.properties.case import StoreCase
from oracle.properties.promise import Violation
from oracle.properties.promises import PROMISES, Promise

TALLY_SECONDS = 0.5
PROMISES_PER_CASE = 3
_INTERNAL_ERROR = 3


def work(subject: Subject, task: Task, pipe: Connection[Told, Asked]) -> None:
    """The body of a worker's process."""
    # A terminal's Ctrl-C reaches every process; the session alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Results alone belong on standard output, and a subject may print, from Python or from C.
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    # What it keeps beside examples, which takes it a second to make, serves all sessions.
    set_hypothesis_home_dir(cache_dir() / "hypothesis")
    try:
        try:
            Worker(subject, task, pipe).run()
            ended = Ended()
        except OracleError as error:
            ended = Ended(str(error), error.exit_code)
        except Exception as error:
            ended = Ended(f"{type(error).__name__}: {error}", _INTERNAL_ERROR)
        pipe.send(ended)
    except (OSError, KeyboardInterrupt):
        # The session is gone, or the subject closed the pipe or interrupted its own process:
        # nobody is left to tell, or will notice.
        pass


def some_of(promises: Sequence[Promise], case: StoreCase) -> list[Promise]:
    """The promises that a case is examined for, as many as PROMISES_PER_CASE.

    Most need launches of their own, and more cases with fewer promises each show faults sooner.
    Which ones follows from the case, so that the same case is always examined in the same way.
    """
    first = zlib.crc32(repr(case).encode())
    count = min(PROMISES_PER_CASE, len(promises))
    return [promises[(first + place) % len(promises)] for place in range(count)]


class Worker:
    """Executes the cases of a task, and tells a session through a pipe."""

    def __init__(self, subject: Subject, task: Task, pipe: Connection[Told, Asked]) -> None:
        self._subject = subject
        self._task = task
        self._pipe = pipe
        self._known = Known(task.cap, task.known)
        self._order: Order | None = None
        # What was a failure once is examined for every promise, what is drawn for some.
        self._thorough = True
        self._executed = 0
        self._limit: int | None = None
        self._domain = domain_of(subject, task.limits)
        self._promises = {
            dtype: [p for p in PROMISES.values() if p.inapplicable(writer, subject.reader) is None]
            for dtype, writer in subject.writers.items()
        }
        self._begin_tally()
        self._search = Search(
            self._examine,
            cases_of(subject, task.limits),
            task.database,
            self._known,
            task.limits,
            self._is_over,
        )

    def run(self) -> None:
        """Execute what is doubtful, then what is remembered, then rounds until told to end.

        Raises what a subject raises that cannot be executed.
        """
        try:
            for failure in self._task.doubtful:
                self._recheck(failure)
            if self._task.remember:
                while self._tell_found(self._search.remembered()):
                    pass
                self._pipe.send(Ready())
            self._thorough = False
            if self._task.examples is not None:
                self._limit = self._executed + self._task.examples
            for number in count(self._task.first, self._task.step):
                self._tally.rounds = number + 1
                self._tell_found(self._search.round(self._task.seed, number))
        except Stopped:
            pass
        finally:
            self._tell_tally()

    def _recheck(self, failure: Failure) -> None:
        if self._is_over(midway=True):
            raise Stopped
        key = failure.key
        promise = failure.violation.promise
        fails = any(
            key_of(violation) == key
            for _ in range(failure.attempts)
            for violation in self._examine(failure.case, promise)
        )
        # One that was not shrunk to the end is left to be found again, in the database.
        if fails and failure.shrunk:
            self._known.keys.add(key)
        self._pipe.send(Rechecked(key, fails))

    def _tell_found(self, failure: Failure | None) -> bool:
        if failure is None:
            return False
        self._known.keys.add(failure.key)
        self._pipe.send(failure)
        return True

    def _is_over(self, midway: bool) -> bool:
        """Whether the task is to end here, in the middle of something or not; hears the session."""
        if os.getppid() != self._task.session:
            # It was killed, and can ask for nothing any more.
            return True
        if time.monotonic() - self._told > TALLY_SECONDS:
            self._tell_tally()
        while self._pipe.poll():
            asked = self._pipe.recv()
            if isinstance(asked, Order):
                self._order = asked
            else:
                self._known.keys.add(asked)
        if self._order is Order.STOP:
            return True
        spent = self._limit is not None and self._executed >= self._limit
        return not midway and (spent or self._order is Order.FINISH)

    def _examine(self, case: StoreCase, only: str | None) -> Iterator[Violation]:
        """The violations of a case, of one promise alone where it is named."""
        writer, reader = self._subject.writers[case.dtype], self._subject.reader
        self._executed += 1
        self._tally.examples += 1
        self._tally.coverage.add(case)
        answered = False
        promises = self._promises[case.dtype]
        if only is not None:
            promises = [PROMISES[only]]
        elif not self._thorough:
            promises = some_of(promises, case)
        for promise in promises:
            try:
                violation = promise.check(writer, reader, case)
            except NothingRan:
                continue
            answered = True
            if violation is not None:
                yield violation
        if not answered:
            self._tally.refused += 1

    def _begin_tally(self) -> None:
        self._tally = Tally(Coverage(self._domain))
        self._told = time.monotonic()

    def _tell_tally(self) -> None:
        self._tally.times, self._tally.beyond = self._known.take_counts()
        self._pipe.send(self._tally)
        self._begin_tally()
