"""Tests of what a function of the user's may not do to the process that calls it."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from oracle.errors import UsageError
from oracle.run import DEFAULT_DOMAIN
from oracle.subjects import function
from oracle.subjects.callable import CallableReader, CallableWriter
from oracle.subjects.guard import EndsProcess, TooLong, guarded
from oracle.subjects.spec import writers_from_specs
from oracle.survey import survey
from oracle.verdict import Configuration

MOMENT = 0.05

ENDLESS = """
import itertools

def store(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale):
    for _ in itertools.count():
        try:
            key_cache.sum()
        except Exception:
            pass

def read(fp4_data, block_scale, global_scale, head_size, block_size):
    store(None, None, fp4_data, None, None, None, None, None)
"""


def spin() -> None:
    for _ in itertools.count():
        pass


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(function, "guarded", lambda: guarded(MOMENT))
    yield
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_what_takes_too_long_is_stopped_and_the_alarm_is_as_before() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TooLong, match=r"no answer within 0\.05 s"), guarded(MOMENT):
        spin()
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_what_is_done_in_time_is_left_alone() -> None:
    with guarded(60):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def careless() -> None:
    for _ in itertools.count():
        try:
            spin()
        except Exception:
            continue


def test_no_exception_handler_swallows_it() -> None:
    with pytest.raises(TooLong), guarded(MOMENT):
        careless()


def test_another_thread_has_no_limit() -> None:
    reached = []

    def work() -> None:
        with guarded(MOMENT):
            reached.append(signal.getitimer(signal.ITIMER_REAL))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert reached == [(0.0, 0.0)]


@pytest.mark.usefixtures("brief")
def test_a_function_without_end_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "endless_subject.py").write_text(ENDLESS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    geometry = next(iter(DEFAULT_DOMAIN.geometries()))
    (writer,) = writers_from_specs(["endless_subject:store"], (), ("bf16",))
    assert isinstance(writer, CallableWriter)
    with pytest.raises(UsageError, match="endless_subject:store gave no answer within"):
        survey(writer, geometry, Configuration.of(geometry, "bf16"))
    with pytest.raises(UsageError, match="endless_subject:read gave no answer within"):
        CallableReader("endless_subject:read")


@pytest.mark.usefixtures("brief")
def test_a_module_without_end_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "endless_module.py").write_text("while True:\n    pass\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="importing endless_module failed: TooLong"):
        CallableWriter("endless_module:store")


def test_what_would_end_the_process_raises_instead_and_only_inside() -> None:
    before = os._exit
    with pytest.raises(EndsProcess, match="would end the process"), guarded():
        os._exit(0)
    assert os._exit is before


def test_a_process_that_a_function_makes_may_end() -> None:
    with guarded(), warnings.catch_warnings():
        # Newer Pythons warn of a fork beside threads; this child does nothing but end.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if child == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize(
    "body", ["import os\nos._exit(0)\n", "def store(*a):\n    1\nraise SystemExit(0)"]
)
def test_a_module_that_ends_its_process_is_refused(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaving_module.py").write_text(body, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "leaving_module", raising=False)
    with pytest.raises(UsageError, match="importing leaving_module failed"):
        CallableWriter("leaving_module:store")


def test_a_reader_that_ends_its_process_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = (
        "import os\ndef read(fp4_data, block_scale, global_scale, head_size, block_size):\n"
        "    os._exit(0)\n"
    )
    (tmp_path / "leaving_reader.py").write_text(body, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="would end the process"):
        CallableReader("leaving_reader:read")
