"""Makes any writer a quantiser: groups in, codes and scale bytes out.

The bytes are fetched from where the writer's own address map says they are, so that a verdict on
values does not depend on the layout. The map is recovered on a few pages and continued to as many
as there are groups to store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracle.addressmap import AddressMap
from oracle.candidates import candidate
from oracle.errors import NothingRan, OracleError, UsageError
from oracle.formats import ByteArray, WordArray
from oracle.geometry import PLANES, SIDES, CacheGeometry, IntArray
from oracle.machine.context import Unsupported
from oracle.probe import map_writer
from oracle.quantize import GROUP
from oracle.requests import StoreRequest
from oracle.subjects.base import Writer

GEOMETRY = CacheGeometry(1, 16, 8, 128, "HND")
"""One page of the caches that values are judged in; they do not depend on it."""
MAX_TOKENS = 2048
"""Tokens of one request; more are stored in several."""


class Groups(NamedTuple):
    """What one side of the cache holds for n groups: codes [n, 16], scale bytes [n]."""

    codes: ByteArray
    scale_bytes: ByteArray


class Inputs(NamedTuple):
    """Groups for both sides, patterns [n, 16], and the global decode scale of each."""

    key: WordArray
    value: WordArray
    k_scale: float
    v_scale: float


class Places(NamedTuple):
    """Where a side's codes [T, H, D], in nibbles, and scales [T, H, S], in bytes, are in a page."""

    codes: IntArray
    scales: IntArray


class Capture:
    """The quantiser of a writer for one dtype.

    `page` is the geometry of one page. Raises NothingRan where the writer refuses it or cannot be
    executed, and where nobody can tell where it stores what; UsageError where the writer fails.
    """

    def __init__(self, writer: Writer, dtype: str, page: CacheGeometry = GEOMETRY) -> None:
        self.writer = writer
        self.dtype = dtype
        self._page = page
        reason = writer.unsupported_reason(page, dtype)
        if reason is not None:
            raise NothingRan(reason)
        self._places = self._find()

    @property
    def groups_per_token(self) -> int:
        """Groups of one side of one token."""
        return self._page.num_heads * self._page.scale_columns

    def __call__(self, inputs: Inputs) -> dict[str, Groups]:
        """Store the groups and give what each side then holds for them."""
        step = MAX_TOKENS * self.groups_per_token
        parts = [
            self._store(inputs._replace(key=key, value=value))
            for key, value in (
                (inputs.key[start : start + step], inputs.value[start : start + step])
                for start in range(0, len(inputs.key), step)
            )
        ]
        return {
            side: Groups(
                np.concatenate([part[side].codes for part in parts]),
                np.concatenate([part[side].scale_bytes for part in parts]),
            )
            for side in SIDES
        }

    def _store(self, inputs: Inputs) -> dict[str, Groups]:
        count = len(inputs.key)
        tokens = -(-count // self.groups_per_token)
        pages = -(-tokens // self._page.block_size)
        geometry = replace(self._page, num_blocks=pages)
        key, value = (
            _padded(side, tokens * self.groups_per_token).reshape(
                tokens, geometry.num_heads, geometry.head_size
            )
            for side in (inputs.key, inputs.value)
        )
        empty = np.zeros(geometry.cache_bytes, np.uint8)
        slots = np.arange(tokens, dtype=np.int64)
        request = StoreRequest(
            geometry, self.dtype, key, value, slots, inputs.k_scale, inputs.v_scale, empty
        )
        cache = self.writer.write(request).cache
        return {side: self._fetch(cache, side, tokens, count) for side in SIDES}

    def _fetch(self, cache: ByteArray, side: str, tokens: int, count: int) -> Groups:
        page, token = np.divmod(np.arange(tokens), self._page.block_size)
        start = (page * self._page.page_bytes)[:, None, None]
        places = self._places[side]
        nibbles = 2 * start + places.codes[token]
        codes = cache[nibbles >> 1] >> ((nibbles & 1) << 2).astype(np.uint8) & np.uint8(15)
        scales = cache[start + places.scales[token]]
        return Groups(codes.reshape(-1, GROUP)[:count], scales.reshape(-1)[:count])

    def _find(self) -> Mapping[str, Places]:
        """The places that the writer's address map shows, and where it has no sound one, those the
        writer is declared to use. Codes have only ever been seen in one order."""
        declared = {**dict.fromkeys(SIDES, ""), **self.writer.info.declared}
        maps = self._recovered()
        places = {}
        for side in SIDES:
            found = {plane: maps.get((side, plane)) for plane in PLANES}
            if found["scale"] is None and not declared[side]:
                raise NothingRan(
                    f"where it stores the scales of {side} could not be recovered, and nothing is "
                    "declared about them"
                )
            assumed = declared_places(self._page, side, declared[side] or "linear")
            codes, scales = found["data"], found["scale"]
            places[side] = Places(
                assumed.codes if codes is None else codes,
                assumed.scales if scales is None else scales,
            )
        return places

    def _recovered(self) -> Mapping[tuple[str, str], IntArray]:
        """Offsets in a page, [T, H, W], of every side and plane whose address map is sound."""
        try:
            maps = map_writer(self.writer, self._page, self.dtype).maps
        except Unsupported as error:
            raise NothingRan(str(error)) from error
        except UsageError:
            raise
        except OracleError:
            return {}
        return {
            where: amap.page_relative()[0].swapaxes(0, 1)
            for where, amap in maps.items()
            if _same_on_every_page(amap)
        }


def declared_places(page: CacheGeometry, side: str, layout: str) -> Places:
    """Where a side's codes and scales are in a page, given the layout of its scale planes.

    Raises LayoutUndefined where that does not exist on the planes of this geometry.
    """
    token = np.arange(page.block_size)[:, None, None]
    head = np.arange(page.num_heads)[:, None]
    element = np.arange(page.head_size)
    codes = 2 * page.data_offset(side, 0, head, token, element // 2) + element % 2
    table = candidate(layout).table(page.block_size, page.scale_columns)
    row, column = np.divmod(table[:, None, :], page.scale_columns)
    return Places(codes, page.scale_offset(side, 0, head, row, column))


def _same_on_every_page(amap: AddressMap) -> bool:
    """Whether everything was found, inside the page it belongs to, and as on every other page."""
    if not amap.found.all():
        return False
    relative = amap.page_relative()
    size = amap.geometry.page_bytes * amap.unit
    within = (relative >= 0) & (relative < size)
    return bool(within.all() and (relative == relative[0]).all())


def _padded(groups: WordArray, count: int) -> NDArray[np.uint16]:
    """Groups followed by groups of zeros, `count` in all."""
    padded = np.zeros((count, GROUP), np.uint16)
    padded[: len(groups)] = groups
    return padded
