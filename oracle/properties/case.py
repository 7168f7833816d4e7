"""One store, described by a few numbers: everything that a promise is checked on.

A case is small, hashable and a JSON object, so it can be shrunk, kept and sent to somebody else.
What it stores, and what is in the cache before, follows from its seed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, cast

import numpy as np

from oracle import fields as checks
from oracle.formats import DTYPES, ByteArray
from oracle.geometry import CACHE_LAYOUTS, CacheGeometry
from oracle.properties.values import KINDS, patterns
from oracle.requests import StoreRequest

MAX_SIZES = {
    "num_pages": 1 << 12,
    "block_size": 1 << 10,
    "num_heads": 1 << 10,
    "head_size": 1 << 12,
}
"""More than any engine uses; the limits below bound what a case costs."""
MAX_PAGE_ELEMENTS = 1 << 20
"""Elements of one side of a page: as many as the probe (`oracle.probe`) tells apart."""
MAX_CACHE_BYTES = 1 << 24
"""A stranger's case must not fill the memory: a check needs some 20 times as much."""
MAX_TOKENS = 1 << 12
MAX_ELEMENTS = 1 << 22
"""Elements of `key`, over all tokens; a check needs some 20 bytes for each."""
MAX_SEED = (1 << 32) - 1
MIN_SCALE, MAX_SCALE = (float(getattr(np.finfo(np.float32), n)) for n in ("smallest_normal", "max"))
"""Global scales are normal float32 numbers: a kernel may flush the others."""

_FIRST, _SECOND, _MASK = np.uint64(0x9E3779B1), np.uint64(0x85EBCA6B), np.uint64(0xFFFFFFFF)


def background(size: int, seed: int = 0) -> ByteArray:
    """The image of a cache before a store, by a hash of each byte's address a:

        h = (a + seed) * 0x9E3779B1 mod 2**32
        byte = ((h ^ h >> 16) * 0x85EBCA6B mod 2**32) >> 24

    Every byte follows from its address, and no two parts of a cache are alike, so a byte that was
    stored, or copied from elsewhere, shows.
    """
    hashed = np.arange(seed, seed + size, dtype=np.uint64) * _FIRST & _MASK
    hashed = (hashed ^ hashed >> np.uint64(16)) * _SECOND & _MASK
    return (hashed >> np.uint64(24)).astype(np.uint8)


@dataclass(frozen=True)
class StoreCase:
    """A store of tokens into a cache.

    `slots` say where each token goes (slot = page * block_size + token in the page), negative for
    padding; there is at least one, and several may be the same. `values` names a kind of
    `oracle.properties.values`, `seed` fixes what is drawn; `k_scale` and `v_scale` are the global
    decode scales. Raises UsageError where a field is of the wrong type or beyond its limit.
    """

    num_pages: int
    block_size: int
    num_heads: int
    head_size: int
    cache_layout: str
    dtype: str
    slots: tuple[int, ...]
    values: str = KINDS[0]
    seed: int = 0
    k_scale: float = 1.0
    v_scale: float = 1.0

    def __post_init__(self) -> None:
        """Check every field."""
        for name, most in MAX_SIZES.items():
            checks.integer(1, most)(getattr(self, name), f"case.{name}")
        checks.one_of(CACHE_LAYOUTS)(self.cache_layout, "case.cache_layout")
        checks.one_of(DTYPES)(self.dtype, "case.dtype")
        checks.one_of(KINDS)(self.values, "case.values")
        checks.integer(0, MAX_SEED)(self.seed, "case.seed")
        for name in ("k_scale", "v_scale"):
            _check_scale(getattr(self, name), f"case.{name}")
        self._check_work()
        slot = checks.integer(int(np.iinfo(np.int64).min), self.geometry.num_slots - 1)
        for place, value in enumerate(self.slots):
            slot(value, f"case.slots[{place}]")

    def _check_work(self) -> None:
        """Refuse what would take too long or too much memory."""
        token = self.num_heads * self.head_size
        if not self.slots:
            checks.refuse("case.slots", "a store has at least one token")
        for what, amount, most in (
            ("tokens", len(self.slots), MAX_TOKENS),
            ("elements of all tokens", len(self.slots) * token, MAX_ELEMENTS),
            ("elements of a page", self.block_size * token, MAX_PAGE_ELEMENTS),
            ("bytes of the cache", self.geometry.cache_bytes, MAX_CACHE_BYTES),
        ):
            if amount > most:
                checks.refuse("case", f"{amount} {what}: at most {most} will do")

    @property
    def geometry(self) -> CacheGeometry:
        """The geometry of the cache."""
        return CacheGeometry(
            self.num_pages, self.block_size, self.num_heads, self.head_size, self.cache_layout
        )

    def request(self) -> StoreRequest:
        """What a writer is asked to store, and the image of the cache before (`background`)."""
        geometry = self.geometry
        shape = (len(self.slots), self.num_heads, self.head_size)
        key, value = (patterns(self.values, self.dtype, shape, self.seed, side) for side in (0, 1))
        return StoreRequest(
            geometry,
            self.dtype,
            key,
            value,
            np.array(self.slots, np.int64),
            self.k_scale,
            self.v_scale,
            background(geometry.cache_bytes, self.seed),
        )

    def document(self) -> dict[str, Any]:
        """The case as a JSON object, which `parse` takes."""
        return {**asdict(self), "slots": list(self.slots)}

    @classmethod
    def parse(cls, told: object) -> StoreCase:
        """The case of a JSON object. Raises UsageError, in one line, for anything else."""
        entry = dict(checks.record(told, "case", [field.name for field in fields(cls)]))
        entry["slots"] = checks.many(_anything, MAX_TOKENS)(entry["slots"], "case.slots")
        # What the fields may be is checked where a case is made.
        return cls(**cast(dict[str, Any], entry))


def _anything(value: object, where: str) -> object:
    return value


def _check_scale(value: object, where: str) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # A comparison with NaN is false.
    if not number or not MIN_SCALE <= cast(float, value) <= MAX_SCALE:
        checks.refuse(where, f"{value!r:.40} is no number from {MIN_SCALE:.3g} to {MAX_SCALE:.3g}")
