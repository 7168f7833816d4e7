"""The instruction tests' snippets on a GPU, held against the machine."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from snippets import BLOCK, OPERANDS, Family, grid, lanes, params

from oracle.cuda.launcher import Buffer, Launch
from oracle.subjects.cuda import Gpu

FAMILIES = (
    *("integer", "extrema", "compare", "moves", "bits", "floating", "float_compare", "half"),
    *("convert", "memory", "control", "warp"),
)
WITHIN_AN_ULP = frozenset({"reciprocal"})
"""Snippets whose result is documented to within an ulp, and no better."""


def family(name: str) -> Family:
    """The snippets of a module of instruction tests."""
    found: Family = importlib.import_module(f"test_{name}").FAMILY
    return found


def launch(snippets: Family, name: str, arch: str, operands: NDArray[np.uint32]) -> Launch:
    """The launch of a snippet over operands uint32 [n, arity]."""
    inputs = lanes(operands)
    cubin = snippets.cubin(arch)
    return Launch(
        image=cubin.data,
        arch=cubin.arch,
        kernel=f"{name}_kernel",
        grid=(len(inputs) // BLOCK, 1, 1),
        block=(BLOCK, 1, 1),
        params=params(0, 0),
        pointers={0: "in", 8: "out"},
        buffers=(
            Buffer("in", inputs.view(np.uint8).ravel()),
            Buffer("out", np.zeros(inputs.nbytes, np.uint8), writable=True),
        ),
    )


def differences(gpu: Gpu, name: str) -> Iterator[str]:
    """One line for each snippet of a family that a GPU computes otherwise than the machine."""
    snippets, arch = family(name), gpu.device.arch
    for each in snippets.snippets.values():
        if not each.compiles_for(arch):
            continue
        operands = grid(OPERANDS[each.kind].edges, each.arity)
        if each.whole:
            operands = np.pad(operands, ((0, -len(operands) % BLOCK), (0, 0)))
        done = gpu.run(launch(snippets, each.name, arch, operands))
        there = done.contents["out"].view(np.uint32).reshape(-1, 4)[: len(operands)]
        here = snippets.run(each.name, arch, operands)
        apart = np.abs(there.astype(np.int64) - here) > (each.name in WITHIN_AN_ULP)
        if done.faults or apart.any():
            row = int(np.argmax(apart.any(axis=1)))
            told = [" ".join(f"{word:#010x}" for word in w[row]) for w in (operands, there, here)]
            yield (
                f"{each.name} ({arch}): f({told[0]}) = {told[1]} on the GPU, {told[2]} on the "
                f"machine; {int(apart.any(axis=1).sum())} of {len(operands)} rows differ"
                f"{''.join(f'; {fault}' for fault in done.faults)}"
            )
