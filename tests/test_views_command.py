"""Tests of the command `views`: exit codes, both outputs, and refusals."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest
from checkouts import PYTHON, needs_torch, tree
from commandline import ROOT, Call, start
from jsonschema import Draft202012Validator

from oracle.contracts import contracts
from oracle.views.owners import QUESTIONS
from oracle.views.planes import SPLITS
from oracle.views.tensor import LAYOUTS

PRODUCTION = ("views", "--shape", "100000,2,64,8,72")
HEAD_MAJOR = ("--stride", "73728,36864,64,4096,1")
SCHEMA = json.loads((ROOT / "reports/schema/views.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)


def document(call: Call, *arguments: str) -> tuple[int, dict[str, Any]]:
    outcome = call(*arguments, "--json")
    assert outcome.err == ""
    found = json.loads(outcome.out)
    VALIDATOR.validate(found)
    assert found["exit_code"] == outcome.code
    assert found["sound"] == (outcome.code == 0) == (found["faults"] == [])
    return outcome.code, found


def test_the_schema_is_one_and_refuses_what_contradicts_itself(call: Call) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    _, found = document(call, *PRODUCTION, "--stride", "73728,576,1152,72,1")
    question = next(each for each in found["questions"] if not each["apart"])
    for damaged in (
        {**found, "surplus": 1},
        {name: value for name, value in found.items() if name != "planes"},
        {**found, "planes": found["planes"][:3]},
        {**found, "questions": [{**question, "apart": True}] * 5},
        {**found, "questions": [{**question, "witness": None}] * 5},
        {**found, "exit_code": 3},
    ):
        assert not VALIDATOR.is_valid(damaged)


def test_a_sound_production_cache(call: Call) -> None:
    code, found = document(call, *PRODUCTION, "--stride", "73728,36864,72,4608,1")
    assert code == 0
    assert [each["name"] for each in found["questions"]] == list(QUESTIONS)
    assert all(each["apart"] and each["witness"] is None for each in found["questions"])
    assert found["bytes"] == {
        "storage": 7_372_800_000, "owned": 7_372_800_000, "page_stride": 73728,
        "owned_in_page": 73728,
    }  # fmt: skip
    assert {party["name"] for party in found["parties"]} == set(contracts())
    assert [plane["base"] for plane in found["planes"]] == [0, 32768, 36864, 69632]
    assert found["tensor"]["head_size"] == 128
    outcome = call(*PRODUCTION, "--layout", "HND")
    assert outcome.code == 0
    assert outcome.out.startswith("Sound: 100,000 pages of 64 tokens, 8 heads of 128, carved by")


def test_a_token_major_cache_names_the_shared_byte(call: Call) -> None:
    # K, V and scales of a token stand together.
    arguments = (*PRODUCTION, "--stride", "73728,576,1152,72,1", "--split", "contiguous")
    code, found = document(call, *arguments)
    assert code == 1
    shared = {each["name"]: each["witness"] for each in found["questions"]}
    assert shared["pages"] is None
    assert shared["planes"] == {
        "byte": 32768,
        "first": {"page": 0, "side": "K", "plane": "scale", "head": 0, "token": 0, "column": 0,
                  "row": 0, "col": 0},
        "second": {"page": 0, "side": "V", "plane": "data", "head": 7, "token": 62, "byte": 0},
    }  # fmt: skip
    assert found["bytes"]["owned"] is None
    outcome = call(*arguments)
    assert outcome.code == 1
    told = " ".join(outcome.out.split())
    assert "data and scales share a byte: byte 32768 is page 0 K scale head 0 token 0" in told


def test_what_is_not_sound_names_the_splits_that_are(call: Call) -> None:
    for layout in LAYOUTS:
        arguments = ("views", "--shape", "10,2,16,4,72", "--layout", layout, "--layers", "2")
        found = {split: document(call, *arguments, "--split", split) for split in SPLITS}
        sound = [split for split, (code, _) in found.items() if code == 0]
        assert all(made["sound_splits"] == (sound if code else []) for code, made in found.values())
        told = " ".join(call(*arguments, "--split", "head_slots").out.split())
        assert ("The same tensor is sound under" in told) == ("head_slots" not in sound)
    overlapping = (*PRODUCTION, "--stride", "73728,36864,64,4096,1")
    assert "No split that is known here makes it sound." in call(*overlapping).out


def test_parties_with_tensors_of_their_own_share_a_line(call: Call) -> None:
    told = " ".join(call(*PRODUCTION, "--layout", "HND").out.split())
    line = "never given this tensor, as they keep tensors of their own: flashinfer-quantize, "
    assert line in told
    for name in ("flashinfer-quantize", "tensorrt-llm-store", "sglang-store-sm100"):
        assert f"{name} writer" not in told
        assert name in told.partition(line[:20])[2]
    assert "flashinfer-append writer yes" in told


def test_strides_are_held_against_a_layout(call: Call) -> None:
    code, found = document(call, *PRODUCTION, *HEAD_MAJOR, "--layout", "NHD")
    assert code == 1
    assert found["departures"] == [
        "NHD steps 576 bytes from one token to the next, not 64",
        "NHD steps 72 bytes from one head to the next, not 4096",
    ]
    blocks = ("views", "--shape", "1000,16,64,72", "--layout", "BLHNC", "--layers", "48")
    code, found = document(call, *blocks)
    assert code == 0
    assert found["bytes"]["page_stride"] == 48 * found["bytes"]["owned_in_page"]


def test_slices_and_round_trips_are_part_of_it(call: Call) -> None:
    arguments = (
        "views", "--shape", "100,2,16,4,72", "--layout", "NHD", "--v-scales", "swizzle_4x4",
        "--heads", "0:2", "--tokens", "2:6", "--read-split", "page",
    )  # fmt: skip
    code, found = document(call, *arguments)
    assert code == 1
    assert not found["slice"]["closed"]
    assert list(found["slice"]["open_sides"]) == ["V"]
    assert found["slice"]["runs"][0] == {
        "plane": "K data", "start": 512, "length": 128, "count": 4,
    }  # fmt: skip
    trip = found["round_trip"]
    assert trip["kept"] == trip["coordinates"] == 921_600
    assert trip["witness"] is None
    assert len(trip["runs"]) + trip["runs_left_out"] > len(trip["runs"])
    told = call(*arguments).out
    assert "Slice of heads 0:2, tokens 2:6" in told
    assert "Round trip over 100 pages" in told


def test_a_party_can_be_asked_for(call: Call) -> None:
    sound = (*PRODUCTION, "--layout", "NHD")
    assert call(*sound, "--party", "flashinfer-fa2").code == 0
    code, found = document(call, *sound, "--party", "trtllm-gen")
    assert code == 1
    assert found["faults"][0].startswith("trtllm-gen may not be used: K scale steps 64 bytes")


REFUSED = [
    (("--shape", "2,2,16,4,72"), "neither strides nor a layout"),
    (("--shape", "2,2,16,4,72", "--stride=73728,36864,-64,4096,1"), "a negative stride"),
    (("--shape", "2,2,16,4,72", "--layout", "HND", "--storage-bytes", "100"), "leave the storage"),
    (("--shape", "2,2,16,4,99999999999999999999", "--layout", "HND"), "overflows 64 bits"),
    (("--shape", "2,2,16,4,72", "--layout", "HND", "--split", "x"), "no split is called 'x'"),
    (("--shape", "2,2,16,4,72", "--layout", "x"), "no layout is called 'x'"),
    (("--shape", "2,2,16,4,72", "--layout", "HND", "--v-scales", "x", "--tokens", "0:4"),
     "no layout is called 'x'"),
    (("--shape", "2,2,16,4,72", "--layout", "HND", "--party", "x"), "no contract is called 'x'"),
    (("--shape", "2,2,16,4,72", "--layout", "HND", "--heads", "0:5"), "is no slice of 4"),
    (("--shape", "2,2,16,4,72", "--layout", "HND", "--heads", "3"), "give START:STOP"),
    (("--shape", "2,2,16,four,72", "--layout", "HND"), "'four' is no whole number"),
    (("--shape", "2,2,16,4,72", "--layout", "HND", "--vllm", "/nowhere"), "is no vLLM checkout"),
    (("--shape", "2,2,16,4,72", "--layout", "HND", "--vllm", "x", "--split", "vllm"), "not both"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_refusals_are_one_line_and_exit_2(
    call: Call, arguments: tuple[str, ...], words: str
) -> None:
    outcome = call("views", *arguments)
    assert outcome.code == 2
    assert words in outcome.complaint


@needs_torch
def test_a_checkout_brings_its_own_split(call: Call, tmp_path: Path) -> None:
    root = str(tree(tmp_path))
    arguments = (*PRODUCTION, "--layout", "LBNHC", "--vllm", root, "--vllm-python", PYTHON)
    code, found = document(call, *arguments)
    _, formula = document(call, *PRODUCTION, "--layout", "LBNHC")
    assert code == 1
    assert found["split"] == "vllm:nvfp4_split_data_scale"
    assert {**found, "split": "vllm"} == formula


def test_a_production_cache_takes_a_second_as_a_process(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    outcome = start((*PRODUCTION, "--layout", "LBNHC", "--split", "contiguous"), tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert outcome.code == 1
    # Processor time: other work on the machine is not what is measured.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1
