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
MAX_GROUPS = 1_000_000_000
MAX_LAYERS = 10_000

_DEPENDENCIES = ("numpy", "rich", "zstandard")
_INTERNAL_ERROR = 3
_NOTHING_RAN = 5
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
    for add in (
        _add_verdict, _add_sweep, _add_numerics, _add_views, _add_layouts, _add_map, _add_inspect,
        _add_timeline, _add_doctor,
    ):  # fmt: skip
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
        help="store, store:k=LAYOUT,v=LAYOUT, reference:k=LAYOUT,v=LAYOUT, PATH.cubin[:KERNEL], "
        "vllm==VERSION, the path of a wheel, shared object or installed package, or "
        "package.module:function (default: the store kernel under its contracts, and the "
        "specification)",
    )  # fmt: skip
    parser.add_argument(
        "--reader", action="append", default=[], metavar="READER",
        help="trtllm-gen or another reader of the contracts, reference:k=LAYOUT,v=LAYOUT, or "
        "attention kernels: flashinfer-cubin==VERSION[:GLOB], PATH.whl[:GLOB], PATH.cubin; may "
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
        "--domain", choices=("default", "whole"), default="default", metavar="default|whole",
        help="whole: head sizes 16 to 576, pages of 4 to 128 tokens, 1 to 16 heads, writers alone; "
        "the options above replace parts of it",
    )  # fmt: skip
    parser.add_argument(
        "--cache-tensor", choices=("BNHF", "BHNF"), default="BNHF", metavar="BNHF|BHNF",
        help="order of dimensions in which vLLM's op is handed a side of the cache: pages, tokens, "
        "heads, bytes as it expects (default), or pages, heads, tokens, bytes",
    )  # fmt: skip
    _add_releases(parser)
    _add_vllm(parser, "its dequantiser and view splits are readers, its extensions writers")
    parser.add_argument(
        "--vllm-flags", type=_word, metavar="FLAGS",
        help="flags of its dequantiser, as in k.NAME=VALUE,v.NAME=VALUE (default: by arch)",
    )  # fmt: skip
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


def _add_sweep(commands: _Commands) -> None:
    parser = _add_command(
        commands,
        "sweep",
        "execute every attention kernel of a wheel, and say what each reads",
        "What was executed before is kept, so that an interrupted sweep goes on.",
    )
    parser.add_argument(
        "spec", metavar="WHEEL", help="flashinfer-cubin==VERSION[:GLOB] or PATH.whl[:GLOB]"
    )
    _add_releases(parser)
    parser.add_argument("--output", metavar="DIR", help="write rows and table into this directory")
    parser.add_argument("--docs", metavar="PATH", help="write the page that answers the question")
    parser.add_argument(
        "--jobs", type=_up_to(MAX_JOBS), metavar="N", help="processes (default: one a processor)"
    )


def _add_releases(parser: _Parser) -> None:
    parser.add_argument(
        "--wheel-dir", type=_word, metavar="DIR", help="take the wheels of releases from here"
    )
    parser.add_argument(
        "--offline", action="store_true", help="never fetch a release that is not at hand"
    )


def _add_numerics(commands: _Commands) -> None:
    parser = _add_command(
        commands,
        "numerics",
        "judge the values that writers store: bit-exact, admissible or wrong",
        "Exits with 1 where a byte is stored that no reciprocal within an ulp explains.",
    )
    parser.add_argument(
        "writers", nargs="*", metavar="WRITER",
        help="as for verdict (default: the store kernel with both scale searches)",
    )  # fmt: skip
    parser.add_argument(
        "--rcp-model", type=_word, default="exact", metavar="MODEL",
        help="reciprocal of the machine: exact, +1ulp, -1ulp or table:FILE, a file that "
        "benchmarks/rcp_dump made on a GPU (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--groups", type=_up_to(MAX_GROUPS), metavar="COUNT",
        help="groups of 16 to compare for each writer, at the least (default: 100000)",
    )  # fmt: skip
    parser.add_argument(
        "--dtype", action="extend", type=_list_of(_one_of("bf16", "fp16")), metavar="bf16,fp16",
        help="type of the values that are stored (default: bf16)",
    )  # fmt: skip
    parser.add_argument(
        "--arch", action="extend", type=_list_of(_word), metavar="ARCH",
        help="compile the store kernel for this (default: sm_90, sm_100a and sm_120a)",
    )  # fmt: skip
    parser.add_argument("--markdown", metavar="FILE", help="write the result to this file as well")
    parser.add_argument(
        "--docs", metavar="FILE",
        help="instead, write docs/numerics.md: edge vectors, mutation scores, the named writers",
    )  # fmt: skip


def _add_views(commands: _Commands) -> None:
    parser = _add_command(
        commands,
        "views",
        "say who owns which byte of a cache tensor, and who may use it",
        "Nothing is executed: the answers follow from shape and strides, in bytes. Exits with 1 "
        "where bytes are shared or something asked for does not hold.",
    )
    sizes = _list_of(_size)
    parser.add_argument(
        "--shape", type=sizes, required=True, metavar="SIZES", help="such as 100000,2,64,8,72"
    )
    parser.add_argument(
        "--stride", type=sizes, metavar="STRIDES",
        help="in bytes, one for each size (default: those of --layout)",
    )  # fmt: skip
    parser.add_argument(
        "--dims", type=_word, metavar="LETTERS",
        help="what the sizes are: B2NHF (pages, sides, tokens, heads, bytes) or BPNF (P: heads of "
        "both sides), in any order (default: by their number)",
    )  # fmt: skip
    parser.add_argument(
        "--storage-offset", type=_size, default=0, metavar="BYTES", help="where the tensor starts"
    )
    parser.add_argument(
        "--storage-bytes", type=_size, metavar="BYTES",
        help="size of the storage (default: up to the tensor's last byte)",
    )  # fmt: skip
    parser.add_argument(
        "--split", type=_word, metavar="SPLIT",
        help="how it is carved: vllm, contiguous, page, inline or head_slots (default: vllm)",
    )  # fmt: skip
    parser.add_argument(
        "--layout", type=_word, metavar="LAYOUT",
        help="order the strides should be in: HND, NHD, LBHNC, BLHNC, LBNHC or BLNHC",
    )  # fmt: skip
    parser.add_argument(
        "--layers", type=_up_to(MAX_LAYERS), metavar="COUNT", help="layers of a BL… layout"
    )
    for side in ("k", "v"):
        parser.add_argument(
            f"--{side}-scales", type=_word, default="linear", metavar="LAYOUT",
            help=f"layout of {side.upper()}'s scales (default: %(default)s)",
        )  # fmt: skip
    for part in ("heads", "tokens"):
        parser.add_argument(
            f"--{part}", type=_part, metavar="START:STOP", help=f"judge a slice of these {part}"
        )
    parser.add_argument(
        "--party", action="append", default=[], type=_word, metavar="NAME",
        help="a contract that must be usable; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--read-split", type=_word, metavar="SPLIT",
        help="what is written through --split is read through this: a round trip",
    )  # fmt: skip
    _add_vllm(parser, "use its view split")


def _add_vllm(parser: _Parser, what: str) -> None:
    parser.add_argument(
        "--vllm", type=_word, metavar="PATH",
        help=f"a vLLM checkout: {what}, executed in another process",
    )  # fmt: skip
    parser.add_argument(
        "--vllm-python", type=_word, metavar="PYTHON",
        help="the Python to execute it with, which needs torch (default: this one)",
    )  # fmt: skip


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
    parser = _add_command(
        commands,
        "inspect",
        "show the kernels of a release, wheel, binary or cubin, and what can run",
    )
    parser.add_argument(
        "file", metavar="FILE", type=_word,
        help="a cubin, a wheel, a shared object, the directory of an installed vLLM, or "
        "vllm==VERSION; of all but a cubin the store kernels are shown",
    )  # fmt: skip
    parser.add_argument(
        "--matching", metavar="TEXT",
        help="instead, every kernel, for any arch, whose mangled name holds this",
    )  # fmt: skip
    _add_releases(parser)


def _add_timeline(commands: _Commands) -> None:
    parser = _add_command(
        commands,
        "timeline",
        "show what vLLM's store kernel is and does, release by release",
        "With --offline the releases are those whose wheels are at hand; else every published one "
        "in the range is fetched that is not.",
    )
    parser.add_argument("package", metavar="PACKAGE", help="vllm")
    parser.add_argument(
        "range",
        metavar="A..B",
        type=_word,
        help="such as 0.20.0..0.33.0; either end may be left out",
    )
    _add_releases(parser)
    parser.add_argument(
        "--markdown", type=_word, metavar="FILE", help="write the table to this file as well"
    )


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


def _size(text: str) -> int:
    """A whole number, of any sign and size: what reads it knows what will do."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 100):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


def _part(text: str) -> range:
    start, colon, stop = text.partition(":")
    if not colon:
        raise argparse.ArgumentTypeError(f"{text!r} will not do: give START:STOP")
    return range(_size(start), _size(stop))


def _word(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("an empty name will not do")
    return text
