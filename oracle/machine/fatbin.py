"""Walks fat binaries: the containers in which shared objects carry GPU code for several archs.

The section `.nv_fatbin` is a run of containers, padded to 8 bytes. Each has a header (magic, u16
version, u16 header size, u64 size of what follows) and then entries: a header and a payload, which
may be compressed. The walk reads headers only; `FatbinEntry.payload` decompresses one entry.
Everything is untrusted: sizes are checked against the file and against limits.
"""

import io
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

from oracle.errors import UsageError
from oracle.machine.elf import Elf

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    import zstandard

MAGIC = 0xBA55ED50
SECTION = ".nv_fatbin"

_CONTAINER = struct.Struct("<IHHQ")
# kind, version, header size, stored size, compressed size, options, minor, major, arch, name offset
# and length, flags, reserved, decompressed size.
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_KINDS = {1: "ptx", 2: "cubin"}
_LZ4, _ZSTD = 0x2000, 0x8000
_ARCH_SPECIFIC, _FAMILY = 0x100000, 0x200000
_ALIGNMENT = 8
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What a fat binary may cost: headers in all, bytes of one payload, bytes of padding."""

    headers: int = 65_536
    payload_bytes: int = 256 << 20
    padding_bytes: int = 65_536


@dataclass(frozen=True, slots=True)
class FatbinEntry:
    """One piece of GPU code: `kind` is "ptx", "cubin" or "kind <n>", `arch` such as "sm_100f".

    `flags` are the entry's own; `stored` the payload as it stands in the file, `size` its length
    in bytes once decompressed.
    """

    kind: str
    arch: str
    flags: int
    stored: memoryview
    size: int

    def payload(self) -> bytes:
        """The decompressed payload. Raises UsageError where it is damaged or not understood."""
        if self.flags & _LZ4:
            raise UsageError(
                f"the {self.arch} {self.kind} is compressed with LZ4, which is not supported: "
                "rebuild it with nvcc --compress-mode=size or --no-compress"
            )
        data = self._decompressed() if self.flags & _ZSTD else bytes(self.stored)
        if self.kind == "cubin" and not data.startswith(b"\x7fELF"):
            raise UsageError(f"the {self.arch} cubin is damaged or encoded in an unknown way")
        return data

    def _decompressed(self) -> bytes:
        chunks: list[bytes] = []
        left = self.size
        try:
            with _zstd_reader(self.stored) as reader:
                # One byte more than announced tells a payload that goes on from one that ends.
                while left >= 0 and (chunk := reader.read(min(_CHUNK, left + 1))):
                    chunks.append(chunk)
                    left -= len(chunk)
        except _ZSTD_ERRORS as error:
            raise UsageError(f"the {self.arch} {self.kind} does not decompress: {error}") from error
        if left:
            raise UsageError(f"the {self.arch} {self.kind} is not of the size its header announces")
        return b"".join(chunks)


def walk(data: bytes | memoryview, limits: Limits | None = None) -> Iterator[FatbinEntry]:
    """Every entry of a run of containers (the bytes of a `.nv_fatbin` section or fatbin file).

    Raises UsageError where a header does not fit the data or a limit is passed; entries before
    that point have been yielded by then.
    """
    limits = limits or Limits()
    view = memoryview(data)
    headers = position = end = 0
    while True:
        if position >= end:
            position = _skip_padding(view, end, limits.padding_bytes)
            if position >= len(view):
                return
            position, end = _container(view, position)
        else:
            entry, position = _entry(view[:end], position, limits)
            yield entry
        headers += 1
        if headers > limits.headers:
            raise UsageError(f"the fat binary has more than {limits.headers} headers")


def entries_of(data: bytes, limits: Limits | None = None) -> Iterator[FatbinEntry]:
    """Every entry of a file: a shared object or executable, or a fat binary by itself.

    A host file without GPU code has none. Raises UsageError as `walk` does, and for other files.
    """
    if data.startswith(MAGIC.to_bytes(4, "little")):
        return walk(data, limits)
    section = Elf(data, "the file").section(SECTION)
    return walk(section.data if section else b"", limits)


def _skip_padding(view: memoryview, position: int, limit: int) -> int:
    """The next position that is not zero padding, or the end."""
    position = -(-position // _ALIGNMENT) * _ALIGNMENT
    stop = min(len(view), position + limit)
    while position < stop and not any(view[position : position + _ALIGNMENT]):
        position += _ALIGNMENT
    if position >= stop and stop < len(view):
        raise UsageError(f"the fat binary has more than {limit} bytes of padding in a row")
    return position


def _unpack(layout: struct.Struct, view: memoryview, position: int) -> tuple[int, ...]:
    if position + layout.size > len(view):
        raise UsageError("the fat binary is damaged or truncated: a header is cut off")
    return layout.unpack_from(view, position)


def _container(view: memoryview, position: int) -> tuple[int, int]:
    """Where the entries of the container at `position` start and end."""
    magic, _, header, size = _unpack(_CONTAINER, view, position)
    if magic != MAGIC:
        raise UsageError("the fat binary is damaged: no container starts where one should")
    if header < _CONTAINER.size or position + header + size > len(view):
        raise UsageError("the fat binary is damaged or truncated: a container is cut off")
    return position + header, position + header + size


def _entry(view: memoryview, position: int, limits: Limits) -> tuple[FatbinEntry, int]:
    """The entry at `position`, and where the next one starts."""
    kind, _, header, stored, compressed, _, _, _, arch, _, _, flags, _, size = _unpack(
        _ENTRY, view, position
    )
    start, end = position + header, position + header + stored
    if header < _ENTRY.size or end > len(view) or compressed > stored:
        raise UsageError("the fat binary is damaged or truncated: an entry is cut off")
    if not flags & (_LZ4 | _ZSTD):
        compressed, size = stored, stored
    if size > limits.payload_bytes:
        raise UsageError(f"the fat binary has an entry of {size} bytes: more than is allowed")
    suffix = "a" if flags & _ARCH_SPECIFIC else "f" if flags & _FAMILY else ""
    return FatbinEntry(
        kind=_KINDS.get(kind, f"kind {kind}"),
        arch=f"sm_{arch}{suffix}",
        flags=flags,
        # A compressed size of zero means that the payload carries no padding.
        stored=view[start : start + (compressed or stored)],
        size=size,
    ), end


if sys.version_info >= (3, 14):
    _ZSTD_ERRORS: tuple[type[Exception], ...] = (zstd.ZstdError, EOFError)

    def _zstd_reader(stored: memoryview) -> BinaryIO:
        return cast(BinaryIO, zstd.ZstdFile(io.BytesIO(stored)))
else:
    _ZSTD_ERRORS = (zstandard.ZstdError,)

    def _zstd_reader(stored: memoryview) -> BinaryIO:
        # A window beyond the payload limit would only serve to exhaust memory.
        decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 28)
        return cast(BinaryIO, decompressor.stream_reader(io.BytesIO(stored)))
