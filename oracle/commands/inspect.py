"""`inspect`: what a release, wheel, binary or cubin holds, and what of it the tool could run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from oracle.commands.verdict import artifact_options
from oracle.errors import NothingRan, UsageError
from oracle.geometry import PLANES
from oracle.machine.context import Unsupported
from oracle.machine.cubin import Cubin, KernelInfo
from oracle.machine.lower import lower
from oracle.report import kernelgroups, terminal
from oracle.report.document import dump
from oracle.report.outline import Cell, Listing, Paragraph, Section, Table, Tone
from oracle.subjects.flashinfer import kernel_names, parse_source, wheel_of
from oracle.subjects.kernelgroups import groups_of
from oracle.subjects.spec import is_artifact, read_cubin
from oracle.subjects.store_abi import POINTERS, unsupported_params
from oracle.subjects.vllm import KernelRow, kernels_of
from oracle.text import counted, printable, shortened

_PARAMETERS = (
    *POINTERS,
    *("key stride", "value stride", "heads", "head size", "block size"),
    *(f"{plane} {step} stride" for plane in PLANES for step in ("page", "head", "token")),
    "swizzle V",
)
"""What the parameters of a store kernel are, in order; the last one is rarely there."""


def run(arguments: argparse.Namespace) -> int:
    """Print the kernels of a file or release: attention kernels, or else store kernels.

    Raises UsageError where it is damaged or not there, NothingRan where it has no such kernel.
    """
    if _attention_kernels(arguments):
        return 0
    path = Path(arguments.file)
    if arguments.matching is None and not is_artifact(arguments.file):
        return _cubin(path, arguments.json)
    rows = kernels_of(arguments.file, artifact_options(arguments), arguments.matching)
    if not rows:
        raise NothingRan(f"{arguments.file} has no kernel with {arguments.matching!r} in its name")
    kernels = [_described(row) for row in rows]
    if arguments.json:
        sys.stdout.write(dump({"file": arguments.file, "kernels": kernels}))
    else:
        terminal.show(_listed(shortened(arguments.file), kernels), terminal.console())
    return 0


def _attention_kernels(arguments: argparse.Namespace) -> bool:
    """Print the attention kernels of a release or wheel; whether it is one that has them.

    Raises NothingRan for a release, or a pattern, without any, UsageError for --matching beside a
    release.
    """
    spec = str(arguments.file)
    source = None if spec.endswith(".cubin") else parse_source(spec)
    if source is None or (arguments.matching is not None and source.release is None):
        return False
    if arguments.matching is not None:
        example = f"{source.release}:*{arguments.matching}*"
        raise UsageError(f"--matching is for other files: choose as in {printable(example)}")
    with wheel_of(source, artifact_options(arguments)) as path:
        names = kernel_names(path, source.pattern)
    chosen = source.pattern != "*"
    if not names:
        if source.release is None and not chosen:
            return False
        raise NothingRan(f"{printable(spec)} holds no attention kernel with an NVFP4 KV cache")
    groups, others = groups_of(names)
    if arguments.json:
        sys.stdout.write(dump(kernelgroups.as_document(spec, groups, others)))
    else:
        show = kernelgroups.named if chosen else kernelgroups.sections
        terminal.show(show(spec, groups, others), terminal.console())
    return True


def _cubin(path: Path, as_json: bool) -> int:
    cubin = read_cubin(path)
    kernels = [_describe(cubin, kernel) for kernel in cubin.kernels.values()]
    if as_json:
        sys.stdout.write(dump({"arch": cubin.arch, "kernels": kernels}))
    else:
        title = f"{shortened(str(path))}: {cubin.arch}, {counted(len(kernels), 'kernel')}"
        sections: list[Section] = [Paragraph((Cell(title),))]
        for kernel in kernels:
            sections += _sections(kernel)
        terminal.show(sections, terminal.console())
    return 0


def _described(row: KernelRow) -> dict[str, Any]:
    """The facts about one kernel of an artefact, and where in it that is."""
    return {
        "title": row.title,
        "arch": row.arch,
        "member": row.member,
        "cubin_sha256": row.sha256,
        **_describe(row.cubin, row.kernel),
    }


def _listed(title: str, kernels: Sequence[dict[str, Any]]) -> list[Section]:
    """One row for each kernel, then the parameters of those that are launched, which are alike."""
    rows = [
        (
            Cell(printable(kernel["title"])),
            Cell(kernel["arch"]),
            Cell(printable(kernel["member"])),
            Cell(_sizes(kernel["parameters"])),
            _able(kernel["launch_refusal"] is None),
            _able(not kernel["machine_refusals"]),
        )
        for kernel in kernels
    ]
    columns = ("kernel", "arch", "member", "parameters", "launched", "executed")
    reasons = dict.fromkeys(
        f"{kernel['title']}: {reason}"
        for kernel in kernels
        for reason in (kernel["launch_refusal"], *kernel["machine_refusals"])
        if reason
    )
    sections: list[Section] = [
        Paragraph((Cell(f"{title}: {counted(len(kernels), 'kernel')}"),)),
        Table(
            "Kernels", columns, tuple(rows),
            "launched: with the parameters of a store kernel; executed: every instruction is known "
            "to the machine",
        ),
    ]  # fmt: skip
    if reasons:
        sections.append(Listing("Why not", tuple(Cell(printable(r), Tone.BAD) for r in reasons)))
    return sections


def _sizes(parameters: Sequence[dict[str, int]]) -> str:
    """`20 in 140 bytes: 11x8 3x4 6x8`: how many, up to where they reach, and runs of one size."""
    runs = [f"{len(list(run))}x{size}" for size, run in groupby(p["size"] for p in parameters)]
    end = max((p["offset"] + p["size"] for p in parameters), default=0)
    return f"{len(parameters)} in {end} bytes: {' '.join(runs)}" if parameters else "none"


def _able(able: bool) -> Cell:
    return Cell("yes", Tone.GOOD) if able else Cell("no", Tone.BAD)


def _describe(cubin: Cubin, kernel: KernelInfo) -> dict[str, Any]:
    """The facts about one kernel; `refusals` is empty where the machine can execute it."""
    try:
        lower(cubin, kernel.name)
        refusals: list[str] = []
    except Unsupported as error:
        refusals = str(error).partition(": ")[2].split("; ")
    return {
        "name": kernel.name,
        "registers": kernel.register_count,
        "shared_bytes": kernel.shared_bytes,
        "stack_bytes": kernel.stack_bytes,
        "code_bytes": len(kernel.code),
        "parameters": [
            {"ordinal": param.ordinal, "offset": param.offset, "size": param.size}
            for param in kernel.params
        ],
        "launch_refusal": unsupported_params(kernel),
        "machine_refusals": refusals,
    }


def _sections(kernel: dict[str, Any]) -> list[Section]:
    launch, refusals = kernel["launch_refusal"], kernel["machine_refusals"]
    facts = (
        f"registers {kernel['registers']}, shared {kernel['shared_bytes']} bytes, "
        f"stack {kernel['stack_bytes']} bytes, code {kernel['code_bytes']} bytes"
    )
    parameters = kernel["parameters"]
    names = _PARAMETERS if launch is None else ("-",) * len(parameters)
    return [
        Listing(
            printable(kernel["name"]),
            (
                Cell(facts),
                Cell("launched as a store kernel", Tone.GOOD)
                if launch is None
                else Cell(f"not launched: {launch}", Tone.BAD),
                *(Cell(f"not executed: {printable(refusal)}", Tone.BAD) for refusal in refusals),
                *(() if refusals else (Cell("the machine can execute it", Tone.GOOD),)),
            ),
        ),
        Table(
            "Parameters",
            ("ordinal", "offset", "bytes", "as a store kernel"),
            tuple(
                (
                    Cell(str(param["ordinal"])),
                    Cell(f"{param['offset']:#x}"),
                    Cell(str(param["size"])),
                    Cell(name),
                )
                for param, name in zip(parameters, names, strict=False)
            ),
        ),
    ]
