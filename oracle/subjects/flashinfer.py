"""FlashInfer's attention kernels as readers: from a release, a wheel, or a single cubin.

flashinfer-cubin==0.6.13[:GLOB]   a release, by pip where no wheel of it is at hand
PATH.whl[:GLOB]                   a wheel that is there
PATH.cubin                        one kernel

GLOB chooses among the kernels with an NVFP4 KV cache, by their names. Members of a wheel are
streamed one at a time, and only cubins of that family are read.
"""

from __future__ import annotations

import fnmatch
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from oracle.errors import NothingRan, UsageError
from oracle.files import open_regular, read_at_most
from oracle.machine.cubin import MAX_CUBIN_BYTES, Cubin
from oracle.subjects.archive import ArchiveLimits, shown
from oracle.subjects.attention import KernelName
from oracle.subjects.attentionkernel import SHARED_SIZE_SUFFIX, AttentionKernel
from oracle.subjects.release import (
    PACKAGES,
    ArtifactOptions,
    Release,
    parse_release,
    release_wheel,
)

PACKAGE = "flashinfer-cubin"
_FAMILY = "KvE2m1"
_LIMITS = ArchiveLimits()
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, RuntimeError)


@dataclass(frozen=True)
class Source:
    """Where kernels come from and which of them: a release, or the path of a wheel or cubin."""

    spec: str
    release: Release | None
    path: Path | None
    pattern: str


def parse_source(spec: str) -> Source | None:
    """What a spec names; None where it is not for this module. Raises UsageError for a bad one."""
    where, _, pattern = spec.partition(":")
    if where.strip().lower().replace("_", "-") == PACKAGE:
        raise UsageError(f"{shown(spec)}: give a release, such as {PACKAGE}=={PACKAGES[PACKAGE]}")
    release = parse_release(where, PACKAGE)
    if release is not None:
        return Source(spec, release, None, pattern or "*")
    path, colon, glob = spec.rpartition(":")
    if colon and path.endswith((".whl", ".cubin")):
        return Source(spec, None, Path(path), glob or "*")
    if spec.endswith((".whl", ".cubin")):
        return Source(spec, None, Path(spec), "*")
    return None


@contextmanager
def wheel_of(source: Source, options: ArtifactOptions) -> Iterator[Path]:
    """The wheel or cubin of a source, there for as long as the context is open."""
    if source.release is None:
        assert source.path is not None
        yield source.path
        return
    with release_wheel(source.release, options) as path:
        yield path


def kernel_names(path: Path, pattern: str = "*") -> tuple[str, ...]:
    """Names of the kernels of the family that a wheel holds, sorted."""
    return tuple(sorted(name for name, _ in _members(path, pattern)))


def cubin_files(path: Path, pattern: str = "*") -> Iterator[tuple[str, bytes]]:
    """Each kernel of the family that a wheel holds with the bytes of its cubin, by name.

    Raises UsageError where the file is no wheel, or is damaged.
    """
    with _opened(path) as archive:
        for name, entry in sorted(_members(path, pattern), key=lambda pair: pair[0]):
            yield name, _inflated(archive, entry, path)


def cubins(path: Path, pattern: str = "*") -> Iterator[tuple[str, Cubin]]:
    """Each kernel of the family with its cubin, by name.

    Raises UsageError where the file is no wheel or cubin, or is damaged.
    """
    if path.suffix == ".cubin":
        yield from _single(path, pattern)
        return
    for name, data in cubin_files(path, pattern):
        yield name, Cubin.parse(data)


def _single(path: Path, pattern: str) -> Iterator[tuple[str, Cubin]]:
    cubin = Cubin.parse(read_at_most(path, MAX_CUBIN_BYTES))
    names = [n for n in cubin.kernels if not n.endswith(SHARED_SIZE_SUFFIX)]
    wanted = [n for n in names if fnmatch.fnmatchcase(n, pattern)]
    for name in wanted:
        KernelName.parse(name)
        yield name, cubin
    if not wanted:
        raise UsageError(f"{path} holds no kernel {pattern}: it has {', '.join(names) or 'none'}")


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open_regular(path))
            archive = stack.enter_context(zipfile.ZipFile(file))
        except _DAMAGE as error:
            raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
        yield archive


def _members(path: Path, pattern: str) -> list[tuple[str, zipfile.ZipInfo]]:
    with _opened(path) as archive:
        entries = archive.infolist()
    found = []
    for entry in entries:
        member = PurePosixPath(entry.filename)
        # A kernel may be in any folder; it is read in place, never written anywhere.
        family = member.suffix == ".cubin" and _FAMILY in member.name and "fmha" in member.name
        if family and fnmatch.fnmatchcase(member.stem, pattern):
            found.append((member.stem, entry))
    return found


def _inflated(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path) -> bytes:
    if entry.file_size > MAX_CUBIN_BYTES:
        raise UsageError(f"{path}: {shown(entry.filename)} is larger than any cubin")
    if entry.file_size > _LIMITS.small_bytes + _LIMITS.ratio * entry.compress_size:
        raise UsageError(f"{path}: {shown(entry.filename)} claims to inflate as no cubin does")
    try:
        with archive.open(entry) as stream:
            data = stream.read(MAX_CUBIN_BYTES + 1)
    except _DAMAGE as error:
        raise UsageError(f"{path}: {shown(entry.filename)} is damaged: {error}") from error
    if len(data) != entry.file_size:
        raise UsageError(f"{path}: {shown(entry.filename)} is not of the size it claims")
    return data


def readers_of(source: Source, options: ArtifactOptions | None = None) -> list[AttentionKernel]:
    """Every kernel that a source names, as a reader. Raises NothingRan where there is none."""
    with wheel_of(source, options or ArtifactOptions()) as path:
        prefix = str(source.release or path)
        readers = [
            AttentionKernel(cubin, name, f"{prefix}:{name}")
            for name, cubin in cubins(path, source.pattern)
        ]
    if not readers:
        raise NothingRan(
            f"{shown(source.spec)} holds no attention kernel with an NVFP4 KV cache"
            + (f" called {source.pattern}" if source.pattern != "*" else "")
        )
    return readers
