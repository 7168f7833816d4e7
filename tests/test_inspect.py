"""`inspect` on what a user has: a release, a wheel, a shared object, an installed directory."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from commandline import Call
from wheels import kernel_name, release_name, release_object, store_cubin, store_object, write_wheel

from oracle.machine.cubin import Cubin
from oracle.subjects.vllm import STORE_KERNEL
from oracle.toolchain import compile_cuda

HOME = "vllm/_C.abi3.so"


def kernels(call: Call, *arguments: str) -> list[dict[str, Any]]:
    done = call("inspect", "--json", *arguments)
    assert done.code == 0
    found: list[dict[str, Any]] = json.loads(done.out)["kernels"]
    return found


@pytest.mark.parametrize("form", ["release", "wheel", "object", "directory"])
def test_the_store_kernels_of_an_artefact(form: str, call: Call, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / release_name("9.9.9"), {HOME: release_object()})
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "_C.abi3.so").write_bytes(release_object())
    what = {
        "release": ("vllm==9.9.9", "--wheel-dir", str(tmp_path), "--offline"),
        "wheel": (str(wheel),),
        "object": (str(package / "_C.abi3.so"),),
        "directory": (str(tmp_path),),
    }[form]
    found = kernels(call, *what)
    assert {kernel["title"] for kernel in found} == {
        f"vllm::{STORE_KERNEL}<c10::{scalar}, search {search}>"
        for scalar in ("BFloat16", "Half")
        for search in (0, 1)
    }
    assert sorted(kernel["arch"] for kernel in found) == ["sm_100f"] * 4 + ["sm_120f"] * 4
    digests = {
        hashlib.sha256(store_cubin(arch, dtype, search)).hexdigest()
        for arch in ("sm_100f", "sm_120f")
        for dtype in ("bf16", "fp16")
        for search in (0, 1)
    }
    assert {kernel["cubin_sha256"] for kernel in found} == digests
    for kernel in found:
        assert [p["size"] for p in kernel["parameters"]] == [8] * 11 + [4] * 3 + [8] * 6
        assert (kernel["launch_refusal"], kernel["machine_refusals"]) == (None, [])
        member = {"release": HOME, "wheel": HOME}.get(form, "_C.abi3.so")
        assert kernel["member"] == member
    text = call("inspect", *what).out
    assert "8 kernels" in " ".join(text.split())
    assert "152" in text


def test_what_cannot_be_launched_says_why(call: Call, tmp_path: Path) -> None:
    source = f'extern "C" __global__ void {kernel_name("fp16")}(int* a, int b) {{ *a = b; }}'
    path = tmp_path / "x.so"
    path.write_bytes(store_object(("sm_100f", compile_cuda(source, "sm_100f"))))
    (kernel,) = kernels(call, str(path))
    assert kernel["launch_refusal"].startswith("its 2 parameters of [8, 4] bytes are not those")
    text = " ".join(call("inspect", str(path)).out.split())
    assert "Why not" in text
    assert "its 2 parameters of [8, 4] bytes" in text


def test_other_kernels_are_found_by_name(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(release_object())
    half = kernels(call, str(path), "--matching", "4Half")
    assert len(half) == 4
    assert all("Half" in kernel["title"] for kernel in half)
    done = call("inspect", str(path), "--matching", "nothing like it")
    assert (done.code, done.out) == (5, "")
    assert "has no kernel with 'nothing like it' in its name" in done.err


def test_an_artefact_without_the_kernel_exits_with_5(call: Call, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / release_name("9.9.9"), {})
    done = call("inspect", str(wheel))
    assert done.code == 5
    assert "it holds no shared object" in done.complaint


def test_a_cubin_by_itself_is_shown_in_full(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "x.cubin"
    path.write_bytes(store_cubin("sm_100f", "bf16"))
    made = json.loads(call("inspect", "--json", str(path)).out)
    assert made["arch"] == "sm_100f"
    assert [kernel["name"] for kernel in made["kernels"]] == list(
        Cubin.parse(path.read_bytes()).kernels
    )
