"""`fuzz` as a person runs it: what it says, what it leaves, how it goes on, how it ends."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from commandline import HARNESS, ROOT, Call, start

from oracle.arguments.sessions import PROFILES, minutes
from oracle.commands import fuzz
from oracle.fuzz import crew, session
from oracle.fuzz.coverage import Coverage
from oracle.fuzz.domain import domain_of
from oracle.fuzz.messages import Ready, Task
from oracle.fuzz.record import Record
from oracle.fuzz.state import opened
from oracle.fuzz.subject import Subject, subject_from_specs
from oracle.properties.strategies import DEFAULT_LIMITS
from oracle.subjects.guard import CALL_SECONDS

SOUND = "reference:k=linear,v=swizzle_4x4"
READER = ("--reader", "flashinfer-fa2")
SMALL = ("--head-size", "64", "--block-size", "4", "--num-heads", "1", "--cache-layout", "HND")
SCHEMA = json.loads((ROOT / "reports" / "schema" / "replay.schema.json").read_text())
MODULE = '''
import numpy as np

def plain(key, value, key_cache, value_cache, slots, kind, k_scale, v_scale):
    """Stores the slot into the first byte of its page, and says so."""
    print("called")
    for slot in slots[slots >= 0]:
        key_cache[slot // key_cache.shape[1], 0, 0, 0] ^= 1 + slot % 100

def endless(*all):
    import time
    time.sleep(50)

def deadly(key, value, key_cache, *rest):
    import os
    os.kill(os.getpid(), 9)

def forking(*all):
    import os, time
    if not os.fork():
        time.sleep(20)
    os.kill(os.getpid(), 9)

def interrupting(*all):
    raise KeyboardInterrupt

def closing(*all):
    import os
    os.closerange(3, 200)

def deaf(*all):
    import signal
    for number in signal.SIGTERM, signal.SIGALRM:
        signal.signal(number, signal.SIG_IGN)
    endless()

def weary(*all, begun=[]):
    import time
    begun.append(time.monotonic())
    if begun[-1] - begun[0] > 1:
        endless()
    plain(*all)
'''


def arguments(state: Path, *more: str) -> tuple[str, ...]:
    options = ("--state", str(state), "--jobs", "1", "--seed", "1", "--dtype", "bf16")
    return ("fuzz", *more, *options)


def test_a_session_without_a_failure(call: Call, tmp_path: Path) -> None:
    outcome = call(*arguments(tmp_path / "s", SOUND, *SMALL, "--examples", "40"))
    assert outcome.code == 0
    assert outcome.out.startswith(f"{SOUND}: 40 examples in ")
    assert "No promise was broken." in outcome.out
    assert re.search(r"head sizes +1 of 1", outcome.out)
    assert f"everything is in {tmp_path / 's'}: the same command goes on" in outcome.err


def test_a_session_with_a_failure_that_can_be_replayed(call: Call, tmp_path: Path) -> None:
    search = arguments(tmp_path, SOUND, *READER, *SMALL, "--examples", "40", "--json")
    outcome = call(*search)
    assert outcome.code == 1
    told: dict[str, Any] = json.loads(outcome.out)
    assert told["exit_code"] == 1
    assert told["examples"] >= 40
    (failure,) = told["failures"]
    assert (failure["promise"], failure["defect"]) == ("agrees-with-reader", "V scale")
    assert "found: agrees-with-reader: " in outcome.err
    document = json.loads(Path(failure["file"]).read_text())
    jsonschema.validate(document, SCHEMA)
    assert document["case"] == failure["case"]
    assert call("replay", failure["file"]).code == 1


def test_the_first_failure_is_shown_in_words_and_drawn_below_the_list(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a newcomer learns of a store whose t % 4 was forgotten, from this one command."""
    code = example_of_the_documentation()
    assert code.count(" + t % 4 if swizzled") == 1
    (tmp_path / "forgetful_store.py").write_text(code.replace(" + t % 4 if", " if"))
    monkeypatch.chdir(tmp_path)
    search = ("forgetful_store:plain", "--reader", "trtllm-gen", *SMALL, "--examples", "30")
    outcome = call(*arguments(tmp_path / "s", *search))
    assert outcome.code == 1
    _, _, below = outcome.out.partition("\nFailures\n")
    listed, _, shown = below.partition("\nThe first of them, as `replay FILE` shows each:\n")
    assert listed.startswith("- bijective: ")
    assert "/cases/bijective-V-scale-" in "".join(listed.split())
    assert "Promised (bijective): Every coordinate has a byte of its own" in shown
    assert shown.splitlines()[-7:] == [
        "forgetful_store:plain stores here    trtllm-gen looks here",
        "     s0  s1  s2  s3                       s0  s1  s2  s3",
        " t0   0*  4=  8= 12=                  t0   0*  4   8  12 ",
        " t1   0!  4!  8! 12!                  t1   1!  5!  9! 13!",
        " t2   0!  4!  8! 12!                  t2   2!  6! 10! 14!",
        " t3   0!  4!  8! 12!                  t3   3!  7! 11! 15!",
        "* is named above; ! differs between the two; = shares its byte with another",
    ]


def test_a_second_run_goes_on_and_executes_what_is_known_first(call: Call, tmp_path: Path) -> None:
    search = arguments(tmp_path, SOUND, *READER, *SMALL, "--examples", "20", "--json")
    first, second = (json.loads(call(*search).out) for _ in range(2))
    (before,), (after,) = first["failures"], second["failures"]
    assert second["examples"] > first["examples"]
    assert after["times"] > before["times"]
    assert after["case"] == before["case"]
    for dimension, counts in first["coverage"].items():
        assert all(second["coverage"][dimension][value] >= n for value, n in counts.items())
    outcome = call(*search)
    assert f"going on with {tmp_path}: {second['examples']} examples so far" in outcome.err
    assert "known: still fails: agrees-with-reader, V scale" in outcome.err
    assert "found:" not in outcome.err


def test_a_known_failure_whose_case_is_mended_is_found_in_another(
    call: Call, tmp_path: Path
) -> None:
    search = arguments(tmp_path, SOUND, *READER, *SMALL, "--examples", "20")
    assert call(*search).code == 1
    (path,) = (tmp_path / "cases").iterdir()
    known = json.loads(path.read_text())
    # The subject refuses this one.
    path.write_text(json.dumps({**known, "case": {**known["case"], "head_size": 16}}))
    outcome = call(*search)
    assert outcome.code == 1
    assert outcome.err.index("known: fails no longer") < outcome.err.index("found: ")


def test_who_would_start_after_an_order_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = subject_from_specs(SOUND)
    record = Record(0, Coverage(domain_of(subject, DEFAULT_LIMITS)))
    plan = session.Plan(jobs=3, seconds=0.0)
    started: list[Task] = []
    monkeypatch.setattr(crew.Crew, "start", lambda self, task: started.append(task))
    with opened(tmp_path, subject) as state:
        running = session.Session(subject, state, record, plan)
        running._handle(Ready())
        assert len(started) == 2
        running._give_orders(interrupted=True)
        running._handle(Ready())
        assert len(started) == 2


def test_workers_are_forked_whatever_is_usual(tmp_path: Path) -> None:
    search = arguments(tmp_path / "s", SOUND, *SMALL, "--examples", "5")
    code = (
        "import multiprocessing, sys; multiprocessing.set_start_method('forkserver'); "
        f"from oracle import cli; sys.exit(cli.main({search!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0
    assert f"{SOUND}: 5 examples" in done.stdout


def test_a_failure_that_is_mended_is_none(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = tmp_path / "mended_store.py"
    writer.write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    search = arguments(tmp_path / "s", "mended_store:plain", *SMALL, "--examples", "5")
    assert call(*search).code == 1
    (tmp_path / "mended_store.py").write_text("from sound_store import plain\n")
    (tmp_path / "sound_store.py").write_text(example_of_the_documentation())
    outcome = start((*search, "--json"), tmp_path)
    told = json.loads(outcome.out)
    assert "fails no longer" in outcome.err
    assert "the code of mended_store:plain has changed: counts start anew" in outcome.err
    assert [failure["fails"] for failure in told["failures"]].count(True) == 0
    assert outcome.code == 0


def example_of_the_documentation() -> str:
    text = (ROOT / "docs" / "adding-a-writer.md").read_text()
    return text.split("```python\n")[1].split("```")[0].replace("def store(", "def plain(")


def test_a_seed_and_a_number_of_examples_make_one_session(call: Call, tmp_path: Path) -> None:
    def told(name: str) -> dict[str, Any]:
        search = arguments(tmp_path / name, SOUND, *READER, *SMALL, "--examples", "30", "--json")
        found = json.loads(call(*search).out)
        return {key: found[key] for key in ("examples", "coverage")} | {
            "failures": [{**failure, "file": ""} for failure in found["failures"]]
        }

    assert told("one") == told("two")


def test_several_jobs_share_what_they_find(call: Call, tmp_path: Path) -> None:
    search = ("fuzz", SOUND, *READER, *SMALL, "--state", str(tmp_path), "--jobs", "2")
    outcome = call(*search, "--examples", "30", "--json")
    told = json.loads(outcome.out)
    assert len(told["failures"]) == 1
    assert told["examples"] >= 30
    assert json.loads((tmp_path / "session.json").read_text())["rounds"] >= 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_session_keeps_everything_and_says_how_to_go_on(
    number: int, tmp_path: Path
) -> None:
    search = arguments(tmp_path, SOUND, *READER, *SMALL, "--profile", "fuzz")
    running = subprocess.Popen(
        [sys.executable, HARNESS, *search], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL, text=True, env=os.environ,
    )  # fmt: skip
    assert running.stderr is not None
    for line in running.stderr:
        if line.startswith("found:"):
            break
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "1 distinct failure." in out
    assert f"stopped; everything is in {tmp_path}: the same command goes on from there" in err
    assert json.loads((tmp_path / "session.json").read_text())["examples"] > 0
    assert len(list((tmp_path / "cases").iterdir())) == 1


def test_a_subject_may_print_and_standard_output_has_only_results(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "printing_store.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    search = arguments(tmp_path / "s", "printing_store:plain", *SMALL, "--examples", "3", "--json")
    outcome = call(*search)
    assert json.loads(outcome.out)["failures"]
    assert "called" in outcome.err


@pytest.mark.parametrize("function", ["deadly", "forking", "interrupting", "closing"])
def test_a_subject_that_ends_its_process_is_told_of(
    function: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly_store.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    # What was forked holds the pipe for longer than the session may take.
    for limit in ("SHRINK_SECONDS", "STOP_SECONDS"):
        monkeypatch.setattr(session, limit, 0.5)
    outcome = call(*arguments(tmp_path / "s", f"deadly_store:{function}", "--minutes", "0.05"))
    assert (outcome.code, outcome.out) == (2, "")
    assert f"deadly_store:{function} ended the process it was called in" in outcome.err
    assert "Traceback" not in outcome.err
    assert (tmp_path / "s" / "session.json").exists()


def test_a_worker_that_is_killed_while_it_tells_something(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(subject: Subject, task: Task, pipe: Any) -> None:
        os.write(pipe.fileno(), b"\0\0\0\x40half")

    monkeypatch.setattr(crew, "work", half)
    outcome = call(*arguments(tmp_path, SOUND))
    assert (outcome.code, outcome.complaint) == (2, f"{SOUND} ended the process it was called in")


def test_a_case_that_does_not_end_is_no_success(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = example_of_the_documentation()
    (tmp_path / "weary_store.py").write_text(MODULE.replace("def plain(", "def _(") + sound)
    monkeypatch.chdir(tmp_path)
    for limit in ("SHRINK_SECONDS", "STOP_SECONDS"):
        monkeypatch.setattr(session, limit, 0.1)
    outcome = call(*arguments(tmp_path / "s", "weary_store:weary", *SMALL, "--minutes", "0.03"))
    assert outcome.code == 1
    assert "A case did not come to an end" in outcome.out


def test_a_function_that_never_returns_is_stopped_before_its_process_is() -> None:
    assert session.STOP_SECONDS > CALL_SECONDS


@pytest.mark.parametrize("function", ["endless", "deaf"])
def test_a_subject_that_gives_no_answer_is_ended_and_told_of(
    function: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "_JOIN_SECONDS", 0.1)
    (tmp_path / "endless_store.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    for limit in ("SHRINK_SECONDS", "STOP_SECONDS"):
        monkeypatch.setattr(session, limit, 0.1)
    search = arguments(tmp_path / "s", f"endless_store:{function}", "--minutes", "0.02")
    outcome = call(*search)
    assert (outcome.code, outcome.out) == (5, "")
    assert f"endless_store:{function} has not finished a single case" in outcome.err
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (("--minutes", "0"), "'0' will not do: give a number above 0"),
        (("--minutes", "-1"), "'-1' will not do"),
        (("--minutes", "nan"), "'nan' will not do"),
        (("--seed", "-1"), "give a whole number from 0"),
        (("--max-failures", "0"), "give a whole number from 1"),
        (("--examples", "0"), "give a whole number from 1"),
        (("--profile", "nightly"), "invalid choice: 'nightly'"),
        (("--head-size", "20"), "give a multiple of 16"),
        (("--reader", "nobody"), "no reader is called 'nobody'"),
    ],
)
def test_what_makes_no_sense_is_refused(
    more: tuple[str, ...], complaint: str, call: Call, tmp_path: Path
) -> None:
    outcome = call("fuzz", SOUND, "--state", str(tmp_path / "s"), *more)
    assert outcome.code == 2
    assert complaint in outcome.complaint
    assert not (tmp_path / "s").exists()


def test_a_truncated_state_is_refused_in_one_line(call: Call, tmp_path: Path) -> None:
    (tmp_path / "session.json").write_text('{"schema_version": "1.0", "subj')
    outcome = call("fuzz", SOUND, "--state", str(tmp_path))
    assert outcome.code == 2
    assert "session.json is no JSON" in outcome.complaint


def test_the_state_of_another_subject_is_refused(call: Call, tmp_path: Path) -> None:
    call(*arguments(tmp_path, SOUND, *SMALL, "--examples", "2"))
    other = "reference:k=linear,v=linear"
    outcome = call(*arguments(tmp_path, other, "--examples", "2"))
    assert outcome.code == 2
    assert f"its subject is '{SOUND}', not '{other}'" in outcome.complaint


def test_where_a_writer_takes_no_case_nothing_ran(call: Call, tmp_path: Path) -> None:
    outcome = call("fuzz", SOUND, "--head-size", "16", "--state", str(tmp_path / "s"))
    assert outcome.code == 5
    assert outcome.complaint.startswith(f"{SOUND} takes no geometry")


def test_without_hypothesis_there_is_one_clear_line(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "find_spec", lambda name: None)
    outcome = call("fuzz", SOUND)
    assert outcome.code == 5
    assert outcome.complaint == "fuzz needs Hypothesis: pip install 'layout-oracle[fuzz]'"


def test_replay_and_the_options_need_no_hypothesis(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['hypothesis'] = None; from oracle import cli; "
        "import oracle.commands.replay; sys.exit(cli.main(['replay', 'none.json']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 2
    assert "none.json" in done.stderr


def test_the_profiles_take_seconds_a_minute_and_for_ever() -> None:
    assert PROFILES["dev"] is not None
    assert PROFILES["dev"] < 10
    assert (PROFILES["ci"], PROFILES["fuzz"]) == (60, None)
    assert minutes("0.5") == 0.5


def test_the_time_ends_a_session(call: Call, tmp_path: Path) -> None:
    begun = time.monotonic()
    outcome = call(*arguments(tmp_path, SOUND, *SMALL, "--minutes", "0.01"))
    assert outcome.code == 0
    assert time.monotonic() - begun >= 0.6
