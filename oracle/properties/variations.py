"""Promises about two stores of which one follows from the other: both must leave the same bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from oracle.errors import NothingRan, OracleError
from oracle.formats import ByteArray
from oracle.machine.context import Unsupported
from oracle.properties.builds import other_builds
from oracle.properties.case import StoreCase
from oracle.properties.places import in_words
from oracle.properties.promise import Broken
from oracle.properties.stored import naming, strays_of
from oracle.properties.transforms import chosen, distinct, padded, real, repeated, turned
from oracle.requests import Stored, StoreRequest
from oracle.subjects.base import Reader, Writer


class Left(NamedTuple):
    """What a store left: the cache, and the offsets stored to outside it; `how` it was done."""

    how: str
    cache: ByteArray
    strays: frozenset[int]


def padding_ignored(writer: Writer, reader: Reader | None, case: StoreCase) -> Broken | None:
    """Padding tokens that change what a store leaves."""
    request = padded(case.request())
    with_padding = _left(writer, request, "with padding tokens")
    return _compared(writer, case, with_padding, _left(writer, real(request), "without them"))


def last_wins(writer: Writer, reader: Reader | None, case: StoreCase) -> Broken | None:
    """A slot stored twice that does not keep its last token, without a word about it."""
    request = repeated(case.request())
    wanted = writer.write(distinct(request))
    try:
        stored = writer.write(request)
    except (NothingRan, Unsupported):
        raise
    except OracleError:
        return None
    if set(stored.faults) - set(wanted.faults):
        return None
    last = _what_is_left(wanted, "with only the last of each")
    return _compared(writer, case, _what_is_left(stored, "with repeated slots"), last)


def token_independent(writer: Writer, reader: Reader | None, case: StoreCase) -> Broken | None:
    """Tokens that are stored otherwise by one launch than by two."""
    request = distinct(real(case.request()))
    together = _left(writer, request, "in one launch")
    count = request.slot_mapping.size
    if count < 2:
        return None
    cut = 1 + case.seed % (count - 1)
    first = _left(writer, chosen(request, np.arange(cut)), "")
    rest = replace(chosen(request, np.arange(cut, count)), cache=first.cache)
    second = _left(writer, rest, f"in two, of {cut} and {count - cut} tokens")
    both = second._replace(strays=first.strays | second.strays)
    return _compared(writer, case, together, both)


def order_independent(writer: Writer, reader: Reader | None, case: StoreCase) -> Broken | None:
    """Tokens that are stored otherwise in the reverse order."""
    request = distinct(real(case.request()))
    backwards = chosen(request, np.arange(request.slot_mapping.size)[::-1])
    forwards = _left(writer, request, "in order")
    return _compared(writer, case, forwards, _left(writer, backwards, "in reverse"))


def page_independent(writer: Writer, reader: Reader | None, case: StoreCase) -> Broken | None:
    """Pages that are stored otherwise under another number."""
    case = replace(case, num_pages=max(case.num_pages, 2))
    request = distinct(real(case.request()))
    moved = _left(writer, turned(request), "with each page the next one")
    back = moved._replace(cache=np.roll(moved.cache, -request.geometry.page_bytes))
    return _compared(writer, case, _left(writer, request, "as it is"), back)


def deterministic(writer: Writer, reader: Reader | None, case: StoreCase) -> Broken | None:
    """A second store of the same that leaves something else."""
    request = case.request()
    once = _left(writer, request, "once")
    return _compared(writer, case, once, _left(writer, request, "once more"))


def equal_across_archs(writer: Writer, reader: Reader | None, case: StoreCase) -> Broken | None:
    """A build for another arch that leaves something else."""
    request = distinct(real(case.request()))
    left = _left(writer, request, f"by {writer.info.arch}")
    for other in other_builds(writer):
        if other.unsupported_reason(case.geometry, case.dtype) is None:
            others = _left(other, request, f"by {other.info.arch}")
            broken = _compared(writer, case, left, others)
            if broken is not None:
                return broken
    return None


def no_other_build(writer: Writer) -> str | None:
    """Why `equal_across_archs` says nothing."""
    return None if other_builds(writer) else f"{writer.info.id} is there for one arch only"


def _left(writer: Writer, request: StoreRequest, how: str) -> Left:
    return _what_is_left(writer.write(request), how)


def _what_is_left(stored: Stored, how: str) -> Left:
    return Left(how, stored.cache, strays_of(stored))


def _compared(writer: Writer, case: StoreCase, one: Left, other: Left) -> Broken | None:
    """The smallest byte that is left differently, inside the cache or outside."""
    differs = one.cache != other.cache
    if differs.any():
        places = naming(writer, case)
        byte = places.smallest(differs)
        assert byte is not None
        first, second = int(one.cache[byte]), int(other.cache[byte])
        spot = {**places.coordinate(byte), "found": first, "otherwise": second}
        reason = f"{in_words(spot)} is {first:#04x} stored {one.how}, {second:#04x} {other.how}"
        return Broken(reason, spot, places.beside(byte, differs))
    apart = one.strays ^ other.strays
    if not apart:
        return None
    byte, where = min(apart), case.geometry.plane_name(min(apart))
    reason = f"a byte is stored {where}, at offset {byte}, {one.how} or {other.how}, but not both"
    return Broken(reason, {"byte": byte, "where": where})
