"""Memory answers for every access: bounds, alignment, initialisation, and who wrote what."""

from itertools import pairwise

import numpy as np
import pytest
from handmade import program
from hypothesis import given, settings
from hypothesis import strategies as st
from snippets import CALM

from oracle.errors import UsageError
from oracle.machine.launch import Program
from oracle.machine.memory import GAP, MachineFault, Memory, StoreEvent, Window

FAR = GAP * 64


def addresses(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def event(base: int, offsets: list[int], size: int, values: list[int]) -> StoreEvent:
    """A store by lanes 0, 1, ... of one value each (its low word, and its complement after it)."""
    words = np.array(values, np.uint32)
    at = addresses(*(base + offset for offset in offsets))
    parts = (words, ~words, words + np.uint32(1), words - np.uint32(1))[: max(1, size // 4)]
    return StoreEvent(0x40, size, np.arange(len(values)), at, parts)


def launch(lines: list[str], memory: Memory, pointers: list[int], threads: int = 32) -> None:
    """Run a kernel whose parameters are pointers, from 0x380 on."""
    function = program([*lines, "EXIT"], param_base=0x380, shared_bytes=64, local_bytes=64)
    params = np.array(pointers, np.uint64).tobytes()
    Program(function).launch((2, 1, 1), (threads, 1, 1), params, memory)


OWN_WORD = ["S2R R0,SR_TID.X", "LDC.64 R2,c[0x0][0x380]", "IMAD.WIDE.U32 R2,R0,0x4,R2"]


class TestGlobal:
    """Loads and stores of global memory."""

    def test_a_load_past_a_region_names_it(self) -> None:
        memory = Memory()
        region = memory.map("key", np.zeros(16, np.uint32))
        with pytest.raises(MachineFault, match=r"pc 0x0030 loads 4 bytes from 0 bytes past .* key"):
            launch([*OWN_WORD, "LDG.E R4,desc[UR4][R2.64]"], memory, [region.base])

    def test_a_load_before_a_region_names_it(self) -> None:
        memory = Memory()
        memory.map("first", np.zeros(4, np.uint8))
        region = memory.map("second", np.zeros(64, np.uint8))
        with pytest.raises(MachineFault, match="8 bytes before second"):
            memory.load(addresses(region.base + 8, region.base - 8), 8, 0x10)

    def test_a_load_that_begins_inside_and_ends_outside(self) -> None:
        memory = Memory()
        region = memory.map("value", np.zeros(20, np.uint8))
        with pytest.raises(MachineFault, match=r"loads 8 bytes from value\+0x10"):
            memory.load(addresses(region.base + 16), 8, 0)

    def test_a_pointer_without_its_upper_word(self) -> None:
        memory = Memory()
        region = memory.map("key", np.zeros(64, np.uint8))
        with pytest.raises(MachineFault, match="unmapped address"):
            memory.load(addresses(region.base & 0xFFFFFFFF), 4, 0)

    @pytest.mark.parametrize("size", [2, 4, 8, 16])
    def test_misaligned(self, size: int) -> None:
        memory = Memory()
        region = memory.map("key", np.zeros(64, np.uint8), writable=True)
        off = size // 2
        with pytest.raises(MachineFault, match=rf"misaligned {size}-byte load at key\+{off:#x}"):
            memory.load(addresses(region.base, region.base + off), size, 0)
        with pytest.raises(MachineFault, match=f"misaligned {size}-byte store"):
            memory.store(event(region.base, [off], size, [1]))

    def test_a_load_of_bytes_nobody_wrote(self) -> None:
        memory = Memory()
        region = memory.map("cache", np.full(16, 9, np.uint8), writable=True, initialised=False)
        memory.store(event(region.base, [4, 6], 2, [0x1234, 0x5678]))
        assert memory.load(addresses(region.base + 4), 4, 0)[0].tolist() == [0x56781234]
        for offset in (0, 8):
            with pytest.raises(MachineFault, match=rf"nobody wrote, at cache\+{offset:#x}"):
                memory.load(addresses(region.base + offset), 8, 0)

    def test_strays_are_recorded_and_dropped_and_the_rest_is_stored(self) -> None:
        memory = Memory()
        before = memory.map("before", np.zeros(8, np.uint8), writable=True)
        cache = memory.map("cache", np.zeros(8, np.uint8), writable=True)
        memory.store(event(cache.base, [4, 8, 0, -4], 4, [1, 2, 3, 4]))
        assert cache.bytes.view(np.uint32).tolist() == [3, 1]
        (stray,) = memory.strays
        assert stray.lane.tolist() == [1, 3]
        assert [memory.describe(int(a)) for a in stray.address] == [
            "0 bytes past the end of cache", "4 bytes before cache"]  # fmt: skip
        assert not before.bytes.any()
        assert len(memory.stores) == 1

    def test_a_store_to_two_regions_at_once(self) -> None:
        memory = Memory()
        first = memory.map("first", np.zeros(4, np.uint8), writable=True)
        second = memory.map("second", np.zeros(4, np.uint8), writable=True)
        memory.store(event(0, [first.base, second.base], 4, [7, 8]))
        assert (first.bytes[0], second.bytes[0]) == (7, 8)
        assert memory.load(addresses(second.base, first.base), 4, 0)[0].tolist() == [8, 7]
        assert not memory.strays

    def test_a_store_to_memory_that_is_only_read(self) -> None:
        memory = Memory()
        key = memory.map("key", np.arange(4, dtype=np.uint8))
        memory.store(event(key.base, [0], 4, [0]))
        assert key.bytes.tolist() == [0, 1, 2, 3]
        assert memory.describe(int(memory.strays[0].address[0])) == "key+0x0"

    def test_a_region_is_a_copy_and_has_a_name(self) -> None:
        memory = Memory()
        source = np.zeros(3, np.uint16)
        region = memory.map("out", source, writable=True)
        memory.store(event(region.base, [4], 2, [5]))
        assert source.tolist() == [0, 0, 0]
        assert memory.region("out").bytes.view(np.uint16).tolist() == [0, 0, 5]
        with pytest.raises(UsageError, match="'in'"):
            memory.region("in")

    def test_regions_lie_apart(self) -> None:
        memory = Memory()
        regions = [memory.map(str(size), np.zeros(size, np.uint8)) for size in (0, 1, 511, 4096)]
        for one, other in pairwise(regions):
            assert other.base >= one.base + one.size + GAP
            assert other.base % 512 == 0


class TestLog:
    """What is known of the stores afterwards."""

    def test_order_lanes_and_bytes(self) -> None:
        memory = Memory()
        out = memory.map("out", np.zeros(256, np.uint8), writable=True)
        lines = [*OWN_WORD, "STG.E.U8 desc[UR4][R2.64+0x3],R0", "STG.E desc[UR4][R2.64],R0"]
        launch(lines, memory, [out.base])
        assert [(e.pc, e.size) for e in memory.stores] == [(0x30, 1), (0x40, 4)]
        # Both CTAs take part in one event; their lanes are numbered through.
        assert memory.stores[0].lane.tolist() == list(range(64))
        assert memory.stores[1].byte_addresses()[5].tolist() == [
            out.base + 20 + i for i in range(4)
        ]
        assert memory.stores[1].byte_values()[5].tolist() == [5, 0, 0, 0]

    def test_two_lanes_that_write_one_byte_are_both_there(self) -> None:
        memory = Memory()
        out = memory.map("out", np.zeros(16, np.uint8), writable=True)
        same = ["S2R R0,SR_TID.X", "LDC.64 R2,c[0x0][0x380]", "STG.E.U8 desc[UR4][R2.64],R0"]
        launch(same, memory, [out.base])
        (only,) = memory.stores
        assert only.byte_addresses().reshape(-1).tolist() == [out.base] * 64
        assert only.byte_values().reshape(-1).tolist() == list(range(32)) * 2
        assert out.bytes[0] == 31

    def test_wide_values_are_little_endian(self) -> None:
        wide = event(0, [0, 16], 16, [0x01020304, 5])
        assert wide.byte_values()[0, :8].tolist() == [4, 3, 2, 1, 0xFB, 0xFC, 0xFD, 0xFE]

    def test_lanes_whose_guard_is_false_do_nothing(self) -> None:
        memory = Memory()
        out = memory.map("out", np.zeros(64, np.uint8), writable=True)
        lines = [*OWN_WORD, "ISETP.LT.AND P0,PT,R0,0x10,PT", "@P0 LDG.E R4,desc[UR4][R2.64]",
                 "@P0 STG.E desc[UR4][R2.64],R0"]  # fmt: skip
        launch(lines, memory, [out.base])
        assert memory.stores[0].lane.tolist() == [*range(16), *range(32, 48)]


class TestWindows:
    """Shared and local memory."""

    @pytest.mark.parametrize(("space", "name"), [("S", "shared"), ("L", "local")])
    def test_faults(self, space: str, name: str) -> None:
        for lines, message in (
            ([f"ST{space} [R9+0x40],R0"], "outside its 64 bytes"),
            ([f"ST{space} [R9+0x2],R0"], "misaligned"),
            ([f"LD{space} R4,[R9]"], f"loads {name} bytes nobody wrote"),
            ([f"ST{space}.U8 [R9],R0", f"LD{space}.U16 R4,[R9]"], "nobody wrote"),
        ):
            with pytest.raises(MachineFault, match=message):
                launch(["S2R R0,SR_TID.X", "MOV R9,RZ", *lines], Memory(), [])

    def test_shared_memory_belongs_to_a_cta_and_local_memory_to_a_lane(self) -> None:
        memory = Memory()
        out = memory.map("out", np.zeros((64, 2), np.uint32), writable=True)
        lines = ["S2R R0,SR_TID.X", "S2R R1,SR_CTAID.X", "LDC.64 R2,c[0x0][0x380]",
                 "IMAD R4,R1,0x20,R0", "IMAD.WIDE.U32 R2,R4,0x8,R2", "MOV R9,RZ",
                 "STS [R9],R4", "STL [R9+0x4],R4", "LDS R6,[R9]", "LDL R7,[R9+0x4]",
                 "STG.E.64 desc[UR4][R2.64],R6"]  # fmt: skip
        launch(lines, memory, [out.base])
        found = out.bytes.view(np.uint32).reshape(64, 2)
        assert found[:, 0].tolist() == [31] * 32 + [63] * 32
        assert found[:, 1].tolist() == list(range(64))


_ACCESS = st.tuples(st.booleans(), st.sampled_from((1, 2, 4, 8, 16)), st.integers(0, 63))


@settings(max_examples=60, **CALM)
@given(accesses=st.lists(_ACCESS, min_size=1, max_size=20), window=st.booleans())
def test_any_accesses_against_a_dictionary(
    accesses: list[tuple[bool, int, int]], window: bool
) -> None:
    """Stores and loads of any size in 64 bytes, and what a dictionary of bytes says to them."""
    memory = Memory()
    region = memory.map("r", np.zeros(64, np.uint8), writable=True, initialised=False)
    rows = Window("w", 3, 64)
    row = np.array([1])
    known: dict[int, int] = {}
    for step, (store, size, place) in enumerate(accesses):
        place -= place % size
        at = addresses(place if window else region.base + place)
        if store:
            written = event(int(at[0]), [0], size, [step * 0x01030507])
            known.update(enumerate(written.byte_values()[0].tolist(), place))
            rows.store(row, at, size, written.words, 0) if window else memory.store(written)
            continue
        expected = [known.get(byte) for byte in range(place, place + size)]
        if None in expected:
            with pytest.raises(MachineFault, match="nobody wrote"):
                rows.load(row, at, size, 0) if window else memory.load(at, size, 0)
            continue
        words = rows.load(row, at, size, 0) if window else memory.load(at, size, 0)
        found = np.stack(words, axis=1).view(np.uint8)[0, :size]
        assert found.tolist() == expected
