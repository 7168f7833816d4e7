"""The command line: what `numerics` prints, writes and exits with."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from commandline import Call, cubin

from oracle.commands import numerics as command
from oracle.machine.reciprocal_table import MANTISSAS, write_table
from oracle.numerics.misquantised import WRONG_QUANTISERS
from oracle.numerics.mutants import DECLARED, MutantWriter
from oracle.requests import Stored, StoreRequest

REFERENCE = "reference:k=linear,v=swizzle_4x4"


class Noisy(MutantWriter):
    """Keeps no signs, and talks."""

    def write(self, request: StoreRequest) -> Stored:
        print("noise")
        os.write(1, b"noise of C\n")
        return super().write(request)


def test_the_table_of_a_right_writer(call: Call) -> None:
    outcome = call("numerics", REFERENCE, "--groups", "1000")
    assert outcome.code == 0
    assert outcome.err == ""
    assert "All 1 writer stored what a conforming store may." in outcome.out
    assert "bit-exact (exact)" in " ".join(outcome.out.split())


def test_a_cubin(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "store.cubin"
    path.write_bytes(cubin())
    outcome = call("numerics", str(path), "--groups", "1000", "--json")
    assert outcome.code == 0
    (entry,) = json.loads(outcome.out)["writers"]
    assert entry["status"] == "bit-exact"
    assert entry["executor"] == "machine"
    assert entry["scale_search"] == "max6"
    assert entry["conventions"] == ["decode"]
    assert len(entry["artifact_sha256"]) == 64


def test_json_holds_the_counts(call: Call) -> None:
    outcome = call(
        "numerics", REFERENCE, f"{REFERENCE},search=4over6", "--groups", "1000", "--json"
    )
    document = json.loads(outcome.out)
    assert document["exit_code"] == outcome.code == 0
    assert document["rcp_model"] == "exact"
    six, four = document["writers"]
    assert (six["scale_search"], four["scale_search"]) == ("max6", "4over6")
    for entry in (six, four):
        assert entry["groups"] == sum(kind["groups"] for kind in entry["by_kind"].values()) > 1000
        assert entry["wrong_scales"] == entry["wrong_codes"] == entry["torn"] == 0
        assert entry["bit_exact_under"] == ["exact"]
        assert entry["differing"]["exact"] == 0 < entry["differing"]["+1ulp"]
    assert six["near_ties"] == 0 < four["near_ties"]


def test_a_model_is_followed(call: Call) -> None:
    outcome = call("numerics", REFERENCE, "--groups", "1000", "--rcp-model", "+1ulp", "--json")
    assert json.loads(outcome.out)["writers"][0]["bit_exact_under"] == ["+1ulp"]


def test_a_table_is_followed(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "made.rcp"
    deltas = np.resize(np.array([1, 0, -1, -1, 0], np.int8), MANTISSAS)
    write_table(path, deltas, {"device": "made up"})
    outcome = call(
        "numerics", REFERENCE, "--groups", "1000", "--rcp-model", f"table:{path}", "--json"
    )
    (entry,) = json.loads(outcome.out)["writers"]
    assert entry["bit_exact_under"] == ["table"]


def test_a_wrong_writer_exits_with_1(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy = Noisy("noisy", DECLARED, WRONG_QUANTISERS["signs lost"])
    monkeypatch.setattr(command, "writers_from_specs", lambda *_: [noisy])
    report = tmp_path / "report.md"
    outcome = call("numerics", "noisy", "--groups", "1000", "--markdown", str(report))
    assert outcome.code == 1
    assert "noise" not in outcome.out
    assert {"noise", "noise of C"} <= set(outcome.err.splitlines())
    assert f"wrote {report}" in outcome.err
    told = "1 writer of 1 stored what no conforming store can."
    assert told in outcome.out
    text = report.read_text(encoding="utf-8")
    assert text.startswith("# Values stored by NVFP4 writers\n")
    assert told in text
    assert "0 scale bytes" in text
    assert "the reference stores 0x" in text


def test_a_writer_of_another_convention_is_named(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = MutantWriter("other", DECLARED, WRONG_QUANTISERS["encode scale for decode scale"])
    monkeypatch.setattr(command, "writers_from_specs", lambda *_: [other])
    outcome = call("numerics", "other", "--groups", "1000")
    assert outcome.code == 1
    told = " ".join(outcome.out.split())
    assert "its scale bytes follow the convention encode, not decode" in told


def test_a_witness_with_numbers_json_lacks(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = MutantWriter("lost", DECLARED, WRONG_QUANTISERS["NaN becomes zero"])
    monkeypatch.setattr(command, "writers_from_specs", lambda *_: [lost])
    outcome = call("numerics", "lost", "--groups", "1000", "--json")
    assert outcome.code == 1
    (entry,) = json.loads(outcome.out)["writers"]
    assert "nan" in entry["witnesses"][0]["values"]


@pytest.mark.parametrize(
    ("dtypes", "expected"), [((), ["bf16"]), (("--dtype", "fp16,bf16"), ["fp16", "bf16"])]
)
def test_a_writer_of_several_dtypes(
    call: Call, dtypes: tuple[str, ...], expected: list[str]
) -> None:
    outcome = call("numerics", REFERENCE, *dtypes, "--groups", "100", "--json")
    assert [entry["dtype"] for entry in json.loads(outcome.out)["writers"]] == expected


def test_a_writer_that_cannot_run_exits_with_5(call: Call) -> None:
    outcome = call("numerics", "reference:k=tile_128x4,v=linear", "--json")
    assert outcome.code == 5
    (entry,) = json.loads(outcome.out)["writers"]
    assert entry["status"] == "not_run"
    assert "tile_128x4" in entry["reason"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--rcp-model", "twice"), "no model of the reciprocal is called 'twice'"),
        (("--rcp-model", "table:/nowhere/at.all"), "No such file"),
        (("--groups", "0"), "whole number from 1"),
        (("nonsense",), "no writer is called 'nonsense'"),
        ((REFERENCE, "--groups", "10", "--markdown", "/nowhere/at.all"), "cannot be written to"),
    ],
)
def test_bad_usage_exits_with_2(call: Call, arguments: tuple[str, ...], complaint: str) -> None:
    outcome = call("numerics", *arguments)
    assert outcome.code == 2
    assert complaint in outcome.err
    assert outcome.out == ""


def test_the_document_is_written(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "document", lambda further: f"of {len(further)} writers\n")
    path = tmp_path / "numerics.md"
    assert call("numerics", "--docs", str(path)).code == 0
    assert path.read_text() == "of 0 writers\n"
    assert call("numerics", REFERENCE, "--docs", str(path)).code == 0
    assert path.read_text() == "of 1 writers\n"
