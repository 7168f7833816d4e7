"""The named candidates against their published formulas, as permutations, and at their borders."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, product

import numpy as np
import pytest

from oracle.candidates import CANDIDATES, candidate, coincidences
from oracle.errors import UsageError
from oracle.layout import LayoutUndefined, shape_stride

COLUMNS = range(4, 65, 4)
"""Every S at which the swizzle is defined, up to head size 1024."""

Formula = Callable[[int, int, int], int]

FORMULAS: dict[str, Formula] = {  # n is S
    "linear": lambda t, s, n: t * n + s,
    "swizzle_4x4": lambda t, s, n: (t // 4) * 4 * n + 4 * s + t % 4,
    "tile_128x4": lambda t, s, n: (
        (t // 128 * (n // 4) + s // 4) * 512 + t % 32 * 16 + t // 32 % 4 * 4 + s % 4
    ),
    "tile_8x4": lambda t, s, n: (t // 8 * (n // 4) + s // 4) * 32 + t % 8 * 4 + s % 4,
    "transpose_8x4": lambda t, s, n: t * n + s // 32 * 32 + s % 4 * 8 + s % 32 // 4,
}


def permutation(name: str, tokens: int, columns: int) -> list[int]:
    """A candidate as what it does to the flat offsets of a row-major plane."""
    table: list[int] = candidate(name).table(tokens, columns).ravel().tolist()
    return table


def order(permuted: list[int]) -> int:
    """How often a permutation must be applied to do nothing."""
    applied, image = 1, permuted
    while image != sorted(permuted):
        applied, image = applied + 1, [permuted[p] for p in image]
    return applied


def published_2d_form(t: int, s: int, columns: int) -> tuple[int, int]:
    """The swizzle as vLLM writes it, in stored rows and columns."""
    return (t // 4) * 4 + s // (columns // 4), (s % (columns // 4)) * 4 + t % 4


def test_the_candidates_and_their_order() -> None:
    assert list(CANDIDATES) == [
        "linear",
        "swizzle_4x4",
        "inverse_4x4",
        "double_swizzle_4x4",
        "tile_128x4",
        "tile_8x4",
        "transpose_8x4",
    ]
    assert all(name == each.name and each.description for name, each in CANDIDATES.items())


@pytest.mark.parametrize("name", FORMULAS)
def test_every_point_follows_the_published_formula(name: str) -> None:
    planes = 0
    for tokens, columns in product((1, 4, 6, 8, 16, 128, 256), (1, 2, 3, *COLUMNS)):
        if candidate(name).undefined_reason(tokens, columns) is None:
            table = candidate(name).table(tokens, columns)
            assert table.dtype == np.int64
            assert table.tolist() == [
                [FORMULAS[name](t, s, columns) for s in range(columns)] for t in range(tokens)
            ]
            planes += 1
    assert planes >= 14


@pytest.mark.parametrize("name", CANDIDATES)
def test_every_candidate_permutes_the_plane_and_is_its_shape_stride(name: str) -> None:
    for tokens, columns in product((4, 8, 16, 128, 256), COLUMNS):
        if candidate(name).undefined_reason(tokens, columns) is None:
            table = candidate(name).table(tokens, columns)
            assert sorted(table.ravel().tolist()) == list(range(tokens * columns))
            assert shape_stride(table) == (candidate(name).layout(tokens, columns), 0)


@pytest.mark.parametrize(
    ("name", "plane", "text"),
    [
        ("linear", (16, 8), "(16,8):(8,1)"),
        ("swizzle_4x4", (16, 8), "((4,4),8):((1,32),4)"),
        ("swizzle_4x4", (4, 4), "(4,4):(1,4)"),
        ("inverse_4x4", (16, 8), "((4,4),(4,2)):((2,32),(8,1))"),
        ("double_swizzle_4x4", (16, 8), "((4,4),(2,4)):((4,32),(16,1))"),
        ("tile_128x4", (256, 8), "((32,4,2),(4,2)):((16,4,1024),(1,512))"),
        ("tile_8x4", (16, 8), "((8,2),(4,2)):((4,64),(1,32))"),
        ("transpose_8x4", (16, 32), "(16,(4,8)):(32,(8,1))"),
    ],
)
def test_notation(name: str, plane: tuple[int, int], text: str) -> None:
    assert str(candidate(name).layout(*plane)) == text


# --- The swizzle as a permutation -------------------------------------------------------------


@pytest.mark.parametrize("tokens", [4, 8, 20])
def test_inverse_and_double_are_derived_from_the_swizzle(tokens: int) -> None:
    for columns in COLUMNS:
        once = permutation("swizzle_4x4", tokens, columns)
        back = permutation("inverse_4x4", tokens, columns)
        everywhere = list(range(tokens * columns))
        assert [once[p] for p in back] == everywhere
        assert [back[p] for p in once] == everywhere
        assert permutation("double_swizzle_4x4", tokens, columns) == [once[p] for p in once]


@pytest.mark.parametrize(("columns", "expected"), [(4, 2), (8, 5), (12, 23), (16, 3), (32, 7)])
def test_the_order_of_the_swizzle(columns: int, expected: int) -> None:
    assert order(permutation("swizzle_4x4", 4, columns)) == expected


def test_the_swizzle_multiplies_offsets_by_four() -> None:
    for columns in COLUMNS:
        *inner, last = permutation("swizzle_4x4", 4, columns)
        modulus = 4 * columns - 1
        assert inner == [4 * p % modulus for p in range(modulus)]
        assert last == modulus
        powers = next(n for n in count(1) if pow(4, n, modulus) == 1)
        assert order([*inner, last]) == powers


def test_only_the_diagonal_stays_at_head_size_64() -> None:
    table = candidate("swizzle_4x4").table(16, 4)
    linear = candidate("linear").table(16, 4)
    fixed = {(t, s) for t, s in np.argwhere(table == linear).tolist()}
    assert fixed == {(t, t % 4) for t in range(16)}


def test_the_flat_and_the_2d_form_agree_exactly_on_whole_blocks() -> None:
    tokens = 8
    for columns in range(4, 65):
        stored = [published_2d_form(t, s, columns) for t in range(tokens) for s in range(columns)]
        flat = [
            FORMULAS["swizzle_4x4"](t, s, columns) for t in range(tokens) for s in range(columns)
        ]
        agree = [row * columns + col for row, col in stored] == flat
        assert agree == (columns % 4 == 0)
        if not agree:
            assert len(set(stored)) < len(stored)
            assert max(row for row, _ in stored) >= tokens
        defined = candidate("swizzle_4x4").undefined_reason(tokens, columns) is None
        assert defined == agree


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_the_2d_form_divides_by_zero_below_four_columns(columns: int) -> None:
    with pytest.raises(ZeroDivisionError):
        published_2d_form(0, 0, columns)
    assert candidate("swizzle_4x4").undefined_reason(4, columns) is not None


def test_the_flat_form_leaves_a_plane_that_cuts_a_band() -> None:
    for tokens in (5, 6, 7, 9):
        assert FORMULAS["swizzle_4x4"](tokens - 1, 7, 8) >= tokens * 8
        assert candidate("swizzle_4x4").undefined_reason(tokens, 8) is not None


# --- Where candidates coincide ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("plane", "groups"),
    [
        ((16, 4), [("linear", "double_swizzle_4x4", "tile_8x4"), ("swizzle_4x4", "inverse_4x4")]),
        ((4, 4), [("linear", "double_swizzle_4x4"), ("swizzle_4x4", "inverse_4x4")]),
        ((16, 8), []),
        ((16, 12), []),
        ((16, 16), [("inverse_4x4", "double_swizzle_4x4")]),
        ((16, 32), []),
        ((128, 36), []),
        ((6, 5), []),
    ],
)
def test_coincidences(plane: tuple[int, int], groups: list[tuple[str, ...]]) -> None:
    assert coincidences(*plane) == groups


def test_the_swizzles_coincide_at_head_sizes_64_and_256_only() -> None:
    def apart(tokens: int, columns: int) -> bool:
        named = {tuple(permutation(name, tokens, columns)) for name in list(CANDIDATES)[:4]}
        return len(named) == 4

    assert [columns for columns in COLUMNS if not apart(16, columns)] == [4, 16]


def test_coincidences_are_those_of_the_formulas() -> None:
    for tokens, columns in product((8, 16, 128), COLUMNS):
        grouped = {name: group for group in coincidences(tokens, columns) for name in group}
        defined = [n for n in FORMULAS if not candidate(n).undefined_reason(tokens, columns)]
        for one, other in product(defined, defined):
            same = all(
                FORMULAS[one](t, s, columns) == FORMULAS[other](t, s, columns)
                for t in range(tokens)
                for s in range(columns)
            )
            assert same == (other in grouped.get(one, (one,)))


# --- Where candidates are undefined -----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "plane", "reason"),
    [
        ("swizzle_4x4", (6, 4), "T to be a multiple of 4, not T=6: the last band"),
        ("swizzle_4x4", (16, 5), "S to be a multiple of 4, not S=5: there the flat and the 2-D"),
        ("inverse_4x4", (16, 6), "S to be a multiple of 4, not S=6"),
        ("double_swizzle_4x4", (16, 2), "S to be a multiple of 4, not S=2"),
        ("tile_128x4", (64, 8), "T to be a multiple of 128, not T=64: the plane would cut a tile"),
        ("tile_8x4", (12, 8), "T to be a multiple of 8, not T=12"),
        ("transpose_8x4", (16, 8), "S to be a multiple of 32, not S=8"),
        ("linear", (0, 8), "at least one token and one column, not T=0"),
        ("linear", (8, -1), "at least one token and one column, not S=-1"),
    ],
)
def test_undefined_planes_are_refused_with_the_reason(
    name: str, plane: tuple[int, int], reason: str
) -> None:
    said = candidate(name).undefined_reason(*plane)
    assert said is not None
    assert reason in said
    for refuse in (candidate(name).table, candidate(name).layout):
        with pytest.raises(LayoutUndefined) as caught:
            refuse(*plane)
        assert str(caught.value) == said
        assert caught.value.exit_code == 2


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        candidate("zigzag")
    assert all(name in str(caught.value) for name in ("zigzag", *CANDIDATES))


def test_the_candidates_as_tensor_layouts_evaluates_them() -> None:
    peer = pytest.importorskip("tensor_layouts")
    for each, columns in product(CANDIDATES.values(), (4, 8, 12, 32)):
        if each.undefined_reason(128, columns) is not None:
            continue
        layout = each.layout(128, columns)
        other = peer.Layout(layout.shape, layout.stride)
        theirs = [[other(t, s) for s in range(columns)] for t in range(128)]
        assert each.table(128, columns).tolist() == theirs
