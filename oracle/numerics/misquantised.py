"""Quantisers that are wrong, each in one respect.

A quantiser takes float32 groups [n, 16] and a global decode scale, and gives codes [n, 16] and
scale bytes [n]. Most of these are the right one with a part exchanged.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from oracle.formats import ByteArray, FloatArray, e2m1_encode, e4m3_decode, e4m3_encode
from oracle.numerics.admissible import amax
from oracle.numerics.freedom import reciprocal_of
from oracle.quantize import GROUP, quantize, rcp_exact

Quantiser = Callable[[FloatArray, float], tuple[ByteArray, ByteArray]]

_LEVELS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def _scaled(
    x: FloatArray, scale: float, factor: float = 1.0, largest: FloatArray | None = None,
    encode: Callable[[FloatArray], ByteArray] = e4m3_encode,
    round_code: Callable[[FloatArray], ByteArray] = e2m1_encode,
) -> tuple[ByteArray, ByteArray]:  # fmt: skip
    """Quantise with parts exchanged: the scale times `factor`, another amax, other encoders."""
    with np.errstate(all="ignore"):
        g = np.float32(1) / np.array(scale, np.float32)
        largest = amax(x) if largest is None else largest
        scale_bytes = encode(g * (largest * np.float32(factor / 6)))
        decoded = e4m3_decode(scale_bytes)
        r = np.where(decoded == 0, np.float32(0), rcp_exact(decoded * rcp_exact(g)))
        return round_code(x * r[:, None]), scale_bytes


def _power_of_two(x: FloatArray) -> ByteArray:
    """The next power of two, as a scale of MX formats would be."""
    with np.errstate(all="ignore"):
        return e4m3_encode(np.exp2(np.ceil(np.log2(x))))


def _directed(x: FloatArray, step: int) -> ByteArray:
    """The E4M3 byte below (step -1) or above (step 1) wherever x is between two."""
    byte = e4m3_encode(x)
    value = e4m3_decode(byte)
    beyond = value > x if step < 0 else value < x
    moves = beyond & (byte > 0) & (byte < 0x7E)
    return (byte + moves * np.int16(step)).astype(np.uint8)


def _towards_zero(x: FloatArray) -> ByteArray:
    return e2m1_encode(np.sign(x) * _LEVELS[np.searchsorted(_LEVELS, np.abs(x), "right") - 1])


def _half_up(x: FloatArray) -> ByteArray:
    return e2m1_encode(np.nextafter(x, np.copysign(np.float32(np.inf), x)))


def _half_down(x: FloatArray) -> ByteArray:
    return e2m1_encode(np.where(x == 0, x, np.nextafter(x, np.float32(0))))


def _to_odd(x: FloatArray) -> ByteArray:
    down, up = _half_down(x), _half_up(x)
    return np.where(down & 1, down, up)


def _recoded(change: Callable[[ByteArray], NDArray[np.integer]]) -> Quantiser:
    def quantiser(x: FloatArray, scale: float) -> tuple[ByteArray, ByteArray]:
        codes, scale_bytes = quantize(x, scale)
        return change(codes).astype(np.uint8), scale_bytes

    return quantiser


def _exchanged(codes: ByteArray) -> ByteArray:
    return codes.reshape(-1, GROUP // 2, 2)[..., ::-1].reshape(-1, GROUP)


def _unsaturated(x: FloatArray) -> ByteArray:
    return np.where(np.abs(x) > 464, np.uint8(0x7F), e4m3_encode(x))


def _pairs_share(x: FloatArray, scale: float) -> tuple[ByteArray, ByteArray]:
    largest = amax(x)
    if len(largest) % 2 == 0:
        largest = np.repeat(largest.reshape(-1, 2).max(axis=-1), 2)
    return _scaled(x, scale, largest=largest)


def _neighbours_scale(x: FloatArray, scale: float) -> tuple[ByteArray, ByteArray]:
    codes, scale_bytes = quantize(x, scale)
    return codes, np.roll(scale_bytes, 1)


def _nan_lost(x: FloatArray, scale: float) -> tuple[ByteArray, ByteArray]:
    return quantize(np.where(np.isnan(x), np.float32(0), x), scale)


def divided(x: FloatArray, scale: float) -> tuple[ByteArray, ByteArray]:
    """Codes by one division, x / (sf * global_scale), as software does it.

    Right wherever nothing is subnormal: the reciprocals of a store flush, and a division does not.
    """
    codes, scale_bytes = quantize(x, scale)
    with np.errstate(all="ignore"):
        step = e4m3_decode(scale_bytes) * np.float32(scale)
        divided = e2m1_encode(x / step[:, None])
    return np.where((step == 0)[:, None] | ~np.isfinite(step)[:, None], codes, divided), scale_bytes


WRONG_QUANTISERS: dict[str, Quantiser] = {
    "encode scale for decode scale": lambda x, k: quantize(x, float(reciprocal_of(k))),
    "global scale ignored": lambda x, k: quantize(x, 1.0),
    "global scale 6 times too large": lambda x, k: quantize(x, 6 * k),
    "global scale 6 times too small": lambda x, k: quantize(x, k / 6),
    "amax/4 for amax/6": lambda x, k: _scaled(x, k, 1.5),
    "amax/8 for amax/6": lambda x, k: _scaled(x, k, 0.75),
    "1/6 an ulp high": lambda x, k: _scaled(x, k, 1 + 2.0**-23),
    "amax of 8 of 16": lambda x, k: _scaled(x, k, largest=amax(x[:, :8])),
    "amax of all but the last": lambda x, k: _scaled(x, k, largest=amax(x[:, :15])),
    "max x for max |x|": lambda x, k: _scaled(x, k, largest=np.maximum(x.max(axis=-1), 0)),
    "32 elements share a scale": _pairs_share,
    "scale of the group before": _neighbours_scale,
    "scale rounded down": lambda x, k: _scaled(x, k, encode=lambda s: _directed(s, -1)),
    "scale rounded up": lambda x, k: _scaled(x, k, encode=lambda s: _directed(s, 1)),
    "scale a power of two": lambda x, k: _scaled(x, k, encode=_power_of_two),
    "scale not saturated": lambda x, k: _scaled(x, k, encode=_unsaturated),
    "codes rounded towards zero": lambda x, k: _scaled(x, k, round_code=_towards_zero),
    "ties away from zero": lambda x, k: _scaled(x, k, round_code=_half_up),
    "ties towards zero": lambda x, k: _scaled(x, k, round_code=_half_down),
    "ties to odd": lambda x, k: _scaled(x, k, round_code=_to_odd),
    "codes by division": divided,
    "nibbles exchanged": _recoded(_exchanged),
    "signs lost": _recoded(lambda codes: codes & 7),
    "signs of zeros lost": _recoded(lambda codes: np.where(codes == 8, 0, codes)),
    "codes in two's complement": _recoded(
        lambda codes: np.where(codes < 8, codes, (16 - (codes & 7)) & 15)
    ),
    "NaN becomes zero": _nan_lost,
}
"""Every wrong quantiser by name."""
