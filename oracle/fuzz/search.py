"""The search for one failure after another, in one process.

Hypothesis draws the cases and shrinks them. A round is one run of a property with a seed of its
own, for a violation that is not known yet: the first one seen fixes which, so that a case never
shrinks from one failure into another. What Hypothesis finds it keeps in its example database, from
where `remembered` takes it in a later session, or in one of somebody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from unittest import SkipTest

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase, ReadOnlyDatabase
from hypothesis.errors import Flaky, Unsatisfiable
from hypothesis.strategies import SearchStrategy

from oracle.fuzz.failure import Failure, Key, key_of
from oracle.fuzz.known import Known
from oracle.fuzz.smallest import smallest
from oracle.properties.case import StoreCase
from oracle.properties.promise import Violation
from oracle.properties.strategies import DEFAULT_LIMITS, Limits

ROUND_EXAMPLES = 1_000
"""Cases of a round that finds nothing; each begins with small ones and then goes on to large."""
DATABASE_KEY = b"layout-oracle: cases of a store"
"""Under which cases are kept in the database; it changes with the meaning of what is kept."""

Examine = Callable[[StoreCase, str | None], Iterable[Violation]]
"""The violations of a case, of one promise alone where it is named."""


class Stopped(KeyboardInterrupt):
    """The search is to end; Hypothesis lets no other kind of exception of a case through."""


class _Fails(Exception):
    """A case fails as it is to."""


class _Abandoned(KeyboardInterrupt):
    """What is being shrunk was found by somebody else meanwhile."""


class Search:
    """Finds what `examine` says about cases of a strategy, except what is `known`.

    `limits` are those that the strategy was made with. `stop(shrinking)` is asked before each case
    whether to end, and told whether a failure is being shrunk. The database is a directory.
    """

    def __init__(
        self,
        examine: Examine,
        cases: SearchStrategy[StoreCase],
        database: Path,
        known: Known,
        limits: Limits = DEFAULT_LIMITS,
        stop: Callable[[bool], bool] = lambda shrinking: False,
    ) -> None:
        self._examine = examine
        self._cases = cases
        self._database = DirectoryBasedExampleDatabase(database)
        self.known = known
        self._limits = limits
        self._stop = stop

    def round(self, seed: int, number: int) -> Failure | None:
        """The first new failure of a round, shrunk; None where there is none.

        Raises Stopped; a failure that was being shrunk is given instead, as far as it came.
        """
        phases = Phase.generate, Phase.shrink
        return self._run(phases, self._database, f"{seed}/{number}", ROUND_EXAMPLES)

    def remembered(self) -> Failure | None:
        """The next new failure that the database knows, shrunk; None where there is none.

        Raises as `round`.
        """
        count = len(list(self._database.fetch(DATABASE_KEY)))
        if not count:
            return None
        # Of what does not fail here nothing is deleted: it may fail for somebody else.
        kept = ReadOnlyDatabase(self._database)
        return self._run((Phase.reuse, Phase.shrink), kept, "", count)

    def _run(
        self, phases: tuple[Phase, ...], database: ExampleDatabase, name: str, examples: int
    ) -> Failure | None:
        chase = _Chase(self._examine, self.known, self._stop)

        @given(self._cases)
        def fails(case: StoreCase) -> None:
            if chase(case):
                raise _Fails

        # As `hypothesis.find` does it; that one, given a seed, forgoes the database.
        fails._hypothesis_internal_database_key = DATABASE_KEY  # type: ignore[attr-defined]
        chosen = settings(
            phases=phases, database=database, max_examples=examples, deadline=None,
            report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
            print_blob=False, verbosity=Verbosity.quiet,
        )  # fmt: skip
        try:
            # A text is hashed whole, so neighbouring seeds have nothing in common. A seed takes the
            # database away, so the settings come after it.
            chosen(seed(name)(fails))()
        except _Fails:
            return self._smallest(chase)
        except (_Abandoned, SkipTest, Unsatisfiable):
            # The last two are what Hypothesis says where nothing in the database is a case.
            return None
        except Stopped:
            return _unfinished(chase)
        except Flaky:
            assert chase.smallest is not None
            return replace(chase.smallest, steady=False)
        return None

    def _smallest(self, chase: _Chase) -> Failure | None:
        assert chase.smallest is not None
        try:
            smallest(chase.smallest.case, chase, self._limits)
        except _Abandoned:
            return None
        except Stopped:
            return _unfinished(chase)
        return chase.smallest


def _unfinished(chase: _Chase) -> Failure:
    """What was being shrunk when the search was stopped; stops it where nothing was."""
    if chase.smallest is None:
        raise Stopped
    return replace(chase.smallest, shrunk=False)


class _Chase:
    """The condition of one run: whether a case fails in the way that the first failing one did.

    From then on the promise that it broke is examined alone.
    """

    def __init__(self, examine: Examine, known: Known, stop: Callable[[bool], bool]) -> None:
        self._examine = examine
        self._known = known
        self._stop = stop
        self._key: Key | None = None
        self._promise: str | None = None
        self.smallest: Failure | None = None

    def __call__(self, case: StoreCase) -> bool:
        if self._stop(self._key is not None):
            raise Stopped
        if self._key in self._known.keys:
            raise _Abandoned
        seen: set[Key] = set()
        for violation in self._examine(case, self._promise):
            key = key_of(violation)
            if self._key is None and self._known.is_new(key):
                self._key, self._promise = key, violation.promise
            if key == self._key:
                failure = Failure(case, violation)
                if self.smallest is None or failure.size <= self.smallest.size:
                    self.smallest = failure
                return True
            seen.add(key)
        self._known.count(seen)
        return False
