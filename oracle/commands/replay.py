"""`replay`: execute a case that broke a promise, and show what happens now."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from oracle.commands.streams import subjects_speak_on_stderr
from oracle.commands.verdict import artifact_options
from oracle.fuzz.again import check_importable, document, execute, sections
from oracle.fuzz.replayfile import load
from oracle.fuzz.subject import subject_from_specs
from oracle.report import terminal
from oracle.report.document import TOOL, dump

SCHEMA_VERSION = "1.0"


def run(arguments: argparse.Namespace) -> int:
    """Execute the case; 1 where its promise is broken, 0 where it is kept.

    Raises UsageError for a file that is no replay, NothingRan where the subject refuses the case.
    """
    replay = load(Path(arguments.file))
    subject, reader = arguments.subject or replay.subject, arguments.reader or replay.reader
    if not arguments.subject:
        check_importable(subject, "--subject")
    if reader and not arguments.reader:
        check_importable(reader, "--reader")
    archs = (arguments.arch,) if arguments.arch else ()
    dtypes = (replay.failure.case.dtype,)
    with subjects_speak_on_stderr():
        made = subject_from_specs(subject, reader, archs, dtypes, artifact_options(arguments))
        outcome = execute(replay, made)
    if arguments.json:
        result = {**document(outcome), "exit_code": outcome.exit_code}
        sys.stdout.write(dump({"schema_version": SCHEMA_VERSION, "tool": TOOL, **result}))
    else:
        terminal.show(sections(outcome), terminal.console())
    return outcome.exit_code
