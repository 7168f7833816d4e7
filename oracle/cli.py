"""Arguments in, exit code out. Nothing heavy is imported before a command is known.

Exit codes: 0 everything as declared; 1 a finding; 2 bad usage or input; 3 internal error;
5 nothing ran. Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence

from oracle import __version__
from oracle.arguments import judging, looking, rendering, sessions
from oracle.arguments.common import Parser
from oracle.errors import OracleError
from oracle.termination import Terminated, terminable
from oracle.text import printable

PROGRAM = "layout-oracle"
DEBUG_VARIABLE = "LAYOUT_ORACLE_DEBUG"

_DEPENDENCIES = ("numpy", "rich", "zstandard")
_USAGE = 2
_INTERNAL_ERROR = 3
_NOTHING_RAN = 5
# What a shell reports for a program that an interrupt or a closed pipe has ended.
_INTERRUPTED = 130
_TERMINATED = 143
_PIPE_CLOSED = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (that of the process by default) and give its exit code."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        return _fail("error: standard output is closed: nothing could be told", _USAGE)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal or log of another encoding loses a character rather than the report.
            stream.reconfigure(errors="replace")
    try:
        arguments = _parser().parse_args(argv)
        command = importlib.import_module(f"oracle.commands.{arguments.command}")
        with terminable():
            code: int = command.run(arguments)
        sys.stdout.flush()
    except OracleError as error:
        return _fail(f"error: {error}", error.exit_code)
    except Terminated:
        return _fail("terminated", _TERMINATED)
    except KeyboardInterrupt:
        return _fail("interrupted", _INTERRUPTED)
    except BrokenPipeError:
        # Python flushes standard output once more as it ends; there is nobody to read that.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name in _DEPENDENCIES:
            return _fail(
                f"error: this Python has no {error.name}: in a checkout run `make verdict` once, "
                "then .venv/bin/python harness.py",
                _NOTHING_RAN,
            )
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        told = f"internal error: {type(error).__name__}: {error}"
        return _fail(f"{told} (set {DEBUG_VARIABLE}=1 for the traceback)", _INTERNAL_ERROR)
    return code


def _fail(message: str, code: int) -> int:
    print(f"{PROGRAM}: {printable(' '.join(message.split()))}", file=sys.stderr)
    return code


def _parser() -> Parser:
    parser = Parser(
        prog=PROGRAM,
        description="Where do the scales of an NVFP4 KV cache go, and who agrees about it?",
        epilog="Exit codes: 0 as declared, 1 a finding, 2 bad usage or input, 3 internal error, "
        "5 nothing ran.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )
    for add in (
        judging.add_verdict, judging.add_sweep, judging.add_numerics, looking.add_views,
        looking.add_layouts, looking.add_map, looking.add_inspect, judging.add_timeline,
        rendering.add_report, sessions.add_fuzz, sessions.add_replay, looking.add_doctor,
    ):  # fmt: skip
        add(commands)
    return parser
