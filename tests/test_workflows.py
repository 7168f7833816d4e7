"""The workflows: what guards the runner with the GPU, and what their script shows of a verdict."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import ROOT
from verdicts import VERDICTS, settled

from oracle import cli
from oracle.report.document import as_json
from oracle.verdict import Verdict

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SHOW = ROOT / ".github" / "show-verdict"
each = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)


def text_of(name: str) -> str:
    """A workflow with every run of blanks as one."""
    return " ".join((ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8").split())


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not installed")
def test_actionlint_finds_nothing() -> None:
    done = subprocess.run(["actionlint"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@each
def test_a_workflow_has_few_rights_and_no_secrets(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"^permissions:\n((?:  .+\n)+)", text, re.MULTILINE) == ["  contents: read\n"]
    assert "permissions" not in text.replace("permissions:\n  contents: read", "", 1)
    assert "secrets" not in text
    assert "pull_request_target" not in text
    assert text.count("persist-credentials: false") == text.count("actions/checkout@")


@each
def test_a_workflow_is_bounded_and_pinned(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    jobs = len(re.findall(r"^    runs-on: ", text, re.MULTILINE))
    assert jobs == len(re.findall(r"^    timeout-minutes: \d+$", text, re.MULTILINE)) > 0
    assert re.search(r"^concurrency:$", text, re.MULTILINE)
    used = re.findall(r"uses: (\S+)", text)
    assert used
    assert all(re.fullmatch(r"actions/[\w-]+@(v\d+|[0-9a-f]{40})", action) for action in used)


@each
def test_no_expression_stands_in_a_script(path: Path) -> None:
    """What an expression gives may come from a pull request and would be executed."""
    steps = re.findall(r"run: (.*(?:\n {10,}.*)*)", path.read_text(encoding="utf-8"))
    assert steps
    assert all("${{" not in step for step in steps)


def test_the_gpu_is_for_labelled_changes_of_this_repository_alone() -> None:
    text = text_of("sm100.yml")
    assert "runs-on: [self-hosted, linux, x64, gpu, sm100]" in text
    guard = (
        "if: >- github.event_name != 'pull_request' || "
        "(github.event.pull_request.head.repo.full_name == github.repository && "
        "contains(github.event.pull_request.labels.*.name, 'sm100'))"
    )
    assert guard in text
    assert text.count("runs-on:") == text.count("if: >-") == 1
    triggers = text.partition(" on: ")[2].partition(" permissions:")[0]
    assert re.findall(r"(\w+):", triggers) == [
        "workflow_dispatch", "schedule", "cron", "pull_request", "types",
    ]  # fmt: skip
    assert "make test-gpu" in text
    assert "verdict --executor machine,cuda --require cuda" in text


def test_every_supported_python_is_tested() -> None:
    assert 'python: ["3.11", "3.12", "3.13"]' in text_of("ci.yml")


# ---- The script ----------------------------------------------------------------------------------


def show(directory: Path, made: Verdict | None, markdown: str = "# Verdict\n") -> tuple[str, str]:
    """What the script prints, and the summary."""
    summary = directory / "summary.md"
    if made is not None:
        (directory / "verdict.json").write_text(as_json(made, made.exit_code))
        (directory / "verdict.md").write_text(markdown, encoding="utf-8")
    environment = {**os.environ, "GITHUB_STEP_SUMMARY": str(summary), "PYTHON": sys.executable}
    done = subprocess.run(
        [SHOW, directory], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout, summary.read_text(encoding="utf-8") if summary.exists() else ""


def test_a_verdict_is_shown_and_left_in_every_form(tmp_path: Path) -> None:
    printed, summary = show(tmp_path, settled(judged=True))
    assert printed.startswith("::error title=layout fault::pinned does not read K")
    assert summary == "# Verdict\n"
    assert (tmp_path / "verdict.xml").read_text().startswith("<?xml")
    assert "<html" in (tmp_path / "verdict.html").read_text()


def test_a_summary_is_cut_at_the_end_of_a_line_below_a_mebibyte(tmp_path: Path) -> None:
    line = "ä" * 499 + "\n"
    _, summary = show(tmp_path, VERDICTS["settled"], line * 1200)
    assert len(summary.encode()) < 1 << 20
    *kept, blank, note = summary.splitlines()
    assert (blank, note) == ("", "The rest is in the artifact.")
    assert kept == [line.rstrip("\n")] * (1_000_000 // len(line.encode()))


def test_without_a_verdict_the_script_says_so(tmp_path: Path) -> None:
    printed, summary = show(tmp_path, None)
    assert "was not written" in printed
    assert summary == ""


# ---- The page about it ---------------------------------------------------------------------------


def test_the_job_of_a_fork_has_ten_lines_that_the_command_line_takes() -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    (job,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert job.count("\n") == 10
    commands = re.findall(r"layout-oracle (\w.*)", job.replace("layout-oracle@COMMIT", ""))
    assert [command.split()[0] for command in commands] == ["verdict", "report"]
    for command in commands:
        assert cli._parser().parse_args(command.split())
