"""A replay executed: whether a case still breaks its promise, on the same subject or another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle.errors import UsageError
from oracle.fuzz.affected import AffectedPlane, affected_plane
from oracle.fuzz.failure import key_of
from oracle.fuzz.replayfile import Replay
from oracle.fuzz.subject import Subject
from oracle.properties.promises import PROMISES, Violation
from oracle.report.outline import Cell, Paragraph, Section, Table, Tone
from oracle.report.text import counted, enumerated, printable, shortened

_FUNCTION = re.compile(r"([A-Za-z_][\w.]*)(?<!\.cubin):[A-Za-z_]\w*([@,].*)?")
_COORDINATES = ("side", "plane", "page", "head", "token", "column", "element", "row", "col", "byte")


@dataclass(frozen=True)
class Outcome:
    """What came of a replay: the violation, None where the promise is kept now.

    `same` says whether it is the failure that the file tells of; `plane` is the scale plane it is
    about, if it is about one.
    """

    replay: Replay
    subject: Subject
    violation: Violation | None
    plane: AffectedPlane | None

    @property
    def same(self) -> bool:
        """Whether it is the failure of the file."""
        return self.violation is not None and key_of(self.violation) == self.replay.failure.key

    @property
    def exit_code(self) -> int:
        """1 where the promise is broken."""
        return int(self.violation is not None)


def execute(replay: Replay, subject: Subject) -> Outcome:
    """Execute the case of a replay on a subject.

    Raises NothingRan where the subject refuses the case or the promise says nothing about it, and
    what a subject raises that cannot be executed.
    """
    failure = replay.failure
    case, promise = failure.case, PROMISES[failure.violation.promise]
    writer = subject.writers[case.dtype]
    for _ in range(failure.attempts):
        violation = promise.check(writer, subject.reader, case)
        if violation is not None:
            return Outcome(replay, subject, violation, affected_plane(writer, case, violation))
    return Outcome(replay, subject, None, None)


def check_importable(spec: str, option: str) -> None:
    """Refuse to import a Python module because a file says so, unless it lies in this directory.

    Raises UsageError; `option` is how the spec can be given instead.
    """
    found = _FUNCTION.fullmatch(spec)
    if found is None:
        return
    place = Path.cwd().joinpath(*found[1].split("."))
    if not (place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()):
        raise UsageError(
            f"the file names the Python function {shortened(spec)}, which is not in this "
            f"directory: to import it all the same give {option} {shortened(spec)}"
        )


def sections(outcome: Outcome) -> list[Section]:
    """The outcome in words: what was executed, what is promised, what happened, and where."""
    failure, violation = outcome.replay.failure, outcome.violation
    case = failure.case
    who = enumerated(shortened(info.id) for info in outcome.subject.infos)
    promise = PROMISES[failure.violation.promise]
    told = [
        Cell(
            f"{who}: {case.geometry.in_words()}, {counted(case.num_pages, 'page')}, {case.dtype}, "
            f"{counted(len(case.slots), 'token')}, values {case.values}."
        ),
        Cell(f"Promised ({promise.name}): {promise.text}"),
    ]
    if violation is None:
        told.append(Cell("The promise is kept now.", Tone.GOOD))
        told.append(Cell(f"When it was broken: {printable(failure.violation.reason)}", Tone.QUIET))
        return [Paragraph(tuple(told))]
    told.append(Cell(f"Broken: {printable(violation.reason)}", Tone.BAD))
    if not outcome.same:
        told.append(Cell(f"The file tells of another way: {printable(failure.violation.reason)}"))
    return [Paragraph(tuple(told)), *_where(violation)]


def _where(violation: Violation) -> Sequence[Section]:
    """The witness as a table: coordinates first, then what else it tells."""
    witness = violation.witness
    names = [*(name for name in _COORDINATES if name in witness), *(witness.keys() - _COORDINATES)]
    if not names:
        return ()
    values = tuple(Cell(_shown(witness[name])) for name in names)
    return (Table("Where", tuple(map(printable, names)), (values,)),)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return shortened(", ".join(f"{name} {each}" for name, each in value.items()))
    return shortened(str(value))


def document(outcome: Outcome) -> dict[str, Any]:
    """The outcome as a JSON object, but for what is the same in every result."""
    failure, violation = outcome.replay.failure, outcome.violation
    promise = PROMISES[failure.violation.promise]
    return {
        "subject": outcome.subject.spec,
        "reader": outcome.subject.reader_spec,
        "artifacts": outcome.subject.artifacts,
        "promise": promise.name,
        "text": promise.text,
        "case": failure.case.document(),
        "broken": violation is not None,
        "same": outcome.same,
        "found": None
        if violation is None
        else {"reason": violation.reason, "witness": dict(violation.witness)},
    }
