"""The worker processes of a session, and the pipes to them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from oracle.errors import UsageError
from oracle.fuzz.messages import Asked, Ended, Task, Told
from oracle.fuzz.subject import Subject
from oracle.fuzz.worker import work

_JOIN_SECONDS = 5.0
_FORK = multiprocessing.get_context("fork")
"""A worker is a child of its session, whatever this version of Python does by default."""


class Crew:
    """Workers that run."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._working: dict[Connection[Asked, Told], BaseProcess] = {}

    @property
    def working(self) -> bool:
        """Whether anybody has not ended yet."""
        return bool(self._working)

    def start(self, task: Task) -> None:
        """Start one more worker."""
        ours, theirs = multiprocessing.Pipe()
        process = _FORK.Process(target=work, args=(self._subject, task, theirs), daemon=True)
        process.start()
        theirs.close()
        self._working[ours] = process

    def listen(self, seconds: float) -> Iterator[Told]:
        """What workers tell within some seconds; a worker's last is always Ended."""
        heard = wait(list(self._working), seconds)
        for pipe, process in list(self._working.items()):
            told: Told = Ended(
                f"{self._subject.spec} ended the process it was called in", UsageError.exit_code
            )
            if pipe in heard:
                # One that was killed may have told a part of something.
                with suppress(EOFError, OSError):
                    told = pipe.recv()
            elif process.is_alive() or pipe.poll():
                continue
            # A pipe that is silent is not at its end where the subject forked.
            if isinstance(told, Ended):
                self._working.pop(pipe).join(_JOIN_SECONDS)
                pipe.close()
            yield told

    def tell(self, asked: Asked) -> None:
        """Tell every worker."""
        for pipe in self._working:
            # One that ended meanwhile has nothing to be told; `listen` notices.
            with suppress(ConnectionError):
                pipe.send(asked)

    def end(self) -> None:
        """End whoever still works, be it in the middle of a case."""
        for pipe, process in self._working.items():
            process.terminate()
            process.join(_JOIN_SECONDS)
            # A subject may take no notice of the signal.
            process.kill()
            process.join()
            pipe.close()
        self._working.clear()
