"""Every case of the corpus gets its right answer, and every report is a case or a stated limit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from owners import owner_map, smallest_pairs

from oracle.contracts import contracts
from oracle.errors import UsageError
from oracle.views.density import density
from oracle.views.examine import Asked, Examination
from oracle.views.owners import QUESTIONS
from oracle.views.planes import SPLITS, Plane, Strides, ViewSplit, view_split
from oracle.views.tensor import LAYOUTS, CacheTensor, cache_tensor, dense_strides

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "cases" / "corpus").glob("*.json"))
CASES = [json.loads(path.read_text(encoding="utf-8")) for path in FILES]
CHECKS = [
    pytest.param(check, id=f"{case['id']}-{number}")
    for case in CASES
    for number, check in enumerate(case["checks"])
]
SCHEMA = json.loads((ROOT / "reports/schema/case.schema.json").read_text(encoding="utf-8"))

# Public reports whose class concerns shapes, strides, carving, transfer or slicing.
REPORTS = [
    "vllm-project/vllm#49012", "vllm-project/vllm#53681", "vllm-project/vllm#44455",
    "vllm-project/vllm#49818", "vllm-project/vllm#51718", "vllm-project/vllm#34158",
    "vllm-project/vllm#52516", "vllm-project/vllm#56164", "flashinfer-ai/flashinfer#3608",
    "flashinfer-ai/flashinfer#4748", "flashinfer-ai/flashinfer#4299",
    "flashinfer-ai/flashinfer#3724", "NVIDIA/TensorRT-LLM#18723", "NVIDIA/TensorRT-LLM#17985",
    "NVIDIA/TensorRT-LLM#19192", "LMCache/LMCache#4729", "taco-project/FlexKV#252",
    "local-inference-lab/b12x#33",
]  # fmt: skip

SMALL = 40_000
"""Bytes of a page up to which ownership is enumerated as well."""


@dataclass(frozen=True)
class Moved:
    """A split with some of its planes put elsewhere."""

    split: ViewSplit
    moved: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.split.name

    def planes(self, tensor: CacheTensor) -> tuple[Plane, ...]:
        return tuple(
            replace(p, base=at["base"], strides=Strides(*at["strides"])) if at else p
            for p in self.split.planes(tensor)
            for at in (self.moved.get(p.name),)
        )


def examination_of(check: Mapping[str, Any]) -> Examination:
    told = check["tensor"]
    dims = told.get("dims")
    strides = told.get("stride")
    if strides is None:
        strides = dense_strides(told["shape"], told["layout"], told.get("layers", 1), dims)
    tensor = cache_tensor(
        told["shape"], strides, told.get("storage_offset", 0), told.get("storage_bytes"), dims
    )
    reader = check.get("read_split")
    asked = Asked(
        layout=check.get("layout"),
        judged=tuple(check.get("party", ())),
        heads=range(*check["heads"]) if "heads" in check else None,
        tokens=range(*check["tokens"]) if "tokens" in check else None,
        read_split=None if reader is None else view_split(reader),
    )
    return Examination(tensor, Moved(view_split(check["split"]), check.get("planes", {})), asked)


def answer_to(question: str, wanted: Any, found: Examination) -> Any:
    """What an examination says to one expectation, in the form of `wanted`."""
    parties = {party.name: party for party in found.parties}
    match question:
        case "sound":
            return not found.faults
        case "apart":
            return {name: found.owners.answers[name] is None for name in QUESTIONS}
        case "shared":
            shared = {name: found.owners.answers[name] for name in wanted}
            return {
                name: each and {
                    "byte": each.byte, "owners": [found.words(each.first), found.words(each.second)]
                }
                for name, each in shared.items()
            }  # fmt: skip
        case "usable":
            return {name: parties[name].usable for name in wanted}
        case "notes":
            notes = {name: parties[name].note for name in wanted}
            return {n: wanted[n] if wanted[n] and wanted[n] in (notes[n] or "") else notes[n]
                    for n in wanted}  # fmt: skip
        case "departures":
            return len(found.departures)
        case "owned_in_page":
            owned = found.owners.owned
            return owned and owned // found.carving.tensor.pages
        case "alignment":
            planes = {plane.name: plane for plane in found.carving.planes}
            return {name: density(planes[name]).alignment for name in wanted}
        case "equal_parts":
            return found.unequal_parts is None
        case "carve_first":
            assert found.slice is not None
            return found.slice.carve_first is not None
        case "runs":
            assert found.slice is not None
            runs = {each.plane: [each.start, each.length, each.count] for each in found.slice.runs}
            return {name: runs[name] for name in wanted}
        case "round_trip":
            return {name: getattr(found.round_trip, name) for name in wanted}
    raise AssertionError(f"no such expectation: {question}")


@pytest.mark.parametrize("check", CHECKS)
def test_the_tool_gives_the_right_answer(check: dict[str, Any]) -> None:
    expect = dict(check["expect"])
    refused = expect.pop("refused", None)
    if refused is not None:
        with pytest.raises(UsageError) as caught:
            examination_of(check)
        assert refused in str(caught.value)
        return
    found = examination_of(check)
    for question, wanted in expect.items():
        assert answer_to(question, wanted, found) == wanted, question


@pytest.mark.parametrize("check", [
    each for each in CHECKS
    if "apart" in each.values[0]["expect"] and prod(each.values[0]["tensor"]["shape"][1:]) <= SMALL
])  # fmt: skip
def test_the_right_answer_is_that_of_an_enumeration(check: dict[str, Any]) -> None:
    # Two pages tell all: strides do not change from one page to the next.
    told = {**check["tensor"], "shape": [2, *check["tensor"]["shape"][1:]]}
    pairs = smallest_pairs(owner_map(examination_of({**check, "tensor": told}).carving))
    assert {name: pair is None for name, pair in pairs.items()} == check["expect"]["apart"]


@pytest.mark.parametrize(("path", "case"), list(zip(FILES, CASES, strict=True)))
def test_cases_follow_their_schema(path: Path, case: dict[str, Any]) -> None:
    Draft202012Validator(SCHEMA).validate(case)
    assert path.stem == case["id"]
    named = {name for check in case["checks"] for name in check["expect"].get("usable", {})}
    assert named <= set(contracts())


def test_the_schema_is_one_and_knows_the_names_the_code_knows() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert tuple(SCHEMA["$defs"]["layout"]["enum"]) == LAYOUTS
    assert tuple(SCHEMA["$defs"]["split"]["enum"]) == tuple(SPLITS)
    apart = SCHEMA["$defs"]["expect"]["properties"]["apart"]["required"]
    assert tuple(apart) == QUESTIONS


@pytest.mark.parametrize("damage", [
    lambda case: case.pop("summary"),
    lambda case: case.update(extra=1),
    lambda case: case["checks"][0].update(split="none"),
    lambda case: case["checks"][0]["tensor"].update(stride=[1], layout="HND"),
    lambda case: case["checks"][0]["expect"].update(sound="yes"),
    lambda case: case["checks"].clear(),
])  # fmt: skip
def test_the_schema_refuses_damaged_cases(damage: Any) -> None:
    case = json.loads(json.dumps(CASES[0]))
    damage(case)
    assert not Draft202012Validator(SCHEMA).is_valid(case)


def test_every_report_is_a_case_or_a_stated_limit() -> None:
    cases = {f"{c['report']['repository']}#{c['report']['number']}" for c in CASES}
    limits = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    assert len(REPORTS) == len(set(REPORTS)) == 18
    for report in REPORTS:
        assert (report in cases) != (f"| {report} |" in limits), report
