"""A session: workers that search at the same time, and one record of what they find.

The first worker executes what is known, then all search. Their failures are kept as they come, the
smaller of two that are the same; everything else is written every few seconds and at the end.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType

from oracle.errors import NothingRan, OracleError, UsageError
from oracle.fuzz.crew import Crew
from oracle.fuzz.failure import Failure
from oracle.fuzz.messages import Ended, Order, Ready, Rechecked, Tally, Task, Told
from oracle.fuzz.record import Entry, Record
from oracle.fuzz.state import State
from oracle.fuzz.subject import Subject
from oracle.properties.strategies import DEFAULT_LIMITS, Limits
from oracle.subjects.guard import CALL_SECONDS

SAVE_SECONDS = 5.0
SHRINK_SECONDS = 20.0
"""How long a failure may still be shrunk once the time is up."""
STOP_SECONDS = CALL_SECONDS + 10.0
"""How long a case may still take once a worker was told to stop: one more call of a function."""
_LISTEN_SECONDS = 0.2


@dataclass(frozen=True)
class Plan:
    """How a session is to run.

    It ends after `seconds` or once `examples` are executed, whichever is first; None is no limit.
    Of each promise at most `cap` failures are kept. Cases are drawn within `limits`.
    """

    jobs: int = 1
    seconds: float | None = None
    examples: int | None = None
    cap: int = 5
    limits: Limits = DEFAULT_LIMITS


class Watcher:
    """Who is told what a session does; this one is not interested."""

    def progress(self, session: Session) -> None:
        """Some time went by."""

    def found(self, entry: Entry) -> None:
        """A failure was found, or a smaller case of it."""

    def rechecked(self, entry: Entry) -> None:
        """A known failure was executed again."""

    def ended(self) -> None:
        """Nothing more will be told."""


class Session:
    """One run of a session; `record` is what is known of all runs, and the state keeps it.

    `executed` counts the examples of this run alone. `stopped` says that a signal ended it, `cut`
    that a case went on for so long that its process was ended.
    """

    def __init__(
        self,
        subject: Subject,
        state: State,
        record: Record,
        plan: Plan,
        watcher: Watcher | None = None,
    ) -> None:
        self.record = record
        self.executed = 0
        self.stopped = self.cut = False
        self._state = state
        self._subject = subject
        self._plan = plan
        self._watcher = watcher or Watcher()
        self._crew = Crew(subject)
        self._error: Ended | None = None
        self._begun = self._saved = time.monotonic()
        self._seconds_before = record.seconds
        self._first_round = record.rounds
        self._ordered: dict[Order, float] = {}

    @property
    def elapsed(self) -> float:
        """Seconds of this run."""
        return self.record.seconds - self._seconds_before

    def run(self) -> None:
        """Search until the plan is fulfilled or a signal comes; the state has everything then.

        Raises what a worker raised, UsageError where one ended unasked, and NothingRan where the
        subject gave no answer to any case.
        """
        doubtful = [e.failure for e in self.record.entries.values()
                    if e.failure.case.dtype in self._subject.dtypes]  # fmt: skip
        with _signals() as asked:
            try:
                self._save()
                # What was known is to fail again before it counts as known.
                first = replace(self._task(0), known=(), doubtful=tuple(doubtful), remember=True)
                self._crew.start(first)
                while self._crew.working:
                    for told in self._crew.listen(_LISTEN_SECONDS):
                        self._handle(told)
                    self._give_orders(interrupted=bool(asked))
                    self._keep_time()
            finally:
                self._crew.end()
                self._watcher.ended()
                self._save()
        self.stopped = bool(asked)
        if self._error is not None:
            kinds = {UsageError.exit_code: UsageError, NothingRan.exit_code: NothingRan}
            raise kinds.get(self._error.exit_code, OracleError)(self._error.error)
        if not self.record.failing and self.record.refused == self.record.examples:
            what = "refused every case" if self.executed else "has not finished a single case"
            raise NothingRan(f"{self._subject.spec} {what}, so nothing can be said about it")

    def _task(self, worker: int) -> Task:
        """The task of one worker, all of which have rounds of their own."""
        plan, limit = self._plan, None
        if plan.examples is not None:
            limit = plan.examples // plan.jobs + (worker < plan.examples % plan.jobs)
        known = [key for key, entry in self.record.entries.items()
                 if entry.fails and entry.failure.shrunk]  # fmt: skip
        return Task(
            seed=self.record.seed,
            first=self._first_round + worker,
            step=plan.jobs,
            cap=plan.cap,
            database=self._state.examples,
            session=os.getpid(),
            limits=plan.limits,
            examples=limit,
            known=tuple(known),
        )

    def _handle(self, told: Told) -> None:
        record = self.record
        if isinstance(told, Tally):
            self.executed += told.examples
            record.merge(told)
        elif isinstance(told, Rechecked):
            entry = record.entries[told.key]
            entry.fails = told.fails
            self._watcher.rechecked(entry)
        elif isinstance(told, Failure):
            self._crew.tell(told.key)
            if record.add(told):
                entry = record.entries[told.key]
                self._state.keep(entry)
                self._watcher.found(entry)
                self._save()
        elif isinstance(told, Ready):
            # Who starts now would never hear of an order that was given already.
            for worker in range(1, 1 if self._ordered else self._plan.jobs):
                self._crew.start(self._task(worker))
        elif told.error:
            self._error = self._error or told

    def _give_orders(self, interrupted: bool) -> None:
        """Tell the workers to finish where the time is up, and to stop where they must."""
        now = time.monotonic()
        late = self._plan.seconds is not None and now - self._begun > self._plan.seconds
        finishing, stopping = self._ordered.get(Order.FINISH), self._ordered.get(Order.STOP)
        if stopping is not None:
            if now - stopping > STOP_SECONDS:
                self.cut = True
                self._crew.end()
        elif interrupted or self._error or (finishing and now - finishing > SHRINK_SECONDS):
            self._order(Order.STOP)
        elif late and finishing is None:
            self._order(Order.FINISH)

    def _order(self, order: Order) -> None:
        self._ordered[order] = time.monotonic()
        self._crew.tell(order)

    def _keep_time(self) -> None:
        now = time.monotonic()
        self.record.seconds = self._seconds_before + now - self._begun
        if now - self._saved > SAVE_SECONDS:
            self._save()
        self._watcher.progress(self)

    def _save(self) -> None:
        self._state.save(self.record)
        self._saved = time.monotonic()


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of ending; a second one interrupts as it always does."""
    asked: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        if len(asked) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
