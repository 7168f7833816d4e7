"""docs/reading-a-verdict.md explains every field and status there is, and its example is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commandline import Call
from test_schema import SCHEMA

from oracle.offsettable import MAX_RUNS, offsets_of
from oracle.report.html.atlas import MAX_GEOMETRIES
from oracle.verdict import AGREEMENT_STATUSES, FINDING_STATUSES, SCHEMA_VERSION

TEXT = (Path(__file__).parents[2] / "docs" / "reading-a-verdict.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("result", ["finding", "agreement"])
def test_every_field_is_explained(result: str) -> None:
    section = TEXT.partition("## verdict.json")[2]
    assert set(SCHEMA["$defs"][result]["properties"]) <= set(re.findall(r"`(\w+)`", section))


def test_every_status_has_a_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)
    assert set(FINDING_STATUSES) | set(AGREEMENT_STATUSES) <= set(rows)


def test_every_exit_code_has_a_row() -> None:
    assert re.findall(r"^\| (\d) \|", TEXT, re.MULTILINE) == ["0", "1", "2", "3", "5"]


def test_the_example_says_what_the_guide_says_it_does(call: Call) -> None:
    command = re.search(r"python harness.py (verdict store-sm100 .*)", TEXT)
    shown = re.search(r"says, among other things:\n\n((?:    .*\n)+)", TEXT)
    assert command is not None
    assert shown is not None
    done = call(*command[1].split())
    assert done.code == 1
    assert " ".join(shown[1].split()) in " ".join(done.out.split())


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"The {MAX_GEOMETRIES} smallest geometries" in TEXT
    assert f"more than {MAX_RUNS} runs" in TEXT
    assert f"Version {SCHEMA_VERSION} added" in TEXT
    assert offsets_of([(80, 5, 5)]) == [80, 85, 90, 95, 100]
