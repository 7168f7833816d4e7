"""Executes the attention kernels with an NVFP4 KV cache of a wheel, and keeps rows of each.

Rows are kept on disk by a kernel's name and its cubin's digest and appended as they come, so that
an interrupted sweep goes on where it stopped, and machine code that two releases share is executed
once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oracle import __version__
from oracle.addressmap import Read
from oracle.diskcache import cache_dir
from oracle.errors import NothingRan, OracleError, UsageError
from oracle.geometry import SIDES
from oracle.machine.cubin import Cubin
from oracle.multiplications import narrowed
from oracle.recognise import recognise
from oracle.subjects.attention import KernelName
from oracle.subjects.attentionkernel import AttentionKernel, page_sizes
from oracle.subjects.binary import artifact_digest
from oracle.subjects.flashinfer import cubin_files, kernel_names

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Row:
    """What one kernel does with the scales of both sides, at one page size.

    `k`, `v`: names of the layout read, joined by " = ", or "" where there is none; `k_form`,
    `v_form`: shape:stride, or why there is none; `k_declared`, `v_declared`: what the kernel's
    contract says. `one_to_one` and `unread` by side. `problem` is empty for a sound run.
    """

    kernel: str
    sha256: str
    arch: str
    family: str
    schedule: str
    split: str
    head_size: int
    page: int
    mask: str
    rows: int
    block_size: int
    k: str = ""
    v: str = ""
    k_declared: str = ""
    v_declared: str = ""
    k_form: str = ""
    v_form: str = ""
    k_one_to_one: bool = False
    v_one_to_one: bool = False
    k_unread: int = 0
    v_unread: int = 0
    elements: int = 0
    seconds: float = 0.0
    problem: str = ""

    @property
    def as_declared(self) -> bool:
        """Whether this is a sound run that read both sides as declared, each byte once."""
        return not self.problem and all(map(self.side_as_declared, SIDES))

    def side_as_declared(self, side: str) -> bool:
        """Whether one side was read as declared, each byte once."""
        s = side.lower()
        declared, names = getattr(self, f"{s}_declared"), getattr(self, s).split(" = ")
        each_once = getattr(self, f"{s}_one_to_one") and not getattr(self, f"{s}_unread")
        return bool(declared) and declared in names and each_once


def rows_of(name: str, data: bytes) -> list[Row]:
    """The rows of one kernel, one a page size it is probed with; `data` is its cubin.

    Raises UsageError where the name is not one of the family.
    """
    kernel = KernelName.parse(name)
    rows = []
    reader: AttentionKernel | None = None
    for block_size in page_sizes(kernel):
        known: dict[str, Any] = {
            "kernel": name, "sha256": artifact_digest(data), "arch": kernel.arch,
            "family": kernel.family, "schedule": kernel.schedule, "split": kernel.split,
            "head_size": kernel.head_size, "page": kernel.page, "mask": kernel.mask,
            "rows": kernel.rows, "block_size": block_size,
        }  # fmt: skip
        start = time.perf_counter()
        try:
            reader = reader or AttentionKernel(Cubin.parse(data), name)
            known |= _measured(reader, block_size)
        except OracleError as error:
            known["problem"] = str(error)
        rows.append(Row(**known, seconds=round(time.perf_counter() - start, 2)))
    return rows


def _measured(reader: AttentionKernel, block_size: int) -> dict[str, Any]:
    found = reader.probe_pages(block_size)
    known: dict[str, Any] = {"problem": "; ".join(found.faults)}
    for side in SIDES:
        amap = found.read.maps[side, "scale"]
        seen = recognise(amap)
        prefix = side.lower()
        known[prefix] = " = ".join(seen.layouts)
        known[f"{prefix}_form"] = (
            seen.shape_stride or layouts_by_tokens(found.read, side) or seen.reason or "a table"
        )
        known[f"{prefix}_one_to_one"] = bool(found.shared[side] == 0)
        known[f"{prefix}_unread"] = found.unread[side]
        known[f"{prefix}_declared"] = reader.info.declared[side]
        known["elements"] = (
            int(known.get("elements", 0)) + found.read.maps[side, "data"].offset.size
        )
    return known


def layouts_by_tokens(read: Read, side: str) -> str:
    """How many tokens of the sequence are read by which layout, in order; empty where it is one.

    Empty as well where some page has no named layout.
    """
    runs: list[tuple[str, int]] = []
    geometry, pages = read.maps[side, "scale"].geometry, read.maps[side, "scale"].pages
    for page in pages:
        seen = recognise(narrowed(read, geometry, (page,)).maps[side, "scale"])
        name = " = ".join(seen.layouts)
        before = runs.pop()[1] if runs and runs[-1][0] == name else 0
        runs.append((name, before + geometry.block_size))
    named = len(runs) > 1 and all(name for name, _ in runs)
    return ", then ".join(f"{tokens} tokens {name}" for name, tokens in runs) if named else ""


class KeptRows:
    """Rows by name and digest of a cubin, in a file that only grows; this version's alone.

    What a kernel is launched with is told by its name, which a wheel may give to any bytes.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Read what there is; the file is in the user's cache where none is named."""
        self._path = path or cache_dir() / "sweeps" / "rows.jsonl"
        self._rows: dict[tuple[str, str], list[Row]] = {}
        text = ""
        with suppress(OSError):
            text = self._path.read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            try:
                version, made = json.loads(line)
                rows = [Row(**row) for row in made]
            except (ValueError, TypeError):
                # The last line of an interrupted sweep may be cut off.
                continue
            if version == __version__ and rows:
                self._rows[rows[0].kernel, rows[0].sha256] = rows
        self._cut_off = bool(text) and not text.endswith("\n")

    def get(self, name: str, sha256: str) -> list[Row] | None:
        """The rows of a cubin; None where it was never executed under that name."""
        return self._rows.get((name, sha256))

    def add(self, rows: list[Row]) -> None:
        """Keep the rows of one cubin; where they cannot be written they are made again."""
        self._rows[rows[0].kernel, rows[0].sha256] = rows
        line = json.dumps([__version__, [asdict(row) for row in rows]])
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write("\n" * self._cut_off + line + "\n")
            self._cut_off = False


def executed(
    files: Iterable[tuple[str, bytes]], kept: KeptRows, jobs: int = 1
) -> Iterator[tuple[str, list[Row]]]:
    """Each kernel's rows, from `kept` or by executing it; `files` are names and cubins."""
    known: list[tuple[str, list[Row]]] = []

    def unknown() -> Iterator[tuple[str, bytes]]:
        for name, data in files:
            rows = kept.get(name, artifact_digest(data))
            if rows is None:
                yield name, data
            else:
                known.append((name, rows))

    for name, rows in _made(unknown(), jobs):
        kept.add(rows)
        yield name, rows
        while known:
            yield known.pop()
    yield from known


def _made(files: Iterable[tuple[str, bytes]], jobs: int) -> Iterator[tuple[str, list[Row]]]:
    if jobs == 1:
        for name, data in files:
            yield name, rows_of(name, data)
        return
    with ProcessPoolExecutor(jobs) as pool:
        # A few cubins at a time, so that a wheel is never held whole.
        waiting: list[tuple[str, Future[list[Row]]]] = []
        try:
            for name, data in files:
                waiting.append((name, pool.submit(rows_of, name, data)))
                if len(waiting) >= 4 * jobs:
                    first, future = waiting.pop(0)
                    yield first, future.result()
            for name, future in waiting:
                yield name, future.result()
        except BrokenProcessPool as error:
            raise UsageError(
                "a process that executes kernels was ended from outside, maybe for want of memory: "
                "the same command goes on from there, and needs less with --jobs 1"
            ) from error


def sweep(
    path: Path,
    kept: KeptRows,
    *,
    pattern: str = "*",
    jobs: int = 1,
    progress: Progress | None = None,
) -> list[Row]:
    """Rows of every kernel of a wheel that matches, in the order of their names.

    Raises NothingRan for a wheel without such kernels.
    """
    names = kernel_names(path, pattern)
    if not names:
        raise NothingRan(f"{path} holds no attention kernel with an NVFP4 KV cache")
    found: dict[str, list[Row]] = {}
    for name, rows in executed(cubin_files(path, pattern), kept, jobs):
        found[name] = rows
        if progress is not None:
            progress(len(found), len(names), name)
    return [row for name in names for row in found[name]]
