"""Objects of compiled kernels: what is cached, under which key, and what is not believed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from handmade_ir import Code, filled, kernel, leave, parameters

from oracle import diskcache
from oracle.machine.compiled import build, lock
from oracle.machine.ir import Function
from oracle.machine.memory import Memory

pytest.importorskip("llvmlite", reason="the compiled tier needs llvmlite: pip install -e .[fast]")
from oracle.machine.compiled.runtime import CompiledProgram


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(tmp_path))
    return tmp_path


def constant_store(value: int) -> Function:
    c = Code()
    c.store(c.at(c.parameter(0), c.special("tid.x"), 4), [c.word(value)])
    return kernel(c.end(0, leave()))


def stored(program: CompiledProgram) -> int:
    memory = Memory()
    program.launch((1, 1, 1), (32, 1, 1), parameters(*filled(memory, out=128)), memory)
    (value,) = np.unique(memory.region("out").bytes.view(np.uint32))
    return int(value)


def entries(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.native"))


def test_an_object_is_compiled_once(own_cache: Path) -> None:
    first = CompiledProgram(constant_store(5))
    assert first.build.seconds > 0
    second = CompiledProgram(constant_store(5))
    assert second.build.seconds == 0
    assert stored(first) == stored(second) == 5
    assert len(entries(own_cache)) == 1


def test_another_kernel_is_another_entry(own_cache: Path) -> None:
    assert [stored(CompiledProgram(constant_store(n))) for n in (1, 2)] == [1, 2]
    assert len(entries(own_cache)) == 2


@pytest.mark.parametrize("damage", [b"", b"\0" * 200, None])
def test_a_damaged_entry_is_built_anew(own_cache: Path, damage: bytes | None) -> None:
    CompiledProgram(constant_store(6))
    (entry,) = entries(own_cache)
    whole = entry.read_bytes()
    entry.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]) if damage is None else damage)
    again = CompiledProgram(constant_store(6))
    assert again.build.seconds > 0
    assert stored(again) == 6
    assert entry.read_bytes() == whole


def test_a_foreign_entry_is_built_anew(own_cache: Path) -> None:
    """A whole entry of another kernel under this one's name is not run."""
    other, mine = (build.Build(constant_store(n)) for n in (7, 8))
    other.code("group")
    payload = diskcache.load(other.key("group"), ".native")
    assert payload is not None
    diskcache.store(mine.key("group"), ".native", payload)
    program = CompiledProgram(constant_store(8))
    assert program.build.seconds > 0
    assert stored(program) == 8


def test_an_entry_that_is_no_object_is_built_anew(own_cache: Path) -> None:
    mine = build.Build(constant_store(13))
    key = mine.key("group")
    diskcache.store(key, ".native", key.encode() + mine.code("group")[:200])
    program = CompiledProgram(constant_store(13))
    assert program.build.seconds > 0
    assert stored(program) == 13
    assert CompiledProgram(constant_store(13)).build.seconds == 0


def test_of_several_processes_one_compiles(own_cache: Path) -> None:
    held = lock.take(wait=False)
    assert held is not None
    script = "import test_build as t; p = t.CompiledProgram(t.constant_store(14)); " + (
        "print(t.stored(p), p.build.seconds > 0)"
    )
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment
        )
        for _ in range(2)
    ]
    os.close(held)
    told = sorted(process.communicate(timeout=120)[0] for process in started)
    assert told == ["14 False\n", "14 True\n"]


def test_what_the_key_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    base = build.Build(constant_store(9))
    keys = {base.key("group"), base.key("single"), build.Build(constant_store(9), 8).key("group")}
    keys.add(build.Build(constant_store(10)).key("group"))
    here = build.host()
    for change in ({"cpu": "x"}, {"features": "+x"}, {"llvm": "x"}):
        monkeypatch.setattr(build, "host", lambda change=change: replace(here, **change))
        keys.add(base.key("group"))
    monkeypatch.undo()
    monkeypatch.setattr(build, "VERSION", build.VERSION + 1)
    keys.add(base.key("group"))
    assert len(keys) == 8


def test_a_cache_that_cannot_be_written_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", "/dev/null/nowhere")
    assert stored(CompiledProgram(constant_store(11))) == 11


@pytest.mark.parametrize("lanes", [8, 16])
def test_the_number_of_lanes_changes_nothing(lanes: int) -> None:
    assert stored(CompiledProgram(constant_store(12), lanes)) == 12
