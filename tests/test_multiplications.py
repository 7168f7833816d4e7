"""What a run's multiplications say, and every way in which they could be unsound, planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oracle.candidates import candidate
from oracle.geometry import SIDES, CacheGeometry
from oracle.machine.cta import Observation
from oracle.machine.replicas import NOWHERE, images
from oracle.multiplications import Multiplications, ReaderMap, narrowed, reader_map
from oracle.recognise import recognise

GEOMETRY = CacheGeometry(5, 8, 2, 64)
PAGES = (3, 1, 2)
LAYOUTS = {"K": "linear", "V": "swizzle_4x4"}


def ideal() -> Multiplications:
    """Every element of PAGES once, with the scales where LAYOUTS put them."""
    codes, scales = [], []
    for side in SIDES:
        table = candidate(LAYOUTS[side]).table(GEOMETRY.block_size, GEOMETRY.scale_columns)
        for page in PAGES:
            for head in range(GEOMETRY.num_heads):
                for token in range(GEOMETRY.block_size):
                    for element in range(GEOMETRY.head_size):
                        byte = int(GEOMETRY.data_offset(side, page, head, token, element // 2))
                        codes.append(2 * byte + element % 2)
                        row, column = divmod(int(table[token, element // 16]), 4)
                        scales.append(int(GEOMETRY.scale_offset(side, page, head, row, column)))
    count = len(codes)
    return Multiplications(
        np.array(codes), np.array(scales), np.full(count, 0x40), np.arange(count) % 4
    )


def judged(found: Multiplications) -> ReaderMap:
    return reader_map(found, GEOMETRY, PAGES)


def changed(name: str, place: int, value: int) -> Multiplications:
    found = ideal()
    array = getattr(found, name).copy()
    array[place] = value
    return replace(found, **{name: array})


def test_a_sound_run_gives_the_layouts() -> None:
    found = judged(ideal())
    assert found.faults == ()
    assert (found.unread, found.shared) == ({"K": 0, "V": 0}, {"K": 0, "V": 0})
    assert (found.warps, found.copies) == ((0, 1, 2, 3), 1)
    for side in SIDES:
        assert LAYOUTS[side] in recognise(found.read.maps[side, "scale"]).layouts
        assert recognise(found.read.maps[side, "data"]).layouts == ("linear",)


def test_the_maps_of_some_pages_are_those_rows() -> None:
    found = judged(ideal())
    some = narrowed(found.read, GEOMETRY, (1, 2))
    for key, amap in some.maps.items():
        assert np.array_equal(amap.offset, found.read.maps[key].offset[1:])
        assert amap.pages == (1, 2)


ELSEWHERE = {
    "take a scale from the other side": ("V", 3, 0),
    "take a scale from another page": ("K", 1, 0),
    "take a scale from another head": ("K", 3, 1),
}


@pytest.mark.parametrize("fault", ELSEWHERE)
def test_a_scale_from_elsewhere_is_noticed(fault: str) -> None:
    side, page, head = ELSEWHERE[fault]
    scale = int(GEOMETRY.scale_offset(side, page, head, 0, 0))
    assert f"1 multiplications {fault}" in judged(changed("scale", 0, scale)).faults


def test_operands_that_are_no_coded_bytes_are_noticed() -> None:
    assert any("no code of the cache" in f for f in judged(changed("code", 5, NOWHERE)).faults)
    assert any("no scale byte" in f for f in judged(changed("scale", 5, NOWHERE)).faults)


def test_planes_that_changed_roles_are_noticed() -> None:
    scale, code = int(ideal().scale[0]), int(ideal().code[0])
    assert any(
        "a code from a scale plane" in f for f in judged(changed("code", 0, 2 * scale)).faults
    )
    assert any(
        "a scale from a data plane" in f for f in judged(changed("scale", 0, code // 2)).faults
    )


def test_an_element_left_out_or_taken_twice_is_noticed() -> None:
    twice = judged(changed("code", 0, int(ideal().code[1]))).faults
    assert "1 elements are never multiplied" in twice
    assert "1 elements are multiplied more than once" in twice


def test_a_page_that_is_not_of_the_sequence_is_noticed() -> None:
    code = 2 * int(GEOMETRY.data_offset("K", 0, 0, 0, 0))
    assert (
        "1 multiplications read what is not of the sequence"
        in judged(changed("code", 0, code)).faults
    )


def test_a_group_with_two_scales_is_noticed_and_has_no_place() -> None:
    other = int(GEOMETRY.scale_offset("K", PAGES[0], 0, 0, 1))
    found = judged(changed("scale", 3, other))
    assert "1 groups of 16 elements meet several scales" in found.faults
    assert not found.read.maps["K", "scale"].found[0, 0, 0, 0]


def test_heads_that_were_not_to_be_read_are_noticed() -> None:
    faults = reader_map(ideal(), GEOMETRY, PAGES, (0,)).faults
    assert any("what is not of the sequence" in f for f in faults)


def test_bytes_shared_and_never_read_are_counted() -> None:
    found = ideal()
    # Column 3 of K looks where column 1 does.
    where = GEOMETRY.locate(found.scale)
    wrong = (where.side == 0) & (where.col == 3)
    result = judged(replace(found, scale=np.where(wrong, found.scale - 2, found.scale)))
    groups = len(PAGES) * GEOMETRY.num_heads * GEOMETRY.block_size
    assert result.faults == ()
    assert result.shared == {"K": groups, "V": 0}
    assert result.unread == {"K": groups, "V": 0}
    assert recognise(result.read.maps["K", "scale"]).layouts == ()


def test_words_are_taken_apart_as_the_instruction_says() -> None:
    coded = images(64)
    words = np.ascontiguousarray(coded).view(np.uint32)
    codes, scales = words[:, [2, 5]], words[:, [8, 3]]
    seen = Observation(0x10, 3, "4567", "2222", codes, scales)
    found = Multiplications.of([seen, replace(seen, nibbles="0246", places="0123", pc=0x20)])
    expected = set()
    for word, scale in ((2, 8), (5, 3)):
        expected |= {(8 * word + n, 4 * scale + 2, 0x10, 3) for n in (4, 5, 6, 7)}
        expected |= {(8 * word + 2 * i, 4 * scale + i, 0x20, 3) for i in range(4)}
    columns = (found.code, found.scale, found.pc, found.warp)
    assert set(zip(*(c.tolist() for c in columns), strict=True)) == expected


def test_a_scale_put_together_from_two_bytes_is_none() -> None:
    coded = images(8)
    low, high = coded[:, 4].astype(np.uint32), coded[:, 5].astype(np.uint32)
    mixed = (low & 15) | (high & 0xF0)
    seen = Observation(0, 0, "0123", "0000", mixed[:, None], mixed[:, None])
    assert (Multiplications.of([seen]).scale == NOWHERE).all()


def test_nothing_multiplied_is_everything_missing() -> None:
    faults = judged(Multiplications.of([])).faults
    elements = len(PAGES) * 2 * GEOMETRY.num_heads * GEOMETRY.block_size * GEOMETRY.head_size
    assert faults == (f"{elements} elements are never multiplied",)
