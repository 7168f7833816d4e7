"""What a session found, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oracle.errors import OracleError
from oracle.fuzz import again
from oracle.fuzz.coverage import DIMENSIONS, Coverage
from oracle.fuzz.record import Entry, Record
from oracle.fuzz.replayfile import Replay
from oracle.fuzz.session import Session
from oracle.fuzz.state import State
from oracle.fuzz.subject import Subject
from oracle.properties.promises import PROMISES
from oracle.report.outline import Cell, Listing, Paragraph, Section, Table, Tone
from oracle.text import counted, enumerated, printable, shortened

LONGEST_REASON = 400
_OF_ADDRESSES = ("bijective", "in-region", "as-declared", "agrees-with-reader")
_LISTED = 12
"""Values of a dimension not visited that are listed."""


def sections(subject: Subject, session: Session, state: State) -> list[Section]:
    """The result of a session: what was done and visited, and the failures."""
    record = session.record
    found: list[Section] = [
        Paragraph(tuple(_summary(subject, session))),
        _visited(record.coverage),
    ]
    passing = [entry for entry in record.entries.values() if not entry.fails]
    for title, entries, tone in (
        ("Failures", _telling_first(record), Tone.BAD),
        ("Known failures that fail no longer", passing, Tone.GOOD),
    ):
        if entries:
            items = tuple(Cell(failure_in_words(entry, state), tone) for entry in entries)
            found.append(Listing(title, items))
    return found


def first_again(subject: Subject, record: Record) -> list[Section]:
    """The most telling failure executed once more, as `replay` shows it.

    Nothing where there is none, or where its case cannot be executed or does not fail now.
    """
    for entry in _telling_first(record):
        case = entry.failure.case
        if case.dtype in subject.dtypes:
            replay = Replay(subject.ids[case.dtype], subject.reader_spec, entry.failure)
            try:
                outcome = again.execute(replay, subject)
            except OracleError:
                return []
            heading = Paragraph((Cell("The first of them, as `replay FILE` shows each:"),))
            return [heading, *again.sections(outcome)] if outcome.same else []
    return []


def _telling_first(record: Record) -> list[Entry]:
    """The failures, those of addresses first, from which most others follow.

    Those without a coordinate come last, and of one promise those of scales first, which can be
    drawn.
    """
    order = list(dict.fromkeys((*_OF_ADDRESSES, *PROMISES)))

    def rank(entry: Entry) -> tuple[object, ...]:
        violation = entry.failure.violation
        witness, place = violation.witness, order.index(violation.promise)
        return not witness, place, witness.get("plane") != "scale", entry.failure.size

    return sorted(record.failing, key=rank)


def _summary(subject: Subject, session: Session) -> list[Cell]:
    record = session.record
    who = enumerated(shortened(info.id) for info in subject.infos)
    rate = record.examples / record.seconds if record.seconds else 0.0
    done = (
        f"{who}: {counted(record.examples, 'example')} in {time_in_words(record.seconds)} "
        f"({rate:.0f} a second), seed {record.seed}."
    )
    failing = len(record.failing)
    cells = [
        Cell(done),
        Cell(
            f"{counted(failing, 'distinct failure')}." if failing else "No promise was broken.",
            Tone.BAD if failing else Tone.PLAIN if session.cut else Tone.GOOD,
        ),
    ]
    if record.refused:
        cells.append(Cell(f"{counted(record.refused, 'example')} were refused by name."))
    if session.cut:
        cells.append(Cell("A case did not come to an end, and its process was ended.", Tone.BAD))
    if record.beyond:
        more = (f"{name} ({times:,} times)" for name, times in sorted(record.beyond.items()))
        cells.append(Cell(f"Broken in more ways than are kept: {enumerated(more)}."))
    return cells


def failure_in_words(entry: Entry, state: State) -> str:
    """One line on a failure: the promise, the smallest case, what happened, its file."""
    failure = entry.failure
    notes = [f"seen {counted(entry.times, 'time')}"]
    if not failure.shrunk:
        notes.append("not shrunk to the end")
    if not failure.steady:
        notes.append("did not fail again when executed once more")
    return (
        f"{failure.violation.promise}: {shortened(failure.violation.reason, LONGEST_REASON)} "
        f"({failure.case.geometry.in_words()}, {counted(len(failure.case.slots), 'token')}; "
        f"{', '.join(notes)}): {printable(str(state.case_path(failure.key)))}"
    )


def time_in_words(seconds: float) -> str:
    """`5 s`, `3 min 20 s`, `2 h 5 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _visited(coverage: Coverage) -> Table:
    rows = []
    for dimension, name in DIMENSIONS.items():
        visited, total = coverage.visited(dimension)
        missing = [value for value, count in coverage.counts[dimension].items() if not count]
        tone = Tone.PLAIN if missing else Tone.GOOD
        rows.append((Cell(name), Cell(f"{visited} of {total}", tone), Cell(_some(missing))))
    return Table(
        "Visited of what the writer takes", ("dimension", "values", "not visited"), tuple(rows),
        "each dimension by itself; combinations are not counted",
    )  # fmt: skip


def _some(values: Sequence[str]) -> str:
    if len(values) > _LISTED:
        return enumerated([*values[:_LISTED], counted(len(values) - _LISTED, "other")])
    return enumerated(values) or "-"


def document(subject: Subject, session: Session, state: State) -> dict[str, Any]:
    """The result of a session as a JSON object, but for what is the same in every result."""
    record = session.record
    return {
        "subject": subject.spec,
        "reader": subject.reader_spec,
        "artifacts": subject.artifacts,
        "state": str(state.directory),
        "seed": record.seed,
        "examples": record.examples,
        "refused": record.refused,
        "seconds": round(record.seconds, 3),
        "stopped": session.stopped,
        "cut": session.cut,
        "coverage": record.coverage.document(),
        "beyond": dict(record.beyond),
        "failures": [_failure(entry, state) for entry in record.entries.values()],
    }


def _failure(entry: Entry, state: State) -> dict[str, Any]:
    failure = entry.failure
    return {
        "promise": failure.violation.promise,
        "defect": failure.key.defect,
        "reason": failure.violation.reason,
        "witness": dict(failure.violation.witness),
        "case": failure.case.document(),
        "file": str(state.case_path(failure.key)),
        "times": entry.times,
        "fails": entry.fails,
        "shrunk": failure.shrunk,
        "steady": failure.steady,
    }
