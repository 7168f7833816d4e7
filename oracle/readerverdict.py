"""A verdict on attention kernels alone: each in the geometries it is made for.

A kernel is made for one head size and one or few page sizes, so that kernels have few geometries in
common. Each is run by itself, and the verdicts are put together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import repeat

from oracle.errors import UsageError
from oracle.run import Domain, Progress, run_verdict
from oracle.subjects.attentionkernel import AttentionKernel, page_sizes
from oracle.verdict import Verdict

NUM_HEADS = 2
"""KV heads where none are asked for: enough to tell one from the next."""
_COMBINED = ("head_sizes", "num_heads", "block_sizes", "cache_layouts", "dtypes")


def kernel_domain(kernel: AttentionKernel, asked: Mapping[str, tuple[object, ...]]) -> Domain:
    """The geometries a kernel is made for, with what was asked for (fields of Domain) instead."""
    name = kernel.kernel
    own = Domain((name.head_size,), (NUM_HEADS,), page_sizes(name)[:1], ("HND",), ("bf16",))
    return replace(own, **asked)  # type: ignore[arg-type]


def kernel_verdict(
    kernels: Sequence[AttentionKernel],
    asked: Mapping[str, tuple[object, ...]],
    jobs: int = 1,
    progress: Progress | None = None,
) -> Verdict:
    """Run every kernel over its domain; `asked` replaces fields of each.

    `kernels` is not empty. With `jobs` above one they are spread over processes.
    """
    parts: list[Verdict] = []

    def done(part: Verdict) -> None:
        parts.append(part)
        if progress is not None:
            progress(len(parts), len(kernels), part.subjects[0].id)

    if jobs > 1 and len(kernels) > 1:
        with ProcessPoolExecutor(jobs) as pool:
            try:
                for part in pool.map(_alone, kernels, repeat(asked)):
                    done(part)
            except BrokenProcessPool as error:
                raise UsageError(
                    "a process that executes kernels was ended from outside, maybe for want of "
                    "memory: it needs less with --jobs 1"
                ) from error
    else:
        for kernel in kernels:
            done(_alone(kernel, asked))
    return _together(parts)


def _alone(kernel: AttentionKernel, asked: Mapping[str, tuple[object, ...]]) -> Verdict:
    return run_verdict([], [kernel], kernel_domain(kernel, asked))


def _together(parts: Sequence[Verdict]) -> Verdict:
    domain = dict(parts[0].domain)
    for name in _COMBINED:
        domain[name] = tuple(sorted({value for part in parts for value in part.domain[name]}))
    findings = tuple(finding for part in parts for finding in part.findings)
    domain["geometries"] = len({finding.configuration for finding in findings})
    return replace(
        parts[0],
        subjects=tuple(info for part in parts for info in part.subjects),
        findings=findings,
        domain=domain,
        launches=tuple(launches for part in parts for launches in part.launches),
    )
