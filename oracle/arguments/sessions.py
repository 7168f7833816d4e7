"""The commands that search for failing cases, and execute one again."""

from __future__ import annotations

import argparse

from oracle.arguments.common import (
    Commands,
    Parser,
    add_command,
    add_domain,
    add_jobs,
    add_releases,
)
from oracle.arguments.values import (
    up_to,
    word,
)

PROFILES = {"dev": 5.0, "ci": 60.0, "fuzz": None}
"""Seconds that a session of each profile takes; None: until it is stopped."""
MAX_SEED = 2**32 - 1
MAX_EXAMPLES = 1_000_000_000_000
MAX_FAILURES = 1_000
MAX_MINUTES = 100_000.0


def add_fuzz(commands: Commands) -> None:
    """Add `fuzz`."""
    parser = add_command(
        commands,
        "fuzz",
        "look for cases in which a writer breaks a promise, and shrink them",
        "What is found is kept: the same command goes on where the last one ended, and executes "
        "the known failures first. docs/fuzzing.md explains.",
    )
    parser.add_argument(
        "spec", metavar="WRITER", type=word, help="as for verdict; it must name one writer a dtype"
    )
    _add_reader(parser, "a reader that must look where the writer stores; as for verdict")
    parser.add_argument(
        "--profile", choices=tuple(PROFILES), default="dev", metavar="dev|ci|fuzz",
        help="a few seconds, a minute, or until stopped (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--minutes", type=minutes, metavar="N", help="search for so long, whatever the profile"
    )
    parser.add_argument(
        "--examples", type=up_to(MAX_EXAMPLES), metavar="N",
        help="end after so many cases: with one job and a seed always the same ones",
    )  # fmt: skip
    parser.add_argument(
        "--seed",
        type=seed,
        metavar="S",
        help="begin with this (default: that of the state, or any)",
    )
    parser.add_argument(
        "--max-failures", type=up_to(MAX_FAILURES), default=5, metavar="N",
        help="distinct failures to keep of each promise, more are counted (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--state", type=word, metavar="DIR",
        help="what is kept, and gone on from (default: one for each subject, in the cache)",
    )  # fmt: skip
    add_domain(parser, " (default: all that are drawn from and that the writer takes)")
    _add_arch(parser)
    add_releases(parser)
    add_jobs(parser)


def add_replay(commands: Commands) -> None:
    """Add `replay`."""
    parser = add_command(
        commands,
        "replay",
        "execute a case that broke a promise, and show what happens",
        "Exits with 1 where the promise is broken again, with 0 where it is kept now.",
    )
    parser.add_argument("file", metavar="CASE.json", type=word, help="a file that fuzz wrote")
    parser.add_argument(
        "--subject", type=word, metavar="WRITER",
        help="the writer to execute, as for verdict (default: the one in the file)",
    )  # fmt: skip
    _add_reader(parser, "the reader to execute (default: the one in the file)")
    _add_arch(parser)
    add_releases(parser)


def _add_reader(parser: Parser, text: str) -> None:
    parser.add_argument("--reader", type=word, metavar="READER", help=text)


def _add_arch(parser: Parser) -> None:
    parser.add_argument(
        "--arch",
        type=word,
        metavar="ARCH",
        help="compile the store kernel for this, such as sm_100a",
    )


def minutes(text: str) -> float:
    """A time in minutes, with or without a fraction."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= MAX_MINUTES:
        raise argparse.ArgumentTypeError(
            f"{text!r} will not do: give a number above 0, at most {MAX_MINUTES:.0f}"
        )
    return number


def seed(text: str) -> int:
    """A seed: a whole number from 0."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not 0 <= number <= MAX_SEED:
        raise argparse.ArgumentTypeError(
            f"{text!r} will not do: give a whole number from 0 to {MAX_SEED}"
        )
    return number
