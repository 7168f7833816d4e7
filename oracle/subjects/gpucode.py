"""The GPU code of a shared object, a fat binary or a cubin, searched for a kernel.

Entries are unpacked one at a time, and only those with the kernel are parsed: a release of vLLM has
hundreds, a quarter of a GiB for Blackwell alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from oracle.errors import UsageError
from oracle.machine.archs import Arch, arch_number, capability_of, loaded
from oracle.machine.cubin import MAX_CUBIN_BYTES, Cubin
from oracle.machine.elf import EM_CUDA, Elf
from oracle.machine.fatbin import MAGIC, SECTION, FatbinEntry, Limits, walk
from oracle.subjects.archive import Member, shown

FIRST_WITH_E2M1 = 100
"""Number of the first arch that converts to E2M1; older archs are searched after it."""
MAX_UNPACKED_BYTES = 1 << 30
"""What a search unpacks at most."""
FATBIN = MAGIC.to_bytes(4, "little")
"""How a fat binary by itself begins."""

_LIMITS = Limits(payload_bytes=128 << 20)
Wanted = Callable[[str], bool]
"""Whether code for an arch is asked for."""


@dataclass(frozen=True)
class Found:
    """One cubin with the kernel: the member it came from, its arch, parsed contents and SHA-256."""

    member: str
    arch: str
    cubin: Cubin
    sha256: str


def mangled(kernel: str) -> str:
    """How a name of the source stands in mangled ones: after its length."""
    return f"{len(kernel)}{kernel}"


def search(
    member: Member, data: memoryview, kernel: str, archs: tuple[str, ...]
) -> tuple[Found, ...] | str:
    """The cubins of a member that define a kernel (its name in the source), or why it has none.

    `archs` name GPUs, such as "sm_103": for each the cubins are taken that a driver would load
    there. Without any, Blackwell and later are searched, and what is older only where those have
    nothing. Raises UsageError where the code is damaged, or a name is that of no arch.
    """
    entries = _cubin_entries(member, data)
    mark = mangled(kernel)
    if archs:
        found = _defining(_holding(member, _asked_for(entries, _able(archs)), mark), mark)
        chosen = {arch: loaded_on(arch, found, mark) for arch in archs}
        missing = tuple(arch for arch in archs if not chosen[arch])
        if missing:
            return _elsewhere(member, data, kernel, missing)
        return tuple(each for each in found if any(each in of for of in chosen.values()))
    newer = _asked_for(entries, lambda arch: arch_number(arch) >= FIRST_WITH_E2M1)
    older = _asked_for(entries, lambda arch: arch_number(arch) < FIRST_WITH_E2M1)
    result = _defining(_holding(member, newer, mark), mark)
    result = result or _defining(_holding(member, older, mark), mark)
    return result or _elsewhere(member, data, kernel, archs)


def loaded_on(arch: str, found: Sequence[Found], mark: str) -> tuple[Found, ...]:
    """The cubins from which a driver would load a kernel with `mark` in its name on a GPU.

    `arch` names the GPU. Kernels need not all be there for the same archs. Raises UsageError where
    the name is that of no arch.
    """
    capability = capability_of(arch)
    archs: dict[str, list[str]] = {}
    for each in found:
        for name in _marked(each, mark):
            archs.setdefault(name, []).append(each.arch)
    best = {name: loaded(there, capability) for name, there in archs.items()}
    return tuple(
        each for each in found if any(best[name] == each.arch for name in _marked(each, mark))
    )


def _marked(found: Found, mark: str) -> list[str]:
    return [name for name in found.cubin.kernels if mark in name]


def _able(archs: Sequence[str]) -> Wanted:
    """Whether some of the GPUs runs code for an arch."""
    capabilities = [capability_of(arch) for arch in archs]

    def able(arch: str) -> bool:
        code = Arch.parse(arch)
        return code is not None and any(map(code.runs_on, capabilities))

    return able


def cubins_in(member: Member, data: memoryview, mark: str) -> Iterator[Found]:
    """Every cubin of a member in whose bytes `mark` stands, for any arch."""
    for _, payload in _unpacked(member, _cubin_entries(member, data), mark, None):
        yield _found(member, payload)


def _asked_for(entries: list[FatbinEntry], wanted: Wanted) -> list[FatbinEntry]:
    return [entry for entry in entries if wanted(entry.arch)]


def _defining(found: Iterable[Found], mark: str) -> tuple[Found, ...]:
    """Those that have a kernel with `mark` in its name, each once, in the order of their archs."""
    defining = {f.sha256: f for f in found if _marked(f, mark)}
    order = sorted(defining.values(), key=lambda f: (arch_number(f.arch), f.arch, f.sha256))
    return tuple(order)


def _holding(member: Member, entries: Iterable[FatbinEntry], mark: str) -> Iterator[Found]:
    """The cubins among `entries` in whose bytes `mark` stands."""
    for _, payload in _unpacked(member, entries, mark, MAX_UNPACKED_BYTES):
        yield _found(member, payload)


def _found(member: Member, payload: bytes) -> Found:
    cubin = Cubin.parse(payload)
    return Found(member.name, cubin.arch, cubin, hashlib.sha256(payload).hexdigest())


def _unpacked(
    member: Member, entries: Iterable[FatbinEntry], mark: str, most: int | None
) -> Iterator[tuple[FatbinEntry, bytes]]:
    """Entries in whose bytes `mark` stands, with these; at most so many bytes are unpacked."""
    total = 0
    for entry in entries:
        total += entry.size
        if most is not None and total > most:
            raise UsageError(
                f"the GPU code of {shown(member.name)} unpacks to more than {most >> 20} MiB: no "
                "sound build does"
            )
        payload = entry.payload()
        if mark.encode() in payload:
            yield entry, payload


def _cubin_entries(member: Member, data: memoryview) -> list[FatbinEntry]:
    return [entry for entry in _code(data, shown(member.name)) if entry.kind == "cubin"]


def _code(data: memoryview, what: str) -> Iterator[FatbinEntry]:
    """Every piece of GPU code of a shared object, a fat binary or a cubin."""
    if data[: len(FATBIN)] == FATBIN:
        yield from walk(data, _LIMITS)
        return
    elf = Elf(cast(bytes, data), what)
    if elf.machine == EM_CUDA:
        arch = Cubin.parse(bytes(data[: MAX_CUBIN_BYTES + 1])).arch
        yield FatbinEntry("cubin", arch, 0, data, len(data))
        return
    section = elf.section(SECTION)
    yield from walk(section.data if section else b"", _LIMITS)


def _elsewhere(member: Member, data: memoryview, kernel: str, archs: tuple[str, ...]) -> str:
    """Why a member that names the kernel gave none: for other archs only, or as PTX only."""
    wanted = f" for {', '.join(archs)}" if archs else " as machine code"
    entries = _code(data, shown(member.name))
    having = _unpacked(member, entries, mangled(kernel), MAX_UNPACKED_BYTES)
    try:
        forms = {(arch_number(entry.arch), _form(entry)) for entry, _ in having}
    except UsageError:
        # What is wrong with code that nobody asked for is no reason to stop.
        return f"{shown(member.name)} holds no {kernel}{wanted}"
    if not forms:
        return f"{shown(member.name)} names {kernel} but holds no code of it"
    has = ", ".join(form for _, form in sorted(forms))
    return f"{shown(member.name)} holds no {kernel}{wanted}: it has {has}"


def _form(entry: FatbinEntry) -> str:
    """`cubin for sm_100f (compute capability 10.0 or a later 10.x)`."""
    form, arch = f"{entry.kind} for {entry.arch}", Arch.parse(entry.arch)
    if entry.kind != "cubin" or arch is None:
        return form
    return f"{form} (compute capability {arch.needs})"
