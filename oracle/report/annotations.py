"""A verdict as annotations of a GitHub Actions run: `python -m oracle.report.annotations FILE`.

Each fault becomes an `::error` and what could not be run a `::warning`, which GitHub shows beside
the change. It shows ten of each kind for a step, so no more are printed, and their number is told.
Source: "Workflow commands for GitHub Actions", https://docs.github.com/actions/reference.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from oracle.errors import OracleError, UsageError
from oracle.report.digest import configuration_in_words, misplacement_in_words, smallest_case
from oracle.report.faults import faults
from oracle.report.outline import Tone
from oracle.report.parse import read
from oracle.text import counted, labels, printable
from oracle.verdict import NOT_EXECUTED, Agreement, Verdict

MOST = 10
"""Annotations of a kind that GitHub shows for one step."""
_FAULTS_PER_SUBJECT = 3
_IN_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTIES = _IN_DATA | str.maketrans({":": "%3A", ",": "%2C"})


def command(kind: str, title: str, message: str) -> str:
    """One workflow command: `kind` is error, warning or notice; nothing in the texts ends it."""
    return f"::{kind} title={title.translate(_IN_PROPERTIES)}::{message.translate(_IN_DATA)}"


def as_annotations(verdict: Verdict) -> Iterator[str]:
    """The workflow commands for a verdict; none where everything is as declared."""
    yield from _at_most("error", "layout fault", [*_faults(verdict), *_disagreements(verdict)])
    yield from _at_most("warning", "not executed", _not_executed(verdict))


def _at_most(kind: str, title: str, messages: Iterable[str]) -> Iterator[str]:
    told = list(messages)
    shown = told if len(told) <= MOST else told[: MOST - 1]
    yield from (command(kind, title, message) for message in shown)
    if len(told) > len(shown):
        rest = f"{len(told) - len(shown):,} more of this kind: see the verdict"
        yield command(kind, title, rest)


def _faults(verdict: Verdict) -> Iterator[str]:
    names = labels(info.id for info in verdict.subjects)
    for cell in faults(verdict, names, _FAULTS_PER_SUBJECT):
        if cell.tone is Tone.BAD:
            yield cell.text


def _disagreements(verdict: Verdict) -> Iterator[str]:
    pairs: dict[tuple[str, str, str], list[Agreement]] = {}
    for each in verdict.agreements:
        if each.judged and each.status == "disagree":
            pairs.setdefault((each.writer, each.reader, each.side), []).append(each)
    for (writer, reader, side), some in pairs.items():
        first = smallest_case(some)
        shown = misplacement_in_words(first.witness, side) if first.witness else ""
        yield (
            f"{printable(reader)} does not read {side} scales where {printable(writer)} stores "
            f"them, in {counted(len(some), 'geometry', 'geometries')}; first "
            f"{configuration_in_words(first.configuration)}: {shown}"
        )


def _not_executed(verdict: Verdict) -> Iterator[str]:
    told = {
        (finding.subject, finding.status, finding.reason or "")
        for finding in verdict.findings
        if finding.status in NOT_EXECUTED
    }
    for subject, status, reason in sorted(told):
        yield f"{printable(subject)} is {status}: {printable(reason)}"
    undecided = {
        (each.reader, each.writer, each.reason or "")
        for each in verdict.agreements
        if each.judged and each.status == "undecided"
    }
    for reader, writer, reason in sorted(undecided):
        yield f"{printable(reader)} was not held against {printable(writer)}: {printable(reason)}"


def main(arguments: Sequence[str]) -> int:
    """Print the annotations of a verdict.json; the exit code."""
    try:
        if len(arguments) != 1:
            raise UsageError("usage: python -m oracle.report.annotations VERDICT.json")
        for line in as_annotations(read(arguments[0]).verdict):
            print(line)
    except OracleError as error:
        print(printable(f"error: {error}"), file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
