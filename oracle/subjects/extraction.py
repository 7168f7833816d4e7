"""Finds the cubins of an artefact that hold a kernel, and keeps them for the next run.

The host code of a shared object registers every kernel by its mangled name, so the name stands in
the clear even where the GPU code is compressed: members without it are passed over as they stream
by, and the first that has it is searched. Its cubins are kept in the disk cache under their
SHA-256; an index, keyed by the wheel's size, time of change and the checksums in its table of
contents, leads there without inflating anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from oracle import diskcache
from oracle.errors import NothingRan
from oracle.machine.cubin import Cubin
from oracle.subjects.archive import Artefact, Member, open_artefact, shown
from oracle.subjects.gpucode import FATBIN, Found, cubins_in, mangled, search

HOMES = ("_C_stable_libtorch.abi3.so", "_C.abi3.so")
"""Where vLLM keeps its kernels: these shared objects are searched first."""

_INDEX_VERSION = b"kernels of a wheel 2"
_MAX_HINTS = 4096


def extract(path: Path, kernel: str, archs: Iterable[str] = ()) -> tuple[Found, ...]:
    """Every cubin of the artefact at `path` whose code defines `kernel` (its name in the source).

    `archs` name GPUs, such as "sm_103": for each the code is taken that a driver would load there;
    without any, Blackwell and later are searched, and what is older only where those have nothing.
    Raises UsageError where the artefact is damaged, NothingRan where it has no such kernel, or none
    for one of the GPUs, with a list of what it holds instead.
    """
    archs = tuple(sorted(set(archs)))
    with open_artefact(path) as artefact:
        members = sorted(filter(_is_own, artefact.members), key=_search_order)
        key = _index_key(path, artefact, members, kernel, archs)
        result = _from_cache(key)
        if result is None:
            result = _search_all(artefact, members, kernel, archs)
            _to_cache(key, result)
    if isinstance(result, str):
        raise NothingRan(f"{path}: {result}")
    return result


def cubins(path: Path, mark: str = "") -> Iterator[Found]:
    """Every cubin of the artefact at `path` in whose bytes `mark` stands, for any arch.

    Nothing is kept. Raises UsageError where the artefact is damaged.
    """
    with open_artefact(path) as artefact:
        for member in sorted(filter(_is_own, artefact.members), key=_search_order):
            data = artefact.contents(member, lambda chunk: None)
            yield from cubins_in(member, data, mark)


def _is_own(member: Member) -> bool:
    """Whether a member is the package's own, and not of something vendored further down."""
    return member.name.count("/") <= 1


def _search_order(member: Member) -> tuple[int, int, str]:
    base = member.name.rpartition("/")[2]
    home = HOMES.index(base) if base in HOMES else len(HOMES)
    return home, member.size, member.name


def _search_all(
    artefact: Artefact, members: list[Member], kernel: str, archs: tuple[str, ...]
) -> tuple[Found, ...] | str:
    """The cubins, or why there are none."""
    seen = _Names(kernel)
    for member in members:
        seen.start()
        data = artefact.contents(member, seen.watch)
        # A fat binary by itself has no host code in which the names would stand.
        if seen.found or data[: len(FATBIN)] == FATBIN:
            return search(member, data, kernel, archs)
    return f"there is no {kernel} in it; {_holdings(members, seen)}"


class _Names:
    """Watches a member stream by for the mangled name of a kernel, and for those of its family."""

    def __init__(self, kernel: str) -> None:
        self._mark = mangled(kernel).encode()
        self._family = "_".join(kernel.split("_")[:3])
        self._tail = b""
        self._hints = 0
        self.found = False
        self.family: set[str] = set()

    def start(self) -> None:
        """A new member begins."""
        self._tail = b""
        self.found = False

    def watch(self, chunk: bytes) -> None:
        """Look at one piece; names may lie across two."""
        window = self._tail + chunk
        self.found |= self._mark in window
        self._tail = window[-len(self._mark) - 64 :]
        family = self._family.encode()
        position = window.find(family)
        while position >= 0 and self._hints < _MAX_HINTS:
            self._hints += 1
            digits = re.search(rb"[0-9]{1,3}$", window[max(0, position - 3) : position])
            name = window[position : position + int(digits[0])] if digits else b""
            if re.fullmatch(rb"[a-z0-9_]+kernel", name):
                self.family.add(name.decode())
            position = window.find(family, position + 1)


def _holdings(members: list[Member], seen: _Names) -> str:
    """What an artefact without the kernel has, in words."""
    if seen.family:
        return f"it holds {', '.join(sorted(seen.family))}"
    if not members:
        return "it holds no shared object"
    names = ", ".join(shown(member.name) for member in members[:8])
    more = f" and {len(members) - 8} more" if len(members) > 8 else ""
    return f"nothing like it stands in {names}{more}"


def _index_key(
    path: Path, artefact: Artefact, members: list[Member], kernel: str, archs: tuple[str, ...]
) -> str | None:
    """Where the index of a wheel is kept; other artefacts are quick to search and have none."""
    if artefact.kind != "wheel":
        return None
    status = path.stat()
    identity = [status.st_size, status.st_mtime_ns, archs]
    contents = [(member.name, member.size, member.crc) for member in members]
    parts = (_INDEX_VERSION, kernel.encode(), json.dumps([identity, contents]).encode())
    return diskcache.key_of(parts)


def _from_cache(key: str | None) -> tuple[Found, ...] | str | None:
    kept = diskcache.load(key, ".index.json") if key is not None else None
    index = json.loads(kept) if kept is not None else None
    if index is None or isinstance(index, str):
        return index
    found = []
    for member, digest in index:
        payload = diskcache.load(digest, ".cubin")
        if payload is None:
            return None
        cubin = Cubin.parse(payload)
        found.append(Found(member, cubin.arch, cubin, digest))
    return tuple(found)


def _to_cache(key: str | None, result: tuple[Found, ...] | str) -> None:
    if key is None:
        return
    if not isinstance(result, str):
        for found in result:
            diskcache.store(found.sha256, ".cubin", found.cubin.data)
    index = result if isinstance(result, str) else [(f.member, f.sha256) for f in result]
    diskcache.store(key, ".index.json", json.dumps(index).encode())
