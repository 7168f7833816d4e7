"""Tests of how the program ends when it is asked to, and of what it is named that is no file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from commandline import HARNESS, ROOT, Call

from oracle.errors import UsageError
from oracle.files import open_regular, read_at_most
from oracle.termination import Terminated, terminable

# A subject that says it was called, and then waits to be ended.
_WAITING = """
import os, pathlib, time

def store(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale):
    pathlib.Path("called").write_text(str(os.getpid()))
    time.sleep(600)
"""


def test_a_request_to_end_is_an_interrupt_that_ends_workers_too(tmp_path: Path) -> None:
    (tmp_path / "waiting_subject.py").write_text(_WAITING, encoding="utf-8")
    command = [sys.executable, str(HARNESS), "verdict", "waiting_subject:store", "--jobs", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE) as tool:
        called = tmp_path / "called"
        while not (called.exists() and called.read_text()):
            assert tool.poll() is None
            time.sleep(0.01)
        tool.send_signal(signal.SIGTERM)
        assert tool.stderr is not None
        assert tool.stderr.read().decode().endswith("layout-oracle: terminated\n")
        assert tool.wait() == 143
        with pytest.raises(ProcessLookupError):
            os.kill(int(called.read_text()), 0)


def test_the_handler_is_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated), terminable():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_another_thread_sets_no_handler() -> None:
    seen = []

    def work() -> None:
        with terminable():
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.parametrize("command", ["verdict {}.cubin", "inspect {}.cubin", "inspect {}.whl",
                                     "verdict {}.whl", "verdict --reader {}.whl",
                                     "verdict --reader {}.cubin",
                                     "numerics --rcp-model table:{}.whl"])  # fmt: skip
def test_a_pipe_is_refused_and_not_waited_for(call: Call, tmp_path: Path, command: str) -> None:
    for suffix in (".cubin", ".whl"):
        os.mkfifo(tmp_path / f"pipe{suffix}")
    outcome = call(*command.format(tmp_path / "pipe").split())
    assert outcome.code == 2
    assert "is neither a file nor a directory" in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_file_is_opened_and_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"bytes")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"bytes"
    assert read_at_most(tmp_path / "file", 5) == b"bytes"
    assert read_at_most(tmp_path / "file", 3) == b"byte"
    with pytest.raises(UsageError, match="missing: No such file"):
        read_at_most(tmp_path / "missing", 3)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    with pytest.raises(OSError, match="neither"):
        open_regular(Path("/dev/null"))


@pytest.mark.parametrize("columns", ["0", "1", "-5", "nonsense"])
def test_a_terminal_without_width_gets_an_answer(columns: str) -> None:
    environment = {**os.environ, "COLUMNS": columns}
    told = subprocess.run(
        [sys.executable, str(HARNESS), "layouts"], env=environment, capture_output=True, check=True
    )
    assert b"swizzle_4x4" in told.stdout.replace(b"\n", b"") or b"linear" in told.stdout


def test_closed_streams_are_no_internal_error() -> None:
    def run(redirected: str) -> subprocess.CompletedProcess[str]:
        command = f'"{sys.executable}" "{HARNESS}" layouts {redirected}'
        return subprocess.run(command, shell=True, capture_output=True, text=True, check=False)

    assert (run(">&-").returncode, run(">&-").stderr) == (
        2, "layout-oracle: error: standard output is closed: nothing could be told\n"
    )  # fmt: skip
    assert run("2>&-").returncode == 0
