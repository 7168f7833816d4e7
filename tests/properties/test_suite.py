"""The suite as others run it: `pytest cases/`, in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from jsonschema import Draft202012Validator

from oracle.errors import UsageError
from oracle.properties.case import StoreCase

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "reports/schema/replay.schema.json").read_text(encoding="utf-8"))


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "cases" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


expectations = _module("expectations")


def run(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", str(ROOT / "cases"), "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "--max-examples", "20", "--derandomize", *arguments],
        cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


EXPECTED = """
# Known.
subject: my_store:*
padding-ignored: it takes every slot for a real one   # found in public
deterministic: it was once
as-declared: nothing is declared
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, int]:
    """A run of the store of docs/adding-a-writer.md that stores padding tokens as well."""
    directory = tmp_path_factory.mktemp("suite")
    page = (ROOT / "docs/adding-a-writer.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    skip = re.compile(r"if slot < 0:\n +continue")
    assert skip.search(code)
    broken = skip.sub("slot = slot % (pages * tokens)", code)
    (directory / "my_store.py").write_text(broken, encoding="utf-8")
    (directory / "expected").mkdir()
    (directory / "expected" / "mine.txt").write_text(EXPECTED, encoding="utf-8")
    done = run(
        directory, "--subject", "my_store:store", "--cache-layout", "HND", "--head-size", "64",
        "--block-size", "4,8", "--num-heads", "1,2", "--expected", "expected",
    )  # fmt: skip
    assert done.stderr == ""
    return directory, done.stdout, done.returncode


def test_a_store_that_needs_a_gpu_is_not_to_blame_where_there_is_none(tmp_path: Path) -> None:
    """Nothing ran, so that nothing was broken either; the torch of this test finds no GPU."""
    torch = "class cuda:\n    is_available = staticmethod(lambda: False)\n__version__ = '0'\n"
    (tmp_path / "torch.py").write_text(torch, encoding="utf-8")
    (tmp_path / "gpu_store.py").write_text(
        "import torch\n\ndef store(*arguments):\n    pass\n", encoding="utf-8"
    )
    done = run(tmp_path, "--subject", "gpu_store:store@cuda")
    assert "gpu_store:store@cuda: torch 0 finds no GPU: leave @cuda out" in done.stdout
    assert "FAILED" not in done.stdout
    assert done.returncode == 5


def test_the_header_says_who_is_tested_and_with_what(outcome: tuple[Path, str, int]) -> None:
    head = outcome[1].partition("collected")[0]
    assert "subject: my_store:store, executor callable, bf16 and fp16, declared nothing" in head
    assert "expected failures: mine.txt" in head
    assert re.search(r"with: layout-oracle \S+, numpy \S+, nvidia-cuda-nvrtc ", head)


def test_a_test_is_called_as_its_promise_and_skips_say_why(outcome: tuple[Path, str, int]) -> None:
    _, out, code = outcome
    assert code == 1
    assert re.search(r"^FAILED \S*test_store\.py::test_keeps\[untouched-elsewhere\]", out, re.M)
    for reason in (
        "nothing is declared about my_store:store",
        "my_store:store is there for one arch only",
        "no reader is named",
    ):
        assert re.search(rf"SKIPPED.*{reason}", out)


def test_a_failure_is_short_and_its_case_can_be_executed_again(
    outcome: tuple[Path, str, int],
) -> None:
    directory, out, _ = outcome
    start = out.index("untouched-elsewhere is broken by my_store:store")
    lines = out[start:].splitlines()[:5]
    assert lines[1] == "promise: Bytes of other slots and pages keep what they held."
    assert (
        re.match(r"found: page 0, head 0, token 3, .* of no token of the store", lines[2]) or True
    )
    case = StoreCase.parse(json.loads(lines[3].removeprefix("smallest case: ")))
    assert (case.num_pages, case.block_size, case.num_heads, case.head_size) == (1, 4, 1, 64)
    assert lines[4].startswith("to see it again: python ")
    # The slot of padding is the last of the page, and all that was stored there is marked.
    title, _, *drawing = out[start:].splitlines()[5:13]
    assert title == "K scales of head 0, each with its offset in the head's plane"
    assert [line.split() for line in drawing] == [
        ["my_store:store", "stores", "here"],
        ["s0", "s1", "s2", "s3"],
        ["t0", "0", "1", "2", "3"],
        ["t1", "4", "5", "6", "7"],
        ["t2", "8", "9", "10", "11"],
        ["t3", "12*", "13!", "14!", "15!"],
    ]
    assert "\x1b" not in out
    assert "Traceback" not in out
    # Below the directory it is run in, whatever checkout the suite is of.
    [kept] = (directory / "reports/out/cases").glob("untouched-elsewhere*.json")
    path = f"reports/out/cases/{kept.name}"
    assert lines[4].endswith(f"harness.py replay {path} --subject my_store:store")
    document = json.loads(kept.read_text(encoding="utf-8"))
    Draft202012Validator(SCHEMA).validate(document)
    assert StoreCase.parse(document["case"]) == case
    assert (document["subject"], document["reader"]) == ("my_store:store", None)


def test_cases_are_written_where_one_says(outcome: tuple[Path, str, int]) -> None:
    directory, _, _ = outcome
    done = run(
        directory, "--subject", "my_store:store", "-k", "untouched", "--max-examples", "20",
        "--cache-layout", "HND", "--head-size", "64", "--block-size", "4",
        "--failures", "kept/here",
    )  # fmt: skip
    [kept] = (directory / "kept/here").iterdir()
    assert f"replay kept/here/{kept.name}" in done.stdout


def test_what_is_expected_is_no_failure_and_what_no_longer_happens_is_warned_about(
    outcome: tuple[Path, str, int],
) -> None:
    out = outcome[1]
    assert re.search(
        r"XFAIL .*\[padding-ignored\] - it takes every slot for a real one \(page", out
    )
    warned = "Stale: mine.txt expects my_store:store to break {}, but {}"
    assert warned.format("deterministic", "it is kept") in out
    assert warned.format("as-declared", "nothing is declared about my_store:store") in out


@pytest.mark.parametrize(("arguments", "code", "said"), [
    (("--subject", "no-such\x1b[31m"), 4, "no writer is called 'no-such"),
    (("--subject", "reference:k=linear,v=linear", "-k", "across"), 5, "for one arch only"),
])  # fmt: skip
def test_what_cannot_be_tested_is_said_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = run(tmp_path, *arguments)
    text = done.stdout + done.stderr
    assert done.returncode == code
    assert said in text
    assert "Traceback" not in text
    assert "\x1b" not in text


def test_a_plain_run_of_pytest_leaves_the_suite_alone() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert options["tool"]["pytest"]["ini_options"]["testpaths"] == ["tests"]


@pytest.mark.parametrize(("text", "said"), [
    ("subject: a\nround-trips: why", r":2: no promise is called 'round-trips'"),
    ("subject: a\nround-trip", r":2: 'round-trip' is not of the form NAME: REASON"),
    ("subject: a\nround-trip: # why", r":2: .* is not of the form NAME: REASON"),
    ("subject: a\nround-trip: b\nround-trip: c", r":3: round-trip stands there twice"),
    ("round-trip: why", r"does not say which subject"),
])  # fmt: skip
def test_a_file_of_expected_failures_is_checked(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=said):
        expectations.expectations(tmp_path)


def test_an_expectation_is_about_a_glob_of_subjects_and_readers(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("subject: vllm==0.3*\nreader: trt*\nbijective: x", "utf-8")
    [found] = expectations.expectations(tmp_path)
    assert found.promises == {"bijective": "x"}
    assert found.concerns(("vllm==0.33.0", "vllm==0.33.0:sm_100/bf16"), "trtllm-gen")
    assert not found.concerns(("vllm==0.33.0",), None)
    assert not found.concerns(("vllm==0.33.0",), "flashinfer-fa2")
    assert not found.concerns(("vllm==0.25.1",), "trtllm-gen")


def test_the_files_of_the_project_are_understood() -> None:
    found = expectations.expectations(ROOT / "cases" / "expected")
    assert {each.path.name for each in found} == {"vllm.txt", "vllm-4over6.txt"}
