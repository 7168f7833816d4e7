"""What the code of a block sees: registers, coordinates, constants, and memory under a mask."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.machine.ir import Function
from oracle.machine.memory import U32, U64, MachineFault, Mask, Memory, StoreEvent, Window
from oracle.machine.primitives import RcpModel

WARP = 32
NO_SCOPE = -1
"""The convergence scope of a lane that has opened none or has left it: it waits for nobody."""
Dim = tuple[int, int, int]

_DRIVER_WORDS: dict[bool, dict[str, int]] = {
    # Where the driver puts the launch's own values in bank 0; Blackwell moved them. Read off
    # compiled kernels that return each of them.
    False: {"ntid": 0x0, "nctaid": 0xC, "local_window": 0x20, "stack": 0x28},
    True: {"ntid": 0x360, "nctaid": 0x370, "local_window": 0x2F8, "stack": 0x37C},
}
_DESCRIPTOR = {80: 0x118, 86: 0x118, 89: 0x118, 90: 0x208}
_BLACKWELL_DESCRIPTOR = 0x358
LOCAL_WINDOW = 0x7E00_0100_0000
"""Where local memory begins for a pointer that may point anywhere; no region is mapped there."""


@cache
def architecture(arch: str) -> int:
    """The number of an architecture name: 100 for "sm_100a"."""
    return int("".join(c for c in arch if c.isdigit()))


class ConstantBank:
    """Constant memory of one launch: the bytes known to be there, by bank."""

    def __init__(self, banks: dict[int, bytearray], known: Mask) -> None:
        self.words = {b: np.frombuffer(data, dtype=np.uint32) for b, data in banks.items()}
        """The words of each bank."""
        self.known = known
        """Which bytes of bank 0 are known: bool [its size], not to be written to."""

    @classmethod
    def of(
        cls,
        function: Function,
        grid: Dim,
        block: Dim,
        params: bytes,
        driver: Mapping[int, bytes] | None = None,
    ) -> ConstantBank:
        """Bank 0 as the driver fills it for this launch, and the banks the cubin brings.

        `driver` are further bytes of bank 0 by offset.
        """
        number = architecture(function.arch)
        words = _DRIVER_WORDS[number >= 100]
        filled = {
            words["ntid"]: struct.pack("<3I", *block),
            words["nctaid"]: struct.pack("<3I", *grid),
            words["local_window"]: struct.pack("<Q", LOCAL_WINDOW),
            words["stack"]: struct.pack("<I", function.local_bytes),
            _DESCRIPTOR.get(number, _BLACKWELL_DESCRIPTOR): bytes(8),
            function.param_base: params,
            **(driver or {}),
        }
        size = max(0x400, -(-(function.param_base + len(params) + 64) // 16) * 16)
        bank = bytearray(size)
        for offset, data in filled.items():
            bank[offset : offset + len(data)] = data
        known = _known(size, tuple((offset, len(data)) for offset, data in filled.items()))
        padded = {b: bytearray(d + bytes(-len(d) % 4)) for b, d in function.constants.items()}
        return cls({**padded, 0: bank}, known)

    def load(self, bank: int, offset: NDArray[np.uint32]) -> Any:
        """The words at byte offsets (a scalar or an array); MachineFault where nothing is known."""
        words = self.words.get(bank)
        index = offset >> np.uint32(2)
        if words is None or (index >= words.size).any():
            raise MachineFault(f"reads constant bank {bank} at {offset!r}, beyond what is known")
        if bank == 0 and not self.known[offset].all():
            raise MachineFault(
                f"reads driver constant c[0][{int(np.min(offset)):#x}], not modelled"
            )
        return words[index]


@lru_cache(maxsize=64)
def _known(size: int, filled: tuple[tuple[int, int], ...]) -> Mask:
    """Which of so many bytes are filled, by pieces of an offset and a length."""
    known = np.zeros(size, dtype=bool)
    for offset, length in filled:
        known[offset : offset + length] = True
    return known


def shuffle_source(
    mode: str, lane: NDArray[np.int64], operand: Any, clamp: Any
) -> tuple[NDArray[np.int64], Mask]:
    """SHFL: the lane of its warp that each lane reads, and whether that was in range.

    `lane` holds lane numbers 0..31; `operand` and `clamp` are as in `State.shuffle`. A lane whose
    source is out of range reads itself.
    """
    delta = np.broadcast_to(operand, lane.shape).astype(np.int64) & 31
    packed = np.broadcast_to(clamp, lane.shape).astype(np.int64)
    segment, limit = (packed >> 8) & 31, packed & 31
    least = lane & segment
    most = least | (limit & ~segment)
    source = {
        "UP": lane - delta,
        "DOWN": lane + delta,
        "BFLY": lane ^ delta,
        "IDX": least | (delta & ~segment),
    }[mode]
    inside: Mask = source >= most if mode == "UP" else source <= most
    return np.where(inside, source, lane), inside


class State:
    """One chunk of whole CTAs: `lanes` lanes, numbered CTA by CTA and thread by thread.

    `active` are the lanes the running block belongs to (None: all of the chunk); `merge` is the
    same mask where other lanes still need the old register values (None: nobody does).
    """

    def __init__(
        self,
        function: Function,
        registers: list[Any],
        memory: Memory,
        constants: ConstantBank,
        rcp: RcpModel,
    ) -> None:
        self.function = function
        self.memory = memory
        self.constants = constants
        self.rcp = rcp
        self.registers = registers
        self.active: Mask | None = None
        self.merge: Mask | None = None
        self.tokens: dict[int, NDArray[np.int64]] = {}
        self._next_token = 0

    def place(self, first: int, ctas: int, grid: Dim, block: Dim) -> None:
        """Lay out CTAs `first` .. `first + ctas` of the grid."""
        threads = block[0] * block[1] * block[2]
        self.lanes = ctas * threads
        self.ctas = ctas
        thread = np.tile(np.arange(threads, dtype=np.uint32), ctas)
        self.cta = np.repeat(np.arange(ctas), threads)
        warps = -(-threads // WARP)
        self.warps = ctas * warps
        self.warp = self.cta * warps + thread // WARP
        self.laneid = thread % np.uint32(WARP)
        self.first_lane = first * threads
        block_index = (self.cta + first).astype(np.uint32)
        x, y = np.uint32(block[0]), np.uint32(block[1])
        gx, gy = np.uint32(grid[0]), np.uint32(grid[1])
        self._special: dict[str, Any] = {
            "tid.x": thread % x,
            "tid.y": thread // x % y,
            "tid.z": thread // (x * y),
            "ctaid.x": block_index % gx,
            "ctaid.y": block_index // gx % gy,
            "ctaid.z": block_index // (gx * gy),
            "laneid": self.laneid,
            "warpid": thread // np.uint32(WARP),
            "lt_mask": (np.uint32(1) << self.laneid) - np.uint32(1),
        }
        lane = np.arange(self.lanes)
        self._row_of = {"local": lane, "shared": self.cta}
        self._windows = {
            "local": Window("local", self.lanes, self.function.local_bytes),
            "shared": Window("shared", ctas, self.function.shared_bytes),
        }

    # -- coordinates and constants --------------------------------------------------------------

    def special(self, name: str) -> Any:
        """A coordinate of each lane."""
        return self._special[name]

    def ldc(self, bank: int, offset: Any) -> Any:
        """A word of constant memory."""
        return self.constants.load(bank, offset)

    def converge(self, register: int) -> None:
        """Open a convergence scope: the active lanes will meet again on this register."""
        self._next_token += 1
        old = self.tokens.get(register, np.full(self.lanes, NO_SCOPE))
        self.tokens[register] = np.where(self._mask(True), self._next_token, old)

    def abandon(self, register: int, guard: Any) -> None:
        """Take the active lanes for which `guard` holds out of a convergence scope."""
        old = self.tokens.get(register, np.full(self.lanes, NO_SCOPE))
        self.tokens[register] = np.where(self._mask(guard), NO_SCOPE, old)

    # -- memory ---------------------------------------------------------------------------------

    def _mask(self, guard: Any) -> Mask:
        mask = np.broadcast_to(guard, (self.lanes,))
        return mask if self.active is None else mask & self.active

    def load(self, space: str, size: int, pc: int, address: Any, guard: Any) -> tuple[Any, ...]:
        """Words loaded by each active lane for which `guard` holds; zero in the others."""
        words = max(1, size // 4)
        if np.ndim(guard) == 0 and not guard:
            return (np.uint32(0),) * words
        if np.ndim(address) == 0 and space == "global":
            if self._mask(guard).any():
                one = self.memory.load(np.asarray(address).reshape(1), size, pc)
                return tuple(word[0] for word in one)
            return (np.uint32(0),) * words
        address = np.broadcast_to(address, (self.lanes,))
        if self.active is None and np.ndim(guard) == 0:
            return self._load(space, np.arange(self.lanes), address, size, pc)
        lane = np.flatnonzero(self._mask(guard))
        found = self._load(space, lane, address[lane], size, pc)
        result = []
        for part in found:
            full = np.zeros(self.lanes, dtype=np.uint32)
            full[lane] = part
            result.append(full)
        return tuple(result)

    def _load(
        self, space: str, lane: NDArray[np.int64], address: U64, size: int, pc: int
    ) -> tuple[U32, ...]:
        if space == "global":
            return self.memory.load(address, size, pc)
        return self._windows[space].load(self._row_of[space][lane], address, size, pc)

    def store(self, space: str, size: int, pc: int, address: Any, guard: Any, *words: Any) -> None:
        """Store from each active lane for which `guard` holds."""
        if self.active is None and np.ndim(guard) == 0 and guard:
            lane = np.arange(self.lanes)
        else:
            lane = np.flatnonzero(self._mask(guard))
        at, values = self._lanes_of(address, lane), tuple(self._lanes_of(w, lane) for w in words)
        if space == "global":
            self.memory.store(StoreEvent(pc, size, self.first_lane + lane, at, values))
        else:
            self._windows[space].store(self._row_of[space][lane], at, size, values, pc)

    def _lanes_of(self, value: Any, lane: NDArray[np.int64]) -> Any:
        if np.ndim(value) == 0:
            return np.broadcast_to(value, lane.shape)
        return value if lane.size == self.lanes else value[lane]

    def uniform(self, value: Any, guard: Any, old: Any) -> Any:
        """A uniform register written under a predicate of lanes; each lane keeps its own here."""
        return np.where(guard, value, old)

    # -- across a warp --------------------------------------------------------------------------

    def shuffle(
        self, mode: str, pc: int, value: Any, operand: Any, clamp: Any, guard: Any
    ) -> tuple[Any, Any]:
        """SHFL: the value of another lane of the warp, and whether that lane was in range.

        `operand` is the lane, delta or mask; `clamp` packs the segment mask in bits 8..12 and the
        limit in bits 0..4 (PTX ISA, shfl.sync). A source lane that does not take part is a fault.
        """
        value = np.broadcast_to(value, (self.lanes,))
        lane = self.laneid.astype(np.int64)
        source, inside = shuffle_source(mode, lane, operand, clamp)
        index = np.arange(self.lanes) - lane + source
        taking_part = self._mask(guard)
        bad = taking_part & (
            (index >= self.lanes) | ~taking_part[np.minimum(index, self.lanes - 1)]
        )
        if bad.any():
            raise MachineFault(f"pc {pc:#06x}: a shuffle reads a lane that does not take part")
        return value[np.minimum(index, self.lanes - 1)], inside

    def ballot(self, predicate: Any, guard: Any) -> U32:
        """A bit for each active lane of the warp whose predicate holds, uint32 [lanes]."""
        votes = self._mask(guard) & np.broadcast_to(predicate, (self.lanes,))
        bits = votes.astype(np.uint32) << self.laneid
        total: U32 = np.zeros(self.warps, dtype=np.uint32)
        np.bitwise_or.at(total, self.warp, bits)
        by_lane: U32 = total[self.warp]
        return by_lane

    def require(self, message: str, pc: int, holds: Any, guard: Any) -> None:
        """A fault where `holds` is false in a lane that executes this."""
        if (self._mask(guard) & ~np.broadcast_to(holds, (self.lanes,))).any():
            raise MachineFault(f"pc {pc:#06x}: {message}")
