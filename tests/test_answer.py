"""What the opening paragraph and the list of disagreements say about verdicts made by hand."""

from __future__ import annotations

from dataclasses import replace

from outlines import items, sections, sentences, texts
from verdicts import (
    at,
    data,
    faulty,
    finding,
    match,
    pair,
    reader,
    settled,
    specification,
    verdict,
    writer,
)

from oracle.geometry import SIDES
from oracle.report.digest import misplacement_in_words
from oracle.report.outline import Paragraph, Table, Tone
from oracle.report.parties import Names
from oracle.report.sections import outline
from oracle.verdict import Defects, Verdict

DOMAIN = "2 geometries: head sizes 64/128, 2 heads, block size 16, HND, bf16"


def test_the_answer_says_who_stores_what_and_who_agrees() -> None:
    assert sentences(settled()) == [
        "store (machine code for sm_100a) stores K scales linear and V scales swizzle_4x4, as "
        "declared; kept fits it.",
        "pinned disagrees on K with store: at every head size from 64 to 128, 75–97.7 % of the "
        "positions, 96 of 128 in the smallest case (head size 64, 2 heads, block size 16).",
        f"{DOMAIN}; found: all 13,056 positions of scales and data, both sides, of the writer.",
        "Everything that was executed is as declared (exit code 0).",
    ]


def test_the_answer_comes_first_and_is_short() -> None:
    first = outline(settled(), 0, 50)[0]
    assert isinstance(first, Paragraph)
    assert "token" not in " ".join(sentence.text for sentence in first.sentences)
    assert list(sections(settled())) == [
        "Writers",
        "Who reads where whom stored",
        "Scale layouts by head size",
        "Contracts, at every head size where none is named",
        "Disagreements",
        "Readers",
        "Subjects",
        "Domain",
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
    assert "stores K scales swizzle_4x4 and V scales linear, as declared; kept fits it." in told[0]
    assert told[1].startswith("pinned disagrees on V with store: at every head size ")
    assert items(flipped, "Disagreements")[0].startswith("pinned disagrees with store on V at ")


def test_subjects_that_did_the_same_share_a_sentence() -> None:
    infos = [writer(name, "linear", "linear") for name in ("a", "b", "c")]
    made = verdict(infos, [match(i, side, at(128), "linear") for i in infos for side in SIDES])
    assert sentences(made)[0] == (
        "a, b and c (machine code for sm_100a) store K and V scales linear, as declared."
    )
    many = [writer(f"w{n}", "linear", "linear") for n in range(9)]
    made = verdict(many, [match(i, side, at(128), "linear") for i in many for side in SIDES])
    assert sentences(made)[0].startswith("w0, w1, w2 and 6 more (machine code for sm_100a) store ")


def test_a_specification_that_did_the_same_is_not_named_beside_code() -> None:
    code, spec = writer("code", "linear", "linear"), specification("linear", "linear")
    pinned = reader("pinned")
    infos = [spec, code, pinned]
    findings = [match(i, side, at(128), "linear") for i in (spec, code) for side in SIDES]
    pairs = [pair(i, pinned, side, at(128), 9) for i in (spec, code) for side in SIDES]
    told = sentences(verdict(infos, findings, pairs))
    assert told[0] == (
        "code (machine code for sm_100a) stores K and V scales linear, as declared and as the "
        "specification does; no reader here fits it."
    )
    assert told[1].startswith("pinned disagrees on K and V with code: at head size 128, 3.5 % of ")
    assert not any("reference:" in sentence for sentence in told)
    # One different outcome, or a fault of the code, and they are no longer the same.
    other = [*pairs[:3], replace(pairs[3], disagreeing=8)]
    assert sentences(verdict(infos, findings, other))[1].startswith("reference:k=linear,v=linear ")
    wrong = [*findings[:3], replace(findings[3], declared="swizzle_4x4", status="mismatch")]
    assert sentences(verdict(infos, wrong, pairs))[0] == (
        "code (machine code for sm_100a) stores K and V scales linear, not as it should be: "
        "1 fault: mismatch of V scale; no reader here fits it."
    )
    alone = sentences(verdict([spec], findings[:2]))
    assert alone[0] == "reference:k=linear,v=linear stores K and V scales linear, as declared."


def test_different_maps_are_never_taken_for_the_same() -> None:
    """Not even where the words for them are the same."""
    infos = [writer(name, None, None) for name in ("a", "b")]
    made = verdict(
        infos,
        [
            finding(info, side, at(64), "unrecognised", witness={"token": token})
            for token, info in enumerate(infos)
            for side in SIDES
        ],
    )
    told = sentences(made)
    assert [text.partition(" stores ")[0] for text in told[:2]] == [
        "a (machine code for sm_100a)", "b (machine code for sm_100a)"
    ]  # fmt: skip


def test_of_an_undeclared_writer_it_is_said_plainly() -> None:
    mine = writer("mine", None, None)
    findings = [
        match(mine, "K", at(128), "linear"),
        match(mine, "V", at(128), "swizzle_4x4"),
    ]
    told = sentences(verdict([mine], findings))
    assert told[0] == (
        "mine (machine code for sm_100a) stores K scales linear and V scales swizzle_4x4; nothing "
        "is declared about it."
    )
    assert told[-1] == (
        "No fault in where it stores. Nothing is declared, so nothing was judged: name a reader "
        "with --reader (exit code 0)."
    )
    spec = specification("linear", "swizzle_4x4")
    same = [
        match(spec, "K", at(128), "linear"),
        match(spec, "V", at(128), "swizzle_4x4"),
    ]
    told = sentences(verdict([mine, spec], [*findings, *same]))
    assert told[0].endswith(
        "V scales swizzle_4x4, as the specification does; nothing is declared about it."
    )
    assert sentences(faulty())[1] == (
        "free (machine code for sm_100a) stores K scales (16,4):(1,16) and V scales unknown in 1 "
        "of 2 geometries, not as it should be: 1 fault, in 1 of 2 geometries: unrecognised of K "
        "scale at head size 64; nothing is declared about it."
    )


def test_short_names_stay_distinct() -> None:
    built = [
        replace(writer(f"store@{arch}/{dtype}", None, None), arch=arch)
        for arch in ("sm_90", "sm_100a")
        for dtype in ("bf16", "fp16")
    ]
    files = [replace(writer(f"{at}/x.cubin:store", None, None), arch="sm_80") for at in "ab"]
    names = Names([*built, *files, replace(writer("dir/y.cubin:s", None, None), arch="sm_80")])
    ids = [info.id for info in built]
    assert names.of(ids) == "store"
    assert names.of(ids[:2]) == "store on sm_90"
    assert names.of(ids[:3]) == "store on sm_90 and store@sm_100a/bf16"
    assert names.of([ids[0], ids[3]]) == "store@sm_90/bf16 and store@sm_100a/fp16"
    assert names.of(info.id for info in files) == "a/x.cubin:store and b/x.cubin:store"
    assert names.of(["dir/y.cubin:s"]) == "y.cubin:s"


def test_a_long_answer_leaves_the_rest_to_the_tables() -> None:
    infos = [writer(f"w{n}", "linear", "linear") for n in range(7)]
    made = verdict(
        infos,
        [
            finding(
                info, side, at(64), "gap", defects=Defects(never_written=n + 1), witness={"x": n}
            )
            for n, info in enumerate(infos, 1)
            for side in SIDES
        ],
    )
    told = sentences(made)
    assert told[4] == "The table has 3 more writers, 3 of them with faults, that did otherwise."
    assert len(told) == 7


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
    made = verdict([*infos, one], findings, pairs)
    told = sentences(made)
    assert told[0].startswith("a (machine code for sm_100a) stores ")
    assert told[0].endswith("; one fits it.")
    assert told[1].startswith("b (machine code for sm_100a) stores ")
    assert told[1].endswith("; no reader here fits it.")
    assert told[2].startswith(
        "one disagrees on V with b: at head sizes 64 and 128, 2.7–5.5 % of the positions, 7 of 128 "
    )
    assert items(made, "Disagreements") == [
        "one disagrees with b on V at head sizes 64 and 128: 2.7–5.5 %, 7 of 128 to 7 of 256 "
        "positions; at head size 64, 2 heads, block size 16, HND, bf16, head 0, token 0, column 1 "
        "is stored at row 0 col 1, looked for at row 1 col 0"
    ]
    lost = [replace(p, status="undecided", reason="lost") if p.side == "K" else p for p in pairs]
    made = verdict([*infos, one], findings, lost)
    table = sections(made)["Who reads where whom stored"]
    assert texts(table) == [["a", "agree (3 undecided)"], ["b", "V disagrees 2.7–5.5 %"]]
    assert sentences(made)[0].endswith("; one is undecided.")
    unknown = [replace(p, status="undecided", reason="lost") for p in pairs]
    table = sections(verdict([*infos, one], findings, unknown))["Who reads where whom stored"]
    assert texts(table) == [["a", "undecided"], ["b", "undecided"]]


def test_every_writer_is_said_of_all_of_several_and_who_fits_none_comes_first() -> None:
    infos = [writer("a", "linear", "linear"), writer("b", "linear", "swizzle_4x4")]
    readers = [reader("some"), reader("none")]
    findings = [
        match(infos[0], "K", at(128), "linear"), match(infos[0], "V", at(128), "linear"),
        match(infos[1], "K", at(128), "linear"), match(infos[1], "V", at(128), "swizzle_4x4"),
    ]  # fmt: skip
    pairs = [
        pair(
            i,
            r,
            s,
            at(128),
            9 * ((r.id, s) == ("none", "K") or (r.id, s, i.id) == ("some", "V", "b")),
        )
        for i in infos
        for r in readers
        for s in SIDES
    ]
    told = sentences(verdict([*infos, *readers], findings, pairs))
    assert told[2] == (
        "none disagrees on K with every writer, and some on V with b: at head size 128, 3.5 % of "
        "the positions, 9 of 256 in the smallest case (head size 128, 2 heads, block size 16)."
    )


def test_what_goes_without_saying_is_left_out_of_a_place_only_where_it_does() -> None:
    spot = {"head": 0, "token": 1, "column": 2}
    own = {**spot, "writer": "K scale head 0 row 1 col 2", "reader": "K scale head 0 row 2 col 1"}
    assert misplacement_in_words(own, "K") == (
        "head 0, token 1, column 2 is stored at row 1 col 2, looked for at row 2 col 1"
    )
    for key, place in (("writer", "V data head 0 row 0 col 0"), ("reader", "past the allocation")):
        elsewhere = {**own, key: place}
        told = misplacement_in_words(elsewhere, "K")
        assert f" {elsewhere['writer']}, " in told
        assert told.endswith(f" {elsewhere['reader']}")
    assert "K scale head 0 row" in misplacement_in_words({**own, "head": 1}, "K")


def test_a_judged_disagreement_is_a_fault_in_every_rendering() -> None:
    made = settled(judged=True)
    assert made.exit_code == 1
    assert items(made, "Faults") == [
        "pinned disagrees with store on K at every head size from 64 to 128: 75–97.7 %, 96 of 128 "
        "to 250 of 256 positions; at head size 64, 2 heads, block size 16, HND, bf16, head 0, "
        "token 0, column 1 is stored at row 0 col 1, looked for at row 1 col 0"
    ]
    assert sentences(made)[-1] == "Faults were found (exit code 1)."
    assert "Faults" not in sections(settled())
    assert "Disagreements" not in sections(made)
    assert items(settled(), "Disagreements") == items(made, "Faults")


def closing(made: Verdict) -> str:
    return sentences(made)[-1]


def test_the_last_line_claims_no_more_than_was_judged() -> None:
    """What readers are declared to read says nothing about a writer."""
    mine, yours = writer("mine", None, None), writer("yours", "linear", "linear")
    other, free = (
        replace(reader("other"), declared={"K": "linear", "V": "linear"}),
        writer("f", "", ""),
    )
    found = [match(i, s, at(128), "linear") for i in (mine, free, yours, other) for s in SIDES]
    of = {i.id: [f for f in found if f.subject == i.id] for i in (mine, free, yours, other)}
    agreeing = [pair(mine, other, s, at(128)) for s in SIDES]
    advice = (
        "Nothing is declared, so nothing was judged: name a reader with --reader (exit code 0)."
    )
    alone = verdict([mine, other], [*of["mine"], *of["other"]], agreeing)
    assert closing(alone) == f"No fault in where it stores. {advice}"
    two = verdict([mine, free, other], [*of["mine"], *of["f"], *of["other"]], agreeing)
    assert closing(two) == f"No fault in where they store. {advice}"
    mixed = verdict([mine, yours, other], [*of["mine"], *of["yours"], *of["other"]])
    assert (
        closing(mixed) == "What is declared is as declared; the rest was not judged (exit code 0)."
    )
    asked = [replace(one, judged=True) for one in agreeing]
    assert closing(verdict([mine, other], [*of["mine"], *of["other"]], asked)) == (
        "No fault was found, and no reader that was named looks elsewhere (exit code 0)."
    )
    lone = verdict([reader("r")], [match(reader("r"), s, at(128), "linear") for s in SIDES])
    assert closing(lone) == (
        "No fault in where it looks. Nothing is declared, so nothing was judged (exit code 0)."
    )
    whole = "Everything that was executed is as declared (exit code 0)."
    assert closing(verdict([yours, other], [*of["yours"], *of["other"]])) == whole
    torn = replace(of["mine"][0], status="gap", witness={"token": 1})
    assert closing(verdict([mine], [torn])) == "Faults were found (exit code 1)."


def test_that_no_reader_fits_an_undeclared_writer_stands_out() -> None:
    mine, other = writer("mine", None, None), reader("other")
    found = [match(mine, side, at(128), "linear") for side in SIDES]
    for differing, tone in ((0, Tone.PLAIN), (5, Tone.DIFFERENT)):
        made = verdict(
            [mine, other], found, [pair(mine, other, s, at(128), differing) for s in SIDES]
        )
        first = outline(made, 0, 50)[0]
        assert isinstance(first, Paragraph)
        assert first.sentences[0].tone is tone
        assert first.sentences[0].text.endswith("no reader here fits it.") is bool(differing)


def test_a_reader_of_the_scales_does_not_fit_faulty_data() -> None:
    store, other = writer("store", "linear", "linear"), reader("other")
    found = [match(store, side, at(128), "linear") for side in SIDES]
    pairs = [pair(store, other, side, at(128)) for side in SIDES]
    whole = [*map(data, found), *found]
    told = sentences(verdict([store, other], whole, pairs))
    assert told[0].endswith("; other fits it.")
    torn = [replace(whole[0], status="gap", witness={"token": 1}), *whole[1:]]
    told = sentences(verdict([store, other], torn, pairs))
    assert told[0].endswith("gap of K data; other fits its scales, not its data.")
    assert told.count("Readers are compared with the scales alone.") == 1
    # Of scales with a fault that is no fault of the data, it is said as ever.
    torn = [*whole[:-1], replace(whole[-1], status="gap", witness={"token": 1})]
    told = sentences(verdict([store, other], torn, pairs))
    assert told[0].endswith("; other fits it.")
    assert "Readers are compared with the scales alone." not in told


def test_positions_that_were_not_found_are_no_agreement() -> None:
    store, other = writer("store", "linear", "linear"), reader("other")
    found = [match(store, s, at(64), "linear") for s in SIDES]
    found[0] = replace(found[0], status="gap", recovered=8, layouts=(), witness={"token": 1})
    sought = [match(other, s, at(64), "linear") for s in SIDES]
    pairs = [pair(store, other, s, at(64), s == "K") for s in SIDES]
    made = verdict([store, other], [*found, *sought], pairs)
    counts = "1 of the 8 found; 120 not found"
    assert sentences(made)[1].startswith(
        "other disagrees on K with store: at head size 64, 12.5 % of the positions found, "
        f"{counts} in the smallest case "
    )
    assert f": 12.5 %, {counts}; at head size 64" in items(made, "Disagreements")[0]
    assert texts(sections(made)["Who reads where whom stored"]) == [["store", "K disagrees 12.5 %"]]
    # Which of them both found is not known where both lack some.
    sought[0] = replace(sought[0], recovered=100)
    made = verdict([store, other], [*found, *sought], pairs)
    assert "1 of at most 8 found; at least 120 not found" in sentences(made)[1]


def test_one_fault_in_every_geometry_is_one_fault() -> None:
    store = writer("store", "linear", "linear")
    found = [
        finding(
            store, "V", at(size, block), "mismatch",
            shape_stride=f"((4,{block // 4}),{size // 16}):((1,{size // 4}),4)",
            witness={"head": 0, "token": 0, "column": 1, "linear": "x", "found": f"{size}"},
        )
        for size in (64, 128, 256) for block in (16, 64)
    ]  # fmt: skip
    told = sentences(verdict([store], found))[0]
    form = "((4,T/4),S):((1,4S),4)"
    assert (
        f"V scales {form}, not as it should be: 1 fault, in all 6 geometries: mismatch of " in told
    )
    (line,) = items(verdict([store], found), "Faults")
    assert f": {form} (T: block size, S: scale columns) where linear" in line
    assert line.endswith(" Likewise in 5 more geometries (at head sizes 64, 128 and 256).")
    table = sections(verdict([store], found))["Writers"]
    assert isinstance(table, Table)
    assert table.note.endswith("; T: block size, S: scale columns")
    # What no pattern fits is said to change, in words that make a sentence.
    odd = [*found[:-1], replace(found[-1], shape_stride="((4,16),16):((1,65),4)")]
    assert (
        "stores K scales unknown and V scales differently by geometry, "
        in sentences(verdict([store], odd))[0]
    )
    assert len(items(verdict([store], odd), "Faults")) == 6
