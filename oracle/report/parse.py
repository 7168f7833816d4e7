"""From a JSON document back to the verdict it was written from.

A verdict.json may come from anybody, so nothing in it is believed: its size, counts, types and
lengths have limits, a field that is missing or unknown is refused, and so is a document that
contradicts itself. reports/schema/verdict.schema.json describes what is read here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

from oracle.errors import UsageError
from oracle.fields import (
    Check,
    distinct,
    integer,
    many,
    one_of,
    optional,
    record,
    refuse,
    spelled,
    text,
)
from oracle.formats import DTYPES
from oracle.geometry import CACHE_LAYOUTS, SIDES
from oracle.quantize import ScaleSearch
from oracle.report import rules
from oracle.report.parseresults import (
    MAX_LISTED,
    agreement,
    block_size,
    cache_layout,
    dtype,
    finding,
    head_size,
    layout,
    num_heads,
    search,
)
from oracle.subjects.base import EXECUTORS, SubjectInfo
from oracle.text import shortened
from oracle.verdict import SCHEMA_VERSION, Launches, Verdict

MAX_BYTES = 64 * 2**20
"""Bytes of a document: several times a verdict over the whole domain."""
MAX_SUBJECTS = 2_000
MAX_RESULTS = 1_000_000
"""Findings, and agreements, of a document."""
STANDARD_INPUT = "-"

_VERSIONS = ("1.0", SCHEMA_VERSION)
_FIELDS = (
    "schema_version", "tool", "environment", "domain", "subjects", "findings", "agreements",
    "exit_code",
)  # fmt: skip


@dataclass(frozen=True)
class Document:
    """A verdict, the exit code of the run it came from, and the tool that wrote it."""

    verdict: Verdict
    exit_code: int
    tool: Mapping[str, str]


def read(path: str) -> Document:
    """The document in a file, or on standard input for `-`.

    Raises UsageError with one line for a file that cannot be read or is no such document.
    """
    name = "standard input" if path == STANDARD_INPUT else path
    try:
        if path == STANDARD_INPUT:
            raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}") from error
    try:
        return parse(_decoded(raw))
    except UsageError as error:
        raise UsageError(f"{name} is no verdict: {error}") from error


def _decoded(raw: bytes) -> object:
    if len(raw) > MAX_BYTES:
        raise UsageError(f"it has more than {MAX_BYTES:,} bytes")
    try:
        return json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_object,
            parse_float=_no_number,
            parse_constant=_no_number,
        )
    except RecursionError:
        raise UsageError("it is nested too deep") from None
    except ValueError as error:
        raise UsageError(f"it is no JSON: {shortened(str(error))}") from error


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("an object has a field twice")
    return made


def _no_number(spelled: str) -> NoReturn:
    raise ValueError(f"{shortened(spelled, 40)} stands where only whole numbers do")


def parse(document: object) -> Document:
    """The verdict of a decoded document; raises UsageError with one line."""
    if not isinstance(document, dict):
        raise UsageError("it is no JSON object")
    one_of(_VERSIONS)(document.get("schema_version"), "schema_version")
    whole = record(document, "the document", _FIELDS, ("launches",))
    verdict = Verdict(
        many(_subject, MAX_SUBJECTS, 1)(whole["subjects"], "subjects"),
        many(finding, MAX_RESULTS)(whole["findings"], "findings"),
        many(agreement, MAX_RESULTS)(whole["agreements"], "agreements"),
        _domain(whole["domain"], "domain"),
        _environment(whole["environment"], "environment"),
        many(_launches, MAX_RESULTS)(whole.get("launches", []), "launches"),
    )
    tool = record(whole["tool"], "tool", ("name", "version"))
    one_of(["layout-oracle"])(tool["name"], "tool.name")
    code = integer(0, 5)(whole["exit_code"], "exit_code")
    rules.check(verdict, code)
    return Document(verdict, code, {name: text(tool[name], f"tool.{name}") for name in tool})


def _environment(value: object, where: str) -> dict[str, str | None]:
    known = ("oracle", "python", "numpy")
    packages = ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-nvdisasm")
    found = record(value, where, (*known, *packages))
    checks: dict[str, Check[str | None]] = {**dict.fromkeys(known, text)}
    return {
        name: checks.get(name, optional(text))(version, f"{where}.{name}")
        for name, version in found.items()
    }


def _launches(value: object, where: str) -> Launches:
    found = record(value, where, [each.name for each in fields(Launches)])
    return Launches(
        text(found["subject"], f"{where}.subject"),
        one_of(["numpy", "compiled"])(found["tier"], f"{where}.tier"),
        integer(1)(found["count"], f"{where}.count"),
        optional(text)(found["reason"], f"{where}.reason"),
    )


def _domain(value: object, where: str) -> dict[str, object]:
    checks: dict[str, Check[tuple[object, ...]]] = {
        "head_sizes": distinct(head_size, MAX_LISTED, 1),
        "num_heads": distinct(num_heads, MAX_LISTED, 1),
        "block_sizes": distinct(block_size, MAX_LISTED, 1),
        "cache_layouts": distinct(cache_layout, len(CACHE_LAYOUTS), 1),
        "dtypes": distinct(dtype, len(DTYPES), 1),
        "pages_probed": distinct(integer(), MAX_LISTED, 1),
    }
    found = record(value, where, (*checks, "geometries"))
    return {
        **{name: check(found[name], f"{where}.{name}") for name, check in checks.items()},
        "geometries": integer(1)(found["geometries"], f"{where}.geometries"),
    }


def _subject(value: object, where: str) -> SubjectInfo:
    found = record(value, where, [each.name for each in fields(SubjectInfo)])

    def get(name: str, check: Check[Any]) -> Any:
        return check(found[name], f"{where}.{name}")

    info = SubjectInfo(
        id=get("id", text),
        role=get("role", one_of(["writer", "reader"])),
        name=get("name", text),
        executor=get("executor", one_of(EXECUTORS)),
        arch=get("arch", optional(spelled("sm_[1-9][0-9]{1,2}[af]?"))),
        kernel=get("kernel", optional(text)),
        artifact_sha256=get("artifact_sha256", optional(spelled("[0-9a-f]{64}"))),
        declared=get("declared", _declared),
        scale_search=ScaleSearch(get("scale_search", search)),
        dtypes=get("dtypes", distinct(dtype, len(DTYPES), 1)),
    )
    executed = info.executor in {"machine", "cuda"}
    if executed and None in (info.arch, info.kernel, info.artifact_sha256):
        refuse(where, f"{info.executor} without arch, kernel or artifact_sha256")
    return info


def _declared(value: object, where: str) -> dict[str, str]:
    found = record(value, where, (), SIDES)
    return {side: layout(name, f"{where}.{side}") for side, name in found.items()}
