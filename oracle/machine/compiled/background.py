"""Compiles a kernel into the cache in another process, while this one goes on."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import weakref

from oracle.machine.compiled import lock
from oracle.machine.ir import Function


class Compilation:
    """A process that compiles a kernel into the cache.

    It is stopped when nobody waits for it any more, at the latest as the interpreter exits.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        weakref.finalize(self, _stop, process)

    @classmethod
    def begin(cls, function: Function) -> Compilation | None:
        """Begin; None while another process is compiling, which may be the same kernel.

        Raises OSError where the cache cannot be written to.
        """
        held = lock.take(wait=False)
        if held is None:
            return None
        try:
            return cls(_compiler(function, held))
        finally:
            # The compiler has inherited the lock, and keeps it.
            os.close(held)

    @property
    def over(self) -> bool:
        """Whether it has ended, well or not."""
        return self._process.poll() is not None


def _compiler(function: Function, held: int) -> subprocess.Popen[bytes]:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    with tempfile.TemporaryFile() as kernel:
        pickle.dump(function, kernel)
        kernel.seek(0)
        return subprocess.Popen(
            [sys.executable, "-m", "oracle.machine.compiled.worker"],
            stdin=kernel,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            pass_fds=(held,),
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a compilation nobody waits for any more."""
    if process.poll() is None:
        process.kill()
    process.wait()
