"""The choice of a tier: by name, by work done, by what is cached and installed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from handmade_ir import Code, filled, kernel, leave, parameters

from oracle.errors import UsageError
from oracle.machine import tiers
from oracle.machine.compiled import background, lock
from oracle.machine.ir import Function
from oracle.machine.memory import Memory
from oracle.machine.tiers import Answer, TieredProgram

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


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel is worth loading and compiling at once."""
    monkeypatch.setattr(tiers, "LOAD_SECONDS", 0.0)
    monkeypatch.setattr(tiers, "COMPILE_SECONDS", 0.0)


def test_a_tier_asked_for_answers() -> None:
    for tier in ("numpy", "compiled"):
        program = TieredProgram(numbering(), tier)
        launch(program)
        assert program.answered == {Answer(tier): 1}


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
    assert program.answered == {Answer("numpy", "little work"): 2}


def test_a_cached_object_is_loaded_once_numpy_took_long(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(TieredProgram(numbering(), "compiled"))
    monkeypatch.setattr(tiers, "LOAD_SECONDS", 0.0)
    program = TieredProgram(numbering(), "auto")
    launch(program)
    assert program.answered == {Answer("compiled"): 1}


def test_a_large_launch_loads_a_cached_object_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(TieredProgram(numbering(), "compiled"))
    monkeypatch.setattr(tiers, "LARGE_LAUNCH", 32)
    program = TieredProgram(numbering(), "auto")
    launch(program)
    assert program.answered == {Answer("compiled"): 1}


def launch_until_compiled(program: TieredProgram) -> None:
    deadline = time.monotonic() + 60
    while Answer("compiled") not in program.answered and time.monotonic() < deadline:
        time.sleep(0.05)
        launch(program)


def test_numpy_answers_while_another_process_compiles(at_once: None) -> None:
    program = TieredProgram(numbering(), "auto")
    launch(program)
    assert program.answered == {Answer("numpy", "compiling meanwhile"): 1}
    launch_until_compiled(program)
    assert set(program.answered) == {Answer("numpy", "compiling meanwhile"), Answer("compiled")}


def test_only_one_process_compiles(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who want the same kernel, or another one, wait for whoever compiles."""
    started = []
    begin = background._compiler
    monkeypatch.setattr(
        background, "_compiler", lambda *given: started.append(given) or begin(*given)
    )
    programs = [TieredProgram(numbering(), "auto") for _ in range(3)]
    held = lock.take(wait=False)
    assert held is not None
    for program in programs:
        launch(program)
    assert not started
    os.close(held)
    for program in programs:
        launch(program)
    for program in programs:
        launch_until_compiled(program)
    assert len(started) == 1
    for program in programs:
        assert set(program.answered) == {Answer("numpy", "compiling meanwhile"), Answer("compiled")}


def test_a_compilation_nobody_waits_for_is_stopped(
    at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]

    def compile_slowly(function: Function, held: int) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(sleeper, pass_fds=(held,)))
        return started[0]

    monkeypatch.setattr(background, "_compiler", compile_slowly)
    program = TieredProgram(numbering(), "auto")
    launch(program)
    assert lock.take(wait=False) is None
    del program
    assert started[0].poll() is not None
    free = lock.take(wait=False)
    assert free is not None
    os.close(free)


def test_a_compiler_that_fails_leaves_the_kernel_to_numpy_lanes(
    at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(function: Function, held: int) -> subprocess.Popen[bytes]:
        failed = subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"], pass_fds=(held,))
        failed.wait()
        return failed

    monkeypatch.setattr(background, "_compiler", fail)
    program = TieredProgram(numbering(), "auto")
    launch(program)
    launch(program)
    reason = "the kernel could not be compiled or kept in the cache"
    assert program.answered[Answer("numpy", reason)] == 1


@pytest.mark.parametrize("place", ["/dev/null/nowhere", "/proc/nowhere"])
def test_without_a_cache_nothing_is_compiled_meanwhile(
    at_once: None, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", place)
    program = TieredProgram(numbering(), "auto")
    launch(program)
    ((tier, reason),) = program.answered
    assert tier == "numpy"
    assert reason.startswith("the cache cannot be written to: ")


@pytest.mark.parametrize("tier", ["auto", "compiled"])
def test_a_kernel_that_has_to_stay_on_numpy_lanes_says_why(at_once: None, tier: str) -> None:
    program = TieredProgram(voting(), tier)
    launch(program)
    launch(program)
    ((answered, reason),) = program.answered
    assert answered == "numpy"
    assert reason.endswith("stays on NumPy lanes: it uses ballot")


def test_without_llvmlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "installed", lambda: False)
    program = TieredProgram(numbering(), "auto")
    launch(program)
    assert program.answered == {Answer("numpy", "llvmlite is not installed"): 1}
    with pytest.raises(UsageError, match="pip install"):
        TieredProgram(numbering(), "compiled")
