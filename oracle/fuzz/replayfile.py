"""A replay file: one case of one subject that broke a promise, for anybody to execute again.

It may come from a stranger: `load` takes only what reports/schema/replay.schema.json allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from oracle import fields
from oracle.errors import UsageError
from oracle.fuzz.failure import Failure
from oracle.fuzz.files import read_json
from oracle.properties.case import StoreCase
from oracle.properties.promises import PROMISES, Violation
from oracle.report.document import dump
from oracle.text import shortened

SCHEMA_VERSION = "1.0"
MAX_FILE_BYTES = 1 << 20
LONGEST_REASON = 2_000
"""Characters of a reason that are kept; a subject's own message may be longer."""
_SPEC = fields.spelled(r"[^\x00-\x1f\x7f\ud800-\udc7f\udd00-\udfff]+")
"""A spec may be a path: what no path holds is kept away from the file system."""


@dataclass(frozen=True)
class Replay:
    """A failure, and whose it is: the specs of the writer and, where there was one, the reader."""

    subject: str
    reader: str | None
    failure: Failure

    def text(self) -> str:
        """The file's content."""
        failure = self.failure
        return dump(
            {
                "schema_version": SCHEMA_VERSION,
                "subject": self.subject,
                "reader": self.reader,
                "promise": failure.violation.promise,
                "case": failure.case.document(),
                "found": {
                    "reason": shortened(failure.violation.reason, LONGEST_REASON),
                    "witness": dict(failure.violation.witness),
                    "shrunk": failure.shrunk,
                    "steady": failure.steady,
                },
            }
        )


def load(path: Path) -> Replay:
    """The replay of a file. Raises UsageError, with the path, for a file that is none."""
    try:
        return _parse(read_json(path, MAX_FILE_BYTES))
    except UsageError as error:
        message = str(error)
        raise UsageError(message if str(path) in message else f"{path}: {message}") from error


def _parse(told: object) -> Replay:
    names = ("schema_version", "subject", "reader", "promise", "case", "found")
    entry = fields.record(told, "replay", names)
    fields.one_of((SCHEMA_VERSION,))(entry["schema_version"], "schema_version")
    found = fields.record(entry["found"], "found", ("reason", "witness"), ("shrunk", "steady"))
    witness = found["witness"]
    if not isinstance(witness, dict):
        fields.refuse("found.witness", "is no object")
    violation = Violation(
        fields.one_of(PROMISES)(entry["promise"], "promise"),
        fields.text(found["reason"], "found.reason"),
        witness,
    )
    shrunk, steady = (
        fields.boolean(found.get(name, True), f"found.{name}") for name in ("shrunk", "steady")
    )
    return Replay(
        _SPEC(entry["subject"], "subject"),
        fields.optional(_SPEC)(entry["reader"], "reader"),
        Failure(StoreCase.parse(entry["case"]), violation, shrunk, steady),
    )
