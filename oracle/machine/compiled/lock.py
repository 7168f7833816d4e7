"""One compiler at a time for all processes that share a cache.

Whoever compiles holds a lock, which the system takes back when its holder ends, however that
happens. So those who want the same kernel find it in the cache afterwards, instead of compiling it
as well.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from oracle.diskcache import cache_dir

NAME = "compiling.lock"
"""A file in the cache's directory; it stays there, and only the lock on it means something."""


def take(wait: bool) -> int | None:
    """The lock as a descriptor, to be closed; None while another holds it, unless told to wait.

    Raises OSError where the cache cannot be written to.
    """
    directory = cache_dir()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(directory / NAME, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except OSError:
        os.close(lock)
        raise
    return lock


@contextmanager
def compiling() -> Iterator[None]:
    """Hold the lock, once it is free; without a cache that could be shared there is no need."""
    try:
        lock = take(wait=True)
    except OSError:
        lock = None
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)
