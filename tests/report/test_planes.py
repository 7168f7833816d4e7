"""Scale planes to draw, and the way back from a shape:stride to its table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from documents import mutants, references, spelled
from hypothesis import given
from hypothesis import strategies as st
from verdicts import at

from oracle.candidates import CANDIDATES, candidate
from oracle.errors import UsageError
from oracle.layout import shape_stride
from oracle.report.notation import table_of
from oracle.report.planes import NO_PLACE, NOWHERE, Plane, named_plane, plane_of
from oracle.verdict import Finding

EXTENTS = [(16, 4), (64, 8), (128, 12), (128, 32), (16, 5)]


# ---- Notation ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "columns"), EXTENTS)
@pytest.mark.parametrize("name", CANDIDATES)
def test_a_form_that_is_recovered_reads_as_its_table(name: str, tokens: int, columns: int) -> None:
    if candidate(name).undefined_reason(tokens, columns) is not None:
        return
    table = candidate(name).table(tokens, columns)
    found = shape_stride(table)
    assert found is not None
    assert np.array_equal(table_of(str(found[0]), tokens, columns), table)
    assert np.array_equal(table_of(f"{found[0]}+7", tokens, columns), table + 7)


def test_the_form_of_the_prefill_kernels_has_two_scales_a_byte() -> None:
    """docs/k-scale-layout.md: columns s and s + 6 of a token are one byte, for s from 2 to 7."""
    table = table_of("((4,4),(8,2)):((1,64),(4,8))", 16, 16)
    same = [
        (s, r) for s in range(16) for r in range(s + 1, 16) if (table[:, s] == table[:, r]).all()
    ]
    assert same == [(s, s + 6) for s in range(2, 8)]


@pytest.mark.parametrize(
    "form",
    [
        "", "linear", "(16,4)", "(16,4):(4,1):", "(16,4):(4)", "(16,0):(4,1)", "(16,4):(4,1)+x",
        "((((16,4):(4,1)", "(16,4):(4,1)+-1", "(16,5):(5,1)", "(4,16):(16,1)", "64:1",
        "(16,4):(--4,1)", "(16,4),:(4,1)", "1" * 401 + ":1", "(" * 190 + ":" + ")" * 190,
        "(99999999999,99999999999):(1,1)", "(16,04):(4,1)", f"(16,4):({2**63},1)",
        f"(16,4):({2**61},1)", f"(16,4):(4,1)+{2**64}",
    ],
)  # fmt: skip
def test_what_is_no_form_of_a_plane_is_refused(form: str) -> None:
    with pytest.raises(UsageError):
        table_of(form, 16, 4)


@given(st.text("(),:+-0123456789", max_size=40))
def test_any_text_is_a_form_or_refused(text: str) -> None:
    try:
        table = table_of(text, 16, 4)
    except UsageError:
        return
    assert table.shape == (16, 4)


# ---- Planes --------------------------------------------------------------------------------------


def differing(one: Plane, other: Plane) -> int:
    """How many scales differ, one at a time."""
    tokens, columns = one.place.shape
    return sum(
        one.in_words(t, s) != other.in_words(t, s)
        for t in range(tokens)
        for s in range(columns)
        if NO_PLACE not in (one.in_words(t, s), other.in_words(t, s))
    )


def test_what_is_drawn_differs_as_often_as_the_verdict_says() -> None:
    """The agreements were counted from addresses, the planes are made from names."""
    made = references()
    found = {(f.subject, f.side, f.configuration): f for f in made.findings if f.plane == "scale"}
    compared = set()
    for pair in made.agreements:
        where = (pair.side, pair.configuration)
        writer, reader = (plane_of(found[who, *where]) for who in (pair.writer, pair.reader))
        assert writer is not None
        assert reader is not None
        heads = pair.configuration.num_heads
        assert int(writer.differs(reader).sum()) * heads == pair.disagreeing
        assert differing(writer, reader) * heads == pair.disagreeing
        compared.add(pair.status)
    assert compared == {"agree", "disagree"}


def test_a_table_says_of_every_scale_where_it_is() -> None:
    (finding,) = (f for f in spelled().findings if f.table is not None)
    plane = plane_of(finding)
    assert plane is not None
    assert plane.head == 1
    tokens, columns = 16, 6
    assert plane.place.shape == (tokens, columns)
    # Head 1's plane begins at 96; what is before that is in the rows of head 0.
    assert plane.in_words(0, 0) == "own page K scale, head 0, row 0, col 0"
    assert plane.in_words(14, 5) == "own page K scale, head 0, row 14, col 5"
    assert plane.place[15, 0] == NOWHERE
    assert (
        plane.in_words(15, 1) == plane.in_words(15, 2) == "own page K scale, head 0, row 0, col 5"
    )
    # 4 bytes before the region is the end of the last row of K's data, of 48 bytes.
    assert plane.in_words(15, 3) == "own page K data, head 1, row 15, col 44"


def test_the_planes_of_broken_kernels() -> None:
    found = {(f.subject, f.side): plane_of(f) for f in mutants().findings if f.plane == "scale"}

    def plane(name: str, side: str) -> Plane:
        made = found[f"mutant:{name}", side]
        assert made is not None
        return made

    dropped = plane("t%4 dropped", "V")
    assert dropped.shared.all()
    assert (dropped.place == dropped.place[np.arange(16) // 4 * 4]).all()
    rotated = plane("heads rotated", "K")
    assert rotated.in_words(3, 2) == "own page K scale, head 1, row 3, col 2"
    assert not rotated.shared.any()
    assert plane("one head off", "V").in_words(0, 0) == "page+1 K data, head 0, row 0, col 0"
    lost = plane("scale never written", "K")
    assert (lost.place == NOWHERE).any()


def test_what_is_outside_is_compared_by_where_it_is() -> None:
    one = Plane(np.array([[-2, -3, -1, 0]]), ("here", "there"))
    other = Plane(np.array([[-3, -3, 0, 0]]), ("there", "here"))
    assert one.differs(other).tolist() == [[False, True, False, False]]


def test_planes_of_different_heads_are_not_compared() -> None:
    one, other = np.array([[0, 1]]), np.array([[1, 0]])
    assert not Plane(one, head=0).differs(Plane(other, head=1)).any()
    assert Plane(one, head=1).differs(Plane(other, head=1)).all()
    assert Plane(one, head=0).differs(Plane(other)).all()


def test_what_has_no_plane_is_not_drawn() -> None:
    made = references().findings
    scales: Finding = next(f for f in made if f.plane == "scale")
    assert plane_of(next(f for f in made if f.plane == "data")) is None
    assert plane_of(replace(scales, positions=0)) is None
    assert plane_of(replace(scales, layouts=(), shape_stride=None)) is None
    for form in ("no form", "(16,4):(400,1)", "(16,4):(4,1)+1", "(16,4):(-4,-1)"):
        assert plane_of(replace(scales, layouts=(), shape_stride=form)) is None
    huge = replace(at(1024), block_size=257)
    assert plane_of(replace(scales, configuration=huge)) is None
    assert named_plane("linear", huge) is None
    assert named_plane("swizzle_4x4", at(80)) is None
