"""Opening what a user names, and leaving nothing half written."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from oracle.errors import UsageError


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading bytes, without ever waiting for somebody to write it.

    Raises OSError where it cannot be opened, and where it is a directory, a pipe or a device.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "is neither a file nor a directory", str(path))


def read_at_most(path: Path, most: int) -> bytes:
    """What a file holds, but no more than one byte beyond `most`, which tells that it is too long.

    Raises UsageError where it cannot be read, or is no file.
    """
    try:
        with open_regular(path) as file:
            return file.read(most + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


def replace_files(contents: Mapping[Path, str]) -> None:
    """Write texts into files, all of them or none: each beside its place first, then renamed.

    Raises OSError.
    """
    # Not `with_name`, which "." and "/" have no name for.
    beside = {path: path.parent / f".{path.name}.{os.getpid()}" for path in contents}
    try:
        for path, text in contents.items():
            if path.exists() and not path.is_file():
                raise OSError(errno.EEXIST, f"{path.name or path} is a directory or a device")
            beside[path].write_text(text, encoding="utf-8", newline="\n")
        for path, name in beside.items():
            os.replace(name, path)
    finally:
        for name in beside.values():
            name.unlink(missing_ok=True)
