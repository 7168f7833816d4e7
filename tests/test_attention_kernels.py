"""The attention kernels of the published wheel: where they look, and that faults would be noticed.

Needs flashinfer-cubin 0.6.13: set LAYOUT_ORACLE_WHEELS to a directory that has its wheel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from attention import DECODE, PREFILL, altered, name_of, reader, wheel, with_immediate

from oracle.candidates import candidate
from oracle.errors import OracleError
from oracle.geometry import SIDES, CacheGeometry
from oracle.machine.context import Unsupported
from oracle.machine.disassembly import Instruction
from oracle.machine.memory import MachineFault
from oracle.machine.operands import Address
from oracle.multiplications import ReaderMap, reader_map
from oracle.probe import PROBED_PAGES
from oracle.recognise import recognise
from oracle.subjects.attentionkernel import AttentionKernel, probe_geometry, probe_request
from oracle.subjects.flashinfer import cubins
from oracle.sweep import layouts_by_tokens

pytestmark = pytest.mark.wheels

HEADS = (64, 128, 256)
ARCHS = (100, 103)
SOUND = [
    (arch, head, rest)
    for arch in ARCHS
    for head in HEADS
    for rest in (PREFILL, DECODE)
    if (head, rest) != (256, PREFILL)
]


def table(found: ReaderMap, side: str) -> np.ndarray:
    """Offsets in the plane of each (t, s) of a page."""
    recognised = recognise(found.read.maps[side, "scale"])
    assert recognised.table is not None, recognised.reason
    return recognised.table


@pytest.mark.parametrize(("arch", "head", "rest"), SOUND)
def test_k_is_read_linearly_and_v_swizzled(arch: int, head: int, rest: str) -> None:
    found = reader(name_of(arch, head, rest)).probe()
    assert found.faults == ()
    assert found.unread == found.shared == {"K": 0, "V": 0}
    for side, layout in (("K", "linear"), ("V", "swizzle_4x4")):
        assert np.array_equal(table(found, side), candidate(layout).table(16, head // 16))


EARLIER = [
    ("0.4.0", name_of(100, 64, "DenseP32VarSeqQ128Kv128StaticContext")),
    ("0.4.0", name_of(100, 128, "DenseP32VarSeqQ8Kv128StaticSwapsAbForGen")),
    ("0.4.0", name_of(100, 128, "DenseP32VarSeqQ128Kv128PersistentKeepsAbForGen")),
]


@pytest.mark.parametrize(("version", "name"), EARLIER)
def test_releases_before_0_6_read_v_linearly(version: str, name: str) -> None:
    kernel = reader(name, version)
    found = kernel.probe()
    assert found.faults == ()
    assert found.unread == found.shared == {"K": 0, "V": 0}
    assert kernel.info.declared == {"K": "linear", "V": "linear"}
    for side in SIDES:
        expected = candidate("linear").table(32, kernel.kernel.head_size // 16)
        assert np.array_equal(table(found, side), expected)


def test_a_release_that_takes_tiles_of_k_for_v_is_noticed() -> None:
    name = name_of(103, 128, "DenseP32VarSeqQ128Kv128StaticContext")
    kernel = reader(name, "0.6.7")
    geometry = probe_geometry(kernel.kernel)
    request = probe_request(kernel.kernel, geometry, late=True)
    for found in (
        kernel.probe(),
        # Whenever tiles arrive.
        reader_map(kernel.multiplications(request, (0, 1)), geometry, request.pages),
    ):
        assert found.faults == ()
        assert layouts_by_tokens(found.read, "K") == (
            "128 tokens linear, then 384 tokens swizzle_4x4"
        )
        assert layouts_by_tokens(found.read, "V") == (
            "384 tokens linear, then 128 tokens swizzle_4x4"
        )


def second_half(t: np.ndarray, s: np.ndarray, step: int) -> np.ndarray:
    """Swizzled within each half of the head's columns, the second half `step` bytes further on."""
    return t // 4 * 64 + t % 4 + s % 8 * 4 + s // 8 * step


T, S = np.arange(16)[:, None], np.arange(16)
WIDE_PREFILL = [
    (arch, rest.format(schedule))
    for arch in ARCHS
    for schedule in ("Static", "Persistent")
    for rest in ("DenseP16VarSeqQ128Kv128{}Context",)
]


@pytest.mark.parametrize(("arch", "rest"), WIDE_PREFILL)
def test_prefill_at_head_256_reads_v_in_halves_that_overlap(arch: int, rest: str) -> None:
    found = reader(name_of(arch, 256, rest)).probe()
    assert found.faults == ()
    assert np.array_equal(table(found, "K"), candidate("linear").table(16, 16))
    seen = table(found, "V")
    assert np.array_equal(seen, second_half(T, S, 8))
    # Of the 64 bytes of four tokens 40 are read, 24 of them twice.
    assert np.unique(seen).tolist() == [64 * band + i for band in range(4) for i in range(40)]
    planes = 2 * found.read.maps["V", "scale"].geometry.num_heads
    pages = len(found.read.maps["V", "scale"].pages)
    assert found.unread == {"K": 0, "V": pages * planes // 2 * 4 * 24}
    assert found.shared == found.unread


SCALES_OF_THE_SECOND_HALF = 0x12008


@pytest.mark.parametrize("schedule", ["Static", "Persistent"])
@pytest.mark.parametrize("arch", ARCHS)
def test_the_step_of_eight_bytes_stands_in_the_loads_of_the_second_half(
    arch: int, schedule: str
) -> None:
    # What explains the map above: the transform loads the scales of elements 128 to 255 from 8
    # bytes further on, for V as for K, where a swizzled plane has them 32 further on. With that
    # offset in the loads of V, and nothing else changed, the map is the declared one: in every
    # kernel of the family, no two of which have the same code.
    found = list(cubins(wheel(), f"fmhaSm{arch}a*H256*{schedule}Context"))
    assert len(found) == 12
    for name, cubin in found:
        code = AttentionKernel(cubin, name).instructions
        products = [i.address for i in code if i.opcode.startswith("QMUL4")]
        # The products of K stand before those of V, and there are as many.
        last_of_k = products[len(products) // 2 - 1]
        mended = AttentionKernel(
            cubin,
            name,
            rewrite=with_immediate(
                "LDS.U8", SCALES_OF_THE_SECOND_HALF, SCALES_OF_THE_SECOND_HALF + 24, last_of_k
            ),
        )
        geometry = probe_geometry(mended.kernel, num_heads=1)
        maps = mended.probe(geometry)
        assert maps.faults == ()
        for side, layout in (("K", "linear"), ("V", "swizzle_4x4")):
            expected = candidate(layout).table(geometry.block_size, 16)
            assert np.array_equal(table(maps, side), expected), (name, side)


@pytest.mark.parametrize("rest", [PREFILL, DECODE])
def test_the_map_does_not_depend_on_the_request(rest: str) -> None:
    kernel = reader(name_of(100, 64, rest))
    expected = {side: table(kernel.probe(), side) for side in SIDES}
    for heads, pages, seed in ((1, 8, 3), (3, 16, 4), (2, 40, 5)):
        geometry = CacheGeometry(pages + 3, 16, heads, 64)
        request = probe_request(kernel.kernel, geometry, seed)
        every = tuple(range(heads))
        found = reader_map(kernel.multiplications(request, every), geometry, request.pages)
        assert found.faults == ()
        for side in SIDES:
            assert np.array_equal(table(found, side), expected[side])


def test_v_pages_come_from_their_own_table() -> None:
    kernel = reader(name_of(100, 128, DECODE))
    geometry = probe_geometry(kernel.kernel)
    request = probe_request(kernel.kernel, geometry)
    other = replace(request, value_pages=tuple(reversed(request.pages)))
    found = reader_map(kernel.multiplications(other, (0, 1)), geometry, request.pages)
    assert found.faults == ()


def test_a_sequence_split_over_ctas_is_read_once() -> None:
    kernel = reader(name_of(100, 64, "DenseP16MultiCtasKvVarSeqQ8Kv128StaticSwapsAbForGen"))
    geometry = probe_geometry(kernel.kernel)
    request = probe_request(kernel.kernel, geometry, ctas_kv=2)
    parts = [kernel.multiplications(request, (0, 1), cta) for cta in (0, 1)]
    assert 0 < parts[0].code.size == parts[1].code.size
    both = type(parts[0])(
        *(np.concatenate([getattr(p, f) for p in parts]) for f in ("code", "scale", "pc", "warp"))
    )
    assert reader_map(both, geometry, request.pages).faults == ()


# -- faults that must not pass ------------------------------------------------------------------


def faults_of(kernel: AttentionKernel, **options: object) -> tuple[str, ...]:
    """What is found wrong with a run of a changed request, the run's own end included."""
    geometry = probe_geometry(kernel.kernel)
    request = probe_request(kernel.kernel, geometry)
    changed = replace(request, **options)  # type: ignore[arg-type]
    try:
        found = kernel.multiplications(changed, (0, 1))
    except MachineFault as error:
        return (str(error),)
    return reader_map(found, geometry, request.pages).faults


@pytest.mark.parametrize("rest", [PREFILL, DECODE])
def test_exchanged_scale_descriptors_are_noticed(rest: str) -> None:
    swapped = {"K scale": "V scale", "V scale": "K scale"}
    faults = faults_of(reader(name_of(100, 64, rest)), descriptors=swapped)
    assert any("take a scale from the other side" in fault for fault in faults)


@pytest.mark.parametrize("rest", [PREFILL, DECODE])
def test_data_and_scale_descriptors_exchanged_are_noticed(rest: str) -> None:
    assert faults_of(reader(name_of(100, 64, rest)), descriptors={"K": "K scale", "K scale": "K"})


@pytest.mark.parametrize("rest", [PREFILL, DECODE])
def test_a_wrong_page_table_entry_is_noticed(rest: str) -> None:
    kernel = reader(name_of(100, 64, rest))
    geometry = probe_geometry(kernel.kernel)
    pages = list(probe_request(kernel.kernel, geometry).pages)
    pages[5] = next(page for page in range(geometry.num_blocks) if page not in pages)
    faults = faults_of(kernel, pages=tuple(pages))
    assert any("read what is not of the sequence" in fault for fault in faults)
    assert any("elements are never multiplied" in fault for fault in faults)


@pytest.mark.parametrize(("rest", "bytes_of_a_tile"), [(PREFILL, 0x1200), (DECODE, 0x1200)])
def test_a_wrong_transaction_count_is_noticed(rest: str, bytes_of_a_tile: int) -> None:
    name = name_of(100, 64, rest)
    for wrong in (bytes_of_a_tile - 16, bytes_of_a_tile + 16):
        kernel = altered(name, with_immediate("IMAD.MOV.U32", bytes_of_a_tile, wrong))
        (fault,) = faults_of(kernel)
        assert "is stuck" in fault or "bytes to come" in fault


def scale_loads(code: Sequence[Instruction]) -> list[int]:
    """Offsets of the first shared loads into registers that products soon take scales from."""
    found: dict[int, None] = {}
    for place, load in enumerate(code):
        if not load.opcode.startswith("LDS.") or not isinstance(load.operands[1], Address):
            continue
        target, address = load.operands
        words = 2 if load.opcode == "LDS.64" else 1
        users = (i for i in code[place : place + 128] if i.opcode.startswith("QMUL4"))
        if any(0 <= i.operands[2].index - target.index < words for i in users):
            found.setdefault(address.offset)
    return list(found)[:4]


@pytest.mark.parametrize("rest", [PREFILL, DECODE])
def test_a_corrupted_offset_of_a_scale_load_is_noticed(rest: str) -> None:
    name = name_of(100, 64, rest)
    kernel = reader(name)
    loads = scale_loads(kernel.instructions)
    plain = {side: table(kernel.probe(), side) for side in SIDES}
    noticed = 0
    for offset in loads:
        try:
            found = altered(name, with_immediate("LDS", offset, offset + 64)).probe()
        except OracleError:
            noticed += 1
            continue
        same = not found.faults and all(
            np.array_equal(recognise(found.read.maps[side, "scale"]).table, plain[side])
            for side in SIDES
        )
        noticed += not same
    assert noticed == len(loads) >= 1


def test_all_that_has_no_meaning_is_told_at_once() -> None:
    places = (0x100, 0x800)

    def change(instruction: Instruction) -> Instruction:
        known = instruction.address not in places
        return instruction if known else replace(instruction, opcode=f"HCF{instruction.address}")

    kernel = altered(name_of(100, 64, PREFILL), change)
    with pytest.raises(Unsupported, match=r"opcode HCF256 at 0x0100; opcode HCF2048 at 0x0800"):
        kernel.probe()


def test_a_map_of_the_probed_pages_fits_a_writers() -> None:
    kernel = reader(name_of(100, 128, DECODE))
    geometry = CacheGeometry(4, 16, 2, 128)
    maps = kernel.map(geometry).maps
    assert all(amap.pages == PROBED_PAGES and amap.found.all() for amap in maps.values())
    where = geometry.locate(maps["V", "scale"].offset)
    assert (where.page == np.array(PROBED_PAGES)[:, None, None, None]).all()


@pytest.mark.parametrize("rest", [PREFILL, DECODE])
def test_when_tiles_arrive_makes_no_difference(rest: str) -> None:
    kernel = reader(name_of(100, 64, rest))
    geometry = probe_geometry(kernel.kernel)
    request = probe_request(kernel.kernel, geometry, late=True)
    found = reader_map(kernel.multiplications(request, (0, 1)), geometry, request.pages)
    assert found.faults == ()
    for key, amap in found.read.maps.items():
        assert np.array_equal(amap.offset, kernel.probe().read.maps[key].offset)
