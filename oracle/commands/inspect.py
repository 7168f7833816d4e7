"""`inspect`: what a cubin holds, and what of it the tool could run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from oracle.geometry import PLANES
from oracle.machine.context import Unsupported
from oracle.machine.cubin import Cubin, KernelInfo
from oracle.machine.lower import lower
from oracle.report import terminal
from oracle.report.document import dump
from oracle.report.outline import Cell, Listing, Paragraph, Section, Table, Tone
from oracle.report.text import counted, printable, shortened
from oracle.subjects.spec import read_cubin
from oracle.subjects.store_abi import POINTERS, unsupported_params

_PARAMETERS = (
    *POINTERS,
    *("key stride", "value stride", "heads", "head size", "block size"),
    *(f"{plane} {step} stride" for plane in PLANES for step in ("page", "head", "token")),
)


def run(arguments: argparse.Namespace) -> int:
    """Print the kernels of a file. Raises UsageError where it is no sound cubin."""
    path = Path(arguments.file)
    cubin = read_cubin(path)
    kernels = [_describe(cubin, kernel) for kernel in cubin.kernels.values()]
    if arguments.json:
        sys.stdout.write(dump({"arch": cubin.arch, "kernels": kernels}))
    else:
        title = f"{shortened(str(path))}: {cubin.arch}, {counted(len(kernels), 'kernel')}"
        sections: list[Section] = [Paragraph((Cell(title),))]
        for kernel in kernels:
            sections += _sections(kernel)
        terminal.show(sections, terminal.console())
    return 0


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
    names = _PARAMETERS if launch is None else ("",) * len(kernel["parameters"])
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
                for param, name in zip(kernel["parameters"], names, strict=True)
            ),
        ),
    ]
