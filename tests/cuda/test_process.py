"""The process that holds the GPU: what it answers, and what is left when it does not."""

from __future__ import annotations

import os
import pickle
import sys
from ctypes.util import find_library
from pathlib import Path

import pytest
from fakegpu import SM90, FakeDriver
from test_launcher import launch

from oracle.cuda import process
from oracle.cuda.launcher import Launcher
from oracle.cuda.process import GpuProcess, find_device, gpu_process
from oracle.errors import NothingRan
from oracle.machine.context import Unsupported
from oracle.machine.memory import MachineFault

WORKER = str(Path(__file__).with_name("fakeworker.py"))


def started(behaviour: str, time_limit: float = 60) -> GpuProcess:
    return GpuProcess((sys.executable, WORKER, behaviour), time_limit)


def test_another_process_does_what_a_launcher_does() -> None:
    there, here = started("works"), Launcher(FakeDriver())
    try:
        assert there.device == here.device == SM90
        for where in (0, -8, 40):
            ours, theirs = (each.run(launch(where=where)) for each in (here, there))
            assert ours.contents["out"].tolist() == theirs.contents["out"].tolist()
            assert ours.strays.tolist() == theirs.strays.tolist()
            assert (ours.faults, ours.starts) == (theirs.faults, theirs.starts)
        with pytest.raises(Unsupported, match="CUDA_ERROR_NOT_FOUND"):
            there.run(launch("none"))
        with pytest.raises(MachineFault, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
            there.run(launch(where=1 << 20))
        # The fault took the process with it, and there is a new one.
        assert there.run(launch()).faults == ()
    finally:
        there.close()


def test_a_crash_is_told() -> None:
    crashing = started("crashes")
    assert crashing.device == SM90
    with pytest.raises(MachineFault, match="kernel poke ended the process that held the GPU"):
        crashing.run(launch())
    assert started("crashes").device == SM90


def test_a_process_that_never_starts_is_told() -> None:
    with pytest.raises(NothingRan, match="the CUDA driver ended the process"):
        assert started("dies at once").device


def test_a_kernel_that_does_not_end_is_stopped() -> None:
    hanging = started("hangs", time_limit=60)
    assert hanging.device == SM90
    hanging._time_limit = 0.05
    with pytest.raises(MachineFault, match=r"kernel poke gave no answer within 0\.05 s"):
        hanging.run(launch())
    hanging.close()


def test_where_there_is_no_driver_the_process_says_so() -> None:
    if find_library("cuda") is not None:
        pytest.skip("there is a CUDA driver")
    with pytest.raises(NothingRan, match=r"there is no CUDA driver \(libcuda\.so\.1\)"):
        find_device()


def test_each_process_has_a_gpu_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = gpu_process()
    assert gpu_process() is ours
    monkeypatch.setattr(process.os, "getpid", lambda: os.getppid())
    assert gpu_process() is not ours


@pytest.mark.parametrize("kind", [NothingRan, Unsupported, MachineFault])
def test_errors_travel_between_processes(kind: type[Exception]) -> None:
    travelled = pickle.loads(pickle.dumps(kind("one line")))
    assert (type(travelled), str(travelled)) == (kind, "one line")
