"""Tests of a vLLM checkout as a subject: what is taken from its text, and what executing it shows.

The trees are stand-ins of our own (`checkouts.py`); nothing of them is imported by these tests.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from checkouts import CORRECTED, DEQUANTISER, PINNED, PYTHON, SPLIT, needs_torch, tree

from oracle.errors import CallFailed, UsageError
from oracle.geometry import CacheGeometry
from oracle.readerprobe import map_reader
from oracle.recognise import recognise
from oracle.run import DEFAULT_DOMAIN, run_verdict
from oracle.subjects.base import Reader
from oracle.subjects.checkout import checkout_readers
from oracle.subjects.checkout_commit import PIN, provenance
from oracle.subjects.checkout_process import CheckoutProcess
from oracle.subjects.checkout_source import extract
from oracle.subjects.checkout_tree import built_extensions, open_checkout
from oracle.subjects.checkout_views import CheckoutSplit, checkout_split
from oracle.subjects.spec import writers_from_specs
from oracle.verdict import Verdict
from oracle.views.planes import view_split
from oracle.views.tensor import LAYOUTS, cache_tensor, dense_strides

OTHER = "0123456789abcdef0123456789abcdef01234567"


# What is taken from the text.


def source_of(tmp_path: Path, text: str, function: str = "f") -> str:
    (tmp_path / "file.py").write_text(text, encoding="utf-8")
    return extract(tmp_path, "file.py", function).source


def test_only_what_the_function_needs_is_taken(tmp_path: Path) -> None:
    text = (
        "import os, math\n"
        "import numpy as np\n"
        "A = 1\nB = A + 1\nC = os.getcwd()\n"
        "def helper(): return math.pi * B\n"
        "def unused(): return C\n"
        "def f(x): return np.asarray(x) * helper()\n"
    )
    assert source_of(tmp_path, text) == (
        "import math\nos = _stub('os')\nimport numpy as np\nA = 1\nB = A + 1\n\n"
        "def helper():\n    return math.pi * B\n\n"
        "def f(x):\n    return np.asarray(x) * helper()"
    )


def test_the_stand_in_keeps_nothing_of_vllm(tmp_path: Path) -> None:
    found = open_checkout(str(tree(tmp_path))).dequantiser
    assert found is not None
    names = {
        node.name for node in ast.parse(found.source).body if isinstance(node, ast.FunctionDef)
    }
    assert names == {"codes_to_numbers", "unswizzled", "dequant_nvfp4_kv_cache"}
    assert "vllm" not in found.source
    assert "scalar_types" not in found.source
    assert found.signature.startswith("(fp4_data: torch.Tensor, block_scale")


def test_other_modules_become_stubs_wherever_they_are_imported(tmp_path: Path) -> None:
    text = (
        "try:\n    import triton\nexcept ImportError:\n    triton = None\n"
        "from vllm.a import b as c, d\nfrom . import e\n"
        "import vllm.platforms\nimport torch.nn.functional as F\n"
        "def f(x: 'Missing', *, y: Other = 3) -> vllm.T:\n"
        "    from vllm.inner import late\n    z: Also = 1\n    w: Only\n"
        "    return triton, c, d, e, vllm, F, late\n"
    )
    source = source_of(tmp_path, text)
    for line in (
        "triton = _stub('triton')", "c = _stub('vllm.a.b')", "d = _stub('vllm.a.d')",
        "e = _stub('..e')", "vllm = _stub('vllm')", "import torch.nn.functional as F",
        "late = _stub('vllm.inner.late')", "def f(x, *, y=3):",
    ):  # fmt: skip
        assert line in source
    assert "import vllm" not in source
    assert "Missing" not in source
    assert "Also" not in source


BROKEN = [
    ("def g(): pass\n", "has no function f"),
    ("def f(:\n", "cannot be parsed"),
    ("x = '\0'\n", "cannot be parsed"),
    ("f = 3\n", "has no function f"),
]


@pytest.mark.parametrize(("text", "words"), BROKEN)
def test_files_without_the_function_are_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        source_of(tmp_path, text)
    with pytest.raises(UsageError, match="No such file"):
        extract(tmp_path, "elsewhere.py", "f")


# Where a tree comes from.


def test_the_commit_is_read_from_git_s_files(tmp_path: Path) -> None:
    root = tree(tmp_path / "tree")
    assert provenance(root).commit == PIN
    assert provenance(root).at_pin
    assert provenance(root).words == f"commit {PIN} (the pin)"
    head = root / ".git" / "HEAD"
    head.write_text(f"{OTHER}\n", encoding="utf-8")
    assert provenance(root).commit == OTHER
    assert provenance(root).words == f"commit {OTHER} (not the pin, {PIN})"
    head.write_text("ref: refs/heads/packed\n", encoding="utf-8")
    assert provenance(root).commit is None
    packed = f"# pack-refs with: peeled\n{PIN} refs/heads/other\n{OTHER} refs/heads/packed\n"
    (root / ".git" / "packed-refs").write_text(packed, encoding="utf-8")
    assert provenance(root).commit == OTHER


def test_a_worktree_s_commit_is_found_through_its_git_file(tmp_path: Path) -> None:
    main, root = tree(tmp_path / "main"), tmp_path / "work"
    place = main / ".git" / "worktrees" / "work"
    place.mkdir(parents=True)
    (place / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    (place / "commondir").write_text("../..\n", encoding="utf-8")
    root.mkdir()
    (root / ".git").write_text(f"gitdir: {place}\n", encoding="utf-8")
    assert provenance(root).commit == PIN


@pytest.mark.parametrize("head", ["ref: ../../secret", "ref: refs/../x", "junk", "", "ref:"])
def test_a_strange_head_leaves_the_commit_unknown(tmp_path: Path, head: str) -> None:
    root = tree(tmp_path)
    (root / ".git" / "HEAD").write_text(head, encoding="utf-8")
    assert provenance(root).commit is None
    assert provenance(root).at_pin is None
    assert "unknown" in provenance(root).words


def test_an_installed_package_names_its_commit(tmp_path: Path) -> None:
    package = tree(tmp_path, dequantiser=None) / "vllm"
    for path in sorted((tmp_path / ".git").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    text = "version = __version__ = '0.25.1'\n__commit_id__ = commit_id = 'g555967922'\n"
    (package / "_version.py").write_text(text, encoding="utf-8")
    for path in (tmp_path, package):
        checkout = open_checkout(str(path))
        assert checkout.provenance.commit == "555967922"
        assert checkout.provenance.at_pin
        assert checkout.dequantiser is None
        assert [each.function for each in checkout.splits] == [
            "nvfp4_split_data_scale", "nvfp4_kv_cache_split_views",
        ]  # fmt: skip


def test_built_extensions_are_found(tmp_path: Path) -> None:
    root = tree(tmp_path)
    assert built_extensions(str(root)) == []
    names = ["_C.abi3.so", "_C_stable_libtorch.abi3.so"]
    for name in (*names, "cumem_allocator.abi3.so"):
        (root / "vllm" / name).touch()
    for path in (root, root / "vllm"):
        assert [found.name for found in built_extensions(str(path))] == names


def test_trees_without_anything_are_refused(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path / "nowhere", "is no vLLM checkout"),
        (tmp_path, "is no vLLM checkout"),
        (tree(tmp_path / "bare", None, None), "has neither tests/kernels/quantization/nvfp4_utils"),
    ):
        with pytest.raises(UsageError, match=words):
            open_checkout(str(path))
    root = tree(tmp_path / "older", "def dequant(x): pass\n")
    with pytest.raises(UsageError, match="has no function dequant_nvfp4_kv_cache"):
        open_checkout(str(root))
    root = tree(tmp_path / "no split", PINNED, None)
    with pytest.raises(UsageError, match="has no nvfp4_split_data_scale"):
        checkout_split(str(root))


@pytest.mark.parametrize("parameters", [
    "(fp4, scales)",
    "(fp4_data, block_scale, global_scale, head_size, block_size, arch)",
    "(a, b, c, d, e)",
])  # fmt: skip
def test_an_unknown_signature_is_printed(tmp_path: Path, parameters: str) -> None:
    root = tree(tmp_path, f"def dequant_nvfp4_kv_cache{parameters}: pass\n")
    with pytest.raises(UsageError) as caught:
        checkout_readers(str(root))
    assert f"dequant_nvfp4_kv_cache{parameters} is " in str(caught.value)


def test_a_python_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name another Python"):
        checkout_readers(str(tree(tmp_path)), str(tmp_path / "python"))


def test_a_python_without_torch_is_told_what_it_lacks(tmp_path: Path) -> None:
    base = Path(sys.base_prefix) / "bin" / "python3"
    probe = ("import importlib.util, sys", "sys.exit(importlib.util.find_spec('torch') is None)")
    if not base.exists() or not subprocess.call([base, "-I", "-c", "\n".join(probe)]):
        pytest.skip("the base interpreter is missing or has torch")
    with pytest.raises(UsageError) as caught:
        checkout_readers(str(tree(tmp_path)), str(base))
    assert "No module named 'torch'" in str(caught.value)
    assert "torch is needed" in str(caught.value)


# What executing it shows.


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("vllm")
    return {
        "pinned": tree(root / "pinned"),
        "corrected": tree(root / "corrected", CORRECTED),
    }


@pytest.fixture(scope="module")
def pinned(trees: dict[str, Path]) -> list[Reader]:
    return checkout_readers(str(trees["pinned"]), PYTHON)


@pytest.fixture(scope="module")
def corrected(trees: dict[str, Path]) -> list[Reader]:
    return checkout_readers(str(trees["corrected"]), PYTHON)


def verdict_of(readers: list[Reader]) -> Verdict:
    """Every reader against what the SM100 store writes, at every head size."""
    writers = writers_from_specs(["reference:k=linear,v=swizzle_4x4"], (), ("bf16",))
    domain = replace(DEFAULT_DOMAIN, block_sizes=(16,), cache_layouts=("NHD",))
    return run_verdict(writers, readers, domain)


def outcomes(verdict: Verdict, reader: str, side: str) -> dict[int, set[str]]:
    """Head size -> what came of a reader and a side."""
    found: dict[int, set[str]] = {}
    for each in verdict.agreements:
        if (each.reader, each.side) == (reader, side):
            found.setdefault(each.configuration.head_size, set()).add(each.status)
    return found


@needs_torch
def test_at_the_pin_reader_and_store_disagree_about_k_everywhere(pinned: list[Reader]) -> None:
    reader = pinned[0]
    assert reader.info.id == "vllm:dequant_nvfp4_kv_cache"
    assert f"commit {PIN} (the pin)" in reader.info.name
    assert reader.info.artifact_sha256 is not None
    verdict = verdict_of([reader])
    sizes = DEFAULT_DOMAIN.head_sizes
    assert outcomes(verdict, reader.info.id, "K") == {size: {"disagree"} for size in sizes}
    assert outcomes(verdict, reader.info.id, "V") == {size: {"agree"} for size in sizes}
    for each in verdict.agreements:
        if each.side == "K":
            assert 0 < each.disagreeing < each.positions
            assert each.witness is not None


@needs_torch
def test_the_default_domain_takes_seconds(pinned: list[Reader]) -> None:
    start = time.perf_counter()
    for geometry in DEFAULT_DOMAIN.geometries():
        maps = map_reader(pinned[0], geometry).maps
        assert "swizzle_4x4" in recognise(maps["K", "scale"]).layouts
        assert "swizzle_4x4" in recognise(maps["V", "scale"]).layouts
    assert time.perf_counter() - start < 10


@needs_torch
def test_after_the_correction_they_agree_on_sm100(corrected: list[Reader]) -> None:
    names = {reader.info.arch: reader for reader in corrected[:2]}
    assert set(names) == {"sm_100", "sm_120"}
    verdict = verdict_of([*names.values()])
    sizes = DEFAULT_DOMAIN.head_sizes
    sm100, sm120 = (names[arch].info.id for arch in ("sm_100", "sm_120"))
    for side in "KV":
        assert outcomes(verdict, sm100, side) == {size: {"agree"} for size in sizes}
    assert outcomes(verdict, sm120, "K") == {size: {"agree"} for size in sizes}
    # The store swizzles V on every arch, and the corrected test reads SM12x linearly.
    assert outcomes(verdict, sm120, "V") == {size: {"disagree"} for size in sizes}


@needs_torch
def test_flags_can_be_given(trees: dict[str, Path]) -> None:
    flags = "k.swizzled_scales=True,v.swizzled_scales=False"
    reader = checkout_readers(str(trees["corrected"]), PYTHON, flags)[0]
    assert reader.info.name.endswith(", K swizzled_scales=True, V swizzled_scales=False")
    maps = map_reader(reader, CacheGeometry(4, 16, 2, 128)).maps
    assert recognise(maps["K", "scale"]).layouts == ("swizzle_4x4",)
    assert recognise(maps["V", "scale"]).layouts == ("linear",)
    with pytest.raises(UsageError, match="has no flag 'swizzled': it has swizzled_scales"):
        checkout_readers(str(trees["corrected"]), PYTHON, "swizzled=True")


@needs_torch
def test_view_splits_are_readers_that_agree(pinned: list[Reader]) -> None:
    splits = [reader for reader in pinned if "split" in reader.info.id]
    assert [reader.info.id for reader in splits] == [
        "vllm:nvfp4_split_data_scale", "vllm:nvfp4_kv_cache_split_views",
    ]  # fmt: skip
    verdict = run_verdict(
        writers_from_specs(["reference:k=linear,v=swizzle_4x4"], (), ("bf16",)),
        splits,
        replace(DEFAULT_DOMAIN, head_sizes=(128,), block_sizes=(16,)),
    )
    assert {each.status for each in verdict.agreements} == {"agree"}


@needs_torch
def test_torch_cuts_the_views_that_the_formula_cuts(trees: dict[str, Path]) -> None:
    # as_strided on the meta device evaluates the split with torch's own arithmetic.
    checkout = open_checkout(str(trees["pinned"]), PYTHON)
    shapes = ((100_000, 2, 64, 8, 72), (3, 32, 48, 36), (1, 2, 1, 1, 9), (2, 2, 5, 3, 45))
    for (shape, layout), found in product(product(shapes, LAYOUTS), checkout.splits):
        strides = list(dense_strides(shape, layout, layers=3))
        strides[0] += 7
        tensor = cache_tensor(shape, strides, 11)
        mine = view_split("vllm").planes(tensor)
        assert CheckoutSplit(checkout, found).planes(tensor) == mine


BAD = """
import torch
from vllm import needed, helper


def raising(x): raise ArithmeticError("not today")


def stub(x): return needed.max()


def stub_call(x): return helper(x)


def on_gpu(x): return x.cuda()


def greedy(x): return bytearray(2**33)


def noisy(x):
    print("out of turn")
    return x[..., :64], x[..., 64:]


def nothing(x): return None


def undefined(x): return not_there


def leaving(x): raise SystemExit(3)


def dying(x):
    torch.os._exit(1)


def endless(x):
    while True: pass
"""


@pytest.fixture
def bad(tmp_path: Path) -> Iterator[CheckoutProcess]:
    (tmp_path / "bad.py").write_text(BAD, encoding="utf-8")
    names = [line[4:].partition("(")[0] for line in BAD.splitlines() if line.startswith("def ")]
    process = CheckoutProcess([extract(tmp_path, "bad.py", name) for name in names], PYTHON, 20)
    yield process
    process.close()


REQUEST = {"shape": [1, 4, 2, 72], "strides": [576, 144, 72, 1], "offset": 0}


@needs_torch
def test_functions_that_misbehave_are_reported_one_by_one(bad: CheckoutProcess) -> None:
    for name, kind, words in (
        ("raising", CallFailed, "bad.py: raising raised ArithmeticError: not today"),
        ("stub", UsageError, "bad.py: stub needs vllm.needed, which is not executed"),
        ("stub_call", UsageError, "stub_call needs vllm.helper"),
        ("on_gpu", UsageError, "on_gpu wants a GPU"),
        ("greedy", CallFailed, "greedy raised MemoryError"),
        ("undefined", CallFailed, "raised NameError"),
        ("leaving", CallFailed, "raised SystemExit: 3"),
    ):
        with pytest.raises(kind) as caught:
            bad.call("split", name, REQUEST)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
    answer, _ = bad.call("split", "noisy", REQUEST)
    assert [view["shape"] for view in answer["views"]] == [[1, 4, 2, 64], [1, 4, 2, 8]]
    assert bad.call("split", "nothing", REQUEST)[0]["views"] == []
    with pytest.raises(UsageError, match="dying ended its process"):
        bad.call("split", "dying", REQUEST)
    with pytest.raises(UsageError, match="its process has ended"):
        bad.call("split", "noisy", REQUEST)


@needs_torch
def test_a_function_that_hangs_is_stopped(bad: CheckoutProcess) -> None:
    bad._time_limit = 1
    start = time.perf_counter()
    with pytest.raises(UsageError, match="endless gave no answer within 1 s and was stopped"):
        bad.call("split", "endless", REQUEST)
    assert time.perf_counter() - start < 5
    with pytest.raises(UsageError, match="its process has ended"):
        bad.call("split", "noisy", REQUEST)


@needs_torch
def test_a_dequantiser_that_fails_at_once_is_refused(tmp_path: Path) -> None:
    text = (
        "def dequant_nvfp4_kv_cache(fp4_data, block_scale, global_scale, head_size, block_size):\n"
        "    return fp4_data.float()\n"
    )
    with pytest.raises(UsageError, match=r"raised ValueError: gave \[1, 2, 16, 32\], not"):
        checkout_readers(str(tree(tmp_path, text)), PYTHON)


@needs_torch
def test_a_split_that_cuts_something_else_is_refused(tmp_path: Path) -> None:
    text = "def nvfp4_split_data_scale(kv_side):\n    return kv_side[..., :8], kv_side[..., 8:]\n"
    with pytest.raises(UsageError, match=r"cut \[1, 16, 2, 8\] and \[1, 16, 2, 28\] from a side"):
        checkout_readers(str(tree(tmp_path, None, text)), PYTHON)


def test_the_stand_ins_differ_only_in_their_flag() -> None:
    assert len(CORRECTED) > len(PINNED)
    assert DEQUANTISER.startswith("tests/")
    assert SPLIT.startswith("vllm/")
