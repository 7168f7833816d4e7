"""Tests of Python functions as readers: a black box whose bytes are recovered."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from oracle.candidates import candidate
from oracle.errors import CallFailed, UsageError
from oracle.geometry import CacheGeometry
from oracle.readerprobe import map_reader
from oracle.recognise import recognise
from oracle.subjects.callable import CallableReader
from oracle.subjects.dequantiser import (
    Calling,
    Parameter,
    calling,
    flags_in_words,
    parse_flags,
)

# A dequantiser in a few lines: `order` says which stored scale each group uses.
BODY = """
import numpy as np

MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E4M3 = np.array([
    (-1) ** (b >> 7) * (2.0 ** max(b >> 3 & 15, 1) * ((b & 7) / 8 + ((b >> 3 & 15) > 0))) / 2**7
    for b in range(256)
], np.float32)


def codes(packed):
    nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
    return np.where(nibbles & 8, -1, 1) * MAGNITUDES[nibbles & 7]


def dequantise(data, scales, factor, size, order):
    flat = scales.reshape(*scales.shape[:-2], -1)[..., order]
    return codes(data) * np.repeat(E4M3[flat], 16, axis=-1) * factor


def swizzled(tokens, columns):
    t, s = np.indices((tokens, columns))
    return t // 4 * 4 * columns + 4 * s + t % 4


def linear(tokens, columns):
    return np.arange(tokens * columns).reshape(tokens, columns)


def both_linear(fp4_data, block_scale, global_scale, head_size, block_size):
    order = linear(block_size, head_size // 16)
    return dequantise(fp4_data, block_scale, global_scale, head_size, order)


def other_names(a, b, c, d, e, *, swizzle=False):
    return dequantise(a, b, c, d, (swizzled if swizzle else linear)(e, d // 16))


def by_side(side, global_scale, block_size, head_size, block_scale, fp4_data):
    order = (swizzled if side == "V" else linear)(block_size, head_size // 16)
    return dequantise(fp4_data, block_scale, global_scale, head_size, order)


def shuffled(fp4_data, block_scale, global_scale, head_size, block_size):
    order = linear(block_size, head_size // 16)
    order = np.random.default_rng(3).permutation(order.ravel()).reshape(order.shape)
    return dequantise(fp4_data, block_scale, global_scale, head_size, order)


def one_scale(fp4_data, block_scale, global_scale, head_size, block_size):
    order = 0 * linear(block_size, head_size // 16)
    return dequantise(fp4_data, block_scale, global_scale, head_size, order)


def too_few(fp4_data, block_scale):
    return fp4_data


def one_more(fp4_data, block_scale, global_scale, head_size, block_size, arch):
    return fp4_data


def raising(fp4_data, block_scale, global_scale, head_size, block_size):
    raise ArithmeticError("not today")


def leaving(fp4_data, block_scale, global_scale, head_size, block_size):
    raise SystemExit(0)


class Wordless(Exception):
    def __str__(self):
        raise ValueError("no words")


def wordless(fp4_data, block_scale, global_scale, head_size, block_size):
    raise Wordless


def flat(fp4_data, block_scale, global_scale, head_size, block_size):
    return np.zeros(3)


def writing(fp4_data, block_scale, global_scale, head_size, block_size):
    fp4_data[...] = 0


def only_small(fp4_data, block_scale, global_scale, head_size, block_size):
    if head_size > 64:
        raise ValueError(f"head size {head_size}")
    return both_linear(fp4_data, block_scale, global_scale, head_size, block_size)
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dequantisers_of_a_test.py").write_text(BODY, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)


def reader(name: str) -> CallableReader:
    return CallableReader(f"dequantisers_of_a_test:{name}")


READERS = [
    ("both_linear", "linear", "linear"),
    ("other_names", "linear", "linear"),
    ("other_names,v.swizzle=True", "linear", "swizzle_4x4"),
    ("other_names,swizzle=True", "swizzle_4x4", "swizzle_4x4"),
    ("by_side", "linear", "swizzle_4x4"),
]


@pytest.mark.parametrize(("name", "k", "v"), READERS)
@pytest.mark.parametrize("head_size", [64, 128, 256])
@pytest.mark.parametrize("cache_layout", ["HND", "NHD"])
def test_the_bytes_a_function_uses_are_recovered_and_named(
    name: str, k: str, v: str, head_size: int, cache_layout: str
) -> None:
    maps = map_reader(reader(name), CacheGeometry(4, 8, 2, head_size, cache_layout)).maps
    for side, layout in (("K", k), ("V", v)):
        found = recognise(maps[side, "scale"])
        assert found.table is not None
        assert np.array_equal(found.table, candidate(layout).table(8, head_size // 16))
        assert layout in found.layouts
        assert recognise(maps[side, "data"]).layouts == ("linear",)


def test_a_map_without_a_name_is_given_as_it_is() -> None:
    maps = map_reader(reader("shuffled"), CacheGeometry(4, 8, 2, 128)).maps
    found = recognise(maps["K", "scale"])
    expected = np.random.default_rng(3).permutation(64).reshape(8, 8)
    assert found.layouts == ()
    assert np.array_equal(found.table, expected)  # type: ignore[arg-type]


def test_a_scale_used_for_every_group_is_seen() -> None:
    maps = map_reader(reader("one_scale"), CacheGeometry(4, 8, 2, 64)).maps
    found = recognise(maps["V", "scale"])
    assert found.table is not None
    assert not found.table.any()


def test_a_reader_says_who_it_is_and_travels_to_another_process() -> None:
    one = reader("other_names,k.swizzle=False,v.swizzle=True")
    assert one.info.id == "dequantisers_of_a_test:other_names,k.swizzle=False,v.swizzle=True"
    assert one.info.name.endswith(":other_names, K swizzle=False, V swizzle=True")
    assert (one.info.role, one.info.executor) == ("reader", "callable")
    assert one.info.artifact_sha256 is not None
    other = pickle.loads(pickle.dumps(one))
    assert other.info == one.info


REFUSED = [
    ("missing", "has no function 'missing'"),
    ("too_few", "too_few(fp4_data, block_scale) is no dequantiser known here"),
    ("one_more", "block_size, arch) is no dequantiser known here"),
    ("raising", "raised ArithmeticError: not today"),
    ("leaving", "raised SystemExit: 0"),
    ("wordless", "raised Wordless ("),
    ("flat", "gave [3] for K, not [1, 2, 16, 64]"),
    ("writing", "raised ValueError"),
    ("both_linear,swizzle=True", "has no flag 'swizzle': it has none"),
    ("other_names,x.swizzle=True", "'x.swizzle=True' is no flag"),
    ("other_names,swizzle", "'swizzle' is no flag"),
]


@pytest.mark.parametrize(("name", "words"), REFUSED)
def test_what_cannot_be_called_is_refused(name: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        reader(name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_geometry_the_function_cannot_do_is_no_bad_usage() -> None:
    with pytest.raises(CallFailed, match="raised ValueError: head size 128") as caught:
        map_reader(reader("only_small"), CacheGeometry(4, 8, 2, 128))
    assert not isinstance(caught.value, UsageError)


def test_torch_functions_get_tensors_and_float8_scales(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="functions with torch need it in this process")
    text = (
        "import torch\n"
        "M = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])\n"
        "def dequantise(fp4_data, block_scale, global_scale, head_size, block_size):\n"
        "    p = fp4_data.long()\n"
        "    c = torch.stack([p & 15, p >> 4], -1).flatten(-2)\n"
        "    x = torch.where(c > 7, -M[c % 8], M[c % 8])\n"
        "    return x * block_scale.float().repeat_interleave(16, -1) * global_scale\n"
    )
    (tmp_path / "torch_dequantiser_of_a_test.py").write_text(text, encoding="utf-8")
    found = CallableReader("torch_dequantiser_of_a_test:dequantise")
    maps = map_reader(found, CacheGeometry(4, 8, 2, 128)).maps
    assert recognise(maps["K", "scale"]).layouts == ("linear",)
    assert recognise(maps["V", "data"]).layouts == ("linear",)


def test_how_a_function_is_called() -> None:
    five = [Parameter(name, True) for name in "abcde"]
    assert calling("f", five, "") == Calling(False, False, ())
    assert calling("f", [*five, Parameter("x", False)], "") == Calling(False, False, ("x",))
    with pytest.raises(UsageError):
        calling("f", [Parameter("x", False), *five], "")
    assert parse_flags("f", "") == {"K": {}, "V": {}}
    assert parse_flags("f", "n=3,v.m=word") == {"K": {"n": 3}, "V": {"n": 3, "m": "word"}}
    assert flags_in_words(parse_flags("f", "k.n=3,v.m=word")) == ", K n=3, V m='word'"
