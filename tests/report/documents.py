"""Documents to render: those made by hand, the published ones, and what broken kernels give."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from mutants import mutant_writer
from verdicts import VERDICTS

from oracle.offsettable import OffsetTable
from oracle.report import document
from oracle.run import Domain, run_verdict
from oracle.subjects.spec import readers_from_specs, writers_from_specs
from oracle.verdict import Defects, Verdict

PUBLISHED = sorted((Path(__file__).parents[2] / "reports" / "published").glob("*/verdict.json"))
SMALL = Domain((64, 128), (2,), (16,), ("HND", "NHD"), ("bf16",))


def loaded(made: Verdict, exit_code: int | None = None) -> dict[str, Any]:
    """A verdict as its JSON document."""
    code = made.exit_code if exit_code is None else exit_code
    read: dict[str, Any] = json.loads(document.as_json(made, code))
    return read


BROKEN = (
    "t%4 dropped", "NHD strides for HND", "one head off", "heads rotated",
    "scale written to two places", "scale never written",
)  # fmt: skip


@cache
def mutants() -> Verdict:
    """What some broken kernels do in one geometry: maps without names, strays and gaps."""
    writers = []
    for name in BROKEN:
        broken = mutant_writer(name)
        broken.info = replace(broken.info, kernel="nvfp4_kv_store", artifact_sha256="0" * 64)
        writers.append(broken)
    readers = readers_from_specs(["reference:k=linear,v=swizzle_4x4"])
    return run_verdict(writers, readers, replace(SMALL, head_sizes=(64,), cache_layouts=("HND",)))


@cache
def references() -> Verdict:
    """Two specifications against three readers, one of them judged."""
    writers = writers_from_specs(
        ["reference:k=linear,v=swizzle_4x4", "reference:k=linear,v=linear"], (), ("bf16",)
    )
    readers = readers_from_specs(["trtllm-gen", "flashinfer-fa2", "vllm-dequant-pin"])
    return run_verdict(writers, readers, SMALL, judged_readers=frozenset({"trtllm-gen"}))


def spelled() -> Verdict:
    """A map with neither name nor form, in each way in which a scale can be somewhere."""
    made = VERDICTS["faulty"]
    found = made.findings[2]
    runs = ((0, 1, 90), (None, 0, 1), (5, 0, 2), (-4, 1, 3))
    table = OffsetTable(1, 1, runs)
    odd = replace(found, table=table, defects=Defects(below_region=3, other_plane=3, collisions=1))
    return replace(made, findings=(*made.findings[:2], odd, *made.findings[3:]))
