"""Tests of the time limit on functions of the user's."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from oracle.errors import UsageError
from oracle.run import DEFAULT_DOMAIN
from oracle.subjects import callable as called
from oracle.subjects.callable import CallableReader, CallableWriter
from oracle.subjects.spec import writers_from_specs
from oracle.subjects.timelimit import TooLong, time_limit
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
    monkeypatch.setattr(called, "time_limit", lambda: time_limit(MOMENT))
    yield
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_what_takes_too_long_is_stopped_and_the_alarm_is_as_before() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TooLong, match=r"no answer within 0\.05 s"), time_limit(MOMENT):
        spin()
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_what_is_done_in_time_is_left_alone() -> None:
    with time_limit(60):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def careless() -> None:
    for _ in itertools.count():
        try:
            spin()
        except Exception:
            continue


def test_no_exception_handler_swallows_it() -> None:
    with pytest.raises(TooLong), time_limit(MOMENT):
        careless()


def test_another_thread_has_no_limit() -> None:
    reached = []

    def work() -> None:
        with time_limit(MOMENT):
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
