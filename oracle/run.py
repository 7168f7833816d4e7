"""Runs a verdict: every writer and reader over every geometry of a domain."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np

from oracle import __version__
from oracle.addressmap import IntArray, Read, Written
from oracle.errors import CallFailed, NothingRan, OracleError, Refused, UsageError
from oracle.findings import agreement, not_obtained, reader_findings
from oracle.geometry import CACHE_LAYOUTS, SIDES, CacheGeometry
from oracle.machine.context import Unsupported
from oracle.machine.memory import MachineFault
from oracle.machine.tiers import Answer
from oracle.probe import PAGES_IN_CACHE, PROBED_PAGES, map_writer
from oracle.readerprobe import map_reader
from oracle.recognise import recognise
from oracle.subjects.base import AddressReader, Reader, Writer
from oracle.subjects.binary import MachineWriter
from oracle.subjects.callable import CallableWriter
from oracle.survey import survey
from oracle.toolchain import tool_versions
from oracle.twins import compared
from oracle.verdict import Agreement, Configuration, Finding, Launches, Verdict

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Domain:
    """The geometries of a verdict: every combination is run."""

    head_sizes: tuple[int, ...]
    num_heads: tuple[int, ...]
    block_sizes: tuple[int, ...]
    cache_layouts: tuple[str, ...]
    dtypes: tuple[str, ...]

    def geometries(self) -> Iterator[CacheGeometry]:
        """Every geometry, smallest head size first."""
        for head_size, heads, block_size, layout in product(
            self.head_sizes, self.num_heads, self.block_sizes, self.cache_layouts
        ):
            yield CacheGeometry(PAGES_IN_CACHE, block_size, heads, head_size, layout)


DEFAULT_DOMAIN = Domain((64, 128, 192, 256, 512, 576), (2,), (16, 64), CACHE_LAYOUTS, ("bf16",))
"""What `verdict` covers where nothing else is asked for."""


WHOLE_DOMAIN = Domain(
    tuple(range(16, 577, 16)), (1, 2, 4, 8, 16), (4, 8, 16, 32, 64, 128), CACHE_LAYOUTS, ("bf16",)
)
"""Geometries that a layout is made for, and those that nothing stops."""

Answers = Counter[tuple[str, Answer]]
"""How many launches of a subject, by its id, a tier of the machine executed."""


@dataclass(frozen=True)
class _Part:
    """What one geometry and dtype gave, and who executed it."""

    findings: tuple[Finding, ...]
    agreements: tuple[Agreement, ...]
    answers: Answers


def run_verdict(
    writers: Sequence[Writer],
    readers: Sequence[Reader],
    domain: Domain,
    *,
    judged_readers: frozenset[str] = frozenset(),
    jobs: int = 1,
    progress: Progress | None = None,
) -> Verdict:
    """Map every subject over the domain and compare every writer with every reader.

    `judged_readers` are the ids of readers whose disagreement counts as a fault. With `jobs` above
    one, geometries are spread over processes; the result is the same.
    """
    if not writers and not readers:
        raise NothingRan("there is no writer and no reader to run: name one")
    cells = [(g, d) for g in domain.geometries() for d in domain.dtypes]
    # The largest geometries first, so that no process is left alone with one at the end.
    order = sorted(range(len(cells)), key=lambda i: -cells[i][0].cache_bytes)
    parts: dict[int, _Part] = {}

    def done(index: int, part: _Part) -> None:
        parts[index] = part
        if progress is not None:
            geometry, dtype = cells[index]
            label = f"head {geometry.head_size}, page {geometry.block_size}, {dtype}"
            progress(len(parts), len(cells), label)

    # A function of the user's may end its process; that must not be the process of the verdict.
    infos = (*(writer.info for writer in writers), *(reader.info for reader in readers))
    foreign = [info.id for info in infos if info.executor == "callable"]
    if foreign or (jobs > 1 and len(cells) > 1):
        with ProcessPoolExecutor(jobs, initializer=_adopt, initargs=(writers, readers)) as pool:
            futures = {i: pool.submit(_adopted, cells[i], judged_readers) for i in order}
            try:
                for index, future in futures.items():
                    done(index, future.result())
            except BrokenProcessPool as error:
                whose = ", ".join(foreign) or "a subject"
                raise UsageError(f"{whose} ended the process it was called in") from error
    else:
        for index in order:
            done(index, _run_cell(writers, readers, cells[index], judged_readers))
    ordered = [parts[index] for index in range(len(cells))]
    findings = tuple(f for part in ordered for f in part.findings)
    for writer in writers:
        if isinstance(writer, CallableWriter):
            _check_answered(writer.info.id, findings)
    return Verdict(
        subjects=infos,
        findings=findings,
        agreements=tuple(a for part in ordered for a in part.agreements),
        domain={**asdict(domain), "pages_probed": list(PROBED_PAGES), "geometries": len(cells)},
        environment=_environment(),
        launches=_launches(sum((part.answers for part in ordered), Counter())),
    )


def _check_answered(writer: str, findings: Sequence[Finding]) -> None:
    """Raise UsageError for a function that failed in every geometry it did not refuse."""
    mine = [f for f in findings if f.subject == writer and f.status != "refused"]
    if mine and all(f.status == "unsupported" for f in mine):
        raise UsageError(mine[0].reason or "")


def _launches(answers: Answers) -> tuple[Launches, ...]:
    return tuple(
        Launches(subject, answer.tier, count, answer.reason or None)
        for (subject, answer), count in sorted(answers.items())
    )


def _answers(writers: Sequence[Writer]) -> Answers:
    """Who has executed the launches of writers in this process so far."""
    return Counter(
        {
            (writer.info.id, answer): count
            for writer in writers
            if isinstance(writer, MachineWriter)
            for answer, count in writer.answered.items()
        }
    )


_ADOPTED: list[tuple[Sequence[Writer], Sequence[Reader]]] = []


def _adopt(writers: Sequence[Writer], readers: Sequence[Reader]) -> None:
    _ADOPTED.append((writers, readers))


def _adopted(cell: tuple[CacheGeometry, str], judged: frozenset[str]) -> _Part:
    writers, readers = _ADOPTED[-1]
    return _run_cell(writers, readers, cell, judged)


def _run_cell(
    writers: Sequence[Writer],
    readers: Sequence[Reader],
    cell: tuple[CacheGeometry, str],
    judged: frozenset[str],
) -> _Part:
    geometry, dtype = cell
    configuration = Configuration.of(geometry, dtype)
    findings: list[Finding] = []
    written: dict[str, Written] = {}
    read: dict[str, Read] = {}
    before = _answers(writers)
    for writer in writers:
        if dtype in writer.info.dtypes:
            findings += _write(writer, geometry, configuration, written)
    for reader in readers:
        findings += _read(reader, geometry, configuration, read)
    agreements = [
        agreement(w.info, r.info, side, configuration, written[w.info.id], read[r.info.id],
                  r.info.id in judged)
        for w in writers if w.info.id in written
        for r in readers if r.info.id in read
        for side in SIDES
    ]  # fmt: skip
    agreements += [
        # A reader that was asked for is never passed over in silence.
        Agreement(w.info.id, r.info.id, side, configuration, "undecided", judged=True,
                  reason="one of the two has no map here")
        for w in writers if dtype in w.info.dtypes
        for r in readers if r.info.id in judged
        if w.info.id not in written or r.info.id not in read
        for side in SIDES
    ]  # fmt: skip
    return _Part(tuple(findings), tuple(agreements), _answers(writers) - before)


def _write(
    writer: Writer,
    geometry: CacheGeometry,
    configuration: Configuration,
    written: dict[str, Written],
) -> list[Finding]:
    reason = writer.unsupported_reason(geometry, configuration.dtype)
    if reason is not None:
        return not_obtained(writer.info, configuration, "refused", reason)
    try:
        findings, mapped = survey(writer, geometry, configuration)
        written[writer.info.id] = mapped
        if isinstance(writer, MachineWriter) and writer.twin is not None:
            dtype = configuration.dtype
            findings = compared(writer, writer.twin, findings, mapped, geometry, dtype)
    except UsageError:
        raise
    except OracleError as error:
        return not_obtained(writer.info, configuration, *_why_ended(error))
    return findings


def _why_ended(error: OracleError) -> tuple[str, str]:
    """The status and the reason of a subject that ended early."""
    if isinstance(error, Refused):
        return "refused", error.reason
    status = next((status for kind, status in _ENDED if isinstance(error, kind)), "unrecognised")
    return status, str(error)


_ENDED = (
    (NothingRan, "not_run"),
    (Unsupported, "unsupported"),
    # No map was obtained, so nothing contradicts what is declared; but it is no pass either.
    (CallFailed, "unsupported"),
    (MachineFault, "undefined"),
)


def _read(
    reader: Reader, geometry: CacheGeometry, configuration: Configuration, read: dict[str, Read]
) -> list[Finding]:
    reason = reader.unsupported_reason(geometry, configuration.dtype)
    if reason is not None:
        return not_obtained(reader.info, configuration, "refused", reason)
    try:
        if isinstance(reader, AddressReader):
            result = reader.map(geometry)
        else:
            result = map_reader(reader, geometry)
    except UsageError:
        raise
    except OracleError as error:
        return not_obtained(reader.info, configuration, *_why_ended(error))
    read[reader.info.id] = result
    return reader_findings(reader.info, configuration, result)


def recover_table(
    writer: Writer, geometry: CacheGeometry, side: str, dtype: str
) -> tuple[IntArray, tuple[str, ...]]:
    """A writer's scale table [T, S] of flat plane offsets for one side, and its names.

    Raises NothingRan where the writer refuses the geometry or its map has no such table.
    """
    reason = writer.unsupported_reason(geometry, dtype)
    if reason is None:
        found = recognise(map_writer(writer, geometry, dtype).maps[side, "scale"])
        if found.table is not None:
            return found.table, found.layouts
        reason = found.reason
    raise NothingRan(f"{writer.info.id} has no table of {side} scales: {reason}")


def default_jobs() -> int:
    """As many processes as there are processors to run on."""
    return len(os.sched_getaffinity(0))


def _environment() -> dict[str, str | None]:
    return {
        "oracle": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        **tool_versions(),
    }
