"""What a report says about verdicts made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outlines import items, sections, sentences, texts
from verdicts import (
    at,
    data,
    faulty,
    finding,
    match,
    reader,
    refused,
    settled,
    verdict,
    writer,
)

from oracle.geometry import PLANES, SIDES
from oracle.report.digest import at_head_sizes, witness_in_words
from oracle.report.faultwords import defects_in_words
from oracle.report.outline import Listing, Table
from oracle.report.sections import outline
from oracle.text import (
    NO_BREAK,
    counted,
    enumerated,
    labels,
    percentages,
    printable,
    shortened,
)
from oracle.verdict import Clash, Defects


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
    geometry = "2 heads, block size 16, HND, bf16"
    stored = "the scale of token 3 (page 1, head 0, column 0) is stored in page 1 V data"
    assert told == [
        f"broken: overlap: V scale, head size 64, {geometry}: first, the scales of token 3 and "
        "token 4 (page 1, head 0, column 0) share one byte. Bytes of one page: 56 stored on top of "
        "another.",
        f"broken: mismatch: K scale, head size 64, {geometry}: swizzle_4x4 where linear is "
        f"declared; first, {stored}.",
        f"broken: out_of_region: K scale, head size 96, {geometry}: first, {stored}. Bytes of one "
        "page: 8 never written; 8 above the region, all of them in another plane.",
        f"broken: gap: V scale, head size 96, {geometry}: first, {stored}. Bytes of one page: "
        "1,234 never written.",
        f"free: unrecognised: K scale, head size 64, {geometry}: shape:stride (16,4):(1,16); "
        f"first, {stored}.",
    ]
    assert texts(sections(faulty())["Writers"])[0][-3:] == [
        "no", "2/2", "overlap 1, out_of_region 1"
    ]  # fmt: skip
    assert (
        "not as it should be: 4 faults, in both geometries; first overlap of V scale "
        in sentences(faulty())[0]
    )


def test_what_was_not_executed_is_listed_by_reason() -> None:
    listing = sections(refused())["Not executed"]
    assert isinstance(listing, Listing)
    assert [item.text for item in listing.items] == [
        "refused by store in 2 geometries (head size 80): S=5 is no multiple of 4",
        "refused by store in 2 geometries (head size 96): S=6 is no multiple of 4",
    ]
    assert sentences(refused()) == [
        "store (machine code for sm_100a) gives no map (refused: S=5 is no multiple of 4).",
        "4 geometries: head sizes 80/96, 2 heads, block sizes 16/64, HND, bf16.",
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
    where = "2 heads, block size 16, HND, bf16"
    assert items(made, "Faults") == [
        f"endless: unrecognised: K and V, scale and data, head size 64, {where}: step limit. "
        "Likewise in 1 more geometry (at head size 128)."
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
    shared = "Bytes of one page: 64 stored on top of another"
    assert told == [
        f"endless: overlap: K scale, head size 64, {where}: first, token 1; shares its byte. "
        f"{shared}. Likewise in 2 more geometries (at head sizes 128 and 192).",
        f"endless: overlap: V scale, head size 64, {where}: first, token 1; shares its byte. "
        f"{shared}. Likewise in 1 more geometry (at head size 128).",
        f"endless: overlap: V scale, head size 192, {where}: first, token 2; shares its byte. "
        "Bytes of one page: 192 stored on top of another.",
    ]


def test_many_faults_are_capped_for_each_subject_and_counted() -> None:
    infos = [writer(name, "linear", None) for name in ("first", "second")]
    made = verdict(
        infos,
        [
            finding(i, "K", at(16 * n), "overlap", witness={"token": n})
            for i in infos
            for n in range(1, 41)
        ],
    )
    (listing,) = (s for s in outline(made, 1, 3) if isinstance(s, Listing) and s.title == "Faults")
    told = [item.text for item in listing.items]
    assert len(told) == 8
    assert told[3] == told[7] == "and 37 more like these in verdict.json"
    assert [t.partition("token ")[2] for t in told[:3]] == ["1.", "2.", "3."]
    assert told[4].startswith("second: ")


SPOT = {"page": 1, "head": 0, "token": 3, "column": 0}
SCALE = "the scale of token 3 (page 1, head 0, column 0)"


@pytest.mark.parametrize(
    ("witness", "words"),
    [
        (
            {**SPOT, "note": "stored before the allocation"},
            f"{SCALE} is stored before the allocation",
        ),
        (
            {**SPOT, "note": "looked for in page 1 K scale", "region_offset": 9},
            f"{SCALE} is looked for in page 1 K scale",
        ),
        (
            {**SPOT, "note": "shares its byte", "region_offset": 0, "with": {**SPOT, "token": 5}},
            "the scales of token 3 and token 5 (page 1, head 0, column 0) share one byte, offset 0 "
            "of the plane",
        ),
        (
            {**SPOT, "note": "shares its byte", "with": {**SPOT, "head": 1}},
            "the scales of token 3 (page 1, head 0, column 0) and token 3 (page 1, head 1, column "
            "0) share one byte",
        ),
        (
            {**SPOT, "note": "its byte is stored more than once", "region_offset": 7},
            f"the byte of {SCALE} is stored more than once, offset 7 of the plane",
        ),
        (
            {**SPOT, "note": "stored a second time", "stored": "past the allocation"},
            f"{SCALE} is stored a second time, past the allocation",
        ),
        (
            {**SPOT, "note": "no byte of the cache explains the value read"},
            f"no byte of the cache explains the value read for {SCALE}",
        ),
        (
            {"head": 0, "token": 3, "element": 5, "linear": "a\n", "found": "b"},
            r"the code of token 3 (head 0, element 5) is at b; linear puts it at a\n",
        ),
        (
            {"page": 1, "head": 2, "row": 3, "col": 4, "region_offset": 5,
             "note": "this byte is never written"},
            "the byte at page 1, head 2, row 3, col 4, offset 5 of the plane is never written",
        ),
        (
            {"padding": True, "note": "a padding token (slot -1) was stored", "page": 0,
             "stored": "page 0 V data"},
            "padding was stored: a token with slot -1 was written to page 0 V data",
        ),
        (
            {"padding": True, "note": "stored in page 0 V data", **SPOT},
            "padding was stored: a token with slot -1 was written to page 0 V data",
        ),
        (
            {"padding": True, "note": "a padding token (slot -1) was stored", "page": 0, "head": 1},
            "padding was stored: a token with slot -1 was written to page 0, head 1",
        ),
        (
            {"padding": True, "stored": "past the allocation"},
            "padding was stored: a token with slot -1 was written past the allocation",
        ),
        ({"note": "S=5 is no multiple of 4"}, "S=5 is no multiple of 4"),
    ],
)  # fmt: skip
def test_a_witness_is_a_sentence(witness: dict[str, object], words: str) -> None:
    assert witness_in_words(witness) == words


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"below_region": 8, "other_plane": 8}, "8 below the region, all of them in another plane"),
        (
            {"below_region": 8, "above_region": 4, "other_plane": 3, "other_head_rows": 12},
            "8 below and 4 above the region, 3 of them in another plane; in all 12 outside the "
            "rows of their head",
        ),
        ({"above_region": 1}, "1 above the region"),
        ({"above_region": 1, "other_plane": 1}, "1 above the region, in another plane"),
        ({"other_head_rows": 12}, "12 outside the rows of their head"),
        ({"misaligned": 1, "collisions": 2}, "2 stored on top of another; 1 store misaligned"),
        ({}, ""),
    ],
)
def test_the_same_bytes_are_not_told_as_others(counts: dict[str, int], words: str) -> None:
    assert defects_in_words(Defects(**counts), "writer") == words


def test_a_reader_stores_nothing() -> None:
    shared = Defects(collisions=192, never_written=64)
    told = defects_in_words(shared, "reader")
    assert told == "192 looked at for another one too; 64 never looked at"


def test_where_bytes_land_and_who_clashes() -> None:
    store = writer("store", "linear", "linear")
    torn = finding(
        store, "K", at(64), "overlap", strays={"before the allocation": 8, "page+1 V data": 2},
        clashes=tuple(Clash(n, n + 4, 4) for n in range(4)), defects=Defects(clashing_pairs=16),
        witness={"token": 0},
    )  # fmt: skip
    assert items(verdict([store], [torn]), "Faults")[0].endswith(
        "first, token 0. They land: 8 before the allocation and 2 in page+1 V data. 16 pairs of "
        "tokens clash, the first of them, bytes in brackets: 0 and 4 (4), 1 and 5 (4) and 2 and 6 "
        "(4)."
    )


def test_faults_come_before_what_they_qualify() -> None:
    titles = list(sections(faulty()))
    claims = next(title for title in titles if title.startswith("Contracts"))
    assert titles.index("Faults") < titles.index(claims)


def test_the_coverage_counts_whom_the_verdict_is_about() -> None:
    store, other = writer("store", "linear", "linear"), reader("other")
    mine = [match(store, side, at(64), "linear") for side in SIDES]
    theirs = [match(other, side, at(64), "linear") for side in SIDES]
    told = sentences(verdict([store, other], [*mine, *theirs]))[-2]
    assert told.endswith("; found: all 256 positions of scales, both sides, of the writer.")
    told = sentences(verdict([other], theirs))[-2]
    assert told.endswith("; found: all 256 positions of scales, both sides, of the reader.")
    twin = writer("twin", "linear", "linear")
    more = [replace(data(f), subject="twin", recovered=f.positions) for f in mine]
    told = sentences(verdict([store, twin], [*mine, *more]))[-2]
    assert told.endswith(
        "; found: 512 of 4,352 positions of scales and data, both sides, of every writer."
    )


def test_a_mismatch_that_one_name_fits_everywhere_is_told_once() -> None:
    store = writer("store", "linear", "linear")
    names = {64: ("swizzle_4x4", "inverse_4x4"), 128: ("swizzle_4x4",)}
    wrong = [
        finding(store, "K", at(size), "mismatch", layouts=some, witness={"token": size})
        for size, some in names.items()
    ]
    (line,) = items(verdict([store], wrong), "Faults")
    assert ": swizzle_4x4 where linear is declared; first, token 64. Likewise in 1 more" in line
    apart = [wrong[0], replace(wrong[1], layouts=("tile_8x4",))]
    assert len(items(verdict([store], apart), "Faults")) == 2


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
    assert percentages(shares).replace(NO_BREAK, " ") == words
    assert f"{NO_BREAK}%" in percentages(shares)


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
