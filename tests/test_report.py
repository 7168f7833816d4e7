"""What a report says about verdicts made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outlines import items, sections, sentences, texts
from verdicts import (
    at,
    faulty,
    finding,
    refused,
    settled,
    verdict,
    writer,
)

from oracle.geometry import PLANES, SIDES
from oracle.report.digest import at_head_sizes, witness_in_words
from oracle.report.outline import Listing, Table
from oracle.report.sections import outline
from oracle.report.text import counted, enumerated, labels, percentages, printable, shortened
from oracle.verdict import Defects


def test_tables_of_a_settled_verdict() -> None:
    tables = sections(settled())
    assert texts(tables["Writers"]) == [
        ["store", "sm_100a", "bf16", "linear", "swizzle_4x4", "linear", "yes", "2/2", "match"]
    ]
    assert texts(tables["Who reads where whom stored"]) == [
        ["store", "agree", "K disagrees 75–97.7 %"]
    ]
    assert texts(tables["Scale layouts by head size"]) == [
        ["64", "linear = tile_8x4", "swizzle_4x4 = inverse_4x4", "store"],
        ["128", "linear", "swizzle_4x4", "store"],
    ]
    assert texts(tables["Subjects"])[0] == [
        "store", "what store is", "machine", "sm_100a", "store", "abababababab"
    ]  # fmt: skip


def test_every_fault_is_told_with_its_numbers_and_witness() -> None:
    listing = sections(faulty())["Faults"]
    assert isinstance(listing, Listing)
    told = [item.text for item in listing.items]
    where = "page 1, head 0, token 3, column 0"
    geometry = "2 heads, page 16, HND, bf16"
    assert told == [
        f"broken: overlap: V scale, head size 64, {geometry}; 56 stored on top of another; "
        f"first {where}; shares its byte; with token 4; same byte",
        f"broken: mismatch: K scale, head size 64, {geometry}; swizzle_4x4 where linear is "
        f"declared; first {where}; stored in page 1 V data",
        f"broken: out_of_region: K scale, head size 96, {geometry}; 8 never written, 8 above the "
        f"region and 8 in another plane; first {where}; stored in page 1 V data",
        f"broken: gap: V scale, head size 96, {geometry}; 1,234 never written; "
        f"first {where}; stored in page 1 V data",
        f"free: unrecognised: K scale, head size 64, {geometry}; shape:stride (16,4):(1,16); "
        f"first {where}; stored in page 1 V data",
    ]
    assert texts(sections(faulty())["Writers"])[0][-3:] == [
        "no", "2/2", "overlap 1, out_of_region 1"
    ]  # fmt: skip
    assert "not as it should be: 4 faults, first overlap of V scale" in sentences(faulty())[0]


def test_what_was_not_executed_is_listed_by_reason() -> None:
    listing = sections(refused())["Not executed"]
    assert isinstance(listing, Listing)
    assert [item.text for item in listing.items] == [
        "refused by store in 2 geometries (head size 80): S=5 is no multiple of 4",
        "refused by store in 2 geometries (head size 96): S=6 is no multiple of 4",
    ]
    assert sentences(refused()) == [
        "store (machine code for sm_100a) gives no map (refused: S=5 is no multiple of 4).",
        "4 geometries: head sizes 80/96, 2 heads, page 16, HND, bf16.",
        "What was asked for did not run (exit code 5).",
    ]
    (few,) = (s for s in outline(refused(), 5, 1) if isinstance(s, Listing) and not s.folded)
    assert [item.text for item in few.items] == [
        "refused by store in 2 geometries (head size 80): S=5 is no multiple of 4",
        "and 1 more reason in verdict.json",
    ]


def test_a_writer_that_ends_early_has_no_map_and_no_row_of_names() -> None:
    endless = writer("endless", "linear", "linear")
    early = {"positions": 0, "recovered": 0, "reason": "step limit"}
    made = verdict([endless], [finding(endless, s, at(64), "unrecognised", **early) for s in "KV"])
    assert sentences(made)[0] == (
        "endless (machine code for sm_100a) gives no map (unrecognised: step limit)."
    )
    tables = sections(made)
    assert "Scale layouts by head size" not in tables
    glance = tables["Writers"]
    assert isinstance(glance, Table)
    assert glance.columns == ("writer", "arch", "dtype", "as decl.", "geom.", "status")
    assert texts(glance) == [["endless", "sm_100a", "bf16", "no", "1/1", "unrecognised"]]


def test_one_fault_of_many_planes_and_geometries_is_told_once() -> None:
    endless = writer("endless", "linear", "linear")
    early = {"positions": 0, "recovered": 0, "reason": "step limit"}
    made = verdict(
        [endless],
        [
            replace(finding(endless, side, at(size), "unrecognised", **early), plane=plane)
            for size in (128, 64)
            for plane in PLANES
            for side in SIDES
        ],
    )
    where = "2 heads, page 16, HND, bf16"
    assert items(made, "Faults") == [
        f"endless: unrecognised: K and V, scale and data, head size 64, {where}; step limit; "
        "likewise in 1 more geometry (at head size 128)"
    ]
    # With a map, each side is a fault of its own; so is what another witness shows.
    sharing = {"token": 1, "note": "shares its byte"}
    torn = [
        finding(endless, s, at(n), "overlap", defects=Defects(collisions=n), witness=sharing)
        for s in SIDES
        for n in (64, 128, 192)
    ]
    other = {**sharing, "token": 2}
    told = items(verdict([endless], [*torn[:-1], replace(torn[-1], witness=other)]), "Faults")
    assert told == [
        f"endless: overlap: K scale, head size 64, {where}; 64 stored on top of another; first "
        "token 1; shares its byte; likewise in 2 more geometries (at head sizes 128 and 192)",
        f"endless: overlap: V scale, head size 64, {where}; 64 stored on top of another; first "
        "token 1; shares its byte; likewise in 1 more geometry (at head size 128)",
        f"endless: overlap: V scale, head size 192, {where}; 192 stored on top of another; first "
        "token 2; shares its byte",
    ]


def test_many_faults_are_capped_for_each_subject_and_counted() -> None:
    infos = [writer(name, "linear", None) for name in ("first", "second")]
    made = verdict(
        infos,
        [
            finding(i, "K", at(16 * n), "mismatch", layouts=("tile_8x4",), witness={"token": n})
            for i in infos
            for n in range(1, 41)
        ],
    )
    (listing,) = (s for s in outline(made, 1, 3) if isinstance(s, Listing) and s.title == "Faults")
    told = [item.text for item in listing.items]
    assert len(told) == 8
    assert told[3] == told[7] == "and 37 more like these in verdict.json"
    assert [t.partition("token ")[2] for t in told[:3]] == ["1", "2", "3"]
    assert told[4].startswith("second: ")


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([64], "at head size 64"),
        ([64, 80, 96, 128, 192, 256], "at head sizes 64, 80, 96, 128, 192 and 256"),
        (list(range(64, 513, 64)), "at head sizes 64 to 512 in steps of 64"),
        ([16, *range(64, 513, 64)], "at 9 head sizes from 16 to 512"),
    ],
)
def test_many_head_sizes_are_told_in_short(sizes: list[int], words: str) -> None:
    assert at_head_sizes(sizes) == words
    if len(sizes) > 1:
        assert at_head_sizes(sizes, sizes) == f"at every head size from {sizes[0]} to {sizes[-1]}"


def test_words() -> None:
    assert [enumerated(names) for names in ("", "a", "ab", "abc")] == [
        "", "a", "a and b", "a, b and c"
    ]  # fmt: skip
    assert counted(1, "geometry", "geometries") == "1 geometry"
    assert counted(1024, "position") == "1,024 positions"
    assert (
        witness_in_words({"token": 1, "note": "n\n", "linear": "x"}) == r"token 1; n\n; linear: x"
    )


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ([0.75], "75 %"),
        ([0.75, 0.986111], "75–98.6 %"),
        ([0.99999], "over 99.9 %"),
        ([0.9995, 0.9985], "99.9–over 99.9 %"),
        ([0.00001, 1.0], "under 0.1–100 %"),
        ([0.0], "0 %"),
    ],
)
def test_shares_are_never_rounded_to_all_or_nothing(shares: list[float], words: str) -> None:
    assert percentages(shares) == words


@given(st.lists(st.text(min_size=1), unique=True), st.integers(5, 20))
def test_labels_tell_names_apart(names: list[str], longest: int) -> None:
    given_labels = labels(names, longest)
    assert list(given_labels) == names
    assert len(set(given_labels.values())) == len(names)
    assert all(label.isprintable() for label in given_labels.values())


@given(st.text())
def test_a_shortened_name_keeps_both_ends(name: str) -> None:
    short = shortened(name, 9)
    full = printable(name)
    assert len(short) <= 9
    assert short == full or (short[:4], short[-4:]) == (full[:4], full[-4:])
