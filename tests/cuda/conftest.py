"""The real GPU, where there is one, and the snippets of the instruction tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oracle.cuda.process import GpuProcess
from oracle.errors import NothingRan

sys.path.append(str(Path(__file__).parents[1] / "machine"))


@pytest.fixture(scope="session")
def gpu() -> Iterator[GpuProcess]:
    """The process that holds the GPU; what needs it is skipped where there is none."""
    process = GpuProcess()
    try:
        assert process.device
    except NothingRan as error:
        pytest.skip(str(error))
    yield process
    process.close()
