"""Tests of the answers about ownership: equal to a map from byte to owners."""

from __future__ import annotations

import time
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided
from owners import owner_map, small_shapes, smallest_pairs, tensors

from oracle.geometry import check
from oracle.views.examine import Asked, Examination
from oracle.views.owners import QUESTIONS, Owners
from oracle.views.planes import SPLITS, Carving, Plane, carve, view_split
from oracle.views.tensor import LAYOUTS, CacheTensor, cache_tensor, dense_strides

relaxed = settings(deadline=None)  # a busy machine is no failure

PRODUCTION = (100_000, 2, 64, 8, 72)


def assert_as_enumerated(carving: Carving) -> None:
    owners = Owners(carving)
    expected = owner_map(carving)
    pairs = smallest_pairs(expected)
    for question in QUESTIONS:
        shared = owners.answers[question]
        found = None if shared is None else (shared.first.order, shared.second.order)
        assert found == pairs[question], question
        if shared is not None:
            assert {shared.first.order, shared.second.order} <= set(expected[shared.byte])
    assert owners.once == (pairs["bytes"] is None)
    if owners.once:
        assert owners.owned == len(expected)
    else:
        assert owners.owned is None
    assert_outside_as_enumerated(owners, max(expected))


def assert_outside_as_enumerated(owners: Owners, last: int) -> None:
    carving = owners.carving
    storage = carving.tensor.storage_bytes
    if last < storage:
        assert owners.outside is None
        return
    assert owners.outside is not None
    offset, owner = owners.outside
    plane = next(plane for plane in carving.planes if plane.last >= storage)
    pages = [np.arange(size) for size in plane.shape]
    inside = plane.offsets(*np.ix_(*pages)) < storage
    first = np.argwhere(~inside)[0]
    assert (owner.side, owner.kind) == (plane.side, plane.kind)
    assert [owner.page, owner.head, owner.row, owner.column] == first.tolist()
    assert offset == plane.offsets(*first)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_small_cache_in_every_named_order(layout: str, split: str) -> None:
    for shape in small_shapes():
        tensor = cache_tensor(shape, dense_strides(shape, layout, layers=2))
        assert_as_enumerated(carve(tensor, view_split(split)))


# Strides under which the smaller owner is of either plane, or heads differ within one half.
AWKWARD = [
    ((2, 2, 2, 2, 9), (18, 54, 36, 18, 54), "page"),
    ((2, 2, 3, 3, 9), (9, 9, 36, 18, 54), "inline"),
    ((2, 2, 2, 2, 9), (9, 36, 18, 0, 2), "contiguous"),
    ((1, 2, 1, 3, 9), (2, 18, 2, 54, 1), "vllm"),
    ((1, 2, 1, 3, 9), (36, 18, 36, 36, 54), "vllm"),
]


@pytest.mark.parametrize(("shape", "strides", "split"), AWKWARD)
def test_awkward_strides(shape: tuple[int, ...], strides: tuple[int, ...], split: str) -> None:
    assert_as_enumerated(carve(cache_tensor(shape, strides), view_split(split)))


@relaxed
@given(tensors(), st.sampled_from(sorted(SPLITS)))
def test_any_strides(tensor: CacheTensor, split: str) -> None:
    assert_as_enumerated(carve(tensor, view_split(split)))


@relaxed
@given(tensors(), st.sampled_from(sorted(SPLITS)))
def test_a_carving_of_a_shifted_tensor_is_shifted(tensor: CacheTensor, split: str) -> None:
    shifted = carve(CacheTensor(**{**vars(tensor), "offset": tensor.offset + 5}), view_split(split))
    for plane, moved in zip(carve(tensor, view_split(split)).planes, shifted.planes, strict=True):
        assert moved.base == plane.base + 5
        assert moved.strides == plane.strides


def as_view(plane: Plane) -> np.ndarray:  # type: ignore[type-arg]
    """A view of memory nobody owns: NumPy's own overlap search looks at its strides alone."""
    one = np.zeros(1, np.uint8)
    base = one.__array_interface__["data"][0] + plane.base
    holder = type("Holder", (), {})()
    holder.__array_interface__ = {
        "data": (base, False), "shape": plane.shape, "strides": tuple(plane.strides),
        "typestr": "|u1", "version": 3,
    }  # fmt: skip
    return np.asarray(holder)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_production_cache_in_a_second_and_as_numpy_finds_it(layout: str, split: str) -> None:
    # NumPy solves the same kind of equation with code of its own, for one pair of views.
    tensor = cache_tensor(PRODUCTION, dense_strides(PRODUCTION, layout, layers=48))
    start = time.perf_counter()
    examination = Examination(tensor, view_split(split))
    answers, parties = examination.owners.answers, examination.parties
    assert time.perf_counter() - start < 1
    assert parties
    views = {plane.name: as_view(plane) for plane in examination.carving.planes}
    base = min(plane.base for plane in examination.carving.planes)
    assert base == 0
    for question, side in (("sides", 0), ("planes", 1)):
        overlap = any(
            np.shares_memory(views[a], views[b])
            for a, b in combinations(views, 2)
            if a.split()[side] != b.split()[side]
        )
        assert overlap == (answers[question] is not None)


def test_numpy_evaluates_strides_as_the_planes_do() -> None:
    shape = (2, 2, 3, 2, 18)
    tensor = cache_tensor(shape, dense_strides(shape, "NHD"), 4)
    store = np.arange(tensor.storage_bytes, dtype=np.uint16)
    for split in SPLITS:
        if split == "head_slots":
            continue
        for plane in carve(tensor, view_split(split)).planes:
            steps = tuple(2 * step for step in plane.strides)
            view = as_strided(store[plane.base :], plane.shape, steps)
            assert np.array_equal(
                view, plane.offsets(*np.ix_(*(np.arange(size) for size in plane.shape)))
            )


def test_a_token_major_cache_aliases_under_the_contiguous_split() -> None:
    # K, V and scales of a token stand together; the carve takes them for dense regions.
    shape = (100, 2, 64, 8, 72)
    tensor = cache_tensor(shape, dense_strides(shape, "LBNHC"))
    faults = Examination(tensor, view_split("contiguous")).faults
    assert faults[:2] == (
        "K and V share a byte: byte 1024 is page 0 K data head 0 token 2 byte 0 and page 0 V data "
        "head 7 token 0 byte 0",
        "data and scales share a byte: byte 32768 is page 0 K scale head 0 token 0 column 0 and "
        "page 0 V data head 7 token 62 byte 0",
    )
    # The helper of the engine scales the strides instead, and meets its own side's scales.
    faults = Examination(tensor, view_split("vllm")).faults
    assert faults[1] == (
        "data and scales share a byte: byte 32768 is page 0 K data head 0 token 32 byte 0 and "
        "page 0 K scale head 0 token 0 column 0"
    )
    assert not Examination(tensor, view_split("inline")).faults
    assert not Examination(tensor, view_split("page")).faults


def test_a_padded_page_is_sound_and_counted() -> None:
    shape = (10, 2, 64, 8, 72)
    strides = list(dense_strides(shape, "HND"))
    strides[0] += 4096
    examination = Examination(cache_tensor(shape, strides), view_split("vllm"))
    assert examination.faults == ()
    assert examination.owners.owned == 10 * 73728
    assert examination.carving.tensor.storage_bytes == 9 * (73728 + 4096) + 73728


def test_a_page_stride_too_small_lets_pages_share() -> None:
    shape = (10, 2, 64, 8, 72)
    strides = (73728 - 1, *dense_strides(shape, "HND")[1:])
    answers = Examination(cache_tensor(shape, strides), view_split("vllm")).owners.answers
    shared = answers["pages"]
    assert shared is not None
    assert (shared.byte, shared.first.page, shared.second.page) == (73727, 0, 1)
    assert shared.first.kind == "scale"
    assert shared.second.kind == "data"


def test_witnesses_name_the_logical_scale() -> None:
    shape = (2, 2, 16, 2, 72)
    strides = list(dense_strides(shape, "HND"))
    strides[0] -= 1
    layouts = {"K": "linear", "V": "swizzle_4x4"}
    tensor = cache_tensor(shape, strides)
    plain, named = (
        Examination(tensor, view_split("vllm"), asked)
        for asked in (Asked(), Asked(scale_layouts=layouts))
    )
    shared = named.owners.answers["bytes"]
    assert shared is not None
    assert plain.words(shared.first) == "page 0 V scale head 1 token 15 column 7"
    # Offset 127 of the plane is the last of the last band either way; the one before is not.
    assert named.words(shared.first) == "page 0 V scale head 1 token 15 column 7"
    before = type(shared.first)(0, "V", "scale", 1, 15, 6)
    assert plain.words(before) == "page 0 V scale head 1 token 15 column 6"
    assert named.words(before) == "page 0 V scale head 1 token 14 column 7"


def test_check_gives_a_reason_to_raise() -> None:
    sound = np.zeros((4, 2, 16, 4, 72), np.uint8)
    assert check(sound) is None
    assert check(sound, "contiguous", layout="NHD") is None
    assert check(sound, parties=["flashinfer-fa2"]) is None
    reason = check(sound, parties=["trtllm-gen"])
    assert reason is not None
    assert reason.startswith("trtllm-gen may not be used: ")
    token_major = np.zeros((4, 16, 2, 4, 72), np.uint8).transpose(0, 2, 1, 3, 4)
    reason = check(token_major)
    assert reason is not None
    assert "data and scales share a byte" in reason
    assert "\n" not in reason
    assert "steps" in str(check(sound, layout="HND"))


def test_torch_tensors_are_checked_on_any_device() -> None:
    torch = pytest.importorskip("torch", reason="torch tensors need torch")
    sound = torch.zeros(4, 2, 16, 4, 72, dtype=torch.uint8)
    assert check(sound) is None
    assert check(sound[1:3]) is None
    assert check(sound.permute(0, 1, 3, 2, 4), dims="B2HNF") is None
    assert check(sound.view(torch.float8_e4m3fn)) is None
    large = torch.empty(100_000, 16, 64, 72, dtype=torch.uint8, device="meta")
    assert check(large, parties=["trtllm-gen", "vllm-store"]) is None
    token_major = torch.zeros(4, 16, 2, 4, 72, dtype=torch.uint8).transpose(1, 2)
    assert "data and scales share a byte" in str(check(token_major))


def test_torch_evaluates_strides_as_the_planes_do() -> None:
    torch = pytest.importorskip("torch", reason="torch's as_strided needs torch")
    for shape in small_shapes():
        for layout, split in product(LAYOUTS, SPLITS):
            tensor = cache_tensor(shape, dense_strides(shape, layout), 3)
            for plane in carve(tensor, view_split(split)).planes:
                labels = torch.arange(plane.last + 1)
                view = labels.as_strided(plane.shape, tuple(plane.strides), plane.base)
                mesh = np.ix_(*(np.arange(size) for size in plane.shape))
                assert np.array_equal(view.numpy(), plane.offsets(*mesh))
