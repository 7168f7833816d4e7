"""What a report says about verdicts made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verdicts import (
    at,
    faulty,
    finding,
    match,
    pair,
    reader,
    refused,
    settled,
    verdict,
    writer,
)

from oracle.geometry import SIDES
from oracle.report.digest import witness_in_words
from oracle.report.outline import Listing, Paragraph, Section, Table
from oracle.report.sections import outline
from oracle.report.text import counted, enumerated, labels, percentages, printable, shortened
from oracle.verdict import Verdict


def sections(made: Verdict) -> dict[str, Section]:
    parts = outline(made, made.exit_code, 50)
    return {part.title: part for part in parts if not isinstance(part, Paragraph)}


def sentences(made: Verdict) -> list[str]:
    parts = outline(made, made.exit_code, 50)
    return [s.text for part in parts if isinstance(part, Paragraph) for s in part.sentences]


def texts(table: Section) -> list[list[str]]:
    assert isinstance(table, Table)
    return [[cell.text for cell in row] for row in table.rows]


def test_the_answer_says_who_stores_what_and_who_agrees() -> None:
    case = "head size 64, 2 heads, page 16, HND, bf16, 96 of 128 positions"
    assert sentences(settled()) == [
        "store stores K scales linear and V scales swizzle_4x4, as declared, over 768 positions in "
        "2 geometries.",
        "At head size 64 linear is the same map as tile_8x4 and swizzle_4x4 is the same map as "
        "inverse_4x4.",
        "kept was not executed and agrees with store at all 768 positions.",
        "pinned was not executed and agrees with no writer.",
        "It disagrees on K with store at every head size from 64 to 128, over 75–97.7 % of the "
        f"positions (346 of 384 in all); smallest case: {case}, where head 0, token 0, column 1 is "
        "stored at K scale head 0 row 0 col 1 and looked for at K scale head 0 row 1 col 0.",
        "Everything that was executed is as declared (exit code 0).",
    ]


def test_the_answer_follows_the_findings() -> None:
    """The same verdict with K and V exchanged says the opposite."""
    made = settled()
    flipped = replace(
        made,
        findings=tuple(replace(f, side="VK"["KV".index(f.side)]) for f in made.findings),
        agreements=tuple(replace(a, side="VK"["KV".index(a.side)]) for a in made.agreements),
    )
    told = sentences(flipped)
    assert told[0].startswith("store stores K scales swizzle_4x4 and V scales linear, ")
    assert "It disagrees on V with store" in told[4]


def test_subjects_that_did_the_same_share_a_sentence() -> None:
    infos = [writer(name, "linear", "linear") for name in ("a", "b", "c")]
    made = verdict(infos, [match(i, side, at(128), "linear") for i in infos for side in SIDES])
    assert sentences(made)[0] == (
        "a, b and c store K and V scales linear, as declared, over 512 positions in 1 geometry."
    )


def test_a_disagreement_names_whom_and_where_it_is() -> None:
    """With one of two writers, at two of three head sizes; and undecided where nothing is known."""
    sizes = (64, 128, 192)
    infos, one = [writer(name, "linear", "linear") for name in ("a", "b")], reader("one")
    findings = [match(i, s, at(n), "linear") for i in infos for s in "KV" for n in sizes]
    pairs = [
        pair(i, one, s, at(n), 7 * (i is infos[1] and s == "V" and n != 192))
        for i in infos
        for s in "KV"
        for n in sizes
    ]
    told = sentences(verdict([*infos, one], findings, pairs))
    assert "one was not executed and agrees with a at all 1,536 positions." in told
    assert any(
        s.startswith("It disagrees on V with b at head sizes 64 and 128, over 2.7–5.5 % of the")
        for s in told
    )
    lost = [replace(p, status="undecided", reason="lost") if p.side == "K" else p for p in pairs]
    made = verdict([*infos, one], findings, lost)
    table = sections(made)["Who reads where whom stored"]
    assert texts(table) == [["a", "agree (3 undecided)"], ["b", "V disagrees 2.7–5.5 %"]]
    assert "one was not executed and agrees with no writer and is undecided against a." in (
        sentences(made)
    )
    unknown = [replace(p, status="undecided", reason="lost") for p in pairs]
    table = sections(verdict([*infos, one], findings, unknown))["Who reads where whom stored"]
    assert texts(table) == [["a", "undecided"], ["b", "undecided"]]


def test_a_judged_disagreement_is_a_fault_in_every_rendering() -> None:
    made = settled(judged=True)
    assert made.exit_code == 1
    faults = sections(made)["Faults"]
    assert isinstance(faults, Listing)
    assert [item.text.split(";")[0] for item in faults.items] == [
        "pinned disagrees with store: K scale, head size 64, 2 heads, page 16, HND, bf16",
        "pinned disagrees with store: K scale, head size 128, 2 heads, page 16, HND, bf16",
    ]
    assert sentences(made)[-1] == "Something is not as declared (exit code 1)."
    assert "Faults" not in sections(settled())


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
        "store gives no map (refused: S=5 is no multiple of 4).",
        "What was asked for did not run (exit code 5).",
    ]


def test_a_writer_that_ends_early_has_no_map_and_no_row_of_names() -> None:
    endless = writer("endless", "linear", "linear")
    early = {"positions": 0, "recovered": 0, "reason": "step limit"}
    made = verdict([endless], [finding(endless, s, at(64), "unrecognised", **early) for s in "KV"])
    assert sentences(made)[0] == "endless gives no map (unrecognised: step limit)."
    tables = sections(made)
    assert "Scale layouts by head size" not in tables
    glance = tables["Writers"]
    assert isinstance(glance, Table)
    assert glance.columns == ("writer", "arch", "dtype", "as decl.", "geom.", "status")
    assert texts(glance) == [["endless", "sm_100a", "bf16", "no", "1/1", "unrecognised"]]


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
