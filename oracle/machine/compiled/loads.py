"""Loads: what each lane that takes part reads from memory."""

from __future__ import annotations

from oracle.machine.compiled.access import (
    WORD,
    Lanes,
    Scratch,
    emit_distance,
    emit_slow_way,
    site_pointer,
    words_of,
)
from oracle.machine.compiled.text import Text, Typed
from oracle.machine.ir import Type


def emit_load(
    text: Text, number: int, size: int, address: Typed, lanes: Lanes, scratch: Scratch
) -> list[Typed]:
    """The words loaded by each lane that takes part; zero in the others."""
    if not address.varying and not lanes.condition.varying:
        return _load_one(text, number, size, address, lanes.condition.name, scratch)
    address, taking = text.spread(address), text.spread(lanes.condition)
    name = text.fresh()[1:]
    bits = text.bits(taking.name)
    site = site_pointer(text, number)
    distance, good, data = emit_distance(text, site, address, size)
    everyone = text.value(f"icmp eq i{text.lanes} {bits}, -1")
    fast = text.value(f"and i1 {good}, {everyone}")
    text.line(f"br i1 {fast}, label %{name}f, label %{name}s, !prof !0")
    text.label(f"{name}f")
    quick = _gather(text, data, distance, size)
    text.line(f"br label %{name}e")
    text.label(f"{name}s")
    slow = emit_slow_way(text, "load", site, size, address.name, bits, scratch, [], name)
    text.line(f"br label %{name}e")
    text.label(f"{name}e")
    kind = text.vector("i32")
    return [
        Typed(text.value(f"phi {kind} [ {a}, %{name}f ], [ {b}, %{name}g ]"), Type.I32, True)
        for a, b in zip(quick, slow, strict=True)
    ]


def _load_one(
    text: Text, number: int, size: int, address: Typed, condition: str, scratch: Scratch
) -> list[Typed]:
    """The words at an address that is the same for all lanes."""
    name = text.fresh()[1:]
    count = words_of(size)
    text.line(f"br label %{name}a")
    text.label(f"{name}a")
    text.line(f"br i1 {condition}, label %{name}c, label %{name}e")
    text.label(f"{name}c")
    site = site_pointer(text, number)
    distance, good, data = emit_distance(text, site, address, size)
    text.line(f"br i1 {good}, label %{name}f, label %{name}s, !prof !0")
    text.label(f"{name}f")
    quick = _words_at(text, text.at(distance, data), size)
    text.line(f"br label %{name}e")
    text.label(f"{name}s")
    text.line(f"store i64 {address.name}, ptr {scratch.addresses}")
    status = text.value(
        f"call i32 @load_slow(ptr %context, ptr {site}, ptr {scratch.addresses}, i32 1, "
        f"i64 {size}, ptr {scratch.words}, i64 1)"
    )
    well = text.value(f"icmp eq i32 {status}, 0")
    text.line(f"br i1 {well}, label %{name}g, label %{scratch.fault}")
    text.label(f"{name}g")
    slow = [text.field(WORD * k, "i32", scratch.words) for k in range(count)]
    text.line(f"br label %{name}e")
    text.label(f"{name}e")
    return [
        Typed(
            text.value(f"phi i32 [ 0, %{name}a ], [ {a}, %{name}f ], [ {b}, %{name}g ]"),
            Type.I32,
            False,
        )
        for a, b in zip(quick, slow, strict=True)
    ]


def _words_at(text: Text, place: str, size: int) -> list[str]:
    if size < WORD:
        narrow = text.value(f"load i{8 * size}, ptr {place}, align 1")
        return [text.value(f"zext i{8 * size} {narrow} to i32")]
    places = [text.at(WORD * k, place) for k in range(words_of(size))]
    return [text.value(f"load i32, ptr {p}, align 1") for p in places]


def _gather(text: Text, data: str, distance: str, size: int) -> list[str]:
    """The words at `data` plus each lane's distance."""
    lanes = text.lanes
    places = []
    for lane in range(lanes):
        step = text.value(f"extractelement {text.vector('i64')} {distance}, i64 {lane}")
        places.append(text.at(step, data))
    if size < 16:
        scalar = f"i{8 * size}"
        kind = text.vector(scalar)
        whole = "poison"
        for lane, place in enumerate(places):
            part = text.value(f"load {scalar}, ptr {place}, align 1")
            whole = text.value(f"insertelement {kind} {whole}, {scalar} {part}, i64 {lane}")
        return _as_words(text, whole, size)
    parts = [text.value(f"load <4 x i32>, ptr {place}, align 1") for place in places]
    width = 4
    while len(parts) > 1:
        mask = ", ".join(f"i32 {i}" for i in range(2 * width))
        parts = [
            text.value(
                f"shufflevector <{width} x i32> {a}, <{width} x i32> {b}, "
                f"<{2 * width} x i32> <{mask}>"
            )
            for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
        width *= 2
    words = []
    for k in range(4):
        mask = ", ".join(f"i32 {4 * lane + k}" for lane in range(lanes))
        whole = f"<{width} x i32>"
        words.append(
            text.value(
                f"shufflevector {whole} {parts[0]}, {whole} poison, <{lanes} x i32> <{mask}>"
            )
        )
    return words


def _as_words(text: Text, whole: str, size: int) -> list[str]:
    kind, word = text.vector(f"i{8 * size}"), text.vector("i32")
    if size < WORD:
        return [text.value(f"zext {kind} {whole} to {word}")]
    if size == WORD:
        return [whole]
    upper = text.value(f"lshr {kind} {whole}, {text.everywhere('i64', '32')}")
    return [text.value(f"trunc {kind} {part} to {word}") for part in (whole, upper)]
