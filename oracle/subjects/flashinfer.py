"""FlashInfer's attention kernels as readers: from a release, a wheel, or a single cubin.

flashinfer-cubin==0.6.13[:GLOB]   a release, by pip where no wheel of it is at hand
PATH.whl[:GLOB]                   a wheel that is there
PATH.cubin                        one kernel

GLOB chooses among the kernels with an NVFP4 KV cache, by their names. Members of a wheel are
streamed one at a time, and only cubins of that family are read.
"""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from oracle.errors import NothingRan, UsageError
from oracle.files import open_regular
from oracle.machine.cubin import MAX_CUBIN_BYTES, Cubin
from oracle.subjects.archive import shown
from oracle.subjects.attention import KernelName
from oracle.subjects.attentionkernel import SHARED_SIZE_SUFFIX, AttentionKernel, page_sizes

PACKAGE = "flashinfer-cubin"
WHEELS_VARIABLE = "LAYOUT_ORACLE_WHEELS"
"""Names a directory in which wheels are looked for before anything is fetched."""
_FAMILY = "KvE2m1"
_WHEEL_NAME = re.compile(r"flashinfer_cubin-(?P<version>[^-]+)(?:-[^-]+)?-py3-none-any\.whl")
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)*[A-Za-z0-9.]*")
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, RuntimeError)


@dataclass(frozen=True)
class Source:
    """Where kernels come from and which of them: a release, or the path of a wheel or cubin."""

    spec: str
    version: str | None
    path: Path | None
    pattern: str


def parse_source(spec: str) -> Source | None:
    """What a spec names; None where it is not for this module. Raises UsageError for a bad one."""
    where, _, pattern = spec.partition(":")
    name, equals, version = where.partition("==")
    if name.strip().lower().replace("_", "-") == PACKAGE:
        if not equals or not _VERSION.fullmatch(version):
            raise UsageError(f"{shown(spec)}: give a release, such as {PACKAGE}==0.6.13")
        return Source(spec, version, None, pattern or "*")
    path, colon, glob = spec.rpartition(":")
    if colon and path.endswith((".whl", ".cubin")):
        return Source(spec, None, Path(path), glob or "*")
    if spec.endswith((".whl", ".cubin")):
        return Source(spec, None, Path(spec), "*")
    return None


@contextmanager
def wheel_of(
    source: Source, wheel_dir: Path | None = None, offline: bool = False
) -> Iterator[Path]:
    """The wheel or cubin of a source, there for as long as the context is open."""
    if source.path is not None:
        yield source.path
        return
    assert source.version is not None
    named = os.environ.get(WHEELS_VARIABLE)
    for folder in (wheel_dir, Path(named) if named else None):
        for path in sorted(folder.glob("*.whl")) if folder else ():
            found = _WHEEL_NAME.fullmatch(path.name)
            if found and found["version"] == source.version:
                yield path
                return
    if offline:
        raise UsageError(f"no wheel of {PACKAGE}=={source.version} is at hand: give --wheel-dir")
    with tempfile.TemporaryDirectory(prefix="layout-oracle-") as fetched:
        yield _fetched(source.version, Path(fetched))


def _fetched(version: str, folder: Path) -> Path:
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input",
        "--quiet", "--disable-pip-version-check", "--dest", str(folder), f"{PACKAGE}=={version}",
    ]  # fmt: skip
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["pip left no wheel"]
        raise UsageError(f"{PACKAGE}=={version} could not be fetched: {shown(lines[-1])}")
    return wheels[0]


def kernel_names(path: Path, pattern: str = "*") -> tuple[str, ...]:
    """Names of the kernels of the family that a wheel holds, sorted."""
    return tuple(sorted(name for name, _ in _members(path, pattern)))


def cubins(
    path: Path, pattern: str = "*", skip: frozenset[str] = frozenset()
) -> Iterator[tuple[str, Cubin]]:
    """Each kernel of the family with its cubin, by name; those in `skip` are not even read.

    Raises UsageError where the file is no wheel or cubin, or is damaged.
    """
    if path.suffix == ".cubin":
        yield from _single(path, pattern)
        return
    with _opened(path) as archive:
        for name, entry in sorted(_members(path, pattern), key=lambda pair: pair[0]):
            if name not in skip:
                yield name, Cubin.parse(_inflated(archive, entry, path))


def _single(path: Path, pattern: str) -> Iterator[tuple[str, Cubin]]:
    try:
        with open_regular(path) as file:
            cubin = Cubin.parse(file.read(MAX_CUBIN_BYTES + 1))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
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
    try:
        with archive.open(entry) as stream:
            data = stream.read(MAX_CUBIN_BYTES + 1)
    except _DAMAGE as error:
        raise UsageError(f"{path}: {shown(entry.filename)} is damaged: {error}") from error
    if len(data) != entry.file_size:
        raise UsageError(f"{path}: {shown(entry.filename)} is not of the size it claims")
    return data


def readers_of(
    source: Source, wheel_dir: Path | None = None, offline: bool = False
) -> list[AttentionKernel]:
    """Every kernel that a source names, as a reader. Raises NothingRan where there is none."""
    with wheel_of(source, wheel_dir, offline) as path:
        prefix = source.spec.split(":")[0] if source.version else str(path)
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


def geometries_of(readers: Sequence[AttentionKernel]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Head sizes and page sizes that some of the readers are made for, rising."""
    heads = {reader.kernel.head_size for reader in readers}
    pages = {page_sizes(reader.kernel)[0] for reader in readers}
    return tuple(sorted(heads)), tuple(sorted(pages))
