"""Starts the process that executes a checkout's functions, and talks to it under limits.

The process is `python -I checkout_worker.py`: isolated from the environment and the current
directory, without a visible GPU, with a limit on its memory (set by itself) and on the time of
every answer (set here). Once it has missed one, or died, it is gone and every later call says so.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from oracle.errors import CallFailed, UsageError
from oracle.subjects.checkout_source import Extract

TIME_LIMIT = 60.0
"""Seconds an answer may take, the first one with torch's import among them."""

PYTHON_VARIABLE = "LAYOUT_ORACLE_TORCH_PYTHON"
"""Names an interpreter with torch, where the program's own has none."""

_WORKER = Path(__file__).with_name("checkout_worker.py")
_KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "HOME", "TMPDIR")
_CHUNK = 2**16


class CheckoutProcess:
    """A running worker with some functions loaded.

    Raises UsageError where Python or torch is missing, or where a function cannot be loaded, needs
    what is not executed, wants a GPU, exceeds the time limit or ends the process; CallFailed
    where it merely raises.
    """

    def __init__(
        self, extracts: Sequence[Extract], python: str, time_limit: float = TIME_LIMIT
    ) -> None:
        self._names = {each.function: each.name for each in extracts}
        self._time_limit = time_limit
        environment = {k: os.environ[k] for k in _KEPT_VARIABLES if k in os.environ}
        environment |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        try:
            self._process = subprocess.Popen(
                [python, "-I", str(_WORKER)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env=environment, cwd="/", bufsize=0,
            )  # fmt: skip
        except OSError as error:
            raise UsageError(f"{python}: {error.strerror or error}: name another Python") from error
        atexit.register(self.close)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
        sources = {each.function: each.source for each in extracts}
        paths = {each.function: each.path for each in extracts}
        try:
            self.call("load", "; ".join(self._names.values()), {"sources": sources, "paths": paths})
        except CallFailed as error:
            raise UsageError(f"{error} (torch is needed, in {python})") from error

    def call(
        self, verb: str, function: str, request: dict[str, Any], payload: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        """Ask for something; the answer's header and payload. Raises as the class says."""
        name = self._names.get(function, function)
        if self._process.poll() is not None:
            raise UsageError(f"{name}: its process has ended: run again")
        request = {"verb": verb, "function": function, **request, "bytes": len(payload)}
        header = json.dumps(request).encode()
        try:
            answer, data = self._exchange(len(header).to_bytes(8, "little") + header, payload)
        except TimeoutError:
            self.close()
            raise UsageError(
                f"{name} gave no answer within {self._time_limit:g} s and was stopped"
            ) from None
        except (EOFError, OSError, ValueError) as error:
            self.close()
            raise UsageError(f"{name} ended its process (out of memory, or killed)") from error
        if "error" in answer:
            raise _complaint(name, answer)
        return answer, data

    def close(self) -> None:
        """End the process."""
        atexit.unregister(self.close)
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _exchange(self, *parts: bytes) -> tuple[dict[str, Any], bytes]:
        """Write a request while reading its answer, so that neither side waits for the other."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        requests, answers = self._process.stdin.fileno(), self._process.stdout.fileno()
        deadline = time.monotonic() + self._time_limit
        left = memoryview(b"".join(parts))
        received = bytearray()
        expected = None
        while expected is None or len(received) < expected:
            remaining = deadline - time.monotonic()
            writing = [requests] if left else []
            ready = select.select([answers], writing, [], max(0.0, remaining))
            if remaining <= 0 or not any(ready):
                raise TimeoutError
            if ready[1]:
                left = left[os.write(requests, left[:_CHUNK]) :]
            if ready[0]:
                part = os.read(answers, _CHUNK)
                if not part:
                    raise EOFError
                received += part
                expected = _length(received)
        size = int.from_bytes(received[:8], "little")
        return json.loads(received[8 : 8 + size]), bytes(received[8 + size :])


def _length(received: bytearray) -> int | None:
    """Length of a whole answer, once its header is there."""
    if len(received) < 8:
        return None
    size = int.from_bytes(received[:8], "little")
    if len(received) < 8 + size:
        return None
    return 8 + size + int(json.loads(received[8 : 8 + size])["bytes"])


def _complaint(name: str, answer: dict[str, Any]) -> Exception:
    message = str(answer["message"])
    if answer["error"] == "needs":
        return UsageError(
            f"{name} needs {message}, which is not executed: only the function itself, torch and "
            "NumPy are"
        )
    if answer["error"] == "gpu":
        return UsageError(f"{name} wants a GPU, and none is given to it: {message}")
    return CallFailed(f"{name} raised {message}")


@lru_cache(maxsize=4)
def _process_of(
    owner: int, extracts: tuple[Extract, ...], python: str, time_limit: float
) -> CheckoutProcess:
    return CheckoutProcess(extracts, python, time_limit)


def process_for(
    extracts: tuple[Extract, ...], python: str, time_limit: float = TIME_LIMIT
) -> CheckoutProcess:
    """The process for some functions, one for each process of this program that asks.

    A fork inherits the pipes of its parent's, and two that talk through one pipe garble it.
    """
    return _process_of(os.getpid(), extracts, python, time_limit)


def default_python() -> str:
    """The Python that LAYOUT_ORACLE_TORCH_PYTHON names, or else the one that runs this program."""
    return os.environ.get(PYTHON_VARIABLE) or sys.executable
