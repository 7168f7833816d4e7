"""The examples of the documentation do what the text beside them says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from commandline import Call

from oracle.machine.instructions import MEANINGS
from oracle.subjects.attentionnoops import NO_OPS

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLE = DOCS / "adding-a-writer.md"
ASKED = (
    "--reader",
    "trtllm-gen",
    "--head-size",
    "64",
    "--block-size",
    "16",
    "--cache-layout",
    "HND",
)


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (code,) = re.findall(r"```python\n(.*?)```", EXAMPLE.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "my_store.py"
    path.write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "my_store", raising=False)
    return path


def test_the_example_store_is_what_it_says(saved: Path, call: Call) -> None:
    done = call("verdict", "my_store:store", *ASKED, "--jobs", "1")
    assert done.code == 0
    said = " ".join(done.out.split())
    assert "stores K scales linear" in said
    assert "V scales swizzle_4x4" in said


def test_the_example_with_a_wrong_term_is_caught(saved: Path, call: Call) -> None:
    right = saved.read_text(encoding="utf-8")
    wrong = right.replace("t % 4 if", "t % 3 if")
    assert wrong != right
    saved.write_text(wrong, encoding="utf-8")
    done = call("verdict", "my_store:store", *ASKED, "--jobs", "1")
    assert done.code == 1
    assert "overlap" in done.out


def test_the_machine_page_lists_the_instructions_that_have_a_meaning() -> None:
    page = (DOCS / "machine.md").read_text(encoding="utf-8")
    listed = {
        module: set(names.split())
        for module, names in re.findall(r"^\| `(\w+)\.py` \| ([A-Z0-9_ ]+) \|$", page, re.MULTILINE)
    }
    known: dict[str, set[str]] = {}
    for name, function in MEANINGS.items():
        # What stands for a no-op is no opcode.
        if not name.startswith("UNMODELLED"):
            known.setdefault(function.__module__.rpartition(".")[2], set()).add(name)
    assert listed == known
    assert dict(re.findall(r"^\| `([A-Z0-9.]+)` \| (.*) \|$", page, re.MULTILINE)) == NO_OPS


def test_every_page_is_named_in_the_readme() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in DOCS.glob("*.md") if f"docs/{page.name}" not in readme] == []
