"""What loads and stores share: the fast way, and how to take the slow one.

The fast way is inline, where all lanes are inside the region met last. Bounds and alignment are one
comparison: the distance to the region's base, rotated right by the logarithm of the access size, is
too large where a low bit was set. Everything else takes the slow way of `helpers`.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from oracle.machine.compiled.abi import Context, Site, offset
from oracle.machine.compiled.text import Text, Typed
from oracle.machine.ir import Type

WORD = 4
"""Bytes of a word."""


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


def emit_distance(text: Text, site: str, address: Typed, size: int) -> tuple[str, str, str]:
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


def emit_slow_way(
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
