"""Small build products kept on disk between runs: compiled cubins and decoded disassembly.

An entry is a file named by its key that holds the SHA-256 of its payload, then the payload, so
that a torn or edited file reads as absent and is rebuilt. The cache is only ever an optimisation:
a directory that cannot be read or written makes it empty, never an error.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

_DIGEST_BYTES = 32


def cache_dir() -> Path:
    """The directory of the cache; it need not exist.

    `LAYOUT_ORACLE_CACHE` where set, else `layout-oracle` under `XDG_CACHE_HOME` (an absolute path,
    as its specification demands), else under `~/.cache`.
    """
    chosen = os.environ.get("LAYOUT_ORACLE_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~"), ".cache")
    return root / "layout-oracle"


def key_of(parts: Iterable[bytes]) -> str:
    """A key (64 hexadecimal digits) for the sequence `parts`.

    Every part enters with its length, so that no two different sequences share a digest's input.
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def load(key: str, suffix: str) -> bytes | None:
    """The payload stored under `key` and `suffix`, or None where it is absent or damaged."""
    try:
        entry = (cache_dir() / (key + suffix)).read_bytes()
    except OSError:
        return None
    digest, payload = entry[:_DIGEST_BYTES], entry[_DIGEST_BYTES:]
    return payload if hashlib.sha256(payload).digest() == digest else None


def store(key: str, suffix: str, payload: bytes) -> None:
    """Keep `payload`; readers see the whole entry or none. Failing to write is not an error."""
    directory = cache_dir()
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=directory, prefix=".writing-")
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(payload).digest())
            file.write(payload)
        os.replace(name, directory / (key + suffix))
    except OSError:
        Path(name).unlink(missing_ok=True)
