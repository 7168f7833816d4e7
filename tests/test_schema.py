"""The schema of verdict.json: it accepts every sound document and refuses every damaged one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mutants import MUTANTS, mutant_writer
from verdicts import VERDICTS, every_verdict

from oracle.candidates import CANDIDATES
from oracle.formats import DTYPES
from oracle.geometry import CACHE_LAYOUTS, PLANES, SIDES
from oracle.quantize import ScaleSearch
from oracle.report import document
from oracle.report.digest import witness_in_words
from oracle.report.outline import Listing
from oracle.report.sections import outline
from oracle.run import Domain, run_verdict
from oracle.subjects.base import EXECUTORS, SubjectInfo
from oracle.subjects.spec import readers_from_specs
from oracle.verdict import (
    AGREEMENT_STATUSES,
    FAULTY,
    FINDING_STATUSES,
    NOT_OBTAINED,
    SCHEMA_VERSION,
    Defects,
    Verdict,
)

SCHEMA_PATH = Path(__file__).parents[1] / "reports" / "schema" / "verdict.schema.json"
SCHEMA = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)


def as_document(made: Verdict) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(document.as_json(made, made.exit_code))
    return loaded


def test_the_schema_is_one_and_knows_the_names_the_code_knows() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    defs, properties = SCHEMA["$defs"], SCHEMA["properties"]
    assert properties["schema_version"]["enum"][-1] == SCHEMA_VERSION
    assert properties["tool"]["properties"]["name"]["const"] == document.TOOL["name"]
    subject = defs["subject"]["properties"]
    assert tuple(subject["executor"]["enum"]) == EXECUTORS
    assert set(subject) == set(SubjectInfo.__dataclass_fields__)
    found = defs["finding"]["properties"]
    assert set(found["status"]["enum"]) == set(FINDING_STATUSES)
    assert tuple(found["plane"]["enum"]) == PLANES
    assert set(defs["agreement"]["properties"]["status"]["enum"]) == set(AGREEMENT_STATUSES)
    assert set(defs["defects"]["properties"]) == set(Defects.__dataclass_fields__)
    assert tuple(defs["layout"]["enum"]) == tuple(CANDIDATES)
    assert tuple(defs["side"]["enum"]) == SIDES
    assert tuple(defs["cache_layout"]["enum"]) == CACHE_LAYOUTS
    assert tuple(defs["dtype"]["enum"]) == tuple(DTYPES)
    assert set(defs["scale_search"]["enum"]) == {search.value for search in ScaleSearch}
    assert set(CANDIDATES) < set(defs["witness"]["properties"])


def test_the_schema_leaves_no_object_open() -> None:
    def objects(node: object) -> Iterator[dict[str, Any]]:
        if isinstance(node, dict):
            if node.get("type") == "object" and "properties" in node:
                yield node
            for child in node.values():
                yield from objects(child)
        elif isinstance(node, list):
            for child in node:
                yield from objects(child)

    closed = list(objects(SCHEMA))
    assert len(closed) > 8
    assert all(node["additionalProperties"] is False for node in closed)


def test_the_rules_by_status_cover_every_status() -> None:
    rules = SCHEMA["$defs"]["finding"]["allOf"]
    named = [rule["if"]["properties"].get("status", {}) for rule in rules]
    covered = {name for rule in named for name in (*rule.get("enum", ()), rule.get("const"))}
    assert covered - {None} == set(FINDING_STATUSES)
    assert FAULTY | NOT_OBTAINED | {"match"} == set(FINDING_STATUSES)


@every_verdict
def test_every_document_is_valid(made: Verdict) -> None:
    assert not list(VALIDATOR.iter_errors(as_document(made)))


@pytest.fixture(scope="module")
def mutants() -> Verdict:
    """What really comes of every broken kernel, in one run."""
    writers = []
    for name in MUTANTS:
        broken = mutant_writer(name)
        broken.info = replace(broken.info, kernel="nvfp4_kv_store", artifact_sha256="0" * 64)
        writers.append(broken)
    domain = Domain((128,), (2,), (16,), ("HND",), ("bf16",))
    return run_verdict(writers, readers_from_specs(["reference:k=linear,v=swizzle_4x4"]), domain)


def test_the_document_of_every_broken_kernel_is_valid(mutants: Verdict) -> None:
    assert not [
        (list(e.absolute_path), e.message) for e in VALIDATOR.iter_errors(as_document(mutants))
    ]
    assert {f.status for f in mutants.findings} > {"overlap", "out_of_region", "gap", "mismatch"}


def test_every_broken_kernel_is_listed_with_its_witness(mutants: Verdict) -> None:
    (listing,) = (
        part
        for part in outline(mutants, mutants.exit_code, 50)
        if isinstance(part, Listing) and part.title == "Faults"
    )
    for fault in mutants.findings:
        if fault.status in FAULTY:
            told = [i.text for i in listing.items if i.text.startswith(f"{fault.subject}: ")]
            if fault.witness is None:
                # Where there is no map at all the reason stands for it.
                assert fault.reason is not None
                assert any(fault.reason in text for text in told)
                continue
            assert any(
                f": {fault.status}: {fault.side} {fault.plane}," in text
                and witness_in_words(fault.witness) in text
                for text in told
            )


# How to damage a sound document: which verdict, where, and what stands there afterwards.
DAMAGE: dict[str, tuple[str, list[str | int], Any]] = {
    "a field too many": ("settled", ["when"], "2026-01-01"),
    "a field too many in a finding": ("settled", ["findings", 0, "when"], "2026-01-01"),
    "another schema version": ("settled", ["schema_version"], "0.9"),
    "an unknown status": ("settled", ["findings", 0, "status"], "fine"),
    "an unknown side": ("settled", ["findings", 0, "side"], "Q"),
    "an unknown layout": ("settled", ["findings", 2, "layouts"], ["lineal"]),
    "a layout named twice": ("settled", ["findings", 2, "layouts"], ["linear", "linear"]),
    "a head size of 40": ("settled", ["findings", 0, "head_size"], 40),
    "a head size as text": ("settled", ["findings", 0, "head_size"], "64"),
    "a match without a name": ("settled", ["findings", 2, "layouts"], []),
    "a match with a defect": ("settled", ["findings", 2, "defects", "collisions"], 1),
    "a match with a witness": ("settled", ["findings", 2, "witness"], {"token": 1}),
    "a match of nothing": ("settled", ["findings", 2, "positions"], 0),
    "data declared swizzled": ("settled", ["findings", 0, "declared"], "swizzle_4x4"),
    "a count below zero": ("settled", ["findings", 0, "recovered"], -1),
    "an arch nobody makes": ("settled", ["subjects", 0, "arch"], "avx512"),
    "machine code without a digest": ("settled", ["subjects", 0, "artifact_sha256"], None),
    "a digest cut short": ("settled", ["subjects", 0, "artifact_sha256"], "ab" * 31),
    "a declaration for a third side": ("settled", ["subjects", 0, "declared", "Q"], "linear"),
    "agreement with a disagreeing position": ("settled", ["agreements", 0, "disagreeing"], 1),
    "disagreement about nothing": ("settled", ["agreements", 1, "disagreeing"], 0),
    "disagreement without a witness": ("settled", ["agreements", 1, "witness"], None),
    "a disagreement's witness without a reader": (
        "settled", ["agreements", 1, "witness"],
        {"head": 0, "token": 0, "column": 0, "writer": "x"},
    ),
    "undecided without a reason": ("settled", ["agreements", 0, "status"], "undecided"),
    "a fault for which nobody is to blame": ("settled", ["exit_code"], 1),
    "an internal error as a verdict": ("settled", ["exit_code"], 3),
    "a judged disagreement passed over": ("judged", ["exit_code"], 0),
    "a fault passed over": ("faulty", ["exit_code"], 0),
    "a fault taken for a skip": ("faulty", ["exit_code"], 5),
    "a mismatch with nothing declared": ("faulty", ["findings", 0, "declared"], None),
    "a mismatch without a map": ("faulty", ["findings", 0, "layouts"], []),
    "a mismatch without a witness": ("faulty", ["findings", 0, "witness"], None),
    "an overlap without a collision": ("faulty", ["findings", 1, "defects", "collisions"], 0),
    "an overlap without a witness": ("faulty", ["findings", 1, "witness"], None),
    "nothing out of the region": ("faulty", ["findings", 2, "defects", "above_region"], 0),
    "a gap without a witness": ("faulty", ["findings", 3, "witness"], None),
    "an empty witness": ("faulty", ["findings", 3, "witness"], {}),
    "unrecognised with a name": ("faulty", ["findings", 4, "layouts"], ["linear"]),
    "unrecognised without a word": ("faulty", ["findings", 4, "witness"], None),
    "a refusal without a reason": ("faulty", ["findings", 5, "reason"], None),
    "a refusal with an empty reason": ("faulty", ["findings", 5, "reason"], ""),
    "a refusal that recovered something": ("faulty", ["findings", 5, "recovered"], 1),
    "a table beside a name": (
        "settled", ["findings", 2, "table"], {"page": 1, "head": 0, "runs": [[0, 1, 64]]},
    ),
    "a run without a count": (
        "faulty", ["findings", 3, "table"], {"page": 1, "head": 0, "runs": [[0, 1]]},
    ),
    "not run, yet named": ("faulty", ["findings", 6, "layouts"], ["linear"]),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_the_schema_refuses(name: str) -> None:
    which, path, value = DAMAGE[name]
    made = as_document(VERDICTS[which])
    place: Any = made
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert list(VALIDATOR.iter_errors(made))
