"""Provenance of bytes: sound against changed inputs, no coarser than a group, on both tiers."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from agreement import compare, mapped, wild_request
from handmade_ir import Code, filled, kernel, leave, parameters
from numpy.typing import NDArray

from oracle.geometry import CacheGeometry
from oracle.machine.builder import F32, F64, I1, I32, I64
from oracle.machine.context import Unsupported
from oracle.machine.ir import Value
from oracle.machine.launch import Program
from oracle.machine.memory import Memory, StoreEvent
from oracle.machine.provenance import SHADOW, map_tags, split_tags, with_tags
from oracle.quantize import ScaleSearch
from oracle.requests import StoreRequest
from oracle.subjects.binary import MachineWriter
from oracle.subjects.source import store_writer

Bytes = NDArray[np.uint8]
GEOMETRY = CacheGeometry(2, 16, 2, 64, "HND")
GROUP_BYTES = 32


@cache
def writer(arch: str, dtype: str, search: str) -> MachineWriter:
    return store_writer("store", "store", "linear", "swizzle_4x4", ScaleSearch(search), arch, dtype)


@cache
def tagged(arch: str, dtype: str, search: str) -> Program:
    return Program(with_tags(writer(arch, dtype, search).program.function))


def stores(
    which: tuple[str, str, str], request: StoreRequest, labels: dict[str, Bytes]
) -> list[tuple[StoreEvent, StoreEvent]]:
    """Each store of a launch with the store of its tags."""
    fresh, *launch = mapped(writer(*which), request)
    memory = fresh()
    map_tags(memory, labels)
    tagged(*which).launch(*launch, memory)
    data, tags = split_tags(memory.stores)
    for store, tag in zip(data, tags, strict=True):
        assert np.array_equal(store.address + np.uint64(SHADOW), tag.address)
    return list(zip(data, tags, strict=True))


WHICH = (("sm_100a", "bf16", "max6"), ("sm_80", "fp16", "max6"))
"""With conversions in hardware, and in many integer operations."""


@pytest.mark.parametrize("which", WHICH, ids="-".join)
def test_codes_and_scales_are_decided_by_their_own_group_only(which: tuple[str, str, str]) -> None:
    """Label a launch's bytes by the bits of their group's number, and again by those inverted."""
    request = wild_request(GEOMETRY, which[1], 3, 1, (0.02, 0.03))
    group = np.arange(request.key.nbytes) // GROUP_BYTES
    for flip in (0, 0xFF):
        labels = {"key": (group ^ flip).astype(np.uint8), "value": np.full_like(group, 0x80)}
        labels["value"] = labels["value"].astype(np.uint8)
        pairs = stores(which, request, labels)
        for number, (store, tag) in enumerate(pairs):
            mine = store.lane // 32 * 8 + store.lane % 32
            expected = (mine ^ flip) & 0xFF if number < 2 else np.full_like(mine, 0x80)
            assert np.array_equal(tag.byte_values(), np.repeat(expected[:, None], tag.size, 1))


@pytest.mark.parametrize("which", WHICH, ids="-".join)
def test_scales_and_slots_have_labels_where_they_decide(which: tuple[str, str, str]) -> None:
    request = wild_request(GEOMETRY, which[1], 2, 2, (0.02, 0.03))
    labels = {"k_scale": np.full(4, 1, np.uint8), "v_scale": np.full(4, 2, np.uint8)}
    labels["slot_mapping"] = np.full(16, 4, np.uint8)
    pairs = stores(which, request, labels)
    found = [np.unique(tag.byte_values()).tolist() for _, tag in pairs]
    # The addresses depend on the slot, what is stored there does not.
    assert found == [[1], [1], [2], [2]]


@pytest.mark.parametrize("which", WHICH, ids="-".join)
def test_a_changed_byte_changes_only_what_has_its_tag(which: tuple[str, str, str]) -> None:
    """Against launches of the kernel without tags: what a changed input changes, is tagged."""
    noise = np.random.default_rng(3)
    request = wild_request(GEOMETRY, which[1], 1, 4, (0.02, 0.03))
    place = np.arange(request.key.nbytes) % GROUP_BYTES
    program = writer(*which).program.numpy
    fresh, *launch = mapped(writer(*which), request)

    def image(key: Bytes) -> list[Bytes]:
        memory = fresh()
        memory.region("key").data[: key.size] = key
        program.launch(*launch, memory)
        return [event.byte_values() for event in memory.stores]

    original = request.key.reshape(-1).view(np.uint8)
    before = image(original)
    changes = 0
    for part in range(4):
        labels = np.where(place // 8 == part, 1 << place % 8, 0).astype(np.uint8)
        tags = [tag.byte_values() for _, tag in stores(which, request, {"key": labels})]
        for index in np.flatnonzero(labels):
            altered = original.copy()
            altered[index] ^= np.uint8(noise.integers(1, 256))
            for old, new, tag in zip(before, image(altered), tags, strict=True):
                changed = old != new
                changes += int(np.count_nonzero(changed))
                assert (tag[changed] & labels[index]).all()
    assert changes > 100


def test_both_tiers_give_the_same_tags() -> None:
    pytest.importorskip("llvmlite", reason="needs llvmlite: pip install -e .[fast]")
    from oracle.machine.compiled.runtime import CompiledProgram

    which = WHICH[0]
    request = wild_request(GEOMETRY, which[1], 5, 5, (0.02, 0.03))
    labels = {"key": np.arange(request.key.nbytes).astype(np.uint8)}

    fresh, *launch = mapped(writer(*which), request)

    def memory() -> Memory:
        made = fresh()
        map_tags(made, labels)
        return made

    program = tagged(*which)
    found, _ = compare(program, CompiledProgram(program.function), memory, *launch)
    assert not found


# -- single rules ---------------------------------------------------------------------------------

A, B = 0x08040201, 0x80402010
"""Tags of two words: a label of its own for each byte."""


def tags_of(build: Any) -> list[int]:
    """The tags of what a kernel makes of two words tagged A and B, as words."""
    c = Code()
    first, second = (c.load(c.add(c.parameter(0), c.const(I64, 4 * k)))[0] for k in (0, 1))
    results: list[Value] = build(c, first, second)
    for k, value in enumerate(results):
        c.pc = 16 * k + 16
        c.store(c.add(c.parameter(1), c.const(I64, 4 * k)), [value])
    program = Program(with_tags(kernel(c.end(0, leave()))))
    memory = Memory()
    bases = filled(memory, source=np.array([1, 2], np.uint32), out=64)
    map_tags(memory, {"source": np.array([A, B], np.uint32).view(np.uint8)})
    program.launch((1, 1, 1), (1, 1, 1), parameters(*bases), memory)
    return [int(tag.words[0][0]) for tag in split_tags(memory.stores)[1]]


def _all(tag: int) -> int:
    one = 0
    for byte in tag.to_bytes(4, "little"):
        one |= byte
    return one * 0x01010101


RULES: dict[str, tuple[Any, list[int]]] = {
    "a move": (lambda c, a, b: [a, b], [A, B]),
    "bits of both": (lambda c, a, b: [c.or_(a, b), c.xor(a, b)], [A | B, A | B]),
    "a constant byte decides": (
        lambda c, a, b: [c.and_(a, c.word(0xFF00FF0F)), c.or_(a, c.word(0xFFFF0000))],
        [0x08000201, 0x00000201],
    ),
    "whole bytes shifted": (
        lambda c, a, b: [c.shl(a, 8), c.lshr(a, 24), c.shl(a, 16)],
        [0x04020100, 0x00000008, 0x02010000],
    ),
    "bits shifted": (lambda c, a, b: [c.shl(a, 4), c.lshr(a, 12)], [0x0C060301, 0x00080C06]),
    "the sign comes down": (
        lambda c, a, b: [c.ashr(a, 8), c.ashr(a, 31)], [0x08080402, 0x08080808]
    ),
    "an unknown distance": (
        lambda c, a, b: [c._binary("shl", a, c.and_(b, c.word(31)))],
        [_all(A) | 0x10101010],
    ),
    "carries go up": (lambda c, a, b: [c.add(a, b)], [0xFF773311]),
    "a choice": (lambda c, a, b: [c.select(c.trunc(a, I1), b, c.word(0))], [B | 0x01010101]),
    "a comparison": (lambda c, a, b: [c.zext(c.ult(a, b), I32)], [0xFF]),
    "a float": (
        lambda c, a, b: [c.fbits(c.float("fadd", c.bitcast(a), c.bitcast(b)))], [0xFFFFFFFF]
    ),
    "a float's sign": (
        lambda c, a, b: [c.bitcast(c.bitcast(c.xor(a, c.word(0x80000000))))], [A]
    ),
    "a double": (
        lambda c, a, b: [
            c.fbits(c.convert("fptrunc", c.convert("fpext", c.bitcast(a), F64), F32))
        ],
        [_all(A)],
    ),
    "halves of a pair": (
        lambda c, a, b: [c.low(c.emit("add", (I64,), (c.join(a, b), c.const(I64, 1)))[0]),
                         c.high(c.shl(c.join(a, b), 8))],
        [0x0F070301, 0x40201008],
    ),
    "a sign extended": (
        lambda c, a, b: [c.high(c.emit("lshr", (I64,), (c.sext(a, I64), c.const(I64, 8)))[0])],
        [0x00080808],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_rule(name: str) -> None:
    build, expected = RULES[name]
    assert [hex(tag) for tag in tags_of(build)] == [hex(tag) for tag in expected]


def test_what_crosses_lanes_is_refused() -> None:
    def votes(c: Code, a: Value, b: Value) -> list[Value]:
        return list(c.emit("ballot", (I32,), (c.trunc(a, I1), c.trunc(b, I1))))

    with pytest.raises(Unsupported, match="ballot"):
        tags_of(votes)
