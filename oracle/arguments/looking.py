"""The commands that judge nothing that is executed: they show and compute."""

from __future__ import annotations

from oracle.arguments.common import Commands, add_command, add_plane, add_releases, add_vllm
from oracle.arguments.values import (
    MAX_LAYERS,
    MAX_NUM_HEADS,
    list_of,
    one_of,
    span,
    up_to,
    whole_number,
    word,
)


def add_views(commands: Commands) -> None:
    """Add `views`."""
    parser = add_command(
        commands,
        "views",
        "say who owns which byte of a cache tensor, and who may use it",
        "Nothing is executed: the answers follow from shape and strides, in bytes. Exits with 1 "
        "where bytes are shared or something asked for does not hold.",
    )
    sizes = list_of(whole_number)
    parser.add_argument(
        "--shape", type=sizes, required=True, metavar="SIZES", help="such as 100000,2,64,8,72"
    )
    parser.add_argument(
        "--stride", type=sizes, metavar="STRIDES",
        help="in bytes, one for each size (default: those of --layout)",
    )  # fmt: skip
    parser.add_argument(
        "--dims", type=word, metavar="LETTERS",
        help="what the sizes are: B2NHF (pages, sides, tokens, heads, bytes) or BPNF (P: heads of "
        "both sides), in any order (default: by their number)",
    )  # fmt: skip
    parser.add_argument(
        "--storage-offset",
        type=whole_number,
        default=0,
        metavar="BYTES",
        help="where the tensor starts",
    )
    parser.add_argument(
        "--storage-bytes", type=whole_number, metavar="BYTES",
        help="size of the storage (default: up to the tensor's last byte)",
    )  # fmt: skip
    parser.add_argument(
        "--split", type=word, metavar="SPLIT",
        help="how it is carved: vllm, contiguous, page, inline or head_slots (default: vllm)",
    )  # fmt: skip
    parser.add_argument(
        "--layout", type=word, metavar="LAYOUT",
        help="order the strides should be in: HND, NHD, LBHNC, BLHNC, LBNHC or BLNHC",
    )  # fmt: skip
    parser.add_argument(
        "--layers", type=up_to(MAX_LAYERS), metavar="COUNT", help="layers of a BL… layout"
    )
    for side in ("k", "v"):
        parser.add_argument(
            f"--{side}-scales", type=word, default="linear", metavar="LAYOUT",
            help=f"layout of {side.upper()}'s scales (default: %(default)s)",
        )  # fmt: skip
    for part in ("heads", "tokens"):
        parser.add_argument(
            f"--{part}", type=span, metavar="START:STOP", help=f"judge a slice of these {part}"
        )
    parser.add_argument(
        "--party", action="append", default=[], type=word, metavar="NAME",
        help="a contract that must be usable; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--read-split", type=word, metavar="SPLIT",
        help="what is written through --split is read through this: a round trip",
    )  # fmt: skip
    add_vllm(parser, "use its view split")


def add_layouts(commands: Commands) -> None:
    """Add `layouts`."""
    parser = add_command(commands, "layouts", "list the candidates and where they coincide")
    add_plane(parser)


def add_map(commands: Commands) -> None:
    """Add `map`."""
    parser = add_command(
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
    add_plane(parser)
    parser.add_argument(
        "--num-heads", type=up_to(MAX_NUM_HEADS), default=2, metavar="COUNT",
        help="KV heads, of a writer, which must all be stored alike (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--cache-layout", type=one_of("NHD", "HND"), default="HND", metavar="NHD|HND",
        help="what comes first in a page, for a writer (default: %(default)s)",
    )  # fmt: skip
    add_releases(parser)


def add_inspect(commands: Commands) -> None:
    """Add `inspect`."""
    parser = add_command(
        commands,
        "inspect",
        "show the kernels of a release, wheel, binary or cubin, and what can run",
    )
    parser.add_argument(
        "file", metavar="FILE", type=word,
        help="a cubin, a wheel, a shared object, the directory of an installed vLLM, or "
        "vllm==VERSION; of all but a cubin the store kernels are shown; of "
        "flashinfer-cubin==VERSION[:GLOB] and its wheel the attention kernels, by name",
    )  # fmt: skip
    parser.add_argument(
        "--matching", metavar="TEXT",
        help="instead, every kernel, for any arch, whose mangled name holds this",
    )  # fmt: skip
    add_releases(parser)


def add_doctor(commands: Commands) -> None:
    """Add `doctor`."""
    add_command(commands, "doctor", "show what can run here; exits with 5 if the verdict cannot")
