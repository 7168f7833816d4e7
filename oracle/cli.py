"""Arguments in, exit code out. Nothing heavy is imported before a command is known.

Exit codes: 0 everything as declared; 1 a finding; 2 bad usage or input; 3 internal error;
5 nothing ran. Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeAlias

from oracle import __version__
from oracle.errors import OracleError, UsageError
from oracle.report.text import printable

PROGRAM = "layout-oracle"
DEBUG_VARIABLE = "LAYOUT_ORACLE_DEBUG"
MAX_HEAD_SIZE = 16_384
MAX_NUM_HEADS = 1_024
MAX_BLOCK_SIZE = 65_536
MAX_JOBS = 1_024

_INTERNAL_ERROR = 3
# What a shell reports for a program that an interrupt or a closed pipe has ended.
_INTERRUPTED = 130
_PIPE_CLOSED = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (that of the process by default) and give its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal or log of another encoding loses a character rather than the report.
            stream.reconfigure(errors="replace")
    try:
        arguments = _parser().parse_args(argv)
        command = importlib.import_module(f"oracle.commands.{arguments.command}")
        code: int = command.run(arguments)
        sys.stdout.flush()
    except OracleError as error:
        return _fail(f"error: {error}", error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", _INTERRUPTED)
    except BrokenPipeError:
        # Python flushes standard output once more as it ends; there is nobody to read that.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        told = f"internal error: {type(error).__name__}: {error}"
        return _fail(f"{told} (set {DEBUG_VARIABLE}=1 for the traceback)", _INTERNAL_ERROR)
    return code


def _fail(message: str, code: int) -> int:
    print(f"{PROGRAM}: {printable(' '.join(message.split()))}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are errors like all others: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description="Where do the scales of an NVFP4 KV cache go, and who agrees about it?",
        epilog="Exit codes: 0 as declared, 1 a finding, 2 bad usage or input, 3 internal error, "
        "5 nothing ran.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=_Parser
    )
    for add in (_add_verdict, _add_layouts, _add_map, _add_inspect, _add_doctor):
        add(commands)
    return parser


# What add_subparsers gives; argparse has no public name for it.
_Commands: TypeAlias = "argparse._SubParsersAction[_Parser]"


def _add_command(commands: _Commands, name: str, summary: str, detail: str = "") -> _Parser:
    parser: _Parser = commands.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}. {detail}".strip(),
        allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON, and nothing else")
    return parser


def _add_verdict(commands: _Commands) -> None:
    parser = _add_command(
        commands,
        "verdict",
        "execute writers and readers, and say who agrees",
        "Lists are separated by commas, or the option is repeated.",
    )
    parser.add_argument(
        "writers", nargs="*", metavar="WRITER",
        help="store, store:k=LAYOUT,v=LAYOUT, reference:k=LAYOUT,v=LAYOUT, PATH.cubin[:KERNEL] or "
        "package.module:function (default: the store kernel under its contracts, and the "
        "specification)",
    )  # fmt: skip
    parser.add_argument(
        "--reader", action="append", default=[], metavar="READER",
        help="trtllm-gen or another reader of the contracts, or reference:k=LAYOUT,v=LAYOUT; may "
        "be repeated, and its disagreement is a finding (default: three readers that only inform)",
    )  # fmt: skip
    listed = (
        ("--head-size", _head_size, "SIZE", "elements of a head, a multiple of 16"),
        ("--num-heads", _up_to(MAX_NUM_HEADS), "COUNT", "KV heads"),
        ("--block-size", _up_to(MAX_BLOCK_SIZE), "TOKENS", "tokens of a page"),
        ("--cache-layout", _one_of("NHD", "HND"), "NHD,HND", "what comes first in a page"),
        ("--dtype", _one_of("bf16", "fp16"), "bf16,fp16", "type of the values that are stored"),
        ("--arch", _word, "ARCH", "compile the store kernel for this, such as sm_100a"),
    )
    for option, parse, metavar, text in listed:
        parser.add_argument(
            option, action="extend", type=_list_of(parse), metavar=metavar, help=text
        )
    parser.add_argument(
        "--output", metavar="DIR", help="write verdict.json and verdict.md into this directory"
    )
    parser.add_argument(
        "--require", choices=("machine", "cuda"), metavar="machine|cuda",
        help="exit with 5 where a subject of this kind was skipped, or none was run",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=_up_to(MAX_JOBS), metavar="N", help="processes (default: one a processor)"
    )


def _add_layouts(commands: _Commands) -> None:
    parser = _add_command(commands, "layouts", "list the candidates and where they coincide")
    _add_plane(parser)


def _add_map(commands: _Commands) -> None:
    parser = _add_command(
        commands,
        "map",
        "draw the scale plane of a layout or a writer",
        "Each cell is a token and a scale column; its number is the stored offset in the plane, "
        "its colour the stored row.",
    )
    parser.add_argument("subject", metavar="LAYOUT|SPEC", help="a candidate, or a writer's spec")
    parser.add_argument(
        "--side", choices=("K", "V"), default="V", help="side of a writer (default: V)"
    )
    _add_plane(parser)


def _add_plane(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--head-size", type=_head_size, default=128, metavar="SIZE",
        help="elements of a head, a multiple of 16 (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--block-size", type=_up_to(MAX_BLOCK_SIZE), default=16, metavar="TOKENS",
        help="tokens of a page (default: %(default)s)",
    )  # fmt: skip


def _add_inspect(commands: _Commands) -> None:
    parser = _add_command(commands, "inspect", "show the kernels of a cubin and what can be run")
    parser.add_argument("file", metavar="FILE", help="a cubin")


def _add_doctor(commands: _Commands) -> None:
    _add_command(commands, "doctor", "show what can run here; exits with 5 if the verdict cannot")


def _list_of(parse: Callable[[str], object]) -> Callable[[str], list[object]]:
    """A parser of values separated by commas."""

    def parse_list(text: str) -> list[object]:
        return [parse(part.strip()) for part in text.split(",")]

    return parse_list


def _up_to(most: int) -> Callable[[str], int]:
    """A parser of whole numbers from 1."""

    def parse(text: str) -> int:
        # Only plain digits: int() would also take "1_6" and digits of other scripts.
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
        if not 1 <= number <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} will not do: give a whole number from 1 to {most}"
            )
        return number

    return parse


def _head_size(text: str) -> int:
    size = _up_to(MAX_HEAD_SIZE)(text)
    if size % 16:
        raise argparse.ArgumentTypeError(
            f"{text!r} will not do: give a multiple of 16, the elements that share a scale"
        )
    return size


def _one_of(*names: str) -> Callable[[str], str]:
    """A parser of one of a few names."""

    def parse(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text!r} will not do: give {' or '.join(names)}")
        return text

    return parse


def _word(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("an empty name will not do")
    return text
