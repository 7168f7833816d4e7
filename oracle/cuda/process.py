"""Starts the process that holds the GPU, and talks to it under a time limit."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from multiprocessing import Pipe
from typing import Any

from oracle.cuda.archs import Device
from oracle.cuda.launcher import Launch, Launched
from oracle.errors import NothingRan, OracleError
from oracle.machine.context import Unsupported
from oracle.machine.memory import MachineFault

TIME_LIMIT = 120.0
"""Seconds an answer may take, the start of the driver among them."""

_STANDARD_ERROR = 2
WORKER = (sys.executable, "-P", "-m", "oracle.cuda.worker")
"""Not from the current directory, which may hold an `oracle` of its own."""


class GpuProcess:
    """A process with the GPU, started when it is first needed, and anew after a kernel's fault.

    A fault, a kernel that does not end, or a crash of the driver takes the process with it, and
    nothing else: the next launch gets another one.
    """

    def __init__(self, command: Sequence[str] = WORKER, time_limit: float = TIME_LIMIT) -> None:
        self._command = command
        self._time_limit = time_limit
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Any = None
        self._device: Device | None = None

    @property
    def device(self) -> Device:
        """The GPU. Raises NothingRan where there is none."""
        self._start()
        assert self._device is not None
        return self._device

    def run(self, launch: Launch) -> Launched:
        """Perform a launch, as `Launcher.run` does.

        Raises what that raises, and MachineFault where no answer comes in time or at all.
        """
        self._start()
        answer = self._answer(f"kernel {launch.kernel}", launch)
        assert isinstance(answer, Launched)
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is None:
            return
        atexit.unregister(self.close)
        self._process.kill()
        self._process.wait()
        self._pipe.close()
        self._process = None

    def _start(self) -> None:
        if self._process is not None:
            return
        self._pipe, theirs = Pipe()
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
        self._process = subprocess.Popen(
            [*self._command, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            # What a kernel prints is no result.
            stdout=_STANDARD_ERROR,
            pass_fds=(theirs.fileno(),),
            env=environment,
        )
        atexit.register(self.close)
        theirs.close()
        self._device = self._answer("the CUDA driver")

    def _answer(self, whose: str, launch: Launch | None = None) -> Any:
        """The next answer, to a launch or else to the start. Raises it where it is an error."""
        silent = NothingRan if launch is None else MachineFault
        try:
            if launch is not None:
                self._pipe.send(launch)
            if not self._pipe.poll(self._time_limit):
                raise silent(f"{whose} gave no answer within {self._time_limit:g} s")
            answer = self._pipe.recv()
            if isinstance(answer, OracleError):
                raise answer
        except (EOFError, OSError) as error:
            self.close()
            raise silent(f"{whose} ended the process that held the GPU") from error
        except OracleError as error:
            # What is merely refused leaves the context as it was.
            if not isinstance(error, Unsupported):
                self.close()
            raise
        return answer


@lru_cache(maxsize=1)
def _process_of(owner: int) -> GpuProcess:
    return GpuProcess()


def gpu_process() -> GpuProcess:
    """The process with the GPU of the process that asks: two must not talk through one pipe."""
    return _process_of(os.getpid())


def find_device() -> Device:
    """The GPU, asked for by a process that ends at once. Raises NothingRan where there is none."""
    process = GpuProcess()
    try:
        return process.device
    finally:
        process.close()
