"""Loads and stores: the fast way inline, where all lanes are inside the region met last.

Bounds and alignment are one comparison: the distance to the region's base, rotated right by the
logarithm of the access size, is too large where a low bit was set. Everything else takes the slow
way of `helpers`.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from oracle.machine.compiled.abi import Context, Site, offset
from oracle.machine.compiled.text import Text, Typed
from oracle.machine.ir import Type

WORD = 4


@dataclass(frozen=True)
class Lanes:
    """Who takes part: a vector of conditions, or for one lane (or all alike) a single one."""

    condition: Typed
    first_lane: str
    """Number of lane 0 of the group in the launch."""
    lane: str
    """Which lane of its group a single lane is."""


@dataclass(frozen=True)
class Scratch:
    """Memory of the function to hand lanes to the slow way, and where a fault goes."""

    addresses: str
    words: str
    fault: str


def words_of(size: int) -> int:
    """How many words an access of `size` bytes has."""
    return max(1, size // WORD)


def site_pointer(text: Text, number: int) -> str:
    """The address of the `number`-th site of the context."""
    sites = text.field(offset(Context, "sites"), "ptr")
    return text.at(number * ctypes.sizeof(Site), sites)


def _distance(text: Text, site: str, address: Typed, size: int) -> tuple[str, str, str]:
    """Distances to the base of the site's region, whether all are good, and its data."""
    base = text.field(offset(Site, "base"), "i64", site)
    count = text.field(offset(Site, "count"), "i64", site)
    data = text.field(offset(Site, "data"), "ptr", site)
    kind = text.type(Type.I64, address.varying)
    if address.varying:
        base, count = text.everywhere("i64", base), text.everywhere("i64", count)
    distance = text.value(f"sub {kind} {address.name}, {base}")
    place = distance
    if size > 1:
        amount = str(size.bit_length() - 1)
        if address.varying:
            amount = text.everywhere("i64", amount)
        name = f"v{text.lanes}i64" if address.varying else "i64"
        operands = f"{kind} {distance}, {kind} {distance}, {kind} {amount}"
        place = text.value(f"call {kind} @llvm.fshr.{name}({operands})")
    good = text.value(f"icmp ult {kind} {place}, {count}")
    if address.varying:
        good = text.value(f"icmp eq i{text.lanes} {text.bits(good)}, -1")
    return distance, good, data


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
    distance, good, data = _distance(text, site, address, size)
    everyone = text.value(f"icmp eq i{text.lanes} {bits}, -1")
    fast = text.value(f"and i1 {good}, {everyone}")
    text.line(f"br i1 {fast}, label %{name}f, label %{name}s, !prof !0")
    text.label(f"{name}f")
    quick = _gather(text, data, distance, size)
    text.line(f"br label %{name}e")
    text.label(f"{name}s")
    slow = _slow(text, "load", site, size, address.name, bits, scratch, [], name)
    text.line(f"br label %{name}e")
    text.label(f"{name}e")
    kind = text.vector("i32")
    return [
        Typed(text.value(f"phi {kind} [ {a}, %{name}f ], [ {b}, %{name}g ]"), Type.I32, True)
        for a, b in zip(quick, slow, strict=True)
    ]


def _slow(
    text: Text, what: str, site: str, size: int, address: str, bits: str, scratch: Scratch,
    words: list[str], name: str,
) -> list[str]:  # fmt: skip
    """Call the slow way; the words loaded. Leaves the text in the basic block `name`g."""
    lanes, kind = text.lanes, text.vector("i32")
    text.line(f"store {text.vector('i64')} {address}, ptr {scratch.addresses}")
    for k, word in enumerate(words):
        place = text.at(k * lanes * WORD, scratch.words)
        text.line(f"store {kind} {word}, ptr {place}")
    mask = text.value(f"zext i{lanes} {bits} to i32")
    status = text.value(
        f"call i32 @{what}_slow(ptr %context, ptr {site}, ptr {scratch.addresses}, i32 {mask}, "
        f"i64 {size}, ptr {scratch.words}, i64 {lanes})"
    )
    well = text.value(f"icmp eq i32 {status}, 0")
    text.line(f"br i1 {well}, label %{name}g, label %{scratch.fault}")
    text.label(f"{name}g")
    if what == "store":
        return []
    places = [text.at(k * lanes * WORD, scratch.words) for k in range(words_of(size))]
    return [text.value(f"load {kind}, ptr {place}") for place in places]


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
    distance, good, data = _distance(text, site, address, size)
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
    text.line(f"store {text.typed(address)}, ptr {target}, align 8")
    table = text.field(offset(Site, "words"), "ptr", site)
    for word in words:
        target = text.value(f"getelementptr i32, ptr {table}, i64 {place}")
        text.line(f"store {text.typed(word)}, ptr {target}, align 4")
        place = text.value(f"add i64 {place}, {stride}")
    mask = text.value(f"zext i{text.lanes} {bits} to i32")
    if text.lanes == 1:
        mask = text.value(f"shl i32 {mask}, {text.value(f'trunc i64 {lanes.lane} to i32')}")
    for field, kind, entry in (
        ("lane", "i64", lanes.first_lane),
        ("mask", "i32", mask),
        ("order", "i64", order),
    ):
        table = text.field(offset(Site, field), "ptr", site)
        target = text.value(f"getelementptr {kind}, ptr {table}, i64 {records}")
        text.line(f"store {kind} {entry}, ptr {target}")
    text.line(
        f"store i64 {text.value(f'add i64 {records}, 1')}, "
        f"ptr {text.at(offset(Site, 'records'), site)}"
    )


def _store_lanes(
    text: Text, site: str, size: int, address: Typed, words: list[str], bits: str,
    scratch: Scratch, name: str,
) -> None:  # fmt: skip
    distance, good, data = _distance(text, site, address, size)
    everyone = text.value(f"icmp eq i{text.lanes} {bits}, -1")
    fast = text.value(f"and i1 {good}, {everyone}")
    text.line(f"br i1 {fast}, label %{name}f, label %{name}s, !prof !0")
    text.label(f"{name}s")
    _slow(text, "store", site, size, address.name, bits, scratch, words, name)
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
