"""`verdict`: execute writers and readers, print who agrees, leave the files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from oracle.commands.progress import progress_on_stderr, say_how_to_narrow
from oracle.commands.streams import subjects_speak_on_stderr
from oracle.cuda.archs import Device
from oracle.cuda.process import find_device
from oracle.errors import NothingRan, UsageError
from oracle.machine.tiers import checked_tier, default_tier
from oracle.readerverdict import kernel_verdict
from oracle.report import document, kerneltable, terminal
from oracle.report.sections import outline
from oracle.report.tables import executed_by
from oracle.run import (
    DEFAULT_DOMAIN,
    WHOLE_DOMAIN,
    Domain,
    default_jobs,
    run_verdict,
)
from oracle.subjects.attentionkernel import AttentionKernel
from oracle.subjects.base import Reader, Writer
from oracle.subjects.binary import MachineWriter
from oracle.subjects.checkout import checkout_readers
from oracle.subjects.checkout_tree import built_extensions
from oracle.subjects.cuda import with_executors
from oracle.subjects.release import ArtifactOptions
from oracle.subjects.spec import (
    default_readers,
    default_writers,
    readers_from_specs,
    writers_from_specs,
)
from oracle.subjects.vllm import VllmWriter
from oracle.subjects.vllm_host import TAKEN
from oracle.text import printable
from oracle.verdict import NOT_OBTAINED, Verdict

_NOTHING_RAN = 5


def run(arguments: argparse.Namespace) -> int:
    """Run a verdict; raises OracleError for what the arguments ask in vain."""
    directory = Path(arguments.output) if arguments.output is not None else None
    if directory is not None:
        document.check_directory(directory)
    domain = _domain(arguments)
    tier = default_tier() if arguments.tier is None else checked_tier(arguments.tier)
    executors, device = _executors(arguments.executor or ("machine",))
    with subjects_speak_on_stderr():
        writers, readers, judged = _subjects(arguments, domain.dtypes, device)
        writers = [w.on_tier(tier) if isinstance(w, MachineWriter) else w for w in writers]
        writers = with_executors(writers, executors, device)
        # One process holds the GPU.
        jobs = (arguments.jobs or default_jobs()) if device is None else 1
        attention = [reader for reader in readers if isinstance(reader, AttentionKernel)]
        _say_how_many(attention, arguments.head_size or ())
        kernels = [] if writers else attention
        with progress_on_stderr() as progress:
            if kernels:
                verdict = kernel_verdict(kernels, _asked(arguments), jobs, progress)
            else:
                verdict = run_verdict(
                    writers, readers, domain, judged_readers=judged, jobs=jobs, progress=progress
                )
    code = exit_code(verdict, arguments.require)
    written = document.write_files(verdict, code, directory) if directory is not None else ()
    if arguments.json:
        sys.stdout.write(document.as_json(verdict, code))
    else:
        sections = kerneltable.sections(verdict)
        sections += outline(verdict, code, terminal.FAULTS_PER_SUBJECT)
        terminal.show(sections, terminal.console())
        if arguments.tier is not None:
            print(executed_by(verdict.launches), file=sys.stderr)
        for path in written:
            print(printable(f"wrote {path}"), file=sys.stderr)
    return code


def exit_code(verdict: Verdict, require: str | None) -> int:
    """The verdict's own exit code, or 5 where it has no fault but lacks what `require` asks for.

    `require` names an executor: some subject of that kind must have been executed, and none of
    them skipped. A geometry that a host side refuses is a result, not a skip.
    """
    if require is None or verdict.exit_code:
        return verdict.exit_code
    required = {info.id for info in verdict.subjects if info.executor == require}
    statuses = {f.status for f in verdict.findings if f.subject in required}
    complete = bool(statuses - NOT_OBTAINED) and not statuses & {"unsupported", "not_run"}
    return 0 if complete else _NOTHING_RAN


def _asked(arguments: argparse.Namespace) -> dict[str, tuple[object, ...]]:
    """The fields of Domain that were asked for, each value once."""
    asked = {
        "head_sizes": arguments.head_size,
        "num_heads": arguments.num_heads,
        "block_sizes": arguments.block_size,
        "cache_layouts": arguments.cache_layout,
        "dtypes": arguments.dtype,
    }
    return {name: tuple(dict.fromkeys(values)) for name, values in asked.items() if values}


def _domain(arguments: argparse.Namespace) -> Domain:
    """The domain that is named, with what was asked for in place of its own."""
    named = WHOLE_DOMAIN if arguments.domain == "whole" else DEFAULT_DOMAIN
    return replace(named, **_asked(arguments))  # type: ignore[arg-type]


def _executors(asked: Sequence[str]) -> tuple[Sequence[str], Device | None]:
    """What executes machine code, and the GPU among it.

    Where there is no GPU the machine goes on alone and says so. Raises NothingRan where nothing but
    the GPU was asked for.
    """
    if "cuda" not in asked:
        return asked, None
    try:
        return asked, find_device()
    except NothingRan as error:
        if "machine" not in asked:
            raise
        print(printable(f"not executed on a GPU: {error}"), file=sys.stderr)
        return ("machine",), None


def _subjects(
    arguments: argparse.Namespace, dtypes: Sequence[str], device: Device | None
) -> tuple[list[Writer], list[Reader], frozenset[str]]:
    """The writers, the readers, and the ids of the readers whose disagreement is a fault.

    Attention kernels that are asked for alone are judged alone: then there is no writer.
    """
    archs, options = arguments.arch or (), artifact_options(arguments)
    specs = list(arguments.writers)
    if arguments.vllm is not None:
        specs += [str(path) for path in built_extensions(arguments.vllm)]
    own_arch = device.arch if device is not None else None
    writers = writers_from_specs(specs, archs, dtypes, options, own_arch)
    writers = [_handed(writer, arguments.cache_tensor) for writer in writers]
    readers = readers_from_specs(arguments.reader, options)
    judged = frozenset(reader.info.id for reader in readers)
    if not readers and arguments.domain != "whole":
        readers = default_readers()
    if arguments.vllm is not None:
        flags = arguments.vllm_flags or ""
        readers = [*readers, *checkout_readers(arguments.vllm, arguments.vllm_python, flags)]
    if readers and not specs and all(isinstance(r, AttentionKernel) for r in readers):
        return [], readers, judged
    return writers or default_writers(archs, dtypes, own_arch), readers, judged


def _say_how_many(kernels: Sequence[AttentionKernel], head_sizes: Sequence[int]) -> None:
    """Tell how many attention kernels there are of each source, before any is executed."""
    names: dict[str, list[str]] = {}
    for kernel in kernels:
        source, _, name = kernel.info.id.rpartition(":")
        names.setdefault(source, []).append(name)
    for source, found in names.items():
        say_how_to_narrow(source, found, head_sizes)


def _handed(writer: Writer, order: str) -> Writer:
    """The writer, given the sides of the cache with their dimensions in an order."""
    if order == TAKEN:
        return writer
    if isinstance(writer, VllmWriter):
        return writer.handed(order)
    raise UsageError(
        f"--cache-tensor {order}: only vLLM's store kernels have a host side that could take a "
        f"tensor wrongly, {writer.info.id} has none"
    )


def artifact_options(arguments: argparse.Namespace) -> ArtifactOptions:
    """Where releases come from; what is done to get them is told on standard error."""
    directory = Path(arguments.wheel_dir) if arguments.wheel_dir is not None else None
    return ArtifactOptions(
        wheel_dir=directory,
        offline=arguments.offline,
        notify=lambda text: print(text, file=sys.stderr),
    )
