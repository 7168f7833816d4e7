"""Somebody else's Python function, called in this process: it may neither stay in it nor end it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

CALL_SECONDS = 60.0
"""Seconds a call may take: the reference store takes far less for the largest probe."""


class TooLong(BaseException):
    """A call took longer than it may; no Exception, so that the function does not swallow it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"gave no answer within {seconds:g} s and was stopped")


class EndsProcess(BaseException):
    """A call wants to end this process at once; no Exception, as above."""


@contextmanager
def guarded(seconds: float = CALL_SECONDS) -> Iterator[None]:
    """Raise TooLong in what is called inside after `seconds`, and EndsProcess from its os._exit.

    Python code is stopped between two of its instructions; native code that never returns, or ends
    the process itself, is not. Only a process's main thread can be interrupted, so elsewhere there
    is no limit of time.
    """
    own, leave = os.getpid(), os._exit

    def refuse(status: int) -> NoReturn:
        if os.getpid() != own:
            # A process that the function made is the function's own.
            leave(status)
        raise EndsProcess(f"os._exit({status}) would end the process")

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong(seconds)

    timed = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGALRM, stop) if timed else None
    os._exit = refuse
    if timed:
        signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        os._exit = leave
        if timed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
