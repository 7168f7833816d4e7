"""What the code of a block sees when it runs for one warp of a CTA.

A register holds a NumPy scalar where it is the same for every lane, uint32 [32] where lanes
differ, and uint32 [replicas, 32] where it depends on coded memory (`oracle.machine.replicas`).
Control flow, addresses, barriers and votes must not depend on coded memory: where a lane that
takes part has another value in another replica, the run is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oracle.machine.memory import U64, MachineFault, Mask, StoreEvent
from oracle.machine.replicas import REPLICAS
from oracle.machine.state import WARP, shuffle_source
from oracle.machine.sync import MBarrier

if TYPE_CHECKING:
    from oracle.machine.cta import Cta

EVERYONE = (1 << WARP) - 1
_LANES = np.arange(WARP)
_SHARED_WINDOW = np.uint64(0xFF_FFFF)
"""Shared addresses below this are bytes of the CTA; the bits above name the CTA in its cluster."""


def mask_of(lanes: Mask) -> int:
    """A lane mask as an integer, lane 0 in bit 0."""
    return int.from_bytes(np.packbits(lanes, bitorder="little").tobytes(), "little")


def lanes_of(mask: int) -> Mask:
    """An integer as a lane mask, bool [32]."""
    found = _LANE_MASKS.get(mask)
    if found is None:
        found = (np.uint64(mask) >> _LANES.astype(np.uint64) & np.uint64(1)).astype(bool)
        _LANE_MASKS[mask] = found
    return found


_LANE_MASKS: dict[int, Mask] = {}


class Warp:
    """The registers, local memory and running group of one warp, and its way to the CTA.

    `active` are the lanes of the running group (None: all 32); `merge` is the same where other
    living lanes still need the old register values. `failed` collects the mbarrier phases that
    the block waited for in vain: (barrier, its phases, lanes).
    """

    def __init__(self, cta: Cta, index: int, registers: list[Any]) -> None:
        self.cta = cta
        self.index = index
        self.registers = registers
        self.active: Mask | None = None
        self.merge: Mask | None = None
        self.failed: list[tuple[MBarrier, int, int]] = []
        self.scopes: dict[int, NDArray[np.int64]] = {}
        self._local: NDArray[np.uint32] | None = None
        thread = np.arange(index * WARP, (index + 1) * WARP, dtype=np.uint32)
        x, y = np.uint32(cta.block[0]), np.uint32(cta.block[1])
        laneid = _LANES.astype(np.uint32)
        self._special: dict[str, Any] = {
            "tid.x": thread % x,
            "tid.y": thread // x % y,
            "tid.z": thread // (x * y),
            **{f"ctaid.{axis}": np.uint32(n) for axis, n in zip("xyz", cta.index, strict=True)},
            "laneid": laneid,
            "warpid": np.uint32(index),
            "lt_mask": (np.uint32(1) << laneid) - np.uint32(1),
        }

    # -- what lanes say together ----------------------------------------------------------------

    def fault(self, pc: int, text: str) -> MachineFault:
        """An error that names the place."""
        return MachineFault(f"pc {pc:#06x}, warp {self.index}: {text}")

    def _lanes(self, guard: Any, pc: int = -1) -> Mask:
        """The active lanes for which `guard` holds."""
        whole = self.active if self.active is not None else lanes_of(EVERYONE)
        if np.ndim(guard) == 0:
            return whole if guard else lanes_of(0)
        lanes: Mask = self.plain(guard, whole, "the predicate of an effect", pc) & whole
        return lanes

    def plain(self, value: Any, lanes: Mask, what: str, pc: int = -1) -> Any:
        """A value [32] that must be the same in all replicas for the lanes that take part."""
        if np.ndim(value) == 0:
            return np.broadcast_to(value, WARP)
        if np.ndim(value) == 1:
            return value
        seen = value[:, lanes]
        if (seen != seen[0]).any():
            raise self.fault(pc, f"{what} depends on the coded memory")
        return value[0]

    def one(self, value: Any) -> Any:
        """What a uniform register gets: the value that all active lanes agree on."""
        if np.ndim(value) == 0:
            return value
        return self.agreed(value, self._lanes(True), "a uniform register")

    def uniform(self, value: Any, guard: Any, old: Any) -> Any:
        """The value that the lanes where `guard` holds agree on, else `old`."""
        lanes = self._lanes(guard)
        if not lanes.any():
            return old
        return self.agreed(value, lanes, "a uniform register")

    def agreed(self, value: Any, lanes: Mask, what: str, pc: int = -1) -> Any:
        """The one value that all these lanes have."""
        if np.ndim(value) == 0:
            return value
        seen = self.plain(value, lanes, what, pc)[lanes]
        if (seen != seen[0]).any():
            raise self.fault(pc, f"lanes disagree about {what}")
        return seen[0]

    def ballot(self, predicate: Any, guard: Any) -> np.uint32:
        """A bit for each active lane whose predicate holds."""
        lanes = self._lanes(guard)
        return np.uint32(mask_of(lanes & self.plain(predicate, lanes, "a vote")))

    def elect(self, pc: int, guard: Any) -> Mask:
        """The lowest active lane."""
        lanes = self._lanes(guard, pc)
        chosen = np.zeros(WARP, dtype=bool)
        if lanes.any():
            chosen[int(np.argmax(lanes))] = True
        return chosen

    def shuffle(
        self, mode: str, pc: int, value: Any, operand: Any, clamp: Any, guard: Any
    ) -> tuple[Any, Any]:
        """SHFL, as `oracle.machine.state.State.shuffle` for one warp."""
        source, inside = shuffle_source(mode, _LANES, operand, clamp)
        lanes = self._lanes(guard, pc)
        if (lanes & ~lanes[source]).any():
            raise self.fault(pc, "a shuffle reads a lane that does not take part")
        return np.broadcast_to(value, (*np.shape(value)[:-1], WARP))[..., source], inside

    # -- coordinates, constants, convergence ----------------------------------------------------

    def special(self, name: str) -> Any:
        """A coordinate of each lane."""
        return self._special[name]

    def ldc(self, bank: int, offset: Any) -> Any:
        """A word of constant memory."""
        return self.cta.constants.load(bank, offset)

    def rcp(self, value: Any) -> Any:
        """The reciprocal under the launch's model."""
        return self.cta.rcp(value)

    def converge(self, register: int) -> None:
        """Open a convergence scope of the active lanes: each keeps who its members are."""
        members = mask_of(self._lanes(True))
        old = self.scopes.get(register, np.zeros(WARP, np.int64))
        self.scopes[register] = np.where(self._lanes(True), members, old)

    def abandon(self, register: int, guard: Any) -> None:
        """Take lanes out of a convergence scope."""
        left = mask_of(self._lanes(guard))
        old = self.scopes.get(register, np.zeros(WARP, np.int64))
        self.scopes[register] = np.where(lanes_of(left), 0, old & ~left)

    def require(self, message: str, pc: int, holds: Any, guard: Any) -> None:
        """A fault where `holds` is false in a lane that executes this."""
        if (self._lanes(guard, pc) & ~np.broadcast_to(holds, WARP)).any():
            raise self.fault(pc, message)

    # -- memory ---------------------------------------------------------------------------------

    def _address(self, address: Any, lanes: Mask, pc: int) -> U64:
        found: U64 = self.plain(address, lanes, "an address", pc)[lanes]
        return found

    def _shared(self, address: Any, lanes: Mask, pc: int) -> NDArray[np.int64]:
        return (self._address(address, lanes, pc) & _SHARED_WINDOW).astype(np.int64)

    def load(self, space: str, size: int, pc: int, address: Any, guard: Any) -> tuple[Any, ...]:
        """Words loaded by each active lane for which `guard` holds; zero in the others."""
        lanes = self._lanes(guard, pc)
        words = max(1, size // 4)
        if not lanes.any():
            return (np.uint32(0),) * words
        if space == "shared":
            found = self.cta.shared.load(self._shared(address, lanes, pc), size, pc)
        elif space == "global":
            found = self.cta.load_global(self._address(address, lanes, pc), size, pc)
        else:
            found = self._load_local(self._address(address, lanes, pc), lanes, size, pc)
        if lanes.all():
            return found
        result = []
        for part in found:
            full = np.zeros((*part.shape[:-1], WARP), np.uint32)
            full[..., lanes] = part
            result.append(full)
        return tuple(result)

    def store(self, space: str, size: int, pc: int, address: Any, guard: Any, *words: Any) -> None:
        """Store from each active lane for which `guard` holds."""
        lanes = self._lanes(guard, pc)
        if not lanes.any():
            return
        values = tuple(np.broadcast_to(w, (*np.shape(w)[:-1], WARP))[..., lanes] for w in words)
        if space == "shared":
            self.cta.shared.store(self._shared(address, lanes, pc), size, values, pc)
            return
        at = self._address(address, lanes, pc)
        if space == "local":
            self._store_local(at, lanes, size, values, pc)
            return
        if any(value.ndim == 2 for value in values):
            raise self.fault(pc, "a store to global memory of what depends on the coded memory")
        lane = self.index * WARP + np.flatnonzero(lanes)
        self.cta.memory.store(StoreEvent(pc, size, lane, at, values))

    def _local_words(self, at: U64, size: int, pc: int) -> tuple[NDArray[np.uint32], Any]:
        total = self.cta.local_bytes
        if size % 4 or (at % np.uint64(size)).any() or (at > np.uint64(max(total - size, 0))).any():
            raise self.fault(pc, f"{size}-byte access outside the {total} bytes of local memory")
        if self._local is None:
            self._local = np.zeros((REPLICAS, WARP, -(-total // 4)), np.uint32)
        return self._local, (at // np.uint64(4)).astype(np.int64)

    def _load_local(self, at: U64, lanes: Mask, size: int, pc: int) -> tuple[Any, ...]:
        local, first = self._local_words(at, size, pc)
        lane = np.flatnonzero(lanes)
        return tuple(_condensed(local[:, lane, first + i]) for i in range(size // 4))

    def _store_local(
        self, at: U64, lanes: Mask, size: int, words: tuple[Any, ...], pc: int
    ) -> None:
        local, first = self._local_words(at, size, pc)
        lane = np.flatnonzero(lanes)
        for i, word in enumerate(words):
            local[:, lane, first + i] = word

    def atomic(
        self, space: str, operation: str, pc: int, address: Any, value: Any, guard: Any
    ) -> Any:
        """An atomic operation on words, lane by lane in order; the values before."""
        lanes = self._lanes(guard, pc)
        before = np.zeros(WARP, np.uint32)
        values = np.broadcast_to(value, WARP)
        for lane in np.flatnonzero(lanes):
            one = np.zeros(WARP, dtype=bool)
            one[lane] = True
            at = self._address(address, one, pc)
            (old,) = self.load(space, 4, pc, at[0], one)
            if np.ndim(old) == 2:
                raise self.fault(pc, "an atomic operation on what depends on the coded memory")
            before[lane] = old[lane]
            after = _combined(operation, int(before[lane]), int(values[lane]))
            self.store(space, 4, pc, at[0], one, np.uint32(after))
        return before

    def matrix(self, shape: str, words: int, pc: int, address: Any, guard: Any) -> Any:
        """LDSM: fragments of 16-byte rows of 16 4-bit elements, each unpacked to a byte.

        M816: one 8x16 matrix a word, the rows of word w given by lanes 8w..8w+7; lane t gets row
        t//4, elements 4(t%4).. . MT1616: one 16x16 matrix a pair of words, rows given by lanes
        16p..16p+15, transposed: lane t gets of rows 4(t%4)..+3 the element t//4, then t//4 + 8.
        """
        if not self._lanes(guard, pc).all():
            raise self.fault(pc, "a matrix is loaded by a part of the warp")
        at = self._shared(address, lanes_of(EVERYONE), pc)
        rows = at[: 8 * words]
        packed = np.stack(np.broadcast_arrays(*self.cta.shared.load(rows, 8, pc)), axis=-1)
        nibbles = packed[..., :, None] >> np.arange(0, 32, 4, dtype=np.uint32) & np.uint32(15)
        elements = nibbles.reshape(*packed.shape[:-1], 16)
        quarter, part = _LANES // 4, 4 * (_LANES % 4)
        steps = np.arange(4)
        found = []
        for word in range(words):
            if shape == "M816":
                four = elements[..., 8 * word + quarter[:, None], part[:, None] + steps]
            else:
                row = 16 * (word // 2) + part[:, None] + steps
                four = elements[..., row, (quarter + 8 * (word % 2))[:, None]]
            found.append((four << (8 * steps).astype(np.uint32)).sum(axis=-1, dtype=np.uint32))
        return tuple(found) if words > 1 else found[0]

    # -- asynchronous work ----------------------------------------------------------------------

    def multiply(
        self, nibbles: str, places: str, pc: int, codes: Any, scales: Any, guard: Any
    ) -> Any:
        """QMUL4: tell the observer what is multiplied. The result only says what it depends on."""
        lanes = self._lanes(guard, pc)
        self.cta.observe(pc, self.index, nibbles, places, codes, scales, lanes)
        return codes ^ scales

    def mbarrier(
        self, operation: str, who: str, pc: int, address: Any, operand: Any, guard: Any
    ) -> None:
        """Initialise an mbarrier, arrive at it, or change the bytes it expects."""
        lanes = self._lanes(guard, pc)
        if not lanes.any():
            return
        values = self.plain(operand, lanes, "a barrier", pc)[lanes].astype(np.int64)
        at = self._shared(address, lanes, pc)
        if who == "once":
            values, at = values[:1], at[:1]
        if at.size > 1 and (at == at[0]).all():
            # Lanes that arrive at one barrier together do so as one.
            self.cta.synchronise(operation, int(at[0]), at.size, int(values.sum()), pc)
            return
        for place, value in zip(at.tolist(), values.tolist(), strict=True):
            self.cta.synchronise(operation, place, 1, value, pc)

    def phase(self, waits: int, pc: int, address: Any, parity: Any, guard: Any) -> Any:
        """Whether the phase of that parity is over, for each active lane."""
        lanes = self._lanes(guard, pc)
        if not lanes.any():
            return np.False_
        place = int(self.agreed(address, lanes, "an mbarrier", pc) & _SHARED_WINDOW)
        wanted = int(self.agreed(parity, lanes, "a phase", pc))
        barrier = self.cta.barrier(place, pc)
        over = barrier.over(wanted)
        if waits and not over:
            self.failed.append((barrier, barrier.phases, mask_of(lanes)))
        return np.bool_(over)

    def tile(self, rank: int, pc: int, shared: Any, barrier: Any, *rest: Any) -> None:
        """TMA: copy a tile to shared memory and count its bytes on an mbarrier."""
        *coordinates, tensor_map, guard = rest
        lanes = self._lanes(guard, pc)
        if not lanes.any():
            return
        what = "a tile's coordinates"
        values = [int(self.agreed(v, lanes, what, pc)) for v in (shared, barrier, *coordinates)]
        corner = tuple(v - (1 << 32) if v >> 31 else v for v in values[2:])
        window = int(_SHARED_WINDOW)
        pointer = int(self.agreed(tensor_map, lanes, "a tensor map", pc))
        self.cta.load_tile(pointer, corner, values[0] & window, values[1] & window, pc)

    def copy(self, size: int, pc: int, shared: Any, source: Any, guard: Any) -> None:
        """LDGSTS: global memory to shared memory, at once."""
        lanes = self._lanes(guard, pc)
        if lanes.any():
            words = self.cta.load_global(self._address(source, lanes, pc), size, pc)
            self.cta.shared.store(self._shared(shared, lanes, pc), size, words, pc)

    def workid(self, pc: int, answer: Any, barrier: Any, guard: Any) -> None:
        """UGETNEXTWORKID: an answer of zeros says that there is no further CTA."""
        lanes = self._lanes(guard, pc)
        if lanes.any():
            at = self._shared(answer, lanes, pc)[:1]
            self.cta.shared.store(at, 16, (np.zeros(1, np.uint32),) * 4, pc)
            place = int(self._shared(barrier, lanes, pc)[0])
            self.cta.synchronise("complete", place, 1, 16, pc)


def _condensed(value: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """A value [replicas, n] as [n] where the replicas agree."""
    return value[0] if (value == value[0]).all() else value


def _combined(operation: str, old: int, value: int) -> int:
    """An atomic operation on unsigned words (PTX ISA, atom)."""
    results = {
        "ADD": old + value,
        "MIN": min(old, value),
        "MAX": max(old, value),
        "INC": 0 if old >= value else old + 1,
        "DEC": value if old == 0 or old > value else old - 1,
        "AND": old & value,
        "OR": old | value,
        "XOR": old ^ value,
        "EXCH": value,
    }
    return results[operation] & 0xFFFF_FFFF
