"""Verdicts made by hand: every status, and names nobody should be able to break a report with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oracle.contracts import kept, misread_by
from oracle.geometry import SIDES, CacheGeometry
from oracle.subjects.base import SubjectInfo
from oracle.verdict import Agreement, Configuration, Defects, Finding, Verdict

HOSTILE = "<script>alert(1)</script> | `x` *y* _z_ [red]\x1b[31m\nsecond line"
LONG = "dir/" + "very_long_name_" * 30 + ".cubin:_Z5storeIN3c108BFloat16EEvPKT_"


def writer(name: str, k: str | None, v: str | None) -> SubjectInfo:
    declared = {side: layout for side, layout in (("K", k), ("V", v)) if layout}
    return SubjectInfo(
        name, "writer", f"what {name} is", "machine", "sm_100a", "store", "ab" * 32, declared
    )


def specification(k: str, v: str) -> SubjectInfo:
    return SubjectInfo(
        f"reference:k={k},v={v}", "writer", "specification", "reference",
        declared={"K": k, "V": v},
    )  # fmt: skip


def reader(name: str) -> SubjectInfo:
    return SubjectInfo(name, "reader", f"what {name} is", "reference")


def at(head_size: int, block_size: int = 16, cache_layout: str = "HND") -> Configuration:
    return Configuration(head_size, 2, block_size, cache_layout, "bf16")


def finding(
    info: SubjectInfo, side: str, where: Configuration, status: str = "match", **changed: Any
) -> Finding:
    size = where.block_size * where.num_heads * where.head_size // 16
    known = {"positions": size, "recovered": size, "declared": info.declared.get(side)}
    return Finding(info.id, side, "scale", where, "max6", status, **{**known, **changed})


def match(info: SubjectInfo, side: str, where: Configuration, *names: str) -> Finding:
    """With the contracts it bears out, as a run gives them."""
    geometry = CacheGeometry(
        1, where.block_size, where.num_heads, where.head_size, where.cache_layout
    )
    return finding(
        info, side, where, layouts=names,
        keeps=kept(side, names, geometry), misread_by=misread_by(side, names, geometry),
    )  # fmt: skip


def refusal(info: SubjectInfo, side: str, where: Configuration, reason: str) -> Finding:
    return finding(info, side, where, "refused", positions=0, recovered=0, reason=reason)


def data(found: Finding) -> Finding:
    """The finding of the data plane beside a scale finding that matches."""
    size = 16 * found.positions
    return replace(
        found, plane="data", declared="linear" if found.declared else None,
        layouts=("linear",), positions=size, recovered=size, keeps=(), misread_by=(),
    )  # fmt: skip


def pair(
    one: SubjectInfo, other: SubjectInfo, side: str, where: Configuration, differing: int = 0,
    judged: bool = False,
) -> Agreement:  # fmt: skip
    size = where.block_size * where.num_heads * where.head_size // 16
    witness = {
        "head": 0, "token": 0, "column": 1,
        "writer": f"{side} scale head 0 row 0 col 1", "reader": f"{side} scale head 0 row 1 col 0",
    }  # fmt: skip
    return Agreement(
        one.id, other.id, side, where, "disagree" if differing else "agree", size, differing,
        witness if differing else None, None, judged,
    )  # fmt: skip


def verdict(
    subjects: list[SubjectInfo],
    findings: list[Finding],
    agreements: list[Agreement] | None = None,
) -> Verdict:
    domain = {
        "head_sizes": sorted({f.configuration.head_size for f in findings}),
        "num_heads": [2],
        "block_sizes": sorted({f.configuration.block_size for f in findings}),
        "cache_layouts": ["HND"],
        "dtypes": ["bf16"],
        "pages_probed": [1, 2],
        "geometries": len({f.configuration for f in findings}),
    }
    packages = ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-nvdisasm")
    environment = {"oracle": "1", "python": "3", "numpy": "2", **dict.fromkeys(packages)}
    return Verdict(tuple(subjects), tuple(findings), tuple(agreements or ()), domain, environment)


def settled(name: str = "store", judged: bool = False) -> Verdict:
    """One writer as declared at two head sizes, a reader that agrees and one that does not."""
    store, kept, pinned = writer(name, "linear", "swizzle_4x4"), reader("kept"), reader("pinned")
    findings, agreements = [], []
    for size, k, v in (
        (64, ("linear", "tile_8x4"), ("swizzle_4x4", "inverse_4x4")),
        (128, ("linear",), ("swizzle_4x4",)),
    ):
        scales = [match(store, "K", at(size), *k), match(store, "V", at(size), *v)]
        findings += [*map(data, scales), *scales]
        for side in SIDES:
            agreements.append(pair(store, kept, side, at(size)))
            differing = {("K", 64): 96, ("K", 128): 250}.get((side, size), 0)
            agreements.append(pair(store, pinned, side, at(size), differing, judged))
    return verdict([store, kept, pinned], findings, agreements)


def faulty() -> Verdict:
    """Each status of a fault, and what else a single run may hold."""
    broken = writer("broken", "linear", "linear")
    free = writer("free", None, None)
    witness = {"page": 1, "head": 0, "token": 3, "column": 0, "note": "stored in page 1 V data"}
    sharing = {**witness, "note": "shares its byte", "with": {"token": 4, "note": "same byte"}}
    findings = [
        finding(broken, "K", at(64), "mismatch", layouts=("swizzle_4x4",), witness=witness),
        finding(broken, "V", at(64), "overlap", defects=Defects(collisions=56), witness=sharing),
        finding(
            broken, "K", at(96), "out_of_region", witness=witness, recovered=180,
            defects=Defects(never_written=8, above_region=8, other_plane=8),
        ),
        finding(broken, "V", at(96), "gap", defects=Defects(never_written=1234), witness=witness),
        finding(free, "K", at(64), "unrecognised", shape_stride="(16,4):(1,16)", witness=witness),
        refusal(free, "V", at(64), "S=5 is no multiple of 4"),
        finding(free, "K", at(96), "not_run", positions=0, recovered=0, reason="no GPU"),
    ]  # fmt: skip
    return verdict([broken, free], findings)


def refused() -> Verdict:
    store = writer("store", "linear", "swizzle_4x4")
    reasons = {80: "S=5 is no multiple of 4", 96: "S=6 is no multiple of 4"}
    return verdict(
        [store],
        [
            refusal(store, side, at(size, page), reason)
            for size, reason in reasons.items()
            for page in (16, 64)
            for side in SIDES
        ],
    )


VERDICTS = {
    "settled": settled(),
    "judged": settled(judged=True),
    "faulty": faulty(),
    "refused": refused(),
    "hostile name": settled(HOSTILE),
    "long name": settled(LONG),
}
every_verdict = pytest.mark.parametrize("made", VERDICTS.values(), ids=VERDICTS)
