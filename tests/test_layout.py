"""The shape:stride algebra against brute force and against the package tensor-layouts."""

from __future__ import annotations

import itertools
import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from oracle.errors import UsageError
from oracle.layout import Layout, LayoutUndefined, shape_stride

relaxed = settings(deadline=None)  # a busy machine is no failure

# --- Independent references -------------------------------------------------------------------


def naive_offset(shape: Any, stride: Any, index: int) -> int:
    """The offset of an index by its definition, one mode after the other, no flattening."""
    if isinstance(shape, int):
        return int(index * stride)
    offset = 0
    for mode, step in zip(shape, stride, strict=True):
        size = naive_size(mode)
        offset += naive_offset(mode, step, index % size)
        index //= size
    return offset


def naive_size(shape: Any) -> int:
    return int(shape if isinstance(shape, int) else math.prod(map(naive_size, shape)))


def naive_offsets(layout: Layout) -> list[int]:
    return [naive_offset(layout.shape, layout.stride, i) for i in range(naive_size(layout.shape))]


def factorizations(n: int) -> list[tuple[int, ...]]:
    """Every ordered factorization of n into factors above 1; one empty one for 1."""
    if n == 1:
        return [()]
    return [
        (first, *rest)
        for first in range(2, n + 1)
        if n % first == 0
        for rest in factorizations(n // first)
    ]


def is_mode(line: list[int]) -> bool:
    """Whether a line that starts at 0 is a shape:stride: tries every shape there is."""
    for shape in factorizations(len(line)):
        starts = itertools.accumulate(shape[:-1], int.__mul__, initial=1)
        stride = tuple(line[start] for start in starts) if shape else ()
        if line == [naive_offset(shape, stride, i) for i in range(len(line))]:
            return True
    return False


def is_shape_stride(table: np.ndarray) -> bool:
    """Whether a [T, S] table is a base plus a mode of t plus a mode of s."""
    down = (table[:, 0] - table[0, 0]).tolist()
    across = (table[0] - table[0, 0]).tolist()
    sums = [[table[0, 0] + a + b for b in across] for a in down]
    return sums == table.tolist() and is_mode(down) and is_mode(across)


# --- Domains ----------------------------------------------------------------------------------


def small_layouts() -> list[Layout]:
    """Every two-mode layout with extents up to 3 and strides that overlap, leave gaps, or fit."""
    extents, strides = (1, 2, 3), (0, 1, 2, 3, 6)
    flat = [
        Layout(shape, stride)
        for shape in itertools.product(extents, repeat=2)
        for stride in itertools.product(strides, repeat=2)
    ]
    nested = [
        Layout(((2, a), b), (stride[:2], stride[2]))
        for a, b in ((2, 2), (3, 2), (2, 3), (1, 4))
        for stride in itertools.product((0, 1, 2, 4, 8), repeat=3)
    ]
    return [*flat, *nested, Layout(6, 1), Layout(6, 2), Layout(1, 0)]


def permutation_layouts(size: int) -> list[Layout]:
    """Every layout that is a permutation of 0..size-1, with no two digits fused."""
    found = []
    for shape in factorizations(size):
        for order in itertools.permutations(range(len(shape))):
            stride, step = [0] * len(shape), 1
            for mode in order:
                stride[mode], step = step, step * shape[mode]
            found.append(Layout(shape, tuple(stride)))
    return found


leaves = st.tuples(st.integers(1, 4), st.sampled_from([-8, -1, 0, 1, 2, 3, 4, 8, 12, 16, 32, 64]))
modes = st.recursive(leaves, lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=4)


def shape_of(mode: Any) -> Any:
    return mode[0] if isinstance(mode, tuple) else tuple(map(shape_of, mode))


def stride_of(mode: Any) -> Any:
    return mode[1] if isinstance(mode, tuple) else tuple(map(stride_of, mode))


@st.composite
def plane_layouts(draw: st.DrawFn, minimum: int = 1) -> Layout:
    """Nested layouts of two modes, overlapping and reversed ones included."""
    pair = [draw(modes), draw(modes)]
    layout = Layout(shape_of(pair), stride_of(pair))
    assume(all(minimum <= mode.size <= 64 for mode in layout.modes))
    return layout


# --- Evaluation and properties ----------------------------------------------------------------


def test_the_pictures_of_the_introduction() -> None:
    assert Layout((3, 4), (4, 1)).table().tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert Layout((3, 4), (1, 3)).table().tolist() == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]
    assert Layout(((2, 2), 4), ((1, 8), 2)).table().tolist() == [
        [0, 2, 4, 6],
        [1, 3, 5, 7],
        [8, 10, 12, 14],
        [9, 11, 13, 15],
    ]
    assert int(Layout((3, 4), (4, 1))(1)) == 4


def test_every_property_follows_from_the_offsets() -> None:
    for layout in small_layouts():
        check_properties(layout)


def check_properties(layout: Layout) -> None:
    offsets = naive_offsets(layout)
    span = max(offsets) - min(offsets) + 1
    assert layout(np.arange(layout.size)).tolist() == offsets
    assert layout.table().ravel(order="F").tolist() == offsets
    assert layout.size == len(offsets)
    assert layout.cosize == span
    assert layout.injective == (len(set(offsets)) == len(offsets))
    assert layout.surjective == (len(set(offsets)) == span)
    assert layout.bijective == (sorted(offsets) == list(range(min(offsets), max(offsets) + 1)))


@relaxed
@given(plane_layouts())
def test_evaluation_and_coalescing_of_random_layouts(layout: Layout) -> None:
    offsets = naive_offsets(layout)
    assert layout(np.arange(layout.size)).tolist() == offsets
    assert naive_offsets(layout.coalesce()) == offsets
    assert layout.cosize == max(offsets) - min(offsets) + 1
    t, s = np.divmod(np.arange(layout.size), layout.modes[1].size)
    assert layout(t, s).tolist() == layout.table().ravel().tolist()


def test_coordinates_broadcast() -> None:
    layout = Layout((3, 4), (4, 1))
    assert layout([[0], [2]], [1, 3]).tolist() == [[1, 3], [9, 11]]


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (Layout(((4, 4), 8), ((1, 32), 4)), "((4,4),8):((1,32),4)"),
        (Layout(8, 1), "8:1"),
        (Layout((2, (3, (4, 5))), (60, (20, (5, 1)))), "(2,(3,(4,5))):(60,(20,(5,1)))"),
    ],
)
def test_notation(layout: Layout, text: str) -> None:
    assert str(layout) == text


@pytest.mark.parametrize(
    ("shape", "stride"),
    [
        ((4, 8), (1,)),
        ((4, 8), 1),
        (4, (1, 2)),
        (((2, 2), 8), (1, 4)),
        ((4, 0), (1, 4)),
        (-4, 1),
        ((), ()),
        ((4, 2.5), (1, 4)),
    ],
)
def test_malformed_layouts_are_refused(shape: Any, stride: Any) -> None:
    with pytest.raises(UsageError, match="is no layout"):
        Layout(shape, stride)


@pytest.mark.parametrize("coordinates", [(12,), (-1,), (3, 0), (0, 4), (0, -1), ([0, 3], 1)])
def test_coordinates_outside_are_refused(coordinates: Any) -> None:
    with pytest.raises(UsageError, match="lies outside"):
        Layout((3, 4), (4, 1))(*coordinates)


@pytest.mark.parametrize("coordinates", [(), (0, 0, 0)])
def test_a_wrong_number_of_coordinates_is_refused(coordinates: Any) -> None:
    with pytest.raises(UsageError, match="takes 1 or 2 coordinates"):
        Layout((3, 4), (4, 1))(*coordinates)


# --- Inverse and composition ------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 6, 8, 12, 16, 24, 30])
def test_the_inverse_undoes_every_permutation(size: int) -> None:
    for layout in permutation_layouts(size):
        inverse = layout.inverse()
        offsets = naive_offsets(layout)
        assert [naive_offset(inverse.shape, inverse.stride, p) for p in offsets] == list(
            range(size)
        )
        assert naive_offsets(inverse.inverse()) == offsets


def test_a_single_point_is_its_own_inverse() -> None:
    assert Layout((1, 1), (5, 0)).inverse() == Layout(1, 0)


def test_nested_modes_invert_by_index() -> None:
    layout = Layout(((4, 2), 8), ((1, 32), 4))
    assert layout.inverse()(layout(np.arange(64))).tolist() == list(range(64))


def test_only_permutations_from_zero_have_an_inverse() -> None:
    refused = []
    for layout in small_layouts():
        indices = list(range(layout.size))
        if sorted(naive_offsets(layout)) == indices:
            assert layout.inverse()(layout(indices)).tolist() == indices
        else:
            with pytest.raises(LayoutUndefined, match="has no inverse"):
                layout.inverse()
            refused.append(layout)
    assert 0 < len(refused) < len(small_layouts())


def test_a_reversal_has_no_inverse_as_a_layout() -> None:
    with pytest.raises(LayoutUndefined, match="has no inverse"):
        Layout(4, -1).inverse()


@relaxed
@given(plane_layouts(), plane_layouts())
def test_composition_exists_exactly_where_a_shape_stride_does(outer: Layout, inner: Layout) -> None:
    indices = naive_offsets(inner)
    if min(indices) < 0 or max(indices) >= outer.size:
        with pytest.raises(LayoutUndefined, match="leaves"):
            outer.compose(inner)
        return
    expected = [naive_offset(outer.shape, outer.stride, index) for index in indices]
    table = np.reshape(expected, [mode.size for mode in inner.modes], order="F")
    if is_shape_stride(table):
        composed = outer.compose(inner)
        assert naive_offsets(composed) == expected
        assert [m.size for m in composed.modes] == [m.size for m in inner.modes]
    else:
        with pytest.raises(LayoutUndefined, match="has no shape:stride"):
            outer.compose(inner)


def test_composition_without_a_shape_stride_is_refused() -> None:
    with pytest.raises(LayoutUndefined, match=r"\(3,5\):\(1,7\) after 4:2 has no shape:stride"):
        Layout((3, 5), (1, 7)).compose(Layout(4, 2))


def test_composition_of_a_single_mode_keeps_it_single() -> None:
    assert str(Layout((4, 2), (2, 1)).compose(Layout(8, 1))) == "(4,2):(2,1)"
    assert str(Layout((4, 2), (2, 1)).compose(Layout(4, 1))) == "4:2"


# --- From a table back to shape:stride --------------------------------------------------------


@relaxed
@given(plane_layouts(), st.integers(-1000, 1000))
def test_a_table_gives_its_layout_back(layout: Layout, base: int) -> None:
    recovered = shape_stride(base + layout.table())
    assert recovered == (layout.coalesce(), base)
    assert len(layout.coalesce().leaves) <= max(2, len(layout.leaves))


@relaxed
@given(plane_layouts(minimum=2), st.data())
def test_one_wrong_point_leaves_no_shape_stride(layout: Layout, data: st.DataObject) -> None:
    table = layout.table()
    t = data.draw(st.integers(0, table.shape[0] - 1))
    s = data.draw(st.integers(0, table.shape[1] - 1))
    table[t, s] += data.draw(st.sampled_from([-1, 1, 7]))
    assert shape_stride(table) is None


@pytest.mark.parametrize("shape", [(1, 6), (6, 1), (2, 3), (3, 2)])
def test_every_permutation_of_six(shape: tuple[int, int]) -> None:
    """Against a search through all shapes, on all 720 tables."""
    verdicts = []
    for order in itertools.permutations(range(6)):
        table = np.reshape(order, shape)
        recovered = shape_stride(table)
        assert (recovered is not None) == is_shape_stride(table)
        if recovered is not None:
            layout, base = recovered
            offsets = base + np.reshape(naive_offsets(layout), shape, order="F")
            assert offsets.tolist() == table.tolist()
        verdicts.append(recovered is not None)
    assert any(verdicts)
    assert not all(verdicts)


@relaxed
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_any_line_is_read_or_refused_rightly(line: list[int]) -> None:
    """Small values make repeats and stride 0 common."""
    table = np.reshape(line, (1, -1))
    assert (shape_stride(table) is not None) == is_shape_stride(table)


def test_an_empty_table_has_no_layout() -> None:
    assert shape_stride(np.empty((0, 4), np.int64)) is None


# --- Against tensor-layouts -------------------------------------------------------------------


@pytest.fixture(scope="module")
def peer() -> ModuleType:
    module: ModuleType = pytest.importorskip("tensor_layouts")
    return module


def test_offsets_and_properties_as_the_peer_has_them(peer: ModuleType) -> None:
    analysis = pytest.importorskip("tensor_layouts.analysis")
    for layout in small_layouts():
        other = peer.Layout(layout.shape, layout.stride)
        assert layout(np.arange(layout.size)).tolist() == [other(i) for i in range(layout.size)]
        assert (layout.size, layout.cosize) == (peer.size(other), peer.cosize(other))
        assert layout.injective == analysis.is_injective(other)
        assert layout.surjective == analysis.is_surjective(other)
        assert layout.bijective == analysis.is_bijective(other)


def test_two_coordinates_as_the_peer_has_them(peer: ModuleType) -> None:
    for layout in small_layouts():
        if len(layout.modes) == 2:
            other = peer.Layout(layout.shape, layout.stride)
            points = np.ndindex(*(mode.size for mode in layout.modes))
            assert all(int(layout(*point)) == other(*point) for point in points)


def test_inverse_as_the_peer_has_it(peer: ModuleType) -> None:
    for size in (6, 8, 12, 16):
        for layout in permutation_layouts(size):
            other = peer.left_inverse(peer.Layout(layout.shape, layout.stride))
            ours = layout.inverse()(np.arange(size)).tolist()
            assert ours == [other(p) for p in range(size)]


def test_coalesce_as_the_peer_has_it(peer: ModuleType) -> None:
    for layout in small_layouts():
        if len(layout.modes) == 2:
            other = peer.coalesce(peer.Layout(layout.shape, layout.stride), (None, None))
            assert naive_offsets(layout.coalesce()) == [other(i) for i in range(layout.size)]
            assert len(layout.coalesce().leaves) == len(peer.as_list(peer.flatten(other.shape)))


def test_composition_as_the_peer_has_it(peer: ModuleType) -> None:
    """On every pair where the peer's answer is the composition at all.

    It goes mode by mode, which is something else where digits of the inner layout carry.
    """
    outers = [*permutation_layouts(12)[::2], Layout((4, 3), (0, 5))]
    answered = 0
    for outer in outers:
        outer_offsets = naive_offsets(outer)
        for inner in small_layouts():
            if inner.cosize > outer.size:
                continue
            try:
                composed = peer.compose(
                    peer.Layout(outer.shape, outer.stride), peer.Layout(inner.shape, inner.stride)
                )
            except peer.LayoutError:
                continue
            theirs = [composed(i) for i in range(inner.size)]
            if theirs == [outer_offsets[index] for index in naive_offsets(inner)]:
                assert outer.compose(inner)(np.arange(inner.size)).tolist() == theirs
                answered += 1
    assert answered > 1000
