"""`fuzz`: look for cases in which a writer breaks a promise, and keep what is found."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from oracle.arguments.sessions import PROFILES
from oracle.commands.streams import subjects_speak_on_stderr
from oracle.commands.verdict import artifact_options
from oracle.errors import NothingRan
from oracle.report import terminal
from oracle.report.document import TOOL, dump
from oracle.run import default_jobs
from oracle.text import printable

SCHEMA_VERSION = "1.0"


def run(arguments: argparse.Namespace) -> int:
    """Run or go on with a session; 1 where a failure is known that fails now, or a case hung.

    Raises OracleError for what the arguments ask in vain, NothingRan where Hypothesis is missing.
    """
    if find_spec("hypothesis") is None:
        raise NothingRan("fuzz needs Hypothesis: pip install 'layout-oracle[fuzz]'")
    from oracle.fuzz.coverage import Coverage
    from oracle.fuzz.domain import domain_of
    from oracle.fuzz.prose import document, first_again, sections
    from oracle.fuzz.session import Plan, Session
    from oracle.fuzz.state import default_directory, opened
    from oracle.fuzz.subject import subject_from_specs
    from oracle.fuzz.watcher import StderrWatcher
    from oracle.properties.strategies import DEFAULT_LIMITS

    with subjects_speak_on_stderr():
        subject = subject_from_specs(
            arguments.spec,
            arguments.reader,
            (arguments.arch,) if arguments.arch else (),
            tuple(dict.fromkeys(arguments.dtype or ())),
            artifact_options(arguments),
        )
    limits = replace(DEFAULT_LIMITS, **_asked(arguments))
    coverage = Coverage(domain_of(subject, limits))
    directory = Path(arguments.state) if arguments.state else default_directory(subject)
    with opened(directory, subject) as state:
        record = state.load(arguments.seed, coverage, _notify)
        if record.examples:
            _notify(f"going on with {directory}: {record.examples:,} examples so far")
        plan = Plan(
            jobs=arguments.jobs or default_jobs(),
            seconds=_seconds(arguments),
            examples=arguments.examples,
            cap=arguments.max_failures,
            limits=limits,
        )
        session = Session(subject, state, record, plan, StderrWatcher())
        session.run()
        code = int(bool(record.failing) or session.cut)
        if arguments.json:
            result = {**document(subject, session, state), "exit_code": code}
            sys.stdout.write(dump({"schema_version": SCHEMA_VERSION, "tool": TOOL, **result}))
        else:
            console = terminal.console()
            terminal.show(sections(subject, session, state), console)
            # Only now: this executes the subject again, which may do anything.
            with subjects_speak_on_stderr():
                shown = first_again(subject, record)
            if shown:
                console.print()
                terminal.show(shown, console)
    ended = "stopped; everything is" if session.stopped else "everything is"
    _notify(f"{ended} in {directory}: the same command goes on from there")
    return code


def _asked(arguments: argparse.Namespace) -> dict[str, Any]:
    """What cases are to be drawn from, where anything is said about it; each value once."""
    asked = {
        "head_sizes": arguments.head_size,
        "num_heads": arguments.num_heads,
        "block_sizes": arguments.block_size,
        "cache_layouts": arguments.cache_layout,
    }
    return {name: tuple(dict.fromkeys(values)) for name, values in asked.items() if values}


def _seconds(arguments: argparse.Namespace) -> float | None:
    """How long to search: what is said in minutes, else the examples alone, else the profile."""
    if arguments.minutes is not None:
        return float(60 * arguments.minutes)
    return None if arguments.examples is not None else PROFILES[arguments.profile]


def _notify(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)
