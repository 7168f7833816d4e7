"""Fixtures that several test modules use."""

from __future__ import annotations

import pytest
from commandline import Call, Outcome
from hypothesis import settings

from oracle import cli

# A busy machine is no failure, and nothing here is a timing test.
settings.register_profile("oracle", deadline=None)
settings.load_profile("oracle")


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Call:
    """Runs the command line in this process."""

    def run(*arguments: str) -> Outcome:
        code = cli.main(arguments)
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run
