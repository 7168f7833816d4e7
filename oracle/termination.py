"""What a polite request to end (SIGTERM) does: the same as an interrupt, and to the workers too."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(KeyboardInterrupt):
    """The process was asked to end; whoever tidies up after an interrupt does so after this."""


@contextmanager
def terminable() -> Iterator[None]:
    """Raise Terminated in the main thread at a SIGTERM, once the worker processes are ended.

    A worker that was forked inside ends at once. Elsewhere than in a main thread nothing changes,
    as only that may set handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # A function of the user's is called with another os._exit (`oracle.subjects.guard`).
    own, leave = os.getpid(), os._exit

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != own:
            leave(128 + number)
        from multiprocessing import active_children

        for child in active_children():
            child.terminate()
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
