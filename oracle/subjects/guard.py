"""A time limit for a call of somebody else's Python function in this process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CALL_SECONDS = 60.0
"""Seconds a call may take: the reference store takes far less for the largest probe."""


class TooLong(BaseException):
    """A call took longer than it may; no Exception, so that the function does not swallow it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"gave no answer within {seconds:g} s and was stopped")


@contextmanager
def time_limit(seconds: float = CALL_SECONDS) -> Iterator[None]:
    """Raise TooLong in what is called inside once `seconds` have passed.

    Python code is stopped between two of its instructions; native code that never returns is not.
    Only a process's main thread can be interrupted, so elsewhere there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong(seconds)

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
