"""The formats against PyTorch's casts, where it is installed; they differ as written here.

Releases of PyTorch disagree about what is above the range of E4M3: some saturate, as the hardware
conversion does, and some give NaN. All keep the sign of a NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oracle.formats import (
    FloatArray,
    bf16_decode,
    bf16_encode,
    e4m3_decode,
    e4m3_encode,
    fp16_encode,
)

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

ABOVE_RANGE = 464
"""The midpoint between 448, the largest value of E4M3, and the next one it would have."""


def numbers() -> FloatArray:
    """Every bf16, drawn patterns, and the neighbourhood of what is beyond the range."""
    every_bf16 = bf16_decode(np.arange(2**16, dtype=np.uint16))
    drawn = np.random.default_rng(0).integers(0, 2**32, 50_000, np.uint32).view(np.float32)
    beyond = np.nextafter(np.float32(ABOVE_RANGE), np.float32([0, 1000])).ravel()
    return np.concatenate([every_bf16, drawn, beyond, -beyond])


def cast(x: FloatArray, kind: str, pattern: Any) -> Any:
    words = torch.from_numpy(x).to(getattr(torch, kind)).view(pattern).numpy()
    return words.view(np.uint8 if pattern is torch.uint8 else np.uint16)


def test_e4m3_differs_on_nan_and_perhaps_above_the_range() -> None:
    x = numbers()
    theirs, ours = cast(x, "float8_e4m3fn", torch.uint8), e4m3_encode(x)
    nan, above = np.isnan(x), np.abs(x) > ABOVE_RANGE
    assert np.array_equal(theirs[~nan & ~above], ours[~nan & ~above])
    signs = (x.view(np.uint32) >> 24 & 0x80).astype(np.uint8)
    assert np.array_equal(theirs[nan], 0x7F | signs[nan])
    assert set((theirs & 0x7F)[above].tolist()) in ({0x7E}, {0x7F})


def test_every_e4m3_byte_decodes_alike() -> None:
    scale_bytes = np.arange(256, dtype=np.uint8)
    theirs = torch.from_numpy(scale_bytes).view(torch.float8_e4m3fn).float().numpy()
    assert np.array_equal(theirs, e4m3_decode(scale_bytes), equal_nan=True)


@pytest.mark.parametrize(("kind", "encode"), [("bfloat16", bf16_encode), ("float16", fp16_encode)])
def test_16_bit_types_differ_on_nan_only(kind: str, encode: Any) -> None:
    x = numbers()
    theirs, ours = cast(x, kind, torch.int16), encode(x)
    nan = np.isnan(x)
    assert np.array_equal(theirs[~nan], ours[~nan])
    assert (ours[nan] == 0x7FFF).all()
