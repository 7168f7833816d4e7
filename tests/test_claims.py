"""Which contracts a report says a writer keeps, and whom it is written for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from outlines import items, sections
from verdicts import at, faulty, finding, match, settled, specification, verdict, writer

from oracle.contracts import contracts
from oracle.geometry import SIDES
from oracle.report.claims import TITLE
from oracle.subjects.base import SubjectInfo
from oracle.verdict import Finding, Verdict

GEN, FA2, XQA, PIN, AFTER_100, AFTER_12X = (
    row.title for row in contracts().values() if row.role == "reader"
)
SWIZZLING, LINEAR = (
    "; ".join(c.title for c in contracts().values() if c.role == "writer" and c.v == v)
    for v in ("swizzle_4x4", "linear")
)


def stored(
    info: SubjectInfo, v: str, sizes: tuple[int, ...] = (64, 128), block_size: int = 16
) -> list[Finding]:
    where = [at(size, block_size) for size in sizes]
    return [f for w in where for f in (match(info, "K", w, "linear"), match(info, "V", w, v))]


def claims(made: Verdict) -> list[str]:
    return items(made, TITLE)


def test_a_swizzling_writer() -> None:
    assert claims(settled()) == [
        f"store: written for {GEN}; {AFTER_100}.",
        f"K of store keeps every writer contract. Misread by {PIN}.",
        f"V of store keeps {SWIZZLING}. Misread by {FA2}; {XQA}; {AFTER_12X}.",
    ]
    assert GEN == "trtllm-gen attention on SM100 and SM103"


def test_writers_share_what_is_the_same_of_them() -> None:
    one, two = writer("one", "linear", "swizzle_4x4"), writer("two", "linear", "linear")
    made = verdict([one, two], [*stored(one, "swizzle_4x4"), *stored(two, "linear")])
    assert claims(made) == [
        f"one: written for {GEN}; {AFTER_100}.",
        f"K of one and two keeps every writer contract. Misread by {PIN}.",
        f"V of one keeps {SWIZZLING}. Misread by {FA2}; {XQA}; {AFTER_12X}.",
        f"two: written for {FA2}; {XQA}; {AFTER_12X}.",
        f"V of two keeps {LINEAR}. Misread by {GEN}; {PIN}; {AFTER_100}.",
    ]


def test_head_sizes_are_told_where_they_are_not_all() -> None:
    """trtllm-gen takes 64, 128 and 256; what swizzles takes multiples of 64."""
    store = writer("store", "linear", "linear")
    told = claims(verdict([store], stored(store, "linear", (64, 96, 128, 192))))
    some = "(at head sizes 64, 128 and 192)"
    assert told == [
        f"store: written for {FA2}; {XQA}; {AFTER_12X}.",
        f"K of store keeps every contract where it is defined; undefined in some geometries: "
        f"{SWIZZLING} (these 5 at head size 96). Misread by {PIN} {some}.",
        f"V of store keeps {LINEAR}. Misread by {GEN} (at head sizes 64 and 128); {PIN}; "
        f"{AFTER_100} (these 2 at head sizes 64, 128 and 192).",
    ]


def test_what_is_undefined_at_a_geometry_is_not_kept() -> None:
    store = writer("store", "linear", "linear")
    _, *sides = claims(verdict([store], stored(store, "linear", (80,))))
    for side, told in zip(SIDES, sides, strict=True):
        assert told.startswith(
            f"{side} of store keeps every contract defined at head size 80; undefined there: "
            f"{SWIZZLING}. Misread by "
        )


def test_a_layout_that_changes_with_the_head_size() -> None:
    store = writer("store", None, None)
    findings = [*stored(store, "swizzle_4x4", (64,)), *stored(store, "linear", (128,))]
    first, k, v = claims(verdict([store], findings))
    assert first == (
        f"store: written for {GEN}; {AFTER_100} (these 2 at head size 64); "
        f"{FA2}; {XQA}; {AFTER_12X} (these 3 at head size 128)."
    )
    assert k == f"K of store keeps every writer contract. Misread by {PIN}."
    assert v == (
        f"V of store keeps {SWIZZLING} (these 5 at head size 64); {LINEAR} (these 4 at head size "
        f"128). Misread by {GEN}; {PIN}; {AFTER_100} (these 3 at head size 128); {FA2}; {XQA}; "
        f"{AFTER_12X} (these 3 at head size 64)."
    )


def test_one_geometry_that_breaks_a_contract_breaks_it_for_its_head_size() -> None:
    store = writer("store", None, None)
    findings = [*stored(store, "swizzle_4x4"), *stored(store, "linear", (64,), block_size=32)]
    first, _, v = claims(verdict([store], findings))
    assert first == (f"store: written for {GEN}; {AFTER_100} (these 2 at head size 128).")
    assert v.endswith(
        f" Misread by {GEN}; {PIN}; {AFTER_100} (these 3 at head size 64); {FA2}; {XQA}; "
        f"{AFTER_12X}."
    )


@pytest.mark.parametrize("status", ["overlap", "out_of_region", "gap"])
def test_what_a_writer_spoils_is_written_for_nobody(status: str) -> None:
    """Also where names still fit: a scale that is stored twice is not a contract kept."""
    store = writer("store", "linear", "swizzle_4x4")
    sound = stored(store, "swizzle_4x4")
    spoiled = replace(sound[1], status=status)
    told = claims(verdict([store], [sound[0], spoiled, *sound[2:]]))
    assert told[0] == f"store: written for {GEN}; {AFTER_100} (these 2 at head size 128)."
    assert f"keeps {SWIZZLING} (these 5 at head size 128). Misread by" in told[2]
    everywhere = [replace(f, status=status) for f in sound]
    assert TITLE not in sections(verdict([store], everywhere))


def test_a_map_without_a_name_suits_nobody() -> None:
    free = writer("free", None, None)
    found = [finding(free, side, at(64), "unrecognised", shape_stride="4:1") for side in SIDES]
    told = claims(verdict([free], found))
    assert told == [
        "free: written for no reader that has a contract.",
        "K of free keeps no writer contract. Misread by no reader that has a contract.",
        "V of free keeps no writer contract. Misread by no reader that has a contract.",
    ]
    # As a run gives it: every reader that covers the geometry would look elsewhere.
    names = tuple(row.name for row in contracts().values() if row.role == "reader")
    told = claims(verdict([free], [replace(f, misread_by=names) for f in found]))
    assert told[1].endswith(f"Misread by {GEN}; {FA2}; {XQA}; {PIN}; {AFTER_100}; {AFTER_12X}.")


def test_specifications_and_what_did_not_run_claim_nothing() -> None:
    spec, idle = specification("linear", "linear"), writer("idle", "linear", "linear")
    early = finding(idle, "K", at(64), "unrecognised", positions=0, recovered=0, reason="lost")
    assert TITLE not in sections(verdict([spec, idle], [*stored(spec, "linear"), early]))
    function = replace(writer("m:f", None, None), executor="callable", arch=None, kernel=None)
    told = claims(verdict([function], stored(function, "linear")))
    assert told[0].startswith("m:f: written for ")


def test_a_fault_elsewhere_leaves_the_other_claims() -> None:
    assert claims(faulty())[0] == "broken and free: written for no reader that has a contract."
