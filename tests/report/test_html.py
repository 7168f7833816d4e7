"""The page, read without a browser: what is in it, and that nothing can get in or out of it."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from dataclasses import replace
from importlib import resources
from typing import Any
from xml.etree.ElementTree import Element

import pytest
from documents import SMALL, loaded, mutants, references, spelled
from hypothesis import given
from hypothesis import strategies as st
from pages import by_id, of_class, page, read, said
from verdicts import HOSTILE, VERDICTS, settled

from oracle.geometry import SIDES
from oracle.offsettable import offsets_of
from oracle.report.document import TOOL
from oracle.report.html import pictures
from oracle.report.html.atlas import MAX_GEOMETRIES, configurations
from oracle.report.html.markup import data, element, escaped
from oracle.report.html.page import FAULTS_PER_SUBJECT, as_html
from oracle.report.outline import Drawing, Listing, Paragraph, Table
from oracle.report.parse import parse
from oracle.report.planes import plane_of
from oracle.report.sections import outline
from oracle.report.tables import MATRIX, PROVENANCE
from oracle.run import run_verdict
from oracle.subjects.spec import readers_from_specs
from oracle.text import NO_BREAK
from oracle.verdict import Verdict

MADE = {**VERDICTS, "mutants": mutants(), "references": references(), "spelled": spelled()}
every = pytest.mark.parametrize("made", MADE.values(), ids=MADE)
MIB = 2**20


def atlas_of(root: Element) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(by_id(root, "atlas").text or "")
    return found


# ---- Nothing gets in or out ----------------------------------------------------------------------


@every
def test_the_page_asks_for_nothing(made: Verdict) -> None:
    root = page(made)
    for each in root.iter():
        assert each.tag not in {"link", "img", "iframe", "object", "embed", "base", "image"}
        for name, value in each.attrib.items():
            assert not name.startswith("on")
            assert name not in {"src", "srcset", "style", "action", "ping", "xlink:href"}
            if name == "href":
                assert value.startswith("#")
                by_id(root, value[1:])
    style = next(root.iter("style")).text or ""
    assert "url(" not in style
    assert "@import" not in style
    assert "@font-face" not in style


@every
def test_the_policy_lets_only_this_style_and_script_in(made: Verdict) -> None:
    root = page(made)
    (policy,) = (m.get("content") or "" for m in root.iter("meta") if m.get("http-equiv"))
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    scripts = [script for script in root.iter("script") if script.get("type") is None]
    assert rules == {
        "default-src": "'none'",
        "style-src": f"'{digest(next(root.iter('style')))}'",
        "script-src": f"'{digest(scripts[0])}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert len(scripts) == len(list(root.iter("style"))) == 1


def digest(part: Element) -> str:
    return f"sha256-{b64encode(hashlib.sha256((part.text or '').encode()).digest()).decode()}"


@every
def test_ids_are_there_once(made: Verdict) -> None:
    ids = [identity for each in page(made).iter() if (identity := each.get("id"))]
    assert len(set(ids)) == len(ids)


BIDI = "".join(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F)))


@given(st.text(min_size=1))
def test_any_text_reads_as_it_is_or_is_spelled(text: str) -> None:
    (shown,) = read(f"<html>{element('p', text, title=text)}</html>")
    assert not list(shown)
    assert shown.text == shown.get("title") == "".join(
        c if c.isprintable() or c == NO_BREAK else ascii(c)[1:-1] for c in text
    )  # fmt: skip


def test_a_name_can_be_anything() -> None:
    name = f"{HOSTILE} \" ' & &amp; </script><!-- {BIDI}\x00"
    text = as_html(settled(name), 0, TOOL)
    root = read(text)
    assert not set(text) & set(BIDI + "\x00\x1b")
    assert [each.tag for each in root.iter("script")] == ["script", "script"]
    shown = [said(article[0]) for article in root.iter("article")]
    assert shown[0].startswith("<script>alert(1)</script> | `x` *y* _z_ [red]\\x1b[31m\\nsecond")
    assert "\\u202a\\u202b" in shown[0]
    assert "<!-- \\u202a" in atlas_of(root)["subjects"][0]["name"]


@given(st.text())
def test_data_cannot_leave_its_element(text: str) -> None:
    made = data({"name": text}, "x")
    assert made.count("<") == made.count(">") == 2
    assert json.loads(read(f"<html>{made}</html>")[0].text or "") == {"name": text}


def test_markup_is_not_escaped_twice() -> None:
    assert escaped(escaped("<")) == "&lt;"
    assert element("p", element("b", "<"), hidden=True, id=None) == "<p hidden><b>&lt;</b></p>"


# ---- What is in it -------------------------------------------------------------------------------


@every
def test_the_page_holds_what_the_outline_holds(made: Verdict) -> None:
    root = page(made)
    text = said(root)
    for part in outline(made, made.exit_code, FAULTS_PER_SUBJECT):
        if isinstance(part, Paragraph):
            told = [sentence.text for sentence in part.sentences]
        elif isinstance(part, Drawing) or part.title == PROVENANCE:
            continue
        elif isinstance(part, Listing):
            told = [item.text for item in part.items]
        else:
            assert isinstance(part, Table)
            told = [*part.columns, *(cell.text for row in part.rows for cell in row), part.note]
        for each in told:
            assert " ".join(each.split()) in text
    for info in made.subjects:
        assert info.artifact_sha256 is None or info.artifact_sha256 in text
        assert info.kernel is None or info.kernel in text


def test_the_answer_comes_first() -> None:
    header = next(page(references()).iter("header"))
    first = outline(references(), 1, FAULTS_PER_SUBJECT)[0]
    assert isinstance(first, Paragraph)
    assert said(header).startswith(f"Layout verdict ✓ {first.sentences[0].text}")
    assert said(header).endswith("✗ Faults were found (exit code 1).")


def test_every_comparison_of_the_matrix_leads_to_its_planes() -> None:
    made = references()
    root = page(made)
    ids = [info.id for info in made.subjects]
    cells = [cell for cell in root.iter("td") if cell.get("data-writer")]
    assert len(cells) == 2 * 3
    for cell in cells:
        pair = tuple(ids[int(cell.get(f"data-{role}") or "")] for role in ("writer", "reader"))
        disagreeing = any(
            a.status == "disagree" for a in made.agreements if (a.writer, a.reader) == pair
        )
        links = list(cell.iter("a"))
        assert bool(links) == disagreeing
        for link in links:
            figure = by_id(root, (link.get("href") or "")[1:])
            assert figure.tag == "figure"
            assert said(figure).count("stores here") == said(figure).count("looks here") == 1


def panels_of(figure: Element) -> list[Element]:
    return [each for each in figure.iter("svg") if each.get("role") == "img"]


def test_each_disagreement_is_drawn_without_a_script() -> None:
    """Every cell of the smallest plane, and a corner on each that differs."""
    made = references()
    root = page(made)
    figures = list(by_id(root, "gallery").iter("figure"))
    assert len(figures) == 4
    drawn: dict[str, list[int]] = {"linear": [], "swizzle_4x4": []}
    for figure in figures:
        panels = panels_of(figure)
        assert len(panels) == 2
        for panel in panels:
            (corners,) = of_class(panel, "corner")
            assert (corners.get("d") or "").count("z") == 48
            (use,) = panel.iter("use")
            cells = list(of_class(by_id(root, (use.get("href") or "")[1:]), "cell"))
            assert len(cells) == 16 * 4
            numbers = [int(said(cell[2])) for cell in cells]
            assert sorted(numbers) == list(range(64))
            drawn["linear" if numbers == sorted(numbers) else "swizzle_4x4"].append(len(numbers))
            for cell, number in zip(cells, numbers, strict=True):
                assert f"r{number // 4 % 8}" in (cell.get("class") or "").split()
                assert said(cell[0]).endswith(
                    f"offset {number}, row {number // 4}, col {number % 4}"
                )
    assert all(len(planes) == 4 for planes in drawn.values())
    assert len([g for g in root.iter("g") if (g.get("id") or "").startswith("plane-")]) == 2


def test_each_fault_is_drawn_with_its_marks() -> None:
    root = page(mutants())
    section = by_id(root, "planes-with-faults")
    figures = {
        said(figure.find("figcaption") or figure[0]): figure for figure in section.iter("figure")
    }

    def cells(start: str) -> list[Element]:
        (figure,) = (figure for told, figure in figures.items() if told.startswith(start))
        (use, *_) = panels_of(figure)[0].iter("use")
        return list(by_id(root, (use.get("href") or "")[1:]))

    dropped = cells("mutant:t%4 dropped: overlap of V scales")
    (shared,) = (each for each in dropped if each.get("class") == "shared")
    assert (shared.get("d") or "").count("M") == 64
    rotated = cells("mutant:heads rotated: mismatch of K scales")
    outside = [each for each in rotated if each.get("class") == "cell outside"]
    assert len(outside) == 64
    assert said(outside[5][0]) == "token 1, column 1: own page K scale, head 1, row 1, col 1"
    assert [said(each[2]) for each in outside] == ["out"] * 64
    lost = cells("mutant:scale never written: gap of K scales")
    assert "?" in [said(each[2]) for each in lost if "outside" in (each.get("class") or "")]


def test_strays_are_marked_on_the_page() -> None:
    root = page(mutants())
    told = [said(figure) for figure in by_id(root, "the-page-byte-by-byte").iter("figure")]
    (off,) = (each for each in told if each.startswith("mutant:one head off: V scale"))
    assert "64 bytes: page+1 K data" in off
    assert "K data K scale V data V scale pages before pages behind" in off


def test_the_regions_of_the_page_are_those_of_the_geometry() -> None:
    made = references()
    geometry = min((f.configuration for f in made.findings), key=lambda c: c.head_size).geometry()
    rows = list(by_id(page(made), "the-page-byte-by-byte").iter("tr"))[1:]
    assert [said(row) for row in rows] == [
        f"{each.name} {each.start:,} {each.stop - 1:,} {each.stop - each.start:,}"
        for each in geometry.page_regions()
    ]


def test_what_is_declared_but_undefined_is_said() -> None:
    odd = replace(spelled().findings[2], declared="swizzle_4x4")
    made = replace(spelled(), findings=(odd,), subjects=spelled().subjects[:1])
    assert "as declared, swizzle_4x4: swizzle_4x4 needs S to be a multiple of 4" in said(page(made))


def test_a_large_plane_is_cut_and_says_so() -> None:
    made = settled()
    large = [
        replace(f, configuration=replace(f.configuration, block_size=128)) for f in made.findings
    ]
    pairs = [
        replace(a, configuration=replace(a.configuration, block_size=128)) for a in made.agreements
    ]
    cut = page(replace(made, findings=tuple(large), agreements=tuple(pairs)))
    assert "The first 64 tokens and 32 columns at most." in said(cut)
    assert "The first 64 tokens" not in said(page(made))


def test_a_verdict_about_readers_alone_is_a_page_too() -> None:
    made = run_verdict([], readers_from_specs(["trtllm-gen"]), SMALL)
    root = page(made)
    assert "as declared" in said(next(root.iter("header")))
    assert MATRIX not in said(root)
    assert len(atlas_of(root)["planes"]) == 4


# ---- What the script draws from ------------------------------------------------------------------


@every
def test_the_atlas_holds_every_plane_once(made: Verdict) -> None:
    atlas = atlas_of(page(made))
    shown = configurations(made)
    assert len(atlas["geometries"]) == len(shown) <= MAX_GEOMETRIES
    texts = [
        json.dumps([plane, columns(atlas, index)]) for index, plane in enumerate(atlas["planes"])
    ]
    assert len(set(texts)) == len(texts)
    drawn = 0
    for finding in made.findings:
        if finding.plane != "scale" or finding.configuration not in shown:
            continue
        subject = [info.id for info in made.subjects].index(finding.subject)
        at = shown.index(finding.configuration)
        index = atlas["found"][subject][SIDES.index(finding.side)][at]
        plane = plane_of(finding)
        assert (index == -1) == (plane is None)
        if plane is not None:
            drawn += 1
            places = [-1 if p is None else p for p in offsets_of(atlas["planes"][index]["runs"])]
            assert places == plane.place.ravel().tolist()
            assert tuple(atlas["planes"][index]["elsewhere"]) == plane.elsewhere
    assert drawn or not shown


def columns(atlas: dict[str, Any], index: int) -> int:
    """The columns of the geometries that a plane is of."""
    rows = [row for subject in atlas["found"] for row in subject] + list(atlas["layouts"].values())
    (found,) = {
        atlas["geometries"][at]["columns"]
        for row in rows
        for at, plane in enumerate(row)
        if plane == index
    }
    return int(found)


def test_the_atlas_holds_what_each_pair_was_found_to_do() -> None:
    made = references()
    atlas = atlas_of(page(made))
    ids, shown = [info.id for info in made.subjects], configurations(made)
    found = {(writer, reader): sides for writer, reader, sides in atlas["pairs"]}
    for pair in made.agreements:
        sides = found[ids.index(pair.writer), ids.index(pair.reader)]
        told = sides[SIDES.index(pair.side)][shown.index(pair.configuration)]
        assert told == pair.disagreeing


def test_the_bytes_of_the_atlas_are_those_of_the_geometry() -> None:
    made = references()
    for entry, configuration in zip(
        atlas_of(page(made))["geometries"], configurations(made), strict=True
    ):
        geometry = configuration.geometry()
        for side, base in zip(SIDES, entry["base"], strict=True):
            byte = base + entry["head"] * 1 + entry["row"] * 3 + 2
            assert byte == geometry.scale_offset(side, 0, 1, 3, 2)
        assert entry["bytes"] == geometry.page_bytes


def test_only_so_many_geometries_are_drawn() -> None:
    made = settled()
    (first, *_) = made.findings
    many = tuple(
        replace(first, configuration=replace(first.configuration, block_size=size))
        for size in range(300, 0, -1)
    )
    shown = configurations(replace(made, findings=many))
    assert [c.block_size for c in shown] == list(range(MAX_GEOMETRIES, 0, -1))


# ---- The files -----------------------------------------------------------------------------------


def test_a_page_is_small() -> None:
    assert len(as_html(references(), 1, TOOL).encode()) < MIB / 4
    assert len(as_html(mutants(), 1, TOOL).encode()) < MIB


@every
def test_a_verdict_that_was_read_back_gives_the_same_page(made: Verdict) -> None:
    back = parse(loaded(made))
    assert as_html(back.verdict, back.exit_code, back.tool) == as_html(made, made.exit_code, TOOL)


def test_the_script_draws_in_the_measures_of_the_pictures() -> None:
    script = resources.files("oracle.report.html").joinpath("page.js").read_text(encoding="utf-8")
    assert f"CELL = {{ width: {pictures.CELL_WIDTH}, height: {pictures.CELL_HEIGHT} }}" in script
    assert f"LEFT = {pictures.LEFT}, TOP = {pictures.TOP};" in script
    assert f"COLOURS = {pictures.COLOURS};" in script
