"""What a long run tells on standard error where that is no terminal."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from attention import DECODE, PREFILL, name_of
from commandline import Call

from oracle.commands.progress import SECONDS, lines_of_progress, say_how_to_narrow
from oracle.sweep import Row

NAMES = [
    name_of(arch, head, rest)
    for arch in (100, 103)
    for head in (64, 128)
    for rest in (PREFILL, DECODE)
]


def test_a_line_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    step = lines_of_progress(lambda: now)
    said: list[int] = []
    for done in range(1, 101):
        now += 3.0
        step(done, 100, f"kernel {done}")
        if capsys.readouterr().err == f"{done} of 100: kernel {done}\n":
            said.append(done)
    # Four steps of 3 s are the first that take ten.
    assert said == list(range(4, 101, 4))
    now += SECONDS
    step(1, 2, "\x1b[31m\n::error::x")
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "\x1b" not in printed


def test_how_to_narrow_names_the_head_size_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    say_how_to_narrow("w.whl", NAMES, [128])
    assert capsys.readouterr().err == (
        "8 kernels; narrow them with a pattern, such as 'w.whl:*Sm100a*H128*P16*Context'\n"
    )
    say_how_to_narrow("w.whl", NAMES, [512])
    assert "'w.whl:*Sm100a*H64*P16*Context'" in capsys.readouterr().err
    say_how_to_narrow("w.whl", NAMES[:1])
    assert capsys.readouterr().err == ""


def test_a_sweep_says_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    path = tmp_path / "w.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in NAMES:
            archive.writestr(f"cubins/{name}.cubin", name)

    def rows_of(name: str, data: bytes) -> list[Row]:
        return [Row(name, data.decode(), "sm_100a", "Context", "Static", "", 64, 16, "Dense", 1, 16,
                    problem="not executed")]  # fmt: skip

    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("oracle.sweep.rows_of", rows_of)
    monkeypatch.setattr("oracle.sweep.artifact_digest", lambda data: data.decode())
    monkeypatch.setattr("oracle.commands.progress.SECONDS", 0.0)
    done = call("sweep", str(path), "--jobs", "1")
    first, *lines = done.err.splitlines()
    assert first.startswith("8 kernels; narrow them with a pattern, such as '")
    assert lines == [f"{n} of 8: {name}" for n, name in enumerate(sorted(NAMES), 1)]
