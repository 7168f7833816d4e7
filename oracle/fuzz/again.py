"""A replay executed: whether a case still breaks its promise, on the same subject or another."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oracle.errors import UsageError
from oracle.fuzz.affected import affected
from oracle.fuzz.failure import key_of
from oracle.fuzz.replayfile import Replay
from oracle.fuzz.subject import Subject
from oracle.properties.promises import PROMISES, Violation
from oracle.report.outline import Cell, Drawing, Paragraph, Section, Table, Tone
from oracle.text import counted, enumerated, printable, shortened

_FUNCTION = re.compile(r"([A-Za-z_][\w.]*)(?<!\.cubin):[A-Za-z_]\w*([@,].*)?", re.DOTALL)
_TITLES = {
    **{name: name for name in ("side", "plane", "page", "head", "token", "column", "element")},
    "row": "stored row",
    "col": "stored column",
    "byte": "byte",
    "region_offset": "byte of its region",
    "note": "what is wrong",
    "with": "with",
    "padding": "padding",
    "stored": "stored in",
    "where": "stored",
    "writer": "stored in",
    "reader": "looked for in",
    "found": "found",
    "otherwise": "otherwise",
    "before": "before",
    "after": "after",
    "stored_scale": "scale stored",
    "reference_scale": "scale specified",
    "stored_codes": "codes stored",
    "reference_codes": "codes specified",
}
"""The columns of the table of a witness, in order, by the names of its fields."""
_CODES = ("stored_codes", "reference_codes")
_BYTES = ("found", "otherwise", "before", "after", "stored_scale", "reference_scale")


@dataclass(frozen=True)
class Outcome:
    """What came of a replay: the violation, None where the promise is kept now.

    `same` says whether it is the failure that the file tells of; `drawing` is of the scale plane it
    is about, if it is about one.
    """

    replay: Replay
    subject: Subject
    violation: Violation | None
    drawing: Drawing | None

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
            drawn = affected(writer, subject.reader, case, violation)
            return Outcome(replay, subject, violation, drawn)
    return Outcome(replay, subject, None, None)


def check_importable(spec: str, option: str) -> None:
    """Refuse to import a Python module because a file says so, unless it lies in this directory.

    Raises UsageError; `option` is how the spec can be given instead.
    """
    found = _FUNCTION.fullmatch(spec)
    if found is None:
        return
    place = os.path.join(os.getcwd(), *found[1].split("."))
    # Not by `Path`, which raises for a name that is too long.
    if not any(map(os.path.isfile, (f"{place}.py", os.path.join(place, "__init__.py")))):
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
    drawn = () if outcome.drawing is None else (outcome.drawing,)
    return [Paragraph(tuple(told)), *_where(violation), *drawn]


def _where(violation: Violation) -> Sequence[Section]:
    """The witness as a table, its coordinates first."""
    witness = violation.witness
    # What has no title is a layout, and leads to where that puts the scale.
    others = {name: f"{name} puts it in" for name in witness if name not in _TITLES}
    titles = {name: title for name, title in (_TITLES | others).items() if name in witness}
    if not titles:
        return ()
    values = tuple(Cell(shortened(_shown(name, witness[name]))) for name in titles)
    return (Table("Where", tuple(map(printable, titles.values())), (values,)),)


def _shown(name: str, value: Any) -> str:
    if name in _CODES:
        return "".join(f"{code:x}" for code in value)
    if name in _BYTES and isinstance(value, int):
        return f"{value:#04x}"
    if isinstance(value, Mapping):
        # The note of the other coordinate says the same again.
        return ", ".join(f"{key} {each}" for key, each in value.items() if key != "note")
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


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
