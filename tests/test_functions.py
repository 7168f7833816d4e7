"""Python functions as subjects: how they refuse and fail, and why one cannot be called."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from commandline import Call

from oracle.errors import CallFailed, NothingRan, Refused, UsageError
from oracle.geometry import CacheGeometry
from oracle.readerprobe import map_reader
from oracle.requests import StoreRequest
from oracle.subjects.callable import CallableReader, CallableWriter

MODULE = """
import numpy as np
from oracle.geometry import CacheGeometry
from oracle.reference import reference_write
from oracle.requests import StoreRequest
from oracle.formats import DTYPES


def _whole(cache):
    # K's view begins where the allocation does.
    pages, tokens, heads, content = cache.shape
    return np.lib.stride_tricks.as_strided(cache, (cache.shape[0] * cache.strides[0],), (1,))


def hnd(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale):
    pages, tokens, heads, content = key_cache.shape
    geometry = CacheGeometry(pages, tokens, heads, key.shape[-1], "HND")
    bits = [DTYPES["bf16"].encode(np.asarray(x, np.float32)) for x in (key, value)]
    whole = _whole(key_cache)
    request = StoreRequest(geometry, "bf16", *bits, slot_mapping, float(k_scale[0]),
                           float(v_scale[0]), whole.copy())
    whole[:] = reference_write(request, "linear", "swizzle_4x4")


def choosy(key, *rest):
    size = key.shape[-1]
    if size == 32:
        raise ValueError("32 is a surprise")
    if size == 128:
        raise NotImplementedError("128 is too large\\nfor this store")
    if size == 192:
        return
    hnd(key, *rest)


def refusing(*arguments):
    raise NotImplementedError("nothing suits me")


def unfinished(*arguments):
    raise NotImplementedError


def three(key, value, cache):
    pass


def only_small(fp4_data, block_scale, global_scale, head_size, block_size):
    if head_size > 16:
        raise NotImplementedError(f"head size {head_size}")
    return np.zeros((*fp4_data.shape[:3], head_size), np.float32)
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "functions_of_a_test.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "functions_of_a_test", raising=False)
    return tmp_path


def asked(call: Call, function: str, *options: str) -> dict[str, tuple[str, str]]:
    """Status and reason of the K scales by head size and cache layout, and the exit code."""
    done = call("verdict", f"functions_of_a_test:{function}", "--json", "--block-size", "4",
                "--jobs", "1", *options)  # fmt: skip
    document = json.loads(done.out)
    assert document["exit_code"] == done.code
    found = {
        f"{f['head_size']} {f['cache_layout']}": (f["status"], f["reason"] or "")
        for f in document["findings"]
        if f["subject"].startswith("functions_of_a_test")
        and (f["side"], f["plane"]) == ("K", "scale")
    }
    return {**found, "exit": (str(done.code), "")}


# ---- Refusing and failing ------------------------------------------------------------------------


def test_one_geometry_that_fails_or_is_refused_leaves_the_others_judged(call: Call) -> None:
    found = asked(call, "choosy", "--head-size", "32,64,128,192", "--cache-layout", "HND")
    assert found["64 HND"][0] == "match"
    assert found["128 HND"] == ("refused", "128 is too large")
    status, reason = found["32 HND"]
    assert status == "unsupported"
    assert reason.startswith(
        "functions_of_a_test:choosy raised ValueError: 32 is a surprise (functions_of_a_test.py:28)"
        ", given head size 32, 2 heads, block size 4, HND"
    )
    assert found["192 HND"][0] == "unsupported"
    assert "stored nothing" in found["192 HND"][1]
    assert found["exit"][0] == "5"


def test_a_refusal_alone_is_no_fault(call: Call) -> None:
    found = asked(call, "choosy", "--head-size", "64,128", "--cache-layout", "HND")
    assert found["exit"][0] == "0"


def test_what_refuses_everything_ran_nowhere(call: Call) -> None:
    assert asked(call, "refusing", "--head-size", "64")["exit"][0] == "5"
    done = call("map", "functions_of_a_test:refusing", "--head-size", "64")
    assert done.code == 5
    assert "functions_of_a_test:refusing refuses the geometry: nothing suits me" in done.complaint


@pytest.mark.parametrize("sizes", ["32", "32,192", "32,128"])
def test_what_fails_wherever_it_does_not_refuse_is_bad_usage(sizes: str, call: Call) -> None:
    done = call("verdict", "functions_of_a_test:choosy", "--head-size", sizes)
    assert done.code == 2
    assert "raised ValueError: 32 is a surprise" in done.complaint


def request(geometry: CacheGeometry) -> StoreRequest:
    words = np.ones((1, geometry.num_heads, geometry.head_size), np.uint16)
    image = np.zeros(geometry.cache_bytes, np.uint8)
    return StoreRequest(geometry, "bf16", words, words, np.zeros(1, np.int64), 1.0, 1.0, image)


def test_a_refusal_needs_a_reason() -> None:
    one = request(CacheGeometry(1, 4, 1, 64))
    with pytest.raises(Refused, match="refuses the geometry: nothing suits me") as caught:
        CallableWriter("functions_of_a_test:refusing").write(one)
    assert isinstance(caught.value, NothingRan)
    with pytest.raises(CallFailed, match="raised NotImplementedError"):
        CallableWriter("functions_of_a_test:unfinished").write(one)


def test_a_dequantiser_refuses_in_the_same_way(call: Call) -> None:
    reader = "functions_of_a_test:only_small"
    with pytest.raises(Refused, match="only_small refuses the geometry: head size 64"):
        map_reader(CallableReader(reader), CacheGeometry(4, 4, 2, 64))
    done = call("verdict", "reference:k=linear,v=linear", "--reader", reader, "--json",
                "--head-size", "64", "--block-size", "4", "--jobs", "1")  # fmt: skip
    told = {(f["status"], f["reason"]) for f in json.loads(done.out)["findings"]
            if f["subject"] == reader}  # fmt: skip
    assert told == {("refused", "head size 64")}
    assert done.code == 5


def test_what_got_arrays_where_torch_is_about_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    one = request(CacheGeometry(1, 4, 1, 32))
    for torch_is_about in (False, True):
        if torch_is_about:
            monkeypatch.setitem(sys.modules, "torch", sys)
        else:
            monkeypatch.delitem(sys.modules, "torch", raising=False)
        with pytest.raises(CallFailed) as caught:
            CallableWriter("functions_of_a_test:choosy").write(one)
        assert ("its own module imports no torch" in str(caught.value)) == torch_is_about


# ---- The other cache layout ----------------------------------------------------------------------


def test_the_addresses_of_the_other_cache_layout_are_told_of(call: Call) -> None:
    found = asked(call, "hnd", "--head-size", "64")
    status, reason = found["64 NHD"]
    assert status == "unrecognised"
    assert reason.endswith("these are the addresses of an HND page")
    assert found["64 HND"][0] == "match"


# ---- What cannot be called or found --------------------------------------------------------------


def test_another_signature_is_refused_before_the_first_call() -> None:
    with pytest.raises(UsageError) as caught:
        CallableWriter("functions_of_a_test:three")
    told = str(caught.value)
    assert told.startswith("functions_of_a_test:three(key, value, cache) cannot be called")
    assert "key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale" in told
    assert "docs/adding-a-writer.md" in told


MISSING = {
    "no_such_module:f": "there is no module no_such_module: it is looked for in the current "
    "directory and on PYTHONPATH",
    "functions_of_a_test.inner:f": "there is no module functions_of_a_test.inner: ",
    "needy:f": "needy imports no_such_module, which this Python does not have (needy.py:2)",
    "raising:f": "importing raising failed: ValueError: not today (raising.py:1)",
    "syntax_error_of_a_test:f": "(syntax_error_of_a_test.py, line 1)",
}


@pytest.mark.parametrize("spec", MISSING)
def test_a_module_that_cannot_be_imported_says_what_to_do(spec: str, module: Path) -> None:
    (module / "needy.py").write_text("import os\nimport no_such_module\n", encoding="utf-8")
    (module / "raising.py").write_text("raise ValueError('not today')\n", encoding="utf-8")
    (module / "syntax_error_of_a_test.py").write_text("def f(:\n", encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        CallableWriter(spec)
    assert MISSING[spec] in str(caught.value)
    assert "frozen" not in str(caught.value)
