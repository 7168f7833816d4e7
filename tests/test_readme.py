"""The README shows what the tool really prints."""

from __future__ import annotations

import io
import re

from commandline import ROOT

from oracle.report import terminal
from oracle.report.sections import outline
from oracle.run import DEFAULT_DOMAIN, run_verdict
from oracle.subjects.spec import default_readers, default_writers

WIDTH = 100
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"<!-- verdict -->\n```text\n(.*?)```\n<!-- /verdict -->", re.DOTALL)


def printed() -> list[str]:
    """The lines of the default verdict in a terminal, without the spaces at their ends."""
    writers = default_writers((), DEFAULT_DOMAIN.dtypes)
    verdict = run_verdict(writers, default_readers(), DEFAULT_DOMAIN, jobs=2)
    console = terminal.console(io.StringIO(), WIDTH)
    terminal.show(outline(verdict, verdict.exit_code, terminal.FAULTS_PER_SUBJECT), console)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_the_verdict_in_the_readme_is_what_the_default_verdict_prints() -> None:
    """From its first line to the end of the matrix."""
    (block,) = BLOCK.findall(README)
    lines = printed()
    end = lines.index("", lines.index("Who reads where whom stored"))
    assert block.splitlines() == lines[:end]
