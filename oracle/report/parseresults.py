"""Findings and agreements of a JSON document, each checked by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from oracle.arguments.values import MAX_BLOCK_SIZE, MAX_HEAD_SIZE, MAX_NUM_HEADS
from oracle.candidates import CANDIDATES
from oracle.errors import UsageError
from oracle.fields import (
    MOST,
    Check,
    boolean,
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
from oracle.geometry import CACHE_LAYOUTS, PLANES, SIDES
from oracle.offsettable import MAX_RUNS, OffsetTable, Run
from oracle.quantize import ScaleSearch
from oracle.report import rules
from oracle.verdict import (
    AGREEMENT_STATUSES,
    FINDING_STATUSES,
    Agreement,
    Clash,
    Configuration,
    Defects,
    Finding,
    Witness,
)

MAX_LISTED = 10_000
"""Entries of the lists that are short in practice."""

layout = one_of(CANDIDATES)
"""The name of a candidate."""
dtype = one_of(DTYPES)
"""The type of the values that are stored."""
search = one_of([each.value for each in ScaleSearch])
"""How a writer looks for a scale."""
head_size = integer(1, MAX_HEAD_SIZE)
num_heads = integer(1, MAX_NUM_HEADS)
block_size = integer(1, MAX_BLOCK_SIZE)
cache_layout = one_of(CACHE_LAYOUTS)

_side = one_of(SIDES)
_CONFIGURATION = tuple(each.name for each in fields(Configuration))
_COORDINATES = ("page", "head", "token", "column", "element", "row", "col")
_PLACES = ("note", "found", "stored", *CANDIDATES)
_DEEPEST_WITNESS = 3
_STRAY = rf"(own page|page[+-][1-9][0-9]*) [{''.join(SIDES)}] ({'|'.join(PLANES)})"
_LANDINGS = rf"{_STRAY}|(before|past) the allocation"


def _configuration(found: Mapping[str, object], where: str) -> Configuration:
    def get(name: str, check: Check[Any]) -> Any:
        return check(found[name], f"{where}.{name}")

    made = Configuration(
        get("head_size", head_size),
        get("num_heads", num_heads),
        get("block_size", block_size),
        get("cache_layout", cache_layout),
        get("dtype", dtype),
    )
    try:
        made.geometry()
    except UsageError as error:
        refuse(where, str(error))
    return made


def finding(value: object, where: str) -> Finding:
    """A finding; raises UsageError."""
    names = [each.name for each in fields(Finding)]
    names.remove("configuration")
    names.remove("table")
    found = record(value, where, (*names, *_CONFIGURATION), ("table",))

    def get(name: str, check: Check[Any]) -> Any:
        return check(found[name], f"{where}.{name}")

    made = Finding(
        subject=get("subject", text),
        side=get("side", _side),
        plane=get("plane", one_of(PLANES)),
        configuration=_configuration(found, where),
        scale_search=get("scale_search", search),
        status=get("status", one_of(FINDING_STATUSES)),
        layouts=get("layouts", distinct(layout, len(CANDIDATES))),
        declared=get("declared", optional(layout)),
        shape_stride=get("shape_stride", optional(text)),
        positions=get("positions", integer()),
        recovered=get("recovered", integer()),
        defects=get("defects", _defects),
        strays=get("strays", _strays),
        clashes=get("clashes", many(_clash, 32)),
        keeps=get("keeps", distinct(text, MAX_LISTED)),
        misread_by=get("misread_by", distinct(text, MAX_LISTED)),
        witness=get("witness", optional(_witness)),
        reason=get("reason", optional(text)),
        table=optional(_table)(found.get("table"), f"{where}.table"),
    )
    rules.check_finding(made, where)
    return made


def _defects(value: object, where: str) -> Defects:
    found = record(value, where, [each.name for each in fields(Defects)])
    return Defects(**{name: integer()(count, f"{where}.{name}") for name, count in found.items()})


def _strays(value: object, where: str) -> dict[str, int]:
    if not isinstance(value, dict) or len(value) > MAX_LISTED:
        refuse(where, f"no object of at most {MAX_LISTED:,} counts")
    place = spelled(_LANDINGS)
    return {place(name, where): integer(1)(count, where) for name, count in value.items()}


def _clash(value: object, where: str) -> Clash:
    found = record(value, where, [each.name for each in fields(Clash)])
    first, second = (integer()(found[name], f"{where}.{name}") for name in ("first", "second"))
    return Clash(first, second, integer(1)(found["bytes"], f"{where}.bytes"))


def _witness(value: object, where: str, depth: int = 1) -> Witness:
    found = record(value, where, (), (*_COORDINATES, *_PLACES, "region_offset", "padding", "with"))
    if not found or depth > _DEEPEST_WITNESS:
        refuse(where, "a witness is neither empty nor nested so deep")
    checks: dict[str, Check[Any]] = {
        **dict.fromkeys(_COORDINATES, integer()),
        **dict.fromkeys(_PLACES, text),
        "region_offset": integer(-MOST),
        "padding": boolean,
        "with": lambda inner, there: _witness(inner, there, depth + 1),
    }
    return {name: checks[name](each, f"{where}.{name}") for name, each in found.items()}


def _table(value: object, where: str) -> OffsetTable:
    found = record(value, where, [each.name for each in fields(OffsetTable)])
    return OffsetTable(
        integer()(found["page"], f"{where}.page"),
        integer()(found["head"], f"{where}.head"),
        many(_run, MAX_RUNS, 1)(found["runs"], f"{where}.runs"),
    )


def _run(value: object, where: str) -> Run:
    if not isinstance(value, list) or len(value) != 3:
        refuse(where, "a run is first offset, step and count")
    offset = integer(-MOST)
    first, step = optional(offset)(value[0], f"{where}[0]"), offset(value[1], f"{where}[1]")
    count = integer(1)(value[2], f"{where}[2]")
    offset((first or 0) + step * (count - 1), f"{where}, its last offset")
    return first, step, count


def agreement(value: object, where: str) -> Agreement:
    """An agreement; raises UsageError."""
    names = [each.name for each in fields(Agreement)]
    names.remove("configuration")
    found = record(value, where, (*names, *_CONFIGURATION))

    def get(name: str, check: Check[Any]) -> Any:
        return check(found[name], f"{where}.{name}")

    made = Agreement(
        writer=get("writer", text),
        reader=get("reader", text),
        side=get("side", _side),
        configuration=_configuration(found, where),
        status=get("status", one_of(AGREEMENT_STATUSES)),
        positions=get("positions", integer()),
        disagreeing=get("disagreeing", integer()),
        witness=get("witness", optional(_misplacement)),
        reason=get("reason", optional(text)),
        judged=get("judged", boolean),
    )
    rules.check_agreement(made, where)
    return made


def _misplacement(value: object, where: str) -> Witness:
    found = record(value, where, ("head", "token", "column", "writer", "reader"))
    return {
        name: (text if name in {"writer", "reader"} else integer())(each, f"{where}.{name}")
        for name, each in found.items()
    }
