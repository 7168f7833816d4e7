"""Executes every attention kernel with an NVFP4 KV cache of a wheel, and keeps a row of each.

Rows are appended to a file as they come, so that an interrupted sweep goes on where it stopped. A
row whose kernel's digest is in the file already is not made again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oracle import __version__
from oracle.errors import NothingRan, OracleError
from oracle.geometry import SIDES
from oracle.machine.cubin import Cubin
from oracle.recognise import recognise
from oracle.subjects.attention import KernelName
from oracle.subjects.attentionkernel import AttentionKernel, page_sizes
from oracle.subjects.binary import artifact_digest
from oracle.subjects.flashinfer import cubins, kernel_names

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Row:
    """What one kernel does with the scales of both sides, at one page size.

    `k`, `v`: names of the layout read, joined by " = ", or "" where there is none; `k_form`,
    `v_form`: shape:stride. `one_to_one` and `unread` by side. `problem` is empty for a sound run.
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
    k_form: str = ""
    v_form: str = ""
    k_one_to_one: bool = False
    v_one_to_one: bool = False
    k_unread: int = 0
    v_unread: int = 0
    elements: int = 0
    seconds: float = 0.0
    problem: str = ""


def rows_of(name: str, cubin: Cubin) -> Iterator[Row]:
    """The rows of one kernel, one a page size it is probed with."""
    kernel = KernelName.parse(name)
    reader = AttentionKernel(cubin, name)
    for block_size in page_sizes(kernel):
        known: dict[str, Any] = {
            "kernel": name, "sha256": artifact_digest(cubin.data), "arch": kernel.arch,
            "family": kernel.family, "schedule": kernel.schedule, "split": kernel.split,
            "head_size": kernel.head_size, "page": kernel.page, "mask": kernel.mask,
            "rows": kernel.rows, "block_size": block_size,
        }  # fmt: skip
        start = time.perf_counter()
        try:
            known |= _measured(reader, block_size)
        except OracleError as error:
            known["problem"] = str(error)
        yield Row(**known, seconds=round(time.perf_counter() - start, 2))


def _measured(reader: AttentionKernel, block_size: int) -> dict[str, Any]:
    found = reader.probe_pages(block_size)
    known: dict[str, Any] = {"problem": "; ".join(found.faults)}
    for side in SIDES:
        amap = found.read.maps[side, "scale"]
        seen = recognise(amap)
        prefix = side.lower()
        known[prefix] = " = ".join(seen.layouts)
        known[f"{prefix}_form"] = seen.shape_stride or seen.reason or "a table"
        known[f"{prefix}_one_to_one"] = bool(found.shared[side] == 0)
        known[f"{prefix}_unread"] = found.unread[side]
        known["elements"] = (
            int(known.get("elements", 0)) + found.read.maps[side, "data"].offset.size
        )
    return known


def sweep(
    path: Path,
    kept: Path,
    *,
    pattern: str = "*",
    jobs: int = 1,
    progress: Progress | None = None,
) -> list[Row]:
    """Rows of every kernel of a wheel that matches, in the order of their names.

    `kept` is the file rows are read from and appended to. Raises NothingRan for a wheel without
    such kernels.
    """
    names = kernel_names(path, pattern)
    if not names:
        raise NothingRan(f"{path} holds no attention kernel with an NVFP4 KV cache")
    rows = {name: made for name, made in _kept(kept).items() if name in names}
    kept.parent.mkdir(parents=True, exist_ok=True)
    cut_off = kept.exists() and not kept.read_bytes().endswith(b"\n")
    with kept.open("a", encoding="utf-8") as file:
        if cut_off:
            file.write("\n")
        for name, made in _made(cubins(path, pattern, skip=frozenset(rows)), jobs):
            rows[name] = made
            file.write(json.dumps([__version__, name, [asdict(row) for row in made]]) + "\n")
            file.flush()
            if progress is not None:
                progress(len(rows), len(names), name)
    return [row for name in names for row in rows[name]]


def _kept(path: Path) -> dict[str, list[Row]]:
    """Rows of an earlier sweep by this version of the tool."""
    if not path.exists():
        return {}
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            version, name, made = json.loads(line)
            if version == __version__:
                found[name] = [Row(**row) for row in made]
        except (ValueError, TypeError):
            # The last line of an interrupted sweep may be cut off.
            continue
    return found


def _made(pairs: Iterable[tuple[str, Cubin]], jobs: int) -> Iterator[tuple[str, list[Row]]]:
    if jobs == 1:
        for name, cubin in pairs:
            yield name, list(rows_of(name, cubin))
        return
    with ProcessPoolExecutor(jobs) as pool:
        # A few cubins at a time, so that a wheel is never held whole.
        waiting: list[Any] = []
        for name, cubin in pairs:
            waiting.append((name, pool.submit(_job, name, cubin.data)))
            if len(waiting) >= 4 * jobs:
                first, future = waiting.pop(0)
                yield first, future.result()
        for name, future in waiting:
            yield name, future.result()


def _job(name: str, data: bytes) -> list[Row]:
    return list(rows_of(name, Cubin.parse(data)))
