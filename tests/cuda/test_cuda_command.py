"""`verdict --executor`: what is run, what is compared, and what is said without a GPU."""

from __future__ import annotations

import json
from ctypes.util import find_library
from pathlib import Path

import jsonschema
import pytest
from commandline import ROOT, Call, Outcome
from fakegpu import SM90, FakeGpu

from oracle.commands import verdict as command
from oracle.cuda.driver import U8
from oracle.cuda.launcher import SMALLEST_ZONE
from oracle.errors import NothingRan
from oracle.subjects import cuda

SMALL = ("--head-size", "64", "--block-size", "16", "--cache-layout", "HND")
NO_DRIVER = "there is no CUDA driver (libcuda.so.1): run this where a GPU is"
without_driver = pytest.mark.skipif(
    find_library("cuda") is not None, reason="there is a CUDA driver"
)


def lines(done: Outcome) -> list[str]:
    return done.err.splitlines()


@without_driver
def test_a_gpu_that_alone_is_asked_for_and_is_not_there(call: Call) -> None:
    done = call("verdict", "store-sm100", "--executor", "cuda", *SMALL)
    assert done.code == 5
    assert done.complaint == NO_DRIVER


@without_driver
def test_with_the_machine_beside_it_a_missing_gpu_is_told_and_no_more(call: Call) -> None:
    arguments = ("verdict", "store-sm100", "--executor", "machine,cuda", *SMALL)
    done = call(*arguments, "--json")
    assert done.code == 0
    assert lines(done) == [f"not executed on a GPU: {NO_DRIVER}"]
    assert {s["executor"] for s in json.loads(done.out)["subjects"]} == {"machine", "reference"}
    assert call(*arguments, "--require", "cuda").code == 5
    assert call(*arguments, "--require", "machine").code == 0


def test_what_a_driver_says_is_told_on_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find() -> None:
        raise NothingRan("the CUDA driver gives no GPU: \x1b[31m\n::error::no")

    monkeypatch.setattr(command, "find_device", find)
    done = call("verdict", "store-sm100", "--executor", "machine,cuda", *SMALL)
    assert done.code == 0
    assert lines(done) == [
        r"not executed on a GPU: the CUDA driver gives no GPU: \x1b[31m\n::error::no"
    ]


def test_an_executor_that_is_none_is_refused(call: Call) -> None:
    done = call("verdict", "store", "--executor", "cpu")
    assert done.code == 2
    assert "machine" in done.err


def plug(monkeypatch: pytest.MonkeyPatch, made: FakeGpu) -> FakeGpu:
    """Make a GPU that is none the one of the command line."""
    execution = cuda.GpuExecution(lambda: made)
    monkeypatch.setattr(command, "find_device", lambda: SM90)
    monkeypatch.setattr(cuda, "GpuExecution", lambda: execution)
    return made


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    return plug(monkeypatch, FakeGpu())


def test_both_executors_give_two_subjects_that_agree(call: Call, gpu: FakeGpu) -> None:
    """Without --arch the store kernel is compiled for the GPU, for both of them."""
    arguments = ("verdict", "store-sm100", "--executor", "machine,cuda", "--require", "cuda")
    done = call(*arguments, *SMALL, "--json", "--reader", "trtllm-gen")
    document = json.loads(done.out)
    schema = json.loads(Path(ROOT, "reports/schema/verdict.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(document)
    writers = [s for s in document["subjects"] if s["role"] == "writer"]
    assert [(w["id"], w["executor"], w["arch"]) for w in writers] == [
        ("store-sm100@sm_90/bf16", "machine", "sm_90"),
        ("store-sm100@sm_90/bf16#cuda", "cuda", "sm_90"),
    ]
    assert {f["status"] for f in document["findings"]} == {"match"}
    assert {a["status"] for a in document["agreements"]} == {"agree"}
    assert (done.code, done.err) == (0, "")
    assert gpu.runs > 0


def test_the_gpu_alone(call: Call, gpu: FakeGpu) -> None:
    done = call("verdict", "store-sm100", "--executor", "cuda", *SMALL)
    assert done.code == 0
    assert "GPU" in done.out
    assert gpu.runs > 0


def test_an_arch_that_is_given_is_kept(call: Call, gpu: FakeGpu) -> None:
    arguments = ("verdict", "store-sm100", "--executor", "cuda", "--arch", "sm_100a")
    done = call(*arguments, *SMALL)
    assert done.code == 5
    assert "code for sm_100a needs compute capability 10.0" in " ".join(done.out.split())
    assert gpu.runs > 0


def test_a_difference_fails_the_verdict(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU stores like the machine until the map is known, and then one bit otherwise."""
    made = FakeGpu(tamper=lambda allocation: tamper(allocation))

    def tamper(allocation: U8) -> None:
        if made.runs > 14:
            # The last page, which nothing is stored to, ends where the last red zone begins.
            allocation[-SMALLEST_ZONE - 1024] ^= 1

    plug(monkeypatch, made)
    done = call("verdict", "store-sm100", "--executor", "machine,cuda", *SMALL, "--json")
    document = json.loads(done.out)
    (fault,) = (f for f in document["findings"] if f["status"] != "match")
    assert (fault["subject"], fault["status"]) == ("store-sm100@sm_90/bf16#cuda", "undefined")
    assert fault["witness"]["page"] == 3
    assert "on the GPU" in fault["witness"]["note"]
    assert (document["exit_code"], done.code) == (1, 1)
