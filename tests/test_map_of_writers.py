"""`map` of a writer: in the geometry and out of the wheel asked for, and what is not drawn."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from commandline import ROOT, Call
from wheels import release_name, release_object, write_wheel

from oracle.candidates import CANDIDATES

OWN = "scale_rows[rows[head, row] * columns + column]"
NEXT = "scale_rows[rows[(head + 1) % heads, row] * columns + column]"
SMALL = ("--head-size", "64", "--block-size", "4")


@pytest.fixture
def off_by_a_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The store of docs/adding-a-writer.md, its scales in the planes of the next head."""
    page = (ROOT / "docs/adding-a-writer.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert OWN in code
    (tmp_path / "off_store.py").write_text(code.replace(OWN, NEXT), encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "off_store", raising=False)
    return "off_store:store"


def test_scales_of_other_heads_are_not_drawn_as_a_plane(off_by_a_head: str, call: Call) -> None:
    done = call("map", off_by_a_head, *SMALL)
    assert done.code == 5
    reason, _, command = done.complaint.partition("; what it does instead says layout-oracle ")
    assert reason.endswith("some coordinates are not in the plane of their own page and head")
    judged = call(*shlex.split(command), "--jobs", "1")
    assert judged.code == 1
    assert "head 1" in judged.out


@pytest.mark.parametrize("order", ["HND", "NHD"])
def test_a_release_is_mapped_in_the_geometry_asked_for(
    order: str, tmp_path: Path, call: Call
) -> None:
    write_wheel(tmp_path / release_name("9.9.9"), {"vllm/_C.abi3.so": release_object()})
    where = ("--wheel-dir", str(tmp_path), "--offline", "--num-heads", "3", "--cache-layout", order)
    done = call("map", "vllm==9.9.9:sm_100f/bf16/max6", *SMALL, *where, "--json")
    made = json.loads(done.out)
    assert made["table"] == CANDIDATES["swizzle_4x4"].table(4, 4).tolist()
    assert made["title"].endswith(f", 3 heads, {order}")
    several = call("map", "vllm==9.9.9", *SMALL, *where)
    assert several.code == 2
    assert "names several writers, vllm==9.9.9:sm_100f/bf16/max6, " in several.complaint
    absent = call("map", "vllm==9.9.8:sm_100f/bf16/max6", *SMALL, *where)
    assert absent.code == 2
    assert "--offline forbids fetching" in absent.complaint
