"""Coded cache bytes in, values out: which byte a reader multiplies with which code.

Two families of caches are read. In the first every code is 1.0 and each scale byte spells its own
address, so a value names the scale it was made with. In the second every scale is 1.0 and the codes
spell the address of their nibble. A value that is none of the coded ones, or elements of one group
that used different scales, leave the coordinate without a place.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from oracle.addressmap import MISSING, AddressMap, IntArray, Read
from oracle.codewords import (
    ELEMENT_CODES,
    MAX_PASSES,
    SCALE_CODES,
    Book,
    digits,
    keys,
    words,
)
from oracle.errors import UsageError
from oracle.formats import e2m1_decode, e4m3_decode, pack_codes
from oracle.geometry import PLANES, SIDES, CacheGeometry
from oracle.probe import PROBED_PAGES, probed
from oracle.quantize import GROUP
from oracle.requests import ReadRequest
from oracle.subjects.base import Reader

MAX_ELEMENTS = ELEMENT_CODES.size ** (MAX_PASSES - 2)
"""Elements of the probed pages that a reader is asked about: as many as a writer's probe can tell,
which leaves two symbols of a word to its guards."""
_ONE_AS_CODE = 0x2
_ONE_AS_SCALE = 0x38
_NOBODY = 0xFF


def check_size(geometry: CacheGeometry) -> None:
    """Raise UsageError where the probed pages of a cache are too large for one probe."""
    elements = len(SIDES) * len(PROBED_PAGES) * geometry.num_heads * geometry.block_size
    elements *= geometry.head_size
    if elements > MAX_ELEMENTS:
        raise UsageError(
            f"{elements} elements are too many for one probe: ask for fewer heads or tokens"
        )


class ReaderProbe:
    """The coded caches for one geometry. Raises UsageError where it is too large."""

    def __init__(self, geometry: CacheGeometry) -> None:
        check_size(geometry)
        self.geometry = geometry
        self.scale_places = _plane_bytes(geometry, "scale")
        self.data_places = _plane_bytes(geometry, "data")
        self.scale_words = _words(self.scale_places.size, SCALE_CODES.size)
        self.code_words = _words(2 * self.data_places.size, ELEMENT_CODES.size)
        self.scale_book = Book(keys(self.scale_words.astype(np.uint8), 8))
        self.code_book = Book(keys(self.code_words.astype(np.uint8), 8))

    def scales(self, reader: Reader) -> IntArray:
        """Byte offset of the scale of each group, int64 [2, P, H, T, S]."""
        positions = _positions(e4m3_decode(SCALE_CODES))
        seen = []
        for row in self.scale_words:
            cache = np.full(self.geometry.cache_bytes, _ONE_AS_CODE * 0x11, np.uint8)
            cache[self.scale_places] = SCALE_CODES[row]
            values = self._read(reader, cache)
            groups = values.reshape(*values.shape[:-1], self.geometry.scale_columns, GROUP)
            # The elements of a group must have used one scale.
            same = (groups == groups[..., :1]).all(axis=-1)
            seen.append(np.where(same, _symbols(groups[..., 0], positions), _NOBODY))
        guess = self._guess(self.scale_places, "scale")
        return _spelled(self.scale_book, seen, self.scale_places, guess)

    def codes(self, reader: Reader) -> IntArray:
        """Nibble offset of the code of each element, int64 [2, P, H, T, D]."""
        positions = _positions(e2m1_decode(ELEMENT_CODES))
        seen = []
        for row in self.code_words:
            cache = np.full(self.geometry.cache_bytes, _ONE_AS_SCALE, np.uint8)
            cache[self.data_places] = pack_codes(ELEMENT_CODES[row])
            seen.append(_symbols(self._read(reader, cache), positions))
        places = (2 * self.data_places[:, None] + np.arange(2)).ravel()
        byte = self._guess(self.data_places, "data")
        guess = (2 * byte[..., None] + np.arange(2)).reshape(*byte.shape[:-1], -1)
        return _spelled(self.code_book, seen, places, guess)

    def _guess(self, places: IntArray, plane: str) -> IntArray:
        """Position in `places` of each coordinate's byte if the plane were read linearly."""
        pages = np.array(PROBED_PAGES)[:, None, None, None]
        linear = [_bytes_of(self.geometry, side, plane, pages) for side in SIDES]
        return np.searchsorted(places, np.stack(linear))

    def _read(self, reader: Reader, cache: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Values [2, P, H, T, D] of the probed pages."""
        geometry = self.geometry
        tokens = geometry.block_size
        slots = np.concatenate([np.arange(tokens) + page * tokens for page in PROBED_PAGES])
        sides = reader.read(ReadRequest(geometry, cache, slots.astype(np.int64), 1.0, 1.0))
        shape = (len(PROBED_PAGES), tokens, geometry.num_heads, geometry.head_size)
        stacked = np.stack([np.asarray(side, np.float32).reshape(shape) for side in sides])
        return stacked.transpose(0, 1, 3, 2, 4)


@lru_cache(maxsize=2)
def reader_probe(geometry: CacheGeometry) -> ReaderProbe:
    """The probe of a geometry; the latest ones are kept, as several readers are asked in turn."""
    return ReaderProbe(geometry)


def map_reader(reader: Reader, geometry: CacheGeometry) -> Read:
    """Recover which byte a reader uses for every scale and code of the probed pages.

    `geometry` is taken with the probe's own number of pages. Raises UsageError where it is too
    large, and what the reader raises.
    """
    probe = reader_probe(probed(geometry))
    found = {"scale": probe.scales(reader), "data": probe.codes(reader)}
    maps = {
        (side, plane): AddressMap(side, plane, probe.geometry, PROBED_PAGES, found[plane][place])
        for plane in PLANES
        for place, side in enumerate(SIDES)
    }
    return Read(maps)


def _words(count: int, prime: int) -> NDArray[np.int16]:
    return words(count, prime, digits(count, prime))


def _bytes_of(geometry: CacheGeometry, side: str, plane: str, pages: IntArray) -> IntArray:
    """Offsets [P, H, T, W] of the bytes of one plane of one side, as if stored linearly."""
    heads = np.arange(geometry.num_heads)[:, None, None]
    rows = np.arange(geometry.block_size)[:, None]
    if plane == "scale":
        columns = np.arange(geometry.scale_columns)
        return geometry.scale_offset(side, pages, heads, rows, columns)
    return geometry.data_offset(side, pages, heads, rows, np.arange(geometry.data_bytes))


def _plane_bytes(geometry: CacheGeometry, plane: str) -> IntArray:
    """Offsets of every byte of one plane, both sides and all pages, rising."""
    pages = np.arange(geometry.num_blocks)[:, None, None, None]
    offsets = [_bytes_of(geometry, side, plane, pages).ravel() for side in SIDES]
    return np.sort(np.concatenate(offsets))


def _positions(alphabet: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Position in the alphabet by the upper half of a value's bits, _NOBODY elsewhere: [65536].

    Every value of the formats fits the upper half, so this is exact.
    """
    positions = np.full(1 << 16, _NOBODY, np.uint8)
    positions[alphabet.view(np.uint32) >> np.uint32(16)] = np.arange(alphabet.size)
    return positions


def _symbols(values: NDArray[np.float32], positions: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Position of each value in an alphabet, _NOBODY where it is none of it."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    whole = bits & np.uint32(0xFFFF) == 0
    return np.where(whole, positions[bits >> np.uint32(16)], np.uint8(_NOBODY))


def _spelled(
    book: Book, seen: list[NDArray[np.uint8]], places: IntArray, guess: IntArray
) -> IntArray:
    """The place whose word each value spelled over the passes."""
    observed = np.stack([values.ravel() for values in seen])
    index = book.find(keys(observed, 8), guess.ravel())
    return np.where(index >= 0, places[index], MISSING).reshape(seen[0].shape)
