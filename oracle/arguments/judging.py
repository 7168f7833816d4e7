"""The commands that execute subjects and judge them."""

from __future__ import annotations

from oracle.arguments.common import (
    Commands,
    add_command,
    add_domain,
    add_jobs,
    add_releases,
    add_vllm,
)
from oracle.arguments.values import (
    MAX_GROUPS,
    list_of,
    one_of,
    up_to,
    word,
)


def add_verdict(commands: Commands) -> None:
    """Add `verdict`."""
    parser = add_command(
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
        "attention kernels: flashinfer-cubin==VERSION[:GLOB], PATH.whl[:GLOB], PATH.cubin (without "
        "a WRITER each is judged alone, where it fits); may be repeated, and its disagreement is a "
        "finding (default: three readers that only inform)",
    )  # fmt: skip
    add_domain(parser)
    parser.add_argument(
        "--arch", action="extend", type=list_of(word), metavar="ARCH",
        help="compile the store kernel for this, such as sm_100a; of an artefact, take the code "
        "that a GPU of this arch would load",
    )  # fmt: skip
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
    add_releases(parser)
    add_vllm(parser, "its dequantiser and view splits are readers, its extensions writers")
    parser.add_argument(
        "--vllm-flags", type=word, metavar="FLAGS",
        help="flags of its dequantiser, as in k.NAME=VALUE,v.NAME=VALUE (default: by arch)",
    )  # fmt: skip
    parser.add_argument(
        "--output", metavar="DIR", help="write verdict.json and verdict.md into this directory"
    )
    parser.add_argument(
        "--executor", action="extend", type=list_of(one_of("machine", "cuda")),
        metavar="machine,cuda",
        help="what executes machine code: this program (default), an NVIDIA GPU, or both, their "
        "bytes then compared; with a GPU the store kernel is compiled for it, unless --arch says "
        "otherwise",
    )  # fmt: skip
    parser.add_argument(
        "--tier", choices=("auto", "numpy", "compiled"), metavar="auto|numpy|compiled",
        help="how the machine executes store kernels: as native code where that pays (auto, which "
        "$LAYOUT_ORACLE_TIER may change), on NumPy lanes, or compiled from the first launch on, "
        "which needs the extra `fast`; the result is the same",
    )  # fmt: skip
    parser.add_argument(
        "--require", choices=("machine", "cuda"), metavar="machine|cuda",
        help="exit with 5 where a subject of this kind was skipped, or none was run",
    )  # fmt: skip
    add_jobs(parser)


def add_sweep(commands: Commands) -> None:
    """Add `sweep`."""
    parser = add_command(
        commands,
        "sweep",
        "execute every attention kernel of a wheel, and say what each reads",
        "What was executed before is kept, so that an interrupted sweep goes on.",
    )
    parser.add_argument(
        "spec", metavar="WHEEL", help="flashinfer-cubin==VERSION[:GLOB] or PATH.whl[:GLOB]"
    )
    add_releases(parser)
    parser.add_argument("--output", metavar="DIR", help="write rows and table into this directory")
    parser.add_argument("--docs", metavar="PATH", help="write the page that answers the question")
    parser.add_argument(
        "--timeline", type=word, metavar="FILE",
        help="sum up this timeline, the JSON that `timeline --output` writes, on that page",
    )  # fmt: skip
    add_jobs(parser)


def add_numerics(commands: Commands) -> None:
    """Add `numerics`."""
    parser = add_command(
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
        "--rcp-model", type=word, default="exact", metavar="MODEL",
        help="reciprocal of the machine: exact, +1ulp, -1ulp or table:FILE, a file that "
        "benchmarks/rcp_dump made on a GPU (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--groups", type=up_to(MAX_GROUPS), metavar="COUNT",
        help="groups of 16 to compare for each writer, at the least (default: 100000)",
    )  # fmt: skip
    parser.add_argument(
        "--dtype", action="extend", type=list_of(one_of("bf16", "fp16")), metavar="bf16,fp16",
        help="type of the values that are stored (default: bf16)",
    )  # fmt: skip
    parser.add_argument(
        "--arch", action="extend", type=list_of(word), metavar="ARCH",
        help="compile the store kernel for this (default: sm_90, sm_100a and sm_120a)",
    )  # fmt: skip
    parser.add_argument("--markdown", metavar="FILE", help="write the result to this file as well")
    parser.add_argument(
        "--docs", metavar="FILE",
        help="instead, write docs/numerics.md: edge vectors, mutation scores, the named writers",
    )  # fmt: skip


def add_timeline(commands: Commands) -> None:
    """Add `timeline`."""
    parser = add_command(
        commands,
        "timeline",
        "show what vLLM's store kernel does, or FlashInfer's attention kernels read, by release",
        "With --offline the releases are those whose wheels are at hand; else every published one "
        "in the range is fetched that is not.",
    )
    parser.add_argument("package", metavar="PACKAGE", help="vllm or flashinfer-cubin")
    parser.add_argument(
        "range",
        metavar="A..B",
        type=word,
        help="such as 0.20.0..0.33.0; either end may be left out",
    )
    add_releases(parser)
    parser.add_argument(
        "--markdown", type=word, metavar="FILE", help="write the table to this file as well"
    )
    parser.add_argument(
        "--output", type=word, metavar="DIR", help="write table and rows into this directory"
    )
    add_jobs(parser)
