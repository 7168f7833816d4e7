"""The choice of a tier: by name, by work done, by what is cached and installed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from handmade_ir import Code, filled, kernel, leave, parameters

from oracle.errors import UsageError
from oracle.machine import tiers
from oracle.machine.ir import Function
from oracle.machine.memory import Memory
from oracle.machine.tiers import TieredProgram

pytest.importorskip("llvmlite", reason="the compiled tier needs llvmlite: pip install -e .[fast]")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(tmp_path))
    monkeypatch.delenv(tiers.TIER_VARIABLE, raising=False)


def numbering() -> Function:
    c = Code()
    c.store(c.at(c.parameter(0), c.special("tid.x"), 4), [c.special("tid.x")])
    return kernel(c.end(0, leave()))


def voting() -> Function:
    c = Code()
    yes = c.eq(c.word(1), c.word(1))
    votes = c.emit("ballot", (c.word(0).type,), (yes, yes))[0]
    c.store(c.at(c.parameter(0), c.special("tid.x"), 4), [votes])
    return kernel(c.end(0, leave()))


def launch(program: TieredProgram) -> None:
    memory = Memory()
    program.launch((1, 1, 1), (32, 1, 1), parameters(*filled(memory, out=128)), memory)
    words = memory.region("out").bytes.view(np.uint32)
    votes = "ballot" in program.function.primitives
    assert np.array_equal(words, np.full(32, 0xFFFFFFFF) if votes else np.arange(32))


def test_a_tier_asked_for_answers() -> None:
    for tier in ("numpy", "compiled"):
        program = TieredProgram(numbering(), tier)
        launch(program)
        assert program.answered == {tier: 1}
        assert not program.reason


def test_the_environment_asks_where_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TieredProgram(numbering()).tier == "auto"
    monkeypatch.setenv(tiers.TIER_VARIABLE, "compiled")
    assert TieredProgram(numbering()).tier == "compiled"
    monkeypatch.setenv(tiers.TIER_VARIABLE, "fast")
    with pytest.raises(UsageError, match="no tier 'fast'"):
        TieredProgram(numbering())


def test_little_work_stays_on_numpy_lanes() -> None:
    program = TieredProgram(numbering(), "auto")
    launch(program)
    launch(program)
    assert program.answered == {"numpy": 2}


def test_a_cached_object_is_loaded_once_numpy_took_long(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(TieredProgram(numbering(), "compiled"))
    monkeypatch.setattr(tiers, "LOAD_SECONDS", 0.0)
    program = TieredProgram(numbering(), "auto")
    launch(program)
    assert program.answered == {"compiled": 1}


def test_numpy_answers_while_another_process_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "LOAD_SECONDS", 0.0)
    monkeypatch.setattr(tiers, "COMPILE_SECONDS", 0.0)
    program = TieredProgram(numbering(), "auto")
    launch(program)
    assert program.answered == {"numpy": 1}
    deadline = time.monotonic() + 60
    while not program.answered["compiled"] and time.monotonic() < deadline:
        time.sleep(0.05)
        launch(program)
    assert program.answered["compiled"] == 1
    assert not program.reason


def test_a_compilation_nobody_waits_for_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "LOAD_SECONDS", 0.0)
    monkeypatch.setattr(tiers, "COMPILE_SECONDS", 0.0)
    started: list[subprocess.Popen[bytes]] = []
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]

    def compile_slowly(function: Function) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(sleeper))
        return started[0]

    monkeypatch.setattr(tiers, "_compile_elsewhere", compile_slowly)
    program = TieredProgram(numbering(), "auto")
    launch(program)
    del program
    assert started[0].poll() is not None


@pytest.mark.parametrize("tier", ["auto", "compiled"])
def test_a_kernel_that_has_to_stay_on_numpy_lanes_says_why(
    monkeypatch: pytest.MonkeyPatch, tier: str
) -> None:
    monkeypatch.setattr(tiers, "LOAD_SECONDS", 0.0)
    program = TieredProgram(voting(), tier)
    launch(program)
    assert program.answered == {"numpy": 1}
    assert "it uses ballot" in program.reason


def test_without_llvmlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "installed", lambda: False)
    program = TieredProgram(numbering(), "auto")
    launch(program)
    assert program.answered == {"numpy": 1}
    assert program.reason == "llvmlite is not installed"
    with pytest.raises(UsageError, match="pip install"):
        TieredProgram(numbering(), "compiled")
