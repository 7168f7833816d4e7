"""The parser, and the options that several commands share."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn, TypeAlias

from oracle.arguments.values import (
    MAX_BLOCK_SIZE,
    MAX_JOBS,
    MAX_NUM_HEADS,
    head_size,
    list_of,
    one_of,
    up_to,
    word,
)
from oracle.errors import UsageError


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are errors like all others: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(f"{message} (see {self.prog} --help)")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is not known here, where the command is, and not where it was called."""
        found, left = super().parse_known_args(args, namespace)
        if left:
            self.error(f"unrecognized arguments: {' '.join(left)}")
        return found, left


# What add_subparsers gives; argparse has no public name for it.
Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


def add_command(commands: Commands, name: str, summary: str, detail: str = "") -> Parser:
    """Add a command with a one-line summary; every command takes --json."""
    parser: Parser = commands.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}. {detail}".strip(),
        allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON, and nothing else")
    return parser


def add_releases(parser: Parser) -> None:
    """Add the options that say where the wheels of releases come from."""
    parser.add_argument(
        "--wheel-dir", type=word, metavar="DIR", help="take the wheels of releases from here"
    )
    parser.add_argument(
        "--offline", action="store_true", help="never fetch a release that is not at hand"
    )


def add_vllm(parser: Parser, what: str) -> None:
    """Add the options of a vLLM checkout; `what` says what it is for."""
    parser.add_argument(
        "--vllm", type=word, metavar="PATH",
        help=f"a vLLM checkout: {what}, executed in another process",
    )  # fmt: skip
    parser.add_argument(
        "--vllm-python", type=word, metavar="PYTHON",
        help="the Python to execute it with, which needs torch (default: this one)",
    )  # fmt: skip


def add_plane(parser: argparse.ArgumentParser) -> None:
    """Add the geometry of one scale plane."""
    parser.add_argument(
        "--head-size", type=head_size, default=128, metavar="SIZE",
        help="elements of a head, a multiple of 16 (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--block-size", type=up_to(MAX_BLOCK_SIZE), default=16, metavar="TOKENS",
        help="tokens of a page (default: %(default)s)",
    )  # fmt: skip


def add_domain(parser: Parser, otherwise: str = "") -> None:
    """Add the options that name geometries and dtypes; `otherwise` says what holds without one."""
    for option, parse, metavar, text in (
        ("--head-size", head_size, "SIZE", "elements of a head, a multiple of 16"),
        ("--num-heads", up_to(MAX_NUM_HEADS), "COUNT", "KV heads"),
        ("--block-size", up_to(MAX_BLOCK_SIZE), "TOKENS", "tokens of a page"),
        ("--cache-layout", one_of("NHD", "HND"), "NHD,HND", "what comes first in a page"),
        ("--dtype", one_of("bf16", "fp16"), "bf16,fp16", "type of the values that are stored"),
    ):
        parser.add_argument(
            option, action="extend", type=list_of(parse), metavar=metavar, help=text + otherwise
        )


def add_jobs(parser: Parser) -> None:
    """Add the number of processes."""
    parser.add_argument(
        "--jobs", type=up_to(MAX_JOBS), metavar="N", help="processes (default: one a processor)"
    )
