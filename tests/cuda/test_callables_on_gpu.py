"""Functions whose tensors are on a GPU, and Triton, which its own interpreter runs without one."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from ctypes.util import find_library
from pathlib import Path

import pytest
from checkouts import PYTHON, needs_torch
from commandline import HARNESS, Call, Outcome

HERE = Path(__file__).parent
SMALL = ("--head-size", "64", "--num-heads", "1", "--block-size", "4", "--cache-layout", "HND")
TORCH_STORE = "import torch\n\ndef store(*arguments):\n    pass\n"


def has(module: str, python: str = PYTHON) -> bool:
    """Whether a Python has a module."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", code], check=False).returncode == 0


def verdict(*arguments: str, cwd: Path, **environment: str) -> Outcome:
    """The verdict, by the Python that has torch."""
    done = subprocess.run(
        [PYTHON, HARNESS, "verdict", *arguments, *SMALL, "--json"],
        cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout, done.stderr)


def needs(*modules: str) -> None:
    for module in modules:
        if not has(module):
            pytest.skip(
                f"{PYTHON} has no {module}: name one that has in LAYOUT_ORACLE_TORCH_PYTHON"
            )


def test_a_triton_store_is_judged_under_tritons_interpreter() -> None:
    needs("torch", "triton", "rich")
    done = verdict(
        "triton_store:store", "--reader", "trtllm-gen", cwd=HERE, TRITON_INTERPRET="1"
    )  # fmt: skip
    document = json.loads(done.out)
    layouts = {(f["side"], f["plane"]): f["layouts"] for f in document["findings"]}
    assert "linear" in layouts["K", "scale"]
    assert "swizzle_4x4" in layouts["V", "scale"]
    assert layouts["K", "data"] == layouts["V", "data"] == ["linear"]
    assert done.code == 0


@needs_torch
def test_tensors_on_a_gpu_need_a_gpu(tmp_path: Path) -> None:
    needs("torch", "rich")
    if find_library("cuda") is not None:
        pytest.skip("there is a CUDA driver")
    (tmp_path / "torch_store.py").write_text(TORCH_STORE)
    done = verdict("torch_store:store@cuda", cwd=tmp_path)
    document = json.loads(done.out)
    ours = [f for f in document["findings"] if f["subject"] == "torch_store:store@cuda"]
    assert {f["status"] for f in ours} == {"not_run"}
    assert "finds no GPU: leave @cuda out" in ours[0]["reason"]
    assert (done.code, document["exit_code"]) == (5, 5)


def test_arrays_cannot_be_on_a_gpu(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "array_store.py").write_text("def store(*arguments):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    done = call("verdict", "array_store:store@cuda", *SMALL)
    assert done.code == 2
    assert done.complaint == (
        "array_store:store@cuda: its module uses no torch, so it gets NumPy arrays: leave @cuda out"
    )


def test_there_is_no_other_place_than_a_gpu(call: Call) -> None:
    done = call("verdict", "module:store@tpu")
    assert done.code == 2
    assert "no writer is called 'module:store@tpu'" in done.complaint


@pytest.mark.gpu
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_a_triton_store_is_judged_on_the_gpu(gpu: object) -> None:
    done = verdict("triton_store:store@cuda", "--reader", "trtllm-gen", cwd=HERE)
    assert done.code == 0
