"""Store cases: what they describe, and what is refused as one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from oracle.errors import UsageError
from oracle.formats import DTYPES
from oracle.properties.case import MAX_TOKENS, StoreCase, background
from oracle.properties.promises import PROMISES
from oracle.properties.strategies import store_cases
from oracle.properties.values import KINDS, patterns

GOOD = StoreCase(2, 4, 2, 64, "NHD", "fp16", (5, -1, 0), "raw", 7, 0.5, 3.0)
SCHEMA = json.loads(
    (Path(__file__).parents[2] / "reports/schema/replay.schema.json").read_text(encoding="utf-8")
)
CASE = Draft202012Validator({**SCHEMA["$defs"]["case"], "$defs": SCHEMA["$defs"]})


@given(store_cases())
def test_a_case_survives_json_and_follows_its_schema(case: StoreCase) -> None:
    text = json.dumps(case.document())
    back = StoreCase.parse(json.loads(text))
    assert back == case
    assert hash(back) == hash(case)
    assert CASE.is_valid(json.loads(text))


def test_the_schema_knows_every_promise_and_kind_of_values() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert tuple(SCHEMA["properties"]["promise"]["enum"]) == tuple(PROMISES)
    assert tuple(SCHEMA["$defs"]["case"]["properties"]["values"]["enum"]) == KINDS


@given(store_cases())
def test_a_case_makes_the_same_request_every_time(case: StoreCase) -> None:
    one, other = case.request(), case.request()
    for name in ("key", "value", "slot_mapping", "cache"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert one.slot_mapping.tolist() == list(case.slots)
    assert (one.geometry, one.dtype) == (case.geometry, case.dtype)
    assert (one.k_scale, one.v_scale) == (case.k_scale, case.v_scale)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_values_differ_by_side_and_seed_and_fewer_tokens_keep_theirs(kind: str, dtype: str) -> None:
    drawn = patterns(kind, dtype, (3, 2, 64), 1, 0)
    assert (drawn.dtype, drawn.shape) == (np.uint16, (3, 2, 64))
    assert not np.array_equal(drawn, patterns(kind, dtype, (3, 2, 64), 1, 1))
    assert not np.array_equal(drawn, patterns(kind, dtype, (3, 2, 64), 2, 0))
    assert np.array_equal(drawn[:2], patterns(kind, dtype, (2, 2, 64), 1, 0))


def test_the_image_before_follows_from_addresses_and_no_two_parts_are_alike() -> None:
    image = background(1 << 14, seed=3)
    hashed = [(address + 3) * 0x9E3779B1 % 2**32 for address in range(image.size)]
    assert image.tolist() == [((h ^ h >> 16) * 0x85EBCA6B % 2**32) >> 24 for h in hashed]
    for apart in range(1, 1 << 13):
        assert (image[:-apart] == image[apart:]).mean() < 0.02


HOSTILE = {
    "no list": ("slots", 3),
    "a text of slots": ("slots", "12"),
    "no tokens": ("slots", []),
    "too many tokens": ("slots", [0] * (MAX_TOKENS + 1)),
    "half a slot": ("slots", [0.5]),
    "true for a slot": ("slots", [True]),
    "a slot past the cache": ("slots", [8]),
    "a slot of too many digits": ("slots", [-(10**4000)]),
    "true pages": ("num_pages", True),
    "no pages": ("num_pages", 0),
    "a text of pages": ("num_pages", "2"),
    "pages without end": ("num_pages", 10**100),
    "too large a cache": ("num_pages", 4096),
    "too large a page": ("num_heads", 1024),
    "a head that is no multiple of 16": ("head_size", 24),
    "a list for a layout": ("cache_layout", ["HND"]),
    "an unknown layout": ("cache_layout", "\x1b[31mHND"),
    "an unknown dtype": ("dtype", "fp8"),
    "an unknown kind of values": ("values", {"raw": 1}),
    "a negative seed": ("seed", -1),
    "a scale that is no number": ("k_scale", float("nan")),
    "a scale of zero": ("k_scale", 0),
    "a negative scale": ("v_scale", -1.0),
    "an infinite scale": ("v_scale", float("inf")),
    "a scale of too many digits": ("v_scale", 10**4000),
    "a text for a scale": ("v_scale", "x" * 10**6),
    "true for a scale": ("v_scale", True),
    "null for a scale": ("v_scale", None),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_case_is_refused_in_one_line(name: str) -> None:
    field, value = HOSTILE[name]
    told = {**GOOD.document(), field: value}
    if field == "num_pages" and value == 4096:
        told |= {"block_size": 1024, "head_size": 256}
    if field == "num_heads":
        told |= {"block_size": 1024}
    with pytest.raises(UsageError) as caught:
        StoreCase.parse(told)
    _one_short_line(str(caught.value))


@pytest.mark.parametrize("told", [
    None, [], "case", 3, {}, {**GOOD.document(), "more\n": 1}, {**GOOD.document(), 3: 1},
    {name: value for name, value in GOOD.document().items() if name != "seed"},
])  # fmt: skip
def test_what_has_other_fields_is_no_case(told: Any) -> None:
    with pytest.raises(UsageError) as caught:
        StoreCase.parse(told)
    _one_short_line(str(caught.value))


def _one_short_line(text: str) -> None:
    assert text.isprintable()
    assert len(text) < 200


def test_any_json_is_a_case_or_refused() -> None:
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
    anything = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
    names = st.sampled_from(list(GOOD.document()))

    @settings(max_examples=50)
    @given(st.dictionaries(names, anything, max_size=3))
    def check(changed: dict[str, Any]) -> None:
        try:
            case = StoreCase.parse({**GOOD.document(), **changed})
        except UsageError as error:
            _one_short_line(str(error))
        else:
            assert StoreCase.parse(case.document()) == case

    check()


def test_a_case_made_in_python_is_checked_as_well() -> None:
    with pytest.raises(UsageError, match="slots"):
        replace(GOOD, slots=(8,))
    with pytest.raises(UsageError, match="at least one token"):
        replace(GOOD, slots=())
