"""Promises about the bytes of one store: the right values, and nothing else touched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracle.formats import DTYPES, ByteArray, FloatArray, unpack_codes
from oracle.geometry import SIDES
from oracle.numerics.admissible import admissible, explained
from oracle.properties.addresses import NoLayout, places_of
from oracle.properties.case import StoreCase
from oracle.properties.places import Places, in_words
from oracle.properties.promise import Broken
from oracle.properties.transforms import distinct, real
from oracle.quantize import GROUP, ScaleSearch, quantize
from oracle.requests import Stored, StoreRequest
from oracle.subjects.base import Reader, SubjectInfo, Writer

Mask = NDArray[np.bool_]


def round_trip(writer: Writer, reader: Reader | None, case: StoreCase) -> Broken | None:
    """A group that is not read back as the specification quantises it, under the writer's layouts.

    What may be stored where the reciprocal leaves it open is told by `oracle.numerics`. A writer
    that declares nothing may follow either scale search, the same for all groups: it is judged by
    the one that leaves the fewest groups wrong, of both sides together.
    """
    request = distinct(real(case.request()))
    places = places_of(writer, case)
    cache = writer.write(request).cache
    tried = [_misread(request, cache, places, search) for search in _searches(writer.info)]
    misread = min(tried, key=lambda each: len(each.groups))
    marked = misread.marked(cache.size)
    byte = places.smallest(marked)
    if byte is None:
        return None
    told = _told(misread, byte, int(cache[byte]), places)
    return told._replace(wrong=places.beside(byte, marked))


def _searches(info: SubjectInfo) -> tuple[ScaleSearch, ...]:
    return (info.scale_search,) if info.declared else tuple(ScaleSearch)


class _Group(NamedTuple):
    """The values of a group, its global scale, and the codes stored of it."""

    values: FloatArray
    global_scale: float
    codes: ByteArray


@dataclass(frozen=True, eq=False)
class _Misread:
    """The groups that are not what one scale search gives, by the byte of their scale."""

    search: ScaleSearch
    groups: Mapping[int, _Group]

    def marked(self, cache_bytes: int) -> Mask:
        """The bytes of the scales of these groups, of a whole cache."""
        marked = np.zeros(cache_bytes, np.bool_)
        marked[list(self.groups)] = True
        return marked


def _misread(
    request: StoreRequest, cache: ByteArray, places: Places, search: ScaleSearch
) -> _Misread:
    groups: dict[int, _Group] = {}
    for side, patterns, scale in (
        ("K", request.key, request.k_scale),
        ("V", request.value, request.v_scale),
    ):
        own = places.of_slots(side, request.slot_mapping)
        x = DTYPES[request.dtype].decode(patterns).reshape(*own.scales.shape, GROUP)
        codes = unpack_codes(cache[own.data]).reshape(x.shape)
        wrong = inadmissible(x, scale, search, codes, cache[own.scales])
        groups |= {
            int(byte): _Group(values, scale, stored)
            for byte, values, stored in zip(own.scales[wrong], x[wrong], codes[wrong], strict=True)
        }
    return _Misread(search, groups)


def _told(misread: _Misread, byte: int, stored_scale: int, places: Places) -> Broken:
    """A group that is misread in words; its search is named where another one has it otherwise."""
    x, scale, codes = misread.groups[byte]
    by_search = {search: quantize(x, scale, search) for search in ScaleSearch}
    right_codes, right_scale = by_search[misread.search]
    witness: dict[str, Any] = {
        **places.coordinate(byte),
        "stored_scale": stored_scale,
        "stored_codes": codes.tolist(),
        "reference_scale": int(right_scale),
        "reference_codes": right_codes.tolist(),
    }
    found = _in_hex(stored_scale, codes)
    in_hex = {search: _in_hex(int(s), c) for search, (c, s) in by_search.items()}
    right = in_hex[misread.search]
    if len(set(in_hex.values())) > 1:
        right += f" by the scale search {misread.search.value}"
    return Broken(f"{in_words(witness)} holds {found}; the specification has {right}", witness)


def inadmissible(
    x: FloatArray, global_scale: float, search: ScaleSearch, codes: ByteArray, scales: ByteArray
) -> Mask:
    """Which groups [..., 16] hold codes and a scale that no conforming store writes: [...]."""
    right_codes, right_scales = quantize(x, global_scale, search)
    wrong: Mask = (codes != right_codes).any(axis=-1) | (scales != right_scales)
    if wrong.any():
        values, stored = x[wrong], (codes[wrong], scales[wrong])
        allowed = admissible(values, global_scale, search)
        scale_right, code_right = allowed.admits(*stored)
        together = explained(values, global_scale, *stored) | ~allowed.free
        wrong[wrong] = ~(scale_right & code_right.all(axis=-1) & together)
    return wrong


def _in_hex(scale: int, codes: ByteArray) -> str:
    return f"{scale:#04x} and codes {''.join(f'{code:x}' for code in codes)}"


def untouched_elsewhere(writer: Writer, reader: Reader | None, case: StoreCase) -> Broken | None:
    """A byte that belongs to no token of the store and was stored all the same."""
    request = case.request()
    stored = writer.write(request)
    places = naming(writer, case)
    touched = stored.cache != request.cache
    if stored.stores is not None:
        offset = stored.stores.offset
        touched[offset[(offset >= 0) & (offset < touched.size)]] = True
    foreign = touched & ~_own(places, request)
    byte = places.smallest(foreign)
    if byte is not None:
        before, after = int(request.cache[byte]), int(stored.cache[byte])
        spot = {**places.coordinate(byte), "before": before, "after": after}
        reason = f"{in_words(spot)} belongs to no token of the store: {before:#04x} was there, "
        return Broken(f"{reason}{after:#04x} was stored", spot, places.beside(byte, foreign))
    strays = strays_of(stored)
    if not strays:
        return None
    stray = min(strays)
    where = case.geometry.plane_name(stray)
    return Broken(f"a byte is stored {where}, at offset {stray}", {"byte": stray, "where": where})


def _own(places: Places, request: StoreRequest) -> Mask:
    """The bytes of the tokens of a store [cache_bytes]; whole pages where no layout is known."""
    own = np.zeros(request.cache.size, np.bool_)
    slots = request.slot_mapping[request.slot_mapping >= 0]
    if not places.known:
        pages = own.reshape(request.geometry.num_blocks, -1)
        pages[slots // request.geometry.block_size] = True
        return own
    for side in SIDES:
        for bytes_ in places.of_slots(side, slots):
            own[bytes_] = True
    return own


def strays_of(stored: Stored) -> frozenset[int]:
    """Offsets stored to outside the cache, as far as the executor sees them."""
    seen = stored.beside if stored.stores is None else stored.stores
    outside = (seen.offset < 0) | (seen.offset >= stored.cache.size)
    return frozenset(seen.offset[outside].tolist())


def naming(writer: Writer, case: StoreCase) -> Places:
    """Places to name bytes by, of a writer that may have no layout."""
    try:
        return places_of(writer, case)
    except NoLayout:
        return Places(case.geometry)
