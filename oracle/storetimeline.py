"""What the store kernel is and does in each of several releases of vLLM, oldest first.

A row is made of a release's machine code alone. Two releases have the same code where every variant
they share (arch, dtype, scale search) has the same instructions in the same places; names, debug
data and what surrounds the kernel do not count. Code that an earlier row has executed is not
executed again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from oracle.errors import NothingRan, OracleError
from oracle.formats import DTYPES
from oracle.geometry import SIDES
from oracle.machine.cubin import KernelInfo
from oracle.machine.disassembly import Instruction, disassemble
from oracle.quantize import GROUP
from oracle.run import Domain, Progress, run_verdict
from oracle.subjects.base import Writer
from oracle.subjects.gpucode import Found, mangled
from oracle.subjects.release import PACKAGE, ArtifactOptions, Release
from oracle.subjects.store_abi import threads_per_group
from oracle.subjects.vllm import STORE_KERNEL, Variant, VllmWriter, store_cubins, writers_of
from oracle.subjects.vllm_host import BAND
from oracle.timeline import rows_between
from oracle.verdict import Finding

_T = TypeVar("_T")
# $__internal_3_$__cuda_sm20_div_s64: the kernels of a cubin count their subroutines together.
_NUMBER = re.compile(r"(?<=\$__internal_)\d+(?=_)")

PROBED = Domain((128,), (2,), (16,), ("HND", "NHD"), ("bf16",))
"""Where each variant is executed for the layouts of a row, with its own dtype."""
CHECKS = (f"head size % {GROUP}", f"page % {BAND}")
"""What the host side checks, as `oracle.subjects.vllm_host` models it."""


@dataclass(frozen=True)
class Row:
    """One release.

    `holds` is None where its wheel could not be had, and `note` says why, as it does for a release
    without the kernel. `same_code` compares with the release before that holds the kernel, and is
    None for the first; `added` and `gone` are variants that only one of the two has. `k` and `v`
    are the layouts of all variants, joined by " = " where one map has several names.
    """

    version: str
    holds: bool | None
    member: str | None = None
    archs: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    parameters: tuple[int, ...] = ()
    threads_per_group: tuple[int, ...] = ()
    code: Mapping[str, str] = field(default_factory=dict)
    same_code: bool | None = None
    added: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    k: str | None = None
    v: str | None = None
    faults: int = 0
    checks: tuple[str, ...] = ()
    note: str | None = None


def timeline(
    versions: Sequence[str],
    options: ArtifactOptions,
    progress: Progress | None = None,
    jobs: int = 1,
) -> list[Row]:
    """One row for each release. Raises NothingRan where none of them could be had."""
    layouts: dict[str, list[Finding]] = {}
    return rows_between(
        versions, lambda v: _row(v, options, layouts, jobs), _compared, PACKAGE, progress
    )


def _row(version: str, options: ArtifactOptions, known: dict[str, list[Finding]], jobs: int) -> Row:
    what = str(Release(version))
    try:
        found = store_cubins(what, (), options)
        writers = writers_of(what, found, tuple(DTYPES))
    except NothingRan as error:
        return Row(version, False, note=str(error).rpartition(": ")[2])
    except OracleError as error:
        return Row(version, None, note=str(error))
    kernels = list(_kernels(found))
    variants = [variant for _, variant, _, _ in kernels if variant is not None]
    code = {_label(each, variant): digest(text, k.name) for each, variant, k, text in kernels}
    findings = _executed(writers, code, known, jobs)
    return Row(
        version,
        True,
        member=_one({each.member for each in found}),
        archs=_unique(each.arch for each in found),
        dtypes=_unique(variant.dtype for variant in variants),
        searches=_unique(sorted((v.search.value for v in variants), reverse=True)),
        parameters=_unique(len(kernel.params) for _, _, kernel, _ in kernels),
        threads_per_group=_unique(threads_per_group(text) for *_, text in kernels),
        code=code,
        k=_layouts(findings, "K"),
        v=_layouts(findings, "V"),
        faults=sum(finding.status != "match" for finding in findings),
        checks=CHECKS,
    )


def _compared(row: Row, before: Row) -> Row:
    shared = row.code.keys() & before.code.keys()
    return replace(
        row,
        same_code=bool(shared) and all(row.code[name] == before.code[name] for name in shared),
        added=tuple(name for name in row.code if name not in shared),
        gone=tuple(name for name in before.code if name not in shared),
    )


_Kernel = tuple[Found, Variant | None, KernelInfo, tuple[Instruction, ...]]


def _kernels(found: Iterable[Found]) -> Iterable[_Kernel]:
    for each in found:
        code = disassemble(each.cubin)
        for name, kernel in each.cubin.kernels.items():
            if mangled(STORE_KERNEL) in name:
                yield each, Variant.of(name), kernel, code[name]


def _label(found: Found, variant: Variant | None) -> str:
    """`sm_100f/bf16/max6`, as in the ids of subjects."""
    if variant is None:
        return f"{found.arch}/?"
    return f"{found.arch}/{variant.dtype}/{variant.search.value}"


def digest(code: Iterable[Instruction], name: str) -> str:
    """SHA-256 of a kernel's instructions as text.

    Its own name is left out, and so are the numbers of the subroutines that come with it.
    """
    text = "\n".join(_NUMBER.sub("", each.text.replace(name, "")) for each in code)
    return hashlib.sha256(text.encode()).hexdigest()


def _executed(
    writers: Iterable[Writer],
    code: Mapping[str, str],
    known: dict[str, list[Finding]],
    jobs: int,
) -> list[Finding]:
    """The findings about every variant, each of whose code is executed once over all releases."""
    found: list[Finding] = []
    for writer in writers:
        label = "/".join(writer.info.id.rpartition(":")[2].split("/")[:3])
        switch = writer.abi.swizzle_v if isinstance(writer, VllmWriter) else None
        key = f"{code.get(label, writer.info.id)} {switch}"
        if key not in known:
            domain = replace(PROBED, dtypes=writer.info.dtypes)
            known[key] = list(run_verdict([writer], [], domain, jobs=jobs).findings)
        found += known[key]
    return found


def _layouts(findings: Iterable[Finding], side: str) -> str:
    """The names of a side's scale layout; the statuses where there is none."""
    assert side in SIDES
    scales = [f for f in findings if f.side == side and f.plane == "scale"]
    return " or ".join(dict.fromkeys(" = ".join(f.layouts) or f.status for f in scales))


def _one(members: set[str]) -> str:
    return ", ".join(sorted(members))


def _unique(values: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(values))
