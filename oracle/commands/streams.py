"""Keeps results and everything else apart: the former on standard output, the latter on error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def subjects_speak_on_stderr() -> Iterator[None]:
    """Let standard output be standard error meanwhile: results alone belong on the former.

    A subject may print from C or from another process, so the descriptor is exchanged, and Python's
    stream as well, which need not write to it.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
