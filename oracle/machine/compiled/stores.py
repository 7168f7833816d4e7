"""Stores: what each lane that takes part writes to memory, and the log of it."""

from __future__ import annotations

from oracle.machine.compiled.abi import Context, Site, offset
from oracle.machine.compiled.access import (
    WORD,
    Lanes,
    Scratch,
    emit_distance,
    emit_slow_way,
    site_pointer,
)
from oracle.machine.compiled.pool import ALIGNMENT
from oracle.machine.compiled.text import Text, Typed

_PREFETCHED = 8
"""Of so many lanes one says which line they will store to."""


def emit_store(
    text: Text, number: int, size: int, address: Typed, words: list[Typed], lanes: Lanes,
    scratch: Scratch, log_lanes: int,
) -> None:  # fmt: skip
    """Store from each lane that takes part, and log it."""
    name = text.fresh()[1:]
    if text.lanes > 1:
        address, words = text.spread(address), [text.spread(word) for word in words]
        bits = text.bits(text.spread(lanes.condition).name)
    else:
        bits = text.value(f"bitcast i1 {lanes.condition.name} to i1")
    some = text.value(f"icmp ne i{text.lanes} {bits}, 0")
    text.line(f"br i1 {some}, label %{name}b, label %{name}e, !prof !0")
    text.label(f"{name}b")
    site = site_pointer(text, number)
    order = text.value("load i64, ptr %order")
    text.line(f"store i64 {text.value(f'add i64 {order}, 1')}, ptr %order")
    logging = text.field(offset(Context, "logging"), "i64")
    wanted = text.value(f"icmp ne i64 {logging}, 0")
    text.line(f"br i1 {wanted}, label %{name}l, label %{name}m")
    text.label(f"{name}l")
    _log(text, site, address, words, bits, lanes, order, log_lanes, name)
    text.line(f"br label %{name}m")
    text.label(f"{name}m")
    names = [word.name for word in words]
    if text.lanes > 1:
        _store_lanes(text, site, size, address, names, bits, scratch, name)
    else:
        _store_one(text, site, size, address, names, scratch, name)
    text.line(f"br label %{name}e")
    text.label(f"{name}e")


def emit_prefetch(text: Text, number: int, address: Typed) -> None:
    """Have the lines fetched that lanes are about to store to.

    Lanes next to each other mostly store to the same line, so a few stand for all. It is no access:
    an address that is out of bounds does no harm.
    """
    if not address.varying:
        return
    site = site_pointer(text, number)
    base = text.field(offset(Site, "base"), "i64", site)
    for lane in range(0, text.lanes, _PREFETCHED):
        place = text.value(f"extractelement {text.vector('i64')} {address.name}, i64 {lane}")
        distance = text.value(f"sub i64 {place}, {base}")
        for field in ("data", "marks"):
            line = text.at(distance, text.field(offset(Site, field), "ptr", site))
            text.line(f"call void @llvm.prefetch.p0(ptr {line}, i32 1, i32 3, i32 1)")


def _log(
    text: Text, site: str, address: Typed, words: list[Typed], bits: str, lanes: Lanes,
    order: str, log_lanes: int, name: str,
) -> None:  # fmt: skip
    """Append a record to the site's log."""
    records = text.field(offset(Site, "records"), "i64", site)
    full = text.value(
        f"icmp uge i64 {records}, {text.field(offset(Site, 'capacity'), 'i64', site)}"
    )
    text.line(f"br i1 {full}, label %{name}r, label %{name}w, !prof !1")
    text.label(f"{name}r")
    grow = text.field(offset(Context, "grow"), "ptr")
    text.line(f"call void {grow}(ptr %context)")
    text.line(f"br label %{name}w")
    text.label(f"{name}w")
    capacity = text.field(offset(Site, "capacity"), "i64", site)
    place = text.value(f"mul i64 {records}, {log_lanes}")
    stride = text.value(f"mul i64 {capacity}, {log_lanes}")
    if text.lanes == 1:
        place = text.value(f"add i64 {place}, {lanes.lane}")
    table = text.field(offset(Site, "address"), "ptr", site)
    target = text.value(f"getelementptr i64, ptr {table}, i64 {place}")
    text.line(f"store {text.typed(address)}, ptr {target}, {_streamed(text, 8)}")
    table = text.field(offset(Site, "words"), "ptr", site)
    for word in words:
        target = text.value(f"getelementptr i32, ptr {table}, i64 {place}")
        text.line(f"store {text.typed(word)}, ptr {target}, {_streamed(text, WORD)}")
        place = text.value(f"add i64 {place}, {stride}")
    mask = text.value(f"zext i{text.lanes} {bits} to i64")
    if text.lanes == 1:
        mask = text.value(f"shl i64 {mask}, {lanes.lane}")
    place = text.value(f"or i64 {text.value(f'shl i64 {order}, 32')}, {mask}")
    table = text.field(offset(Site, "heads"), "ptr", site)
    for index, entry in (
        (records, lanes.first_lane),
        (text.value(f"add i64 {records}, {capacity}"), place),
    ):
        head = text.value(f"getelementptr i64, ptr {table}, i64 {index}")
        text.line(f"store i64 {entry}, ptr {head}")
    text.line(
        f"store i64 {text.value(f'add i64 {records}, 1')}, "
        f"ptr {text.at(offset(Site, 'records'), site)}"
    )


def _streamed(text: Text, size: int) -> str:
    """How an element of so many bytes, or a vector of them, is stored that is not read soon.

    Whole lines of the cache go to memory, which need not be read before. A log keeps the alignment.
    """
    if text.lanes == 1:
        return f"align {size}"
    return f"align {min(size * text.lanes, ALIGNMENT)}, !nontemporal !3"


def _store_lanes(
    text: Text, site: str, size: int, address: Typed, words: list[str], bits: str,
    scratch: Scratch, name: str,
) -> None:  # fmt: skip
    distance, good, data = emit_distance(text, site, address, size)
    everyone = text.value(f"icmp eq i{text.lanes} {bits}, -1")
    fast = text.value(f"and i1 {good}, {everyone}")
    text.line(f"br i1 {fast}, label %{name}f, label %{name}s, !prof !0")
    text.label(f"{name}s")
    emit_slow_way(text, "store", site, size, address.name, bits, scratch, words, name)
    text.line(f"br label %{name}e")
    text.label(f"{name}f")
    steps = [
        text.value(f"extractelement {text.vector('i64')} {distance}, i64 {lane}")
        for lane in range(text.lanes)
    ]
    kind, parts = _parts(text, words, size)
    for step, part in zip(steps, parts, strict=True):
        text.line(f"store {kind} {part}, ptr {text.at(step, data)}, align 1")
    marks = text.field(offset(Site, "marks"), "ptr", site)
    unmarked = text.value(f"icmp ne ptr {marks}, null")
    text.line(f"br i1 {unmarked}, label %{name}k, label %{name}e")
    text.label(f"{name}k")
    for step in steps:
        text.line(f"store {_ones(size)}, ptr {text.at(step, marks)}, align 1")


def _ones(size: int) -> str:
    bits = int.from_bytes(b"\1" * size, "little")
    return f"i{8 * size} {bits}"


def _parts(text: Text, words: list[str], size: int) -> tuple[str, list[str]]:
    """What each lane stores, as one scalar a lane or four words a lane."""
    lanes, word = text.lanes, text.vector("i32")
    if size < WORD:
        narrow = text.vector(f"i{8 * size}")
        return _elements(text, f"i{8 * size}", text.value(f"trunc {word} {words[0]} to {narrow}"))
    if size == WORD:
        return _elements(text, "i32", words[0])
    pairs = [_interleave(text, words[k], words[k + 1]) for k in range(0, len(words), 2)]
    if size == 2 * WORD:
        return _elements(text, "i64", pairs[0])
    parts = []
    for lane in range(lanes):
        halves = [
            text.value(f"extractelement {text.vector('i64')} {pair}, i64 {lane}") for pair in pairs
        ]
        first = text.value(f"insertelement <2 x i64> poison, i64 {halves[0]}, i64 0")
        parts.append(text.value(f"insertelement <2 x i64> {first}, i64 {halves[1]}, i64 1"))
    return "<2 x i64>", parts


def _elements(text: Text, scalar: str, whole: str) -> tuple[str, list[str]]:
    kind = text.vector(scalar)
    return scalar, [
        text.value(f"extractelement {kind} {whole}, i64 {lane}") for lane in range(text.lanes)
    ]


def _interleave(text: Text, low: str, high: str) -> str:
    """Two words of each lane as one of 64 bits."""
    lanes, word = text.lanes, text.vector("i32")
    mask = ", ".join(f"i32 {lane}, i32 {lanes + lane}" for lane in range(lanes))
    mixed = text.value(f"shufflevector {word} {low}, {word} {high}, <{2 * lanes} x i32> <{mask}>")
    return text.value(f"bitcast <{2 * lanes} x i32> {mixed} to {text.vector('i64')}")


def _store_one(
    text: Text, site: str, size: int, address: Typed, words: list[str], scratch: Scratch, name: str
) -> None:
    """A single lane stores the slow way: it comes here seldom."""
    text.line(f"store i64 {address.name}, ptr {scratch.addresses}")
    for k, word in enumerate(words):
        text.line(f"store i32 {word}, ptr {text.at(WORD * k, scratch.words)}")
    status = text.value(
        f"call i32 @store_slow(ptr %context, ptr {site}, ptr {scratch.addresses}, i32 1, "
        f"i64 {size}, ptr {scratch.words}, i64 1)"
    )
    well = text.value(f"icmp eq i32 {status}, 0")
    text.line(f"br i1 {well}, label %{name}e, label %{scratch.fault}")
    text.label(f"{name}u")
