"""Tiles of tensor maps against loops over the elements of a box."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle.errors import UsageError
from oracle.machine.tensormap import TensorMap


def swizzled(address: int, width: int) -> int:
    """Bits 4.. of an address xored with bits 7.., as many as the width has 16-byte chunks."""
    chunks = {0: 1, 32: 2, 64: 4, 128: 8}[width]
    return address ^ ((address // 128 % chunks) * 16)


def by_elements(m: TensorMap, corner: tuple[int, ...], shared: int) -> dict[int, int]:
    """Shared byte -> global byte (-1 outside), element by element; two 4-bit elements a byte."""
    found = {}
    row = 0
    for outer in itertools.product(*(range(n) for n in reversed(m.box[1:]))):
        at = [c + o for c, o in zip(corner[1:], reversed(outer), strict=True)]
        for element in range(m.box[0]):
            if m.element_bits == 4 and element % 2:
                continue
            bits = element * m.element_bits
            position = corner[0] + element
            inside = 0 <= position < m.dims[0]
            inside &= all(0 <= a < n for a, n in zip(at, m.dims[1:], strict=True))
            source = m.base + position * m.element_bits // 8
            source += sum(a * s for a, s in zip(at, m.strides, strict=True))
            place = element // 16 * 16 + element % 16 // 2 if m.unpacked else bits // 8
            target = swizzled(shared + row * m.box[0] + place, m.swizzle)
            found[target] = source if inside else -1
        row += 1
    return found


@given(st.data())
def test_a_tile_is_what_its_elements_say(data: st.DataObject) -> None:
    unpacked = data.draw(st.booleans())
    swizzle = data.draw(st.sampled_from((128,) if unpacked else (0, 32, 64, 128)))
    width = (
        128
        if unpacked
        else data.draw(st.sampled_from([w for w in (16, 32, 64, 128) if w <= (swizzle or 128)]))
    )
    dims = (width * data.draw(st.integers(1, 2)), *(data.draw(st.integers(1, 4)) for _ in range(3)))
    box = (width, *(data.draw(st.integers(1, 3)) for _ in range(3)))
    strides = tuple(16 * data.draw(st.integers(1, 40)) for _ in range(3))
    bits = 4 if unpacked else 8
    m = TensorMap("t", 0x1000, dims, strides, box, bits, unpacked, swizzle)
    corner = (
        width * data.draw(st.integers(0, 1)),
        *(data.draw(st.integers(-1, 3)) for _ in range(3)),
    )
    source, target = m.tile(corner, 0x2000)
    assert dict(zip(target.tolist(), source.tolist(), strict=True)) == by_elements(
        m, corner, 0x2000
    )
    assert np.unique(target).size == target.size == m.tile_bytes


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"base": 8}, "multiples of 16"),
        ({"strides": (24,)}, "multiples of 16"),
        ({"box": (64, 300)}, "1 to 256"),
        ({"dims": (0, 4)}, "1 to 256"),
        ({"box": (24, 1)}, "multiple of 16 bytes"),
        ({"swizzle": 48}, "not modelled"),
        ({"element_bits": 4}, "not modelled"),
        ({"swizzle": 32}, "wider than its swizzle"),
        ({"strides": (16, 16)}, "differ in rank"),
    ],
)
def test_maps_the_driver_would_refuse_are_refused(change: dict[str, object], reason: str) -> None:
    arguments: dict[str, object] = {
        "name": "t", "base": 0, "dims": (64, 4), "strides": (64,), "box": (64, 2),
    }  # fmt: skip
    with pytest.raises(UsageError, match=reason):
        TensorMap(**{**arguments, **change})  # type: ignore[arg-type]
