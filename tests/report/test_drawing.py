"""Scale planes drawn as text: what is marked, what fits beside what, what the legend explains."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from documents import mutants, references, spelled
from hypothesis import given
from hypothesis import strategies as st
from verdicts import HOSTILE, faulty, settled

from oracle.addressmap import MISSING, AddressMap
from oracle.candidates import CANDIDATES
from oracle.geometry import CacheGeometry
from oracle.report import terminal
from oracle.report.cases import smallest_drawn
from oracle.report.disagreements import disagreements
from oracle.report.drawing import COLUMNS, ROWS, drawing, scale_named, whole
from oracle.report.markdown import as_markdown
from oracle.report.outline import Drawing
from oracle.report.parties import Names, parties
from oracle.report.planes import NOWHERE, Plane, plane_at
from oracle.text import printable
from oracle.verdict import Verdict

GEOMETRY = CacheGeometry(4, 2, 3, 48, "HND")
PLACES = st.lists(st.integers(NOWHERE - 2, 5), min_size=6, max_size=6)


def plane(places: list[int]) -> Plane:
    return Plane(np.array(places).reshape(2, 3), ("a", "b"), 0, ("h1:0", "K data"))


def text(made: Drawing, width: int = 80) -> str:
    file = io.StringIO()
    terminal.show([made], terminal.console(file, width, plain=True))
    return file.getvalue()


def marks(made: Drawing, panel: int = 0) -> list[str]:
    return [tile.mark for row in made.panels[panel].tiles for tile in row]


def drawn(made: Verdict) -> Drawing | None:
    return smallest_drawn(made, disagreements(made, parties(made)), Names(made.subjects))


# ---- What is marked ------------------------------------------------------------------------------


@given(PLACES, PLACES, st.none() | st.tuples(st.integers(0, 1), st.integers(0, 2)))
def test_everything_that_is_wrong_is_marked(
    mine: list[int], other: list[int], witness: tuple[int, int] | None
) -> None:
    made = drawing("", {"": plane(mine), "other": plane(other)}, witness=witness)
    found, expected = "", ""
    for spot, (place, theirs) in enumerate(zip(mine, other, strict=True)):
        named = witness is not None and spot == 3 * witness[0] + witness[1]
        differs = place != theirs and NOWHERE not in (place, theirs)
        shares = place >= 0 and mine.count(place) > 1
        expected += "*" if named else "!" if differs else " "
        found += "*" if named else "!" if differs or place < 0 else "=" if shares else " "
    if not found.strip():
        assert made is None
        return
    assert made is not None
    assert ("".join(marks(made)), "".join(marks(made, 1))) == (found, expected)
    for mark in "!=*":
        assert (f"{mark} " in made.legend) or mark not in found


def test_what_is_wrong_for_another_reason_is_marked_and_the_legend_says_why() -> None:
    sound = plane([0, 1, 2, 3, 4, 5])
    assert drawing("", {"": sound}) is None
    wrong = {"holds nonsense": sound.place == 4, "is never so": sound.place == 9}
    made = drawing("", {"": sound}, wrong)
    assert made is not None
    assert "".join(marks(made)) == "    ! "
    assert made.legend == "! holds nonsense"


def test_a_place_in_another_plane_is_named_in_short_and_explained() -> None:
    """One head of a map whose scales are in the next head, page, side and plane, and nowhere."""
    columns, base = GEOMETRY.scale_columns, GEOMETRY.scale_base("K")
    own = GEOMETRY.page_bytes + base
    offset = np.full((2, 3, 2, 3), MISSING)
    offset[0, 0, 0] = own, own + GEOMETRY.scale_strides.head, own + GEOMETRY.page_bytes + 2
    there = GEOMETRY.page_bytes + GEOMETRY.scale_base("V") + 2 * GEOMETRY.scale_strides.head
    offset[0, 0, 1] = there, GEOMETRY.page_bytes, there - 2 * GEOMETRY.page_bytes + columns
    amap = AddressMap("K", "scale", GEOMETRY, (1, 2), offset)
    found = plane_at(amap, 1, 0)
    assert found.short == ("h1:0", "p+1:2", "V h2:0", "K data", "p-2 V h2:3")
    assert found.in_words(0, 1) == "own page K scale, head 1, row 0, col 0"
    assert (plane_at(amap, 2, 1).place == NOWHERE).all()
    made = drawing("", {"": found})
    assert made is not None
    for explained in (
        "h1:0 is offset 0, in the plane of head 1",
        "p+1:2 is offset 2, 1 page further on",
        "V h2:0 is offset 0, in the plane of head 2, among the scales of V",
    ):
        assert explained in made.legend
    assert "K data" in text(made)


def test_a_witness_names_a_scale_of_the_geometry_or_none() -> None:
    assert scale_named({"token": 1, "column": 2}, GEOMETRY) == (1, 2)
    for other in ({}, {"token": 1}, {"token": 2, "column": 0}, {"token": "1", "column": 0}):
        assert scale_named(other, GEOMETRY) is None


# ---- What fits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [30, 43, 44, 200])
def test_two_planes_stand_beside_each_other_where_there_is_room(width: int) -> None:
    one, other = (Plane(CANDIDATES[name].table(8, 4)) for name in ("linear", "swizzle_4x4"))
    made = drawing("title", {"one": one, "other": other})
    assert made is not None
    lines = text(made, width).splitlines()
    assert max(map(len, lines)) <= width
    beside = [line.split() for line in lines if "one" in line.split()]
    assert beside == ([["one", "other"]] if width > 43 else [["one"]])
    cells = re.findall(r"\b\d+\b", "".join(line for line in lines if re.match(r" +t\d", line)))
    assert sorted(map(int, cells)) == sorted([*range(32), *range(32)])


@pytest.mark.parametrize(("token", "column"), [(0, 0), (41, 2), (63, 35)])
def test_of_a_large_plane_the_part_around_the_witness_is_drawn(token: int, column: int) -> None:
    table = CANDIDATES["swizzle_4x4"].table(64, 36)
    made = drawing("", {"": Plane(table)}, witness=(token, column))
    assert made is not None
    (panel,) = made.panels
    assert (len(panel.tiles), len(panel.tiles[0])) == (ROWS, COLUMNS)
    first, left = panel.first
    tile = panel.tiles[token - first][column - left]
    assert (tile.text, tile.mark) == (str(table[token, column]), "*")
    assert marks(made).count("*") == 1
    told = f"tokens {first} to {first + 15} of 64, columns {left} to {left + 15} of 36"
    assert made.legend.endswith(told)
    assert f" t{token} " in text(made)


def test_a_drawing_as_text_has_no_colours_whatever_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    told = terminal.as_text([whole("title", plane([0, 1, 2, 3, 4, 5]))])
    assert told.splitlines()[-1] == " t1  3  4  5"
    assert "\x1b" not in told


@pytest.mark.parametrize("name", ["::error::x", "```", "</pre>", printable(HOSTILE)])
def test_no_name_can_break_a_drawing(name: str) -> None:
    made = drawing("t", {name: plane([0, 0, 1, 2, 3, 4])})
    assert made is not None
    assert not any(line.startswith("::") for line in text(made).splitlines())
    assert f"\n    {name[:20]}" in as_markdown("t", [made])


# ---- The drawing of a verdict --------------------------------------------------------------------


def test_the_smallest_case_of_a_verdict_is_drawn() -> None:
    """That of a reader that was named, or of a fault; nothing where nobody is blamed."""
    assert drawn(settled()) is None
    # No finding says where this reader looks.
    assert drawn(settled(judged=True)) is None
    judged = drawn(references())
    assert judged is not None
    where = "head size 64, 2 heads, block size 16, HND, bf16"
    assert judged.title == f"The smallest case: V scales of reference:k=linear,v=linear, {where}"
    assert [panel.label for panel in judged.panels] == [
        "reference:k=linear,v=linear stores here",
        "trtllm-gen looks here",
    ]
    assert marks(judged).count("!") + marks(judged).count("*") == 48
    broken = drawn(faulty())
    assert broken is not None
    assert [panel.label for panel in broken.panels] == ["K scales as found", "as declared, linear"]


@pytest.mark.parametrize("made", [mutants(), spelled()], ids=["mutants", "spelled"])
def test_what_broken_kernels_do_is_drawn(made: Verdict) -> None:
    found = drawn(made)
    assert found is not None
    assert set(marks(found)) & set("!=")
