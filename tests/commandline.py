"""Calls the command line, in this process or as another one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from oracle import toolchain

ROOT = Path(__file__).parents[1]
HARNESS = str(ROOT / "harness.py")


class Outcome:
    """An exit code and what stood on standard output and standard error."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def complaint(self) -> str:
        """The one line on standard error; fails where there is more, or a result beside it."""
        assert self.out == ""
        assert self.err.count("\n") == 1
        prefix = "layout-oracle: error: "
        assert self.err.startswith(prefix)
        return self.err.removeprefix(prefix).rstrip("\n")


Call = Callable[..., Outcome]
"""Runs the command line in this process: the fixture `call`."""


def start(arguments: Sequence[str], cwd: Path, **environment: str) -> Outcome:
    """Runs harness.py as another process, as a person would."""
    done = subprocess.run(
        [sys.executable, HARNESS, *arguments],
        cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout, done.stderr)


def cubin() -> bytes:
    return toolchain.compile_cuda(toolchain.kernel_source("nvfp4_kv_store"), "sm_100a")
