"""Memory that answers for every access: bounds, alignment, initialisation, and who wrote what.

Global memory is a set of named regions with unmapped gaps between them. A load outside a region,
a misaligned one, or one of bytes nobody wrote stops the launch, since every later value would be
invented. A store outside is recorded and dropped, so that one launch shows all strays. Shared and
local memory are windows: one flat array, a row per CTA or lane, bounds checked per row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oracle.errors import OracleError, UsageError

U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]

FIRST_ADDRESS = 0x7F00_0000_0000
"""Region addresses start high, so that code that drops the upper word of a pointer is seen."""
GAP = 1 << 24
"""Unmapped bytes between regions; a stray must be off by more than this to hit a neighbour."""
MAX_LOGGED = 1 << 26
"""Stores by single lanes in one launch; a token of a store kernel makes a few thousand."""
WORD_TYPES: dict[int, type[np.unsignedinteger]] = {1: np.uint8, 2: np.uint16, 4: np.uint32}


class MachineFault(OracleError):
    """The program did something whose result is undefined; the launch stops here."""

    exit_code = 1


@dataclass(frozen=True)
class Region:
    """``size`` mapped bytes from ``base``; ``initialised`` marks those that hold a value."""

    name: str
    base: int
    size: int
    data: U8
    writable: bool
    initialised: Mask | None

    @property
    def bytes(self) -> U8:
        """The region's present contents, uint8 [size]."""
        return self.data[: self.size]


@dataclass(frozen=True)
class StoreEvent:
    """One store instruction as executed by a group of lanes.

    ``lane`` int64 [n] global lane numbers, ``address`` uint64 [n], ``words`` the values: uint32 [n]
    arrays, low word first (a store narrower than 4 bytes uses the low bits).
    """

    pc: int
    size: int
    lane: NDArray[np.int64]
    address: U64
    words: tuple[U32, ...]

    def byte_addresses(self) -> U64:
        """Address of every byte stored, uint64 [n, size]."""
        addresses: U64 = np.add.outer(self.address, np.arange(self.size, dtype=np.uint64))
        return addresses

    def byte_values(self) -> U8:
        """Value of every byte stored, uint8 [n, size]."""
        words = np.empty((self.address.size, len(self.words)), np.uint32)
        for column, word in enumerate(self.words):
            words[:, column] = word
        return words.view(np.uint8)[:, : self.size]

    def part(self, keep: Mask) -> StoreEvent:
        """The stores for which ``keep`` [n] holds."""
        words = tuple(word[keep] for word in self.words)
        return StoreEvent(self.pc, self.size, self.lane[keep], self.address[keep], words)


def _view(data: U8, size: int) -> NDArray[np.unsignedinteger]:
    """``data`` as [n] elements of 1, 2 or 4 bytes, or as [n, size/4] words."""
    if size in WORD_TYPES:
        return data.view(WORD_TYPES[size])
    return data.view(np.uint32).reshape(-1, size // 4)


def gather(data: U8, offset: NDArray[np.integer], size: int) -> tuple[U32, ...]:
    """Words loaded from ``data`` at byte offsets that are multiples of ``size``."""
    found = _view(data, size)[offset // size]
    if size in WORD_TYPES:
        return (found.astype(np.uint32),)
    return tuple(np.ascontiguousarray(found[..., i]) for i in range(size // 4))


def scatter(data: U8, offset: NDArray[np.integer], size: int, words: tuple[U32, ...]) -> None:
    """Store ``words`` into ``data``; of equal offsets the last one stays."""
    view = _view(data, size)
    if size in WORD_TYPES:
        view[offset // size] = words[0].astype(view.dtype)
    else:
        view[offset // size] = np.stack(words, axis=-1)


def mark(flags: Mask, offset: NDArray[np.integer], size: int) -> None:
    """Set the flags of ``size`` bytes at offsets that are multiples of it, a word at a time."""
    if size in WORD_TYPES:
        words = flags.view(WORD_TYPES[size])
    else:
        words = flags.view(np.uint64).reshape(-1, size // 8)
    words[offset // size] = np.uint64(0x0101010101010101).astype(words.dtype)


class Memory:
    """The global address space of one launch."""

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self.stores: list[StoreEvent] = []
        self.strays: list[StoreEvent] = []
        self._next = FIRST_ADDRESS
        self._logged = 0

    def map(
        self,
        name: str,
        contents: NDArray[np.generic],
        *,
        writable: bool = False,
        initialised: bool = True,
    ) -> Region:
        """Map a copy of ``contents`` and return its region; its base is 512-byte aligned.

        ``initialised=False`` makes a load of a byte that no store has written a fault.
        """
        raw = np.ascontiguousarray(contents).view(np.uint8).reshape(-1)
        data = np.zeros(-(-raw.size // 16) * 16, dtype=np.uint8)
        data[: raw.size] = raw
        known = None if initialised else np.zeros(data.size, dtype=bool)
        region = Region(name, self._next, raw.size, data, writable, known)
        self.regions.append(region)
        self._next += -(-(raw.size + GAP) // 512) * 512
        return region

    def forget(self) -> None:
        """Forget all stores: those logged, and which bytes they gave a value. Contents stay."""
        self.stores.clear()
        self.strays.clear()
        self._logged = 0
        for region in self.regions:
            if region.initialised is not None:
                region.initialised[:] = False

    def region(self, name: str) -> Region:
        """The region called ``name``; UsageError where there is none."""
        for region in self.regions:
            if region.name == name:
                return region
        raise UsageError(f"no memory region is called {name!r}")

    def describe(self, address: int) -> str:
        """Where an address lies, in words a report can print."""
        for region in self.regions:
            if region.base <= address < region.base + region.size:
                return f"{region.name}+{address - region.base:#x}"
        after = [r for r in self.regions if r.base + r.size <= address < r.base + r.size + GAP]
        if after:
            past = address - after[0].base - after[0].size
            return f"{past} bytes past the end of {after[0].name}"
        before = [r for r in self.regions if r.base - GAP <= address < r.base]
        if before:
            return f"{before[0].base - address} bytes before {before[0].name}"
        return f"unmapped address {address:#x}"

    def _containing(self, address: U64, size: int) -> Region | None:
        """The one region that holds every access, if there is one."""
        first = int(address[0]) if address.size else -1
        for region in self.regions:
            if region.base <= first < region.base + region.size:
                # Unsigned wrap-around makes an address below the base too large as well.
                limit = region.size - size
                offset = address - np.uint64(region.base)
                return region if limit >= 0 and int(offset.max()) <= limit else None
        return None

    def load(self, address: U64, size: int, pc: int) -> tuple[U32, ...]:
        """Load ``size`` bytes at each address [n]; words uint32 [n]. Raises MachineFault."""
        if address.size == 0:
            return tuple(np.zeros(0, np.uint32) for _ in range(max(1, size // 4)))
        self._check_alignment(address, size, pc, "load")
        region = self._containing(address, size)
        if region is not None:
            return self._load_from(region, address, size, pc)
        words = [np.zeros(address.size, np.uint32) for _ in range(max(1, size // 4))]
        left = np.ones(address.size, dtype=bool)
        for region in self.regions:
            inside = self._inside(region, address, size)
            if inside.any():
                for out, part in zip(
                    words, self._load_from(region, address[inside], size, pc), strict=True
                ):
                    out[inside] = part
                left &= ~inside
        if left.any():
            where = self.describe(int(address[left][0]))
            raise MachineFault(f"pc {pc:#06x} loads {size} bytes from {where}")
        return tuple(words)

    @staticmethod
    def _inside(region: Region, address: U64, size: int) -> Mask:
        if region.size < size:
            return np.zeros(address.shape, dtype=bool)
        return (address - np.uint64(region.base)) <= np.uint64(region.size - size)

    def _check_alignment(self, address: U64, size: int, pc: int, what: str) -> None:
        bad = (address & np.uint64(size - 1)) != 0
        if bad.any():
            where = self.describe(int(address[bad][0]))
            raise MachineFault(f"pc {pc:#06x}: misaligned {size}-byte {what} at {where}")

    def _load_from(self, region: Region, address: U64, size: int, pc: int) -> tuple[U32, ...]:
        offset = (address - np.uint64(region.base)).astype(np.int64)
        if region.initialised is not None:
            known = region.initialised.reshape(-1, size)[offset // size].all(axis=1)
            if not known.all():
                where = self.describe(int(address[~known][0]))
                raise MachineFault(f"pc {pc:#06x} loads bytes nobody wrote, at {where}")
        return gather(region.data, offset, size)

    def store(self, event: StoreEvent) -> None:
        """Log and perform one store. Strays are recorded; misaligned ones raise MachineFault."""
        if event.address.size == 0:
            return
        self._logged += event.address.size
        if self._logged > MAX_LOGGED:
            raise MachineFault(
                f"pc {event.pc:#06x}: over {MAX_LOGGED} stores in one launch; the kernel may store "
                "for ever"
            )
        self.stores.append(event)
        self._check_alignment(event.address, event.size, event.pc, "store")
        region = self._containing(event.address, event.size)
        if region is not None and region.writable:
            self._store_to(region, event)
            return
        left = np.ones(event.address.size, dtype=bool)
        for region in self.regions:
            inside = self._inside(region, event.address, event.size)
            if region.writable and inside.any():
                self._store_to(region, event.part(inside))
                left &= ~inside
        if left.any():
            self.strays.append(event.part(left))

    def _store_to(self, region: Region, event: StoreEvent) -> None:
        offset = (event.address - np.uint64(region.base)).astype(np.int64)
        scatter(region.data, offset, event.size, event.words)
        if region.initialised is not None:
            mark(region.initialised, offset, event.size)


class Window:
    """Shared or local memory: ``rows`` windows of ``size`` bytes each, addressed from 0.

    Reading a byte that was never written is a fault, as nothing clears these memories.
    """

    def __init__(self, name: str, rows: int, size: int) -> None:
        self.name = name
        self.size = size
        self.stride = -(-size // 16) * 16
        self.data = np.zeros(rows * self.stride, dtype=np.uint8)
        self.initialised = np.zeros(rows * self.stride, dtype=bool)

    def _offset(
        self, row: NDArray[np.int64], address: U64, size: int, pc: int
    ) -> NDArray[np.int64]:
        bad = ((address & np.uint64(size - 1)) != 0) | (
            address > np.uint64(max(self.size - size, 0))
        )
        if bad.any() or (self.size < size and address.size):
            first = int(address[bad][0]) if bad.any() else int(address[0])
            raise MachineFault(
                f"pc {pc:#06x}: {size}-byte access at {self.name} address {first:#x} is misaligned "
                f"or outside its {self.size} bytes"
            )
        return row * self.stride + address.astype(np.int64)

    def load(self, row: NDArray[np.int64], address: U64, size: int, pc: int) -> tuple[U32, ...]:
        """Load ``size`` bytes at ``address`` [n] of window ``row`` [n]."""
        offset = self._offset(row, address, size, pc)
        if not self.initialised.reshape(-1, size)[offset // size].all():
            raise MachineFault(f"pc {pc:#06x} loads {self.name} bytes nobody wrote")
        return gather(self.data, offset, size)

    def store(
        self, row: NDArray[np.int64], address: U64, size: int, words: tuple[U32, ...], pc: int
    ) -> None:
        """Store ``size`` bytes at ``address`` [n] of window ``row`` [n]."""
        offset = self._offset(row, address, size, pc)
        scatter(self.data, offset, size, words)
        mark(self.initialised, offset, size)
