"""The examples of the documentation do what the text beside them says."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from commandline import Call

from oracle.machine.instructions import MEANINGS
from oracle.subjects.attentionnoops import NO_OPS
from oracle.views.planes import SPLITS
from oracle.views.tensor import LAYOUTS

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLE = DOCS / "adding-a-writer.md"
ASKED = (
    "--reader",
    "trtllm-gen",
    "--head-size",
    "64",
    "--block-size",
    "16",
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


def test_the_example_store_refuses_what_no_swizzle_fits(saved: Path, call: Call) -> None:
    done = call("map", "my_store:store", "--head-size", "32")
    assert done.code == 5
    assert "refuses the geometry: V is swizzled by 4 tokens and 4 scales" in done.complaint


def test_the_example_with_a_wrong_term_is_caught(saved: Path, call: Call) -> None:
    right = saved.read_text(encoding="utf-8")
    wrong = right.replace("t % 4 if", "t % 3 if")
    assert wrong != right
    saved.write_text(wrong, encoding="utf-8")
    done = call("verdict", "my_store:store", *ASKED, "--jobs", "1")
    assert done.code == 1
    assert "overlap" in done.out


VIEWS = re.findall(
    r"^ *```console\n *\$ layout-oracle (.*)\n((?:.*\n)*?) *```$",
    (DOCS / "views.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


@pytest.mark.parametrize(("command", "said"), VIEWS)
def test_the_examples_of_views_say_what_stands_there(command: str, said: str, call: Call) -> None:
    done = call(*shlex.split(command))
    assert done.code == int(not said.lstrip().startswith("Sound"))
    assert " ".join(done.out.split()).startswith(" ".join(said.split()))


def test_the_views_page_names_every_split_and_layout_and_has_examples() -> None:
    page = (DOCS / "views.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert named == {*SPLITS, *LAYOUTS}
    assert len(VIEWS) == page.count("```console") > 0


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
