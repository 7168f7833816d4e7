"""Reads an artefact somebody installed or downloaded: a wheel, a directory or a single binary.

Only bytes are read; nothing is imported, loaded or unpacked to a path that the artefact chooses. A
member of a wheel is streamed into an unnamed temporary file and mapped from there, so that hundreds
of megabytes of shared object never stand in memory. Everything is untrusted: names, claimed sizes
and compression ratios are checked before a byte is inflated, and what was inflated is checked
against the claim and the checksum.
"""

from __future__ import annotations

import io
import mmap
import re
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Protocol, cast

from oracle.errors import UsageError
from oracle.files import open_regular

CHUNK_BYTES = 1 << 20
MAX_SHOWN = 120
Watch = Callable[[bytes], None]
"""Called with each piece of a member as it streams by."""

# A path that leaves the directory it would be unpacked to.
_ESCAPES = re.compile(r"^[/\\]|^[A-Za-z]:|(?:^|[/\\])\.\.(?:[/\\]|$)|\0")
_ENCRYPTED = 1
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """What an artefact may cost: its table of contents, one member, and how far a member inflates.

    A shared object shrinks to a half or a quarter; `ratio` holds for members above `small_bytes`.
    """

    directory_bytes: int = 8 << 20
    members: int = 100_000
    member_bytes: int = 1 << 30
    ratio: int = 32
    small_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """One binary of an artefact: `name` within it, bytes once unpacked, checksum in a wheel."""

    name: str
    size: int
    crc: int = 0


class Artefact(Protocol):
    """What a path turned out to be."""

    @property
    def kind(self) -> str:
        """ "wheel", "directory" or "file"."""

    @property
    def members(self) -> tuple[Member, ...]:
        """Every shared object in it, or the file itself."""

    def contents(self, member: Member, watch: Watch) -> memoryview:
        """All of a member, mapped; `watch` sees it pass once. Raises UsageError."""


@contextmanager
def open_artefact(path: Path, limits: ArchiveLimits | None = None) -> Iterator[Artefact]:
    """The artefact at `path`. Raises UsageError where it is missing, damaged or over a limit."""
    with ExitStack() as stack:
        try:
            artefact = _recognised(path, limits or ArchiveLimits(), stack)
        except OSError as error:
            raise _unreadable(path, error) from error
        yield artefact


def _recognised(path: Path, limits: ArchiveLimits, stack: ExitStack) -> Artefact:
    if path.is_dir():
        return _Directory(path, limits)
    file = stack.enter_context(open_regular(path))
    if file.read(2) != b"PK":
        return _File(path, limits)
    archive = stack.enter_context(_archive(path, file, limits))
    return _Wheel(path, archive, limits)


class _File:
    """A shared object or cubin by itself: its own only member."""

    kind = "file"

    def __init__(self, path: Path, limits: ArchiveLimits) -> None:
        self._path = path
        self.members = (Member(path.name, path.stat().st_size),)
        _check_size(str(path), self.members[0].size, limits)

    def contents(self, member: Member, watch: Watch) -> memoryview:
        """The file, mapped."""
        return _watched(_map_file(self._path), watch)


class _Directory:
    """An installed package, or the directory it is installed in: the shared objects at its top."""

    kind = "directory"

    def __init__(self, path: Path, limits: ArchiveLimits) -> None:
        inner = path / "vllm"
        self._path = inner if inner.is_dir() else path
        self._limits = limits
        found = sorted(p for p in self._path.iterdir() if p.suffix == ".so" and p.is_file())
        self.members = tuple(Member(p.name, p.stat().st_size) for p in found[: limits.members])

    def contents(self, member: Member, watch: Watch) -> memoryview:
        """One of the files, mapped."""
        path = self._path / member.name
        _check_size(str(path), member.size, self._limits)
        return _watched(_map_file(path), watch)


class _Wheel:
    """A zip archive of a package; its members are the shared objects in it."""

    kind = "wheel"

    def __init__(self, path: Path, archive: zipfile.ZipFile, limits: ArchiveLimits) -> None:
        self._path = path
        self._archive = archive
        self._limits = limits
        entries = archive.infolist()
        if len(entries) > limits.members:
            raise UsageError(
                f"{path} has {len(entries)} members: more than the {limits.members} allowed"
            )
        for entry in entries:
            if _ESCAPES.search(entry.orig_filename):
                raise UsageError(
                    f"{path} has a member that leaves its directory, {shown(entry.orig_filename)}: "
                    "it is no sound wheel"
                )
        self._entries = {e.filename: e for e in entries if e.filename.endswith(".so")}
        self.members = tuple(Member(e.filename, e.file_size, e.CRC) for e in self._entries.values())

    def contents(self, member: Member, watch: Watch) -> memoryview:
        """One member, inflated into a temporary file."""
        entry = self._entries[member.name]
        what = f"{shown(member.name)} in {self._path}"
        self._check(what, entry)
        length = 0
        with _room_for(what), tempfile.TemporaryFile(prefix="layout-oracle-") as spool:
            for chunk in self._inflated(what, entry):
                length += len(chunk)
                watch(chunk)
                spool.write(chunk)
            if length != entry.file_size:
                raise UsageError(f"{what} is not of the size that the archive claims")
            return _mapped(spool, what)

    def _check(self, what: str, entry: zipfile.ZipInfo) -> None:
        _check_size(what, entry.file_size, self._limits)
        if entry.header_offset + entry.compress_size > self._path.stat().st_size:
            raise UsageError(f"{what} is damaged or truncated: it reaches past the end of the file")
        if entry.flag_bits & _ENCRYPTED:
            raise UsageError(f"{what} is encrypted: give a wheel as pip downloads it")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise UsageError(f"{what} is compressed with method {entry.compress_type}: not deflate")
        most = self._limits.small_bytes + self._limits.ratio * entry.compress_size
        if entry.file_size > most:
            raise UsageError(
                f"{what} claims to inflate {entry.compress_size} bytes to {entry.file_size}: "
                "no shared object does"
            )

    def _inflated(self, what: str, entry: zipfile.ZipInfo) -> Iterator[bytes]:
        try:
            with self._archive.open(entry) as stream:
                while chunk := stream.read(CHUNK_BYTES):
                    yield chunk
        except _ZIP_ERRORS as error:
            raise UsageError(f"{what} is damaged or truncated: {_reason(error)}") from error


class _Bounded(io.RawIOBase):
    """A file that refuses to be read in pieces above a limit, such as a huge table of contents."""

    def __init__(self, file: BinaryIO, limit: int) -> None:
        self._file = file
        self._limit = limit

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int | None = -1) -> bytes:
        most = self._limit + 1 if size is None or size < 0 else size
        data = self._file.read(min(most, self._limit + 1))
        if len(data) > self._limit:
            raise UsageError(f"its table of contents is larger than {self._limit} bytes")
        return data


@contextmanager
def _archive(path: Path, file: BinaryIO, limits: ArchiveLimits) -> Iterator[zipfile.ZipFile]:
    bounded = cast(IO[bytes], _Bounded(file, limits.directory_bytes))
    try:
        archive = zipfile.ZipFile(bounded)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    except _ZIP_ERRORS as error:
        raise UsageError(f"{path} is a damaged or truncated wheel: {_reason(error)}") from error
    with archive:
        yield archive


def _check_size(what: str, size: int, limits: ArchiveLimits) -> None:
    if size > limits.member_bytes:
        raise UsageError(
            f"{what} claims {size} bytes: more than the {limits.member_bytes} that are read"
        )


def _map_file(path: Path) -> memoryview:
    try:
        with open_regular(path) as file:
            return _mapped(file, str(path))
    except OSError as error:
        raise _unreadable(path, error) from error


def _mapped(file: IO[bytes], what: str) -> memoryview:
    """The bytes of an open file; they stay mapped for as long as anybody holds a view of them."""
    file.flush()
    if file.seek(0, io.SEEK_END) == 0:
        raise UsageError(f"{what} is empty")
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _watched(contents: memoryview, watch: Watch) -> memoryview:
    for start in range(0, len(contents), CHUNK_BYTES):
        watch(bytes(contents[start : start + CHUNK_BYTES]))
    return contents


@contextmanager
def _room_for(what: str) -> Iterator[None]:
    """Says where the room for a temporary file is missing."""
    try:
        yield
    except OSError as error:
        where = tempfile.tempdir or "the temporary directory"
        raise UsageError(
            f"{what} cannot be unpacked to {where} ({error.strerror or error}): set TMPDIR to a "
            "directory with room"
        ) from error


def shown(name: str) -> str:
    """A name out of an artefact on one line, however it was meant."""
    short = name if len(name) <= MAX_SHOWN else f"{name[:MAX_SHOWN]}…"
    return short if short.isprintable() else ascii(short)


def _unreadable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path}: {error.strerror or error}")


def _reason(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return shown(text[0]) if text else type(error).__name__
