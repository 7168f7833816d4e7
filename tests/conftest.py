"""Fixtures that several test modules use."""

from __future__ import annotations

import pytest
from commandline import Call, Outcome

from oracle import cli


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Call:
    """Runs the command line in this process."""

    def run(*arguments: str) -> Outcome:
        code = cli.main(arguments)
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run
