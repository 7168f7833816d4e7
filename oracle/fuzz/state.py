"""The directory that a session leaves, and goes on from.

session.json   who was examined, how much, what was visited and which failures are known
cases/*.json   one replay file a failure
examples/      Hypothesis' database, which may be shared and merged by copying files
lock           held while a session runs

An interrupted session leaves whole files. What is read back is checked like anybody's file.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from oracle import diskcache, fields
from oracle.errors import UsageError
from oracle.fuzz.coverage import Coverage
from oracle.fuzz.failure import Key
from oracle.fuzz.files import read_json, write_whole
from oracle.fuzz.record import Entry, Record
from oracle.fuzz.replayfile import Replay, load
from oracle.fuzz.subject import Subject
from oracle.properties.promises import PROMISES
from oracle.report.document import TOOL, dump

SCHEMA_VERSION = "1.0"
MAX_SESSION_BYTES = 1 << 22
MOST_FAILURES = 10_000

_SESSION, _LOCK = "session.json", "lock"
_COUNT = fields.integer()
_FIELDS = (
    "schema_version", "tool", "subject", "reader", "writers", "artifacts", "seed", "rounds",
    "examples", "refused", "milliseconds", "coverage", "beyond", "failures",
)  # fmt: skip
_DIGITS = 8
_LONGEST_NAME = 60


class State:
    """The directory of a session with one subject, locked while it is open (`opened`)."""

    def __init__(self, directory: Path, subject: Subject) -> None:
        self.directory = directory
        self._subject = subject

    @property
    def examples(self) -> Path:
        """The directory of Hypothesis' database."""
        return self.directory / "examples"

    def case_path(self, key: Key) -> Path:
        """The replay file of a failure."""
        return self.directory / "cases" / f"{_name(key)}.json"

    def keep(self, entry: Entry) -> Path:
        """Write the replay file of a failure; gives its path. Raises UsageError."""
        path = self.case_path(entry.failure.key)
        failure, subject = entry.failure, self._subject
        reads = PROMISES[failure.violation.promise].reads
        reader = subject.reader_spec if reads else None
        replay = Replay(subject.ids[failure.case.dtype], reader, failure)
        write_whole(path, replay.text())
        return path

    def save(self, record: Record) -> None:
        """Write session.json. Raises UsageError."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "tool": TOOL,
            "subject": self._subject.spec,
            "reader": self._subject.reader_spec,
            "writers": self._subject.ids,
            "artifacts": self._subject.artifacts,
            "seed": record.seed,
            "rounds": record.rounds,
            "examples": record.examples,
            "refused": record.refused,
            "milliseconds": int(1000 * record.seconds),
            "coverage": record.coverage.document(),
            "beyond": dict(record.beyond),
            "failures": [
                {"case": self.case_path(key).name, "times": entry.times, "fails": entry.fails}
                for key, entry in record.entries.items()
            ],
        }
        write_whole(self.directory / _SESSION, dump(document))

    def load(self, seed: int | None, coverage: Coverage, notify: Callable[[str], None]) -> Record:
        """What is known, or a new record; `seed` None keeps the one there is, or draws one.

        Counts start anew where the code of a subject is not what it was. Raises UsageError for a
        session of another subject, a damaged one, and a directory that is somebody else's.
        """
        path = self.directory / _SESSION
        if not path.exists():
            return Record(_drawn() if seed is None else seed, coverage)
        told = read_json(path, MAX_SESSION_BYTES)
        try:
            return self._restored(told, seed, coverage, notify)
        except UsageError as error:
            raise UsageError(
                f"{path}: {error}; name another --state, or remove the file to begin anew"
            ) from error

    def _restored(
        self, told: object, seed: int | None, coverage: Coverage, notify: Callable[[str], None]
    ) -> Record:
        entry = fields.record(told, "session", _FIELDS)
        fields.one_of((SCHEMA_VERSION,))(entry["schema_version"], "schema_version")
        for name, mine in (("subject", self._subject.spec), ("reader", self._subject.reader_spec)):
            _same(name, entry[name], mine)
        writers, artifacts, beyond = (
            _object(entry[name], name) for name in ("writers", "artifacts", "beyond")
        )
        for dtype, own in self._subject.ids.items():
            _same(f"writer of {dtype}", writers.get(dtype, own), own)
        record = Record(_COUNT(entry["seed"], "seed") if seed is None else seed, coverage)
        record.rounds = _COUNT(entry["rounds"], "rounds")
        for known in fields.many(_failure, MOST_FAILURES)(entry["failures"], "failures"):
            self._restore_failure(record, known, notify)
        if any(artifacts.get(name, now) != now for name, now in self._subject.artifacts.items()):
            notify(f"the code of {self._subject.spec} has changed: counts start anew")
            return record
        record.examples = _COUNT(entry["examples"], "examples")
        record.refused = _COUNT(entry["refused"], "refused")
        record.seconds = _COUNT(entry["milliseconds"], "milliseconds") / 1000
        record.coverage.restore(entry["coverage"])
        record.beyond = Counter({name: _COUNT(beyond[name], "beyond") for name in beyond})
        return record

    def _restore_failure(
        self, record: Record, known: tuple[str, int, bool], notify: Callable[[str], None]
    ) -> None:
        """Enter a known failure, unless its file has become useless."""
        name, times, fails = known
        try:
            failure = load(self.directory / "cases" / name).failure
        except UsageError as error:
            notify(f"a known failure is left out: {error}")
            return
        record.entries[failure.key] = Entry(failure, times, fails)


def _failure(told: object, where: str) -> tuple[str, int, bool]:
    entry = fields.record(told, where, ("case", "times", "fails"))
    return (
        fields.spelled(r"[\w-]+\.json")(entry["case"], f"{where}.case"),
        _COUNT(entry["times"], f"{where}.times"),
        fields.boolean(entry["fails"], f"{where}.fails"),
    )


def _object(told: object, where: str) -> dict[str, object]:
    if not isinstance(told, dict):
        fields.refuse(where, "is no object")
    return told


def _same(name: str, told: object, mine: str | None) -> None:
    if told != mine:
        raise UsageError(f"its {name} is {told!r}, not {mine!r}")


@contextmanager
def opened(directory: Path, subject: Subject) -> Iterator[State]:
    """The state in a directory, made where needed, for one session at a time.

    Raises UsageError where it cannot be made, is in use, or holds files of something else.
    """
    state = State(directory, subject)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _check_ours(directory)
        for inner in ("cases", "examples"):
            (directory / inner).mkdir(exist_ok=True)
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        where = error.filename or directory
        raise UsageError(f"--state {where}: {error.strerror or error}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"--state {directory}: another session is using it") from error
        try:
            yield state
        finally:
            # Closing it frees nothing for as long as a process that a subject forked has it too.
            fcntl.flock(lock, fcntl.LOCK_UN)
    finally:
        os.close(lock)


def _check_ours(directory: Path) -> None:
    ours = {_SESSION, _LOCK, "cases", "examples"}
    there = {path.name for path in directory.iterdir() if not path.name.startswith(".")}
    if there - ours and _SESSION not in there:
        raise UsageError(
            f"--state {directory}: holds {sorted(there - ours)[0]!r} and no session: name a "
            "directory of its own"
        )


def default_directory(subject: Subject) -> Path:
    """Where the session of a subject is kept if nobody says where."""
    parts = [subject.spec, subject.reader_spec or "", *subject.artifacts]
    digest = diskcache.key_of(part.encode() for part in parts)[:_DIGITS]
    return diskcache.cache_dir() / "fuzz" / f"{_slug(subject.spec)}-{digest}"


def _name(key: Key) -> str:
    digest = diskcache.key_of(part.encode() for part in key)[:_DIGITS]
    return f"{_slug('-'.join(key))}-{digest}"


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:_LONGEST_NAME]


def _drawn() -> int:
    """A seed nobody chose, of few digits, as it is to be typed."""
    return int.from_bytes(os.urandom(4), "little")
