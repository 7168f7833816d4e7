"""Which global scale a writer multiplies with, told from the scale bytes it stored.

A scale byte is e4m3(G * amax/6), and what G is made of is a convention: the inverse of the scale
that was passed where that is the decode scale, the scale itself where it is the encode scale, and
either of them off by a factor of 6 where the two ends of a pipeline count the 6 of E2M1 differently
or once too often. Some writers ignore what they are passed and take 448 or 448 * 6 over the
largest value of the tensor. Each hypothesis predicts every byte; a wrong one gets few right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from oracle.formats import ByteArray, FloatArray, e4m3_encode
from oracle.numerics.admissible import amax

LEAST_SHARE = 0.99
"""The share of bytes a convention must predict. Not all: G may be rounded on another way."""


@dataclass(frozen=True)
class Convention:
    """A name, and G as a function of the scale passed and of the tensor's largest magnitude."""

    name: str
    title: str
    multiplier: Callable[[float, float], float]


CONVENTIONS = {
    convention.name: convention
    for convention in (
        Convention("decode", "1 / scale", lambda scale, _: 1 / scale),
        Convention("encode", "scale", lambda scale, _: scale),
        Convention("decode*6", "1 / (6 scale)", lambda scale, _: 1 / (6 * scale)),
        Convention("decode/6", "6 / scale", lambda scale, _: 6 / scale),
        Convention("encode*6", "6 scale", lambda scale, _: 6 * scale),
        Convention("encode/6", "scale / 6", lambda scale, _: scale / 6),
        Convention("448/amax", "448 / amax, whatever is passed", lambda _, amax: 448 / amax),
        Convention("2688/amax", "2688 / amax, whatever is passed", lambda _, amax: 2688 / amax),
        Convention("448/scale", "448 / scale, an amax", lambda scale, _: 448 / scale),
        Convention("2688/scale", "2688 / scale, an amax", lambda scale, _: 2688 / scale),
        Convention("none", "1, whatever is passed", lambda _, __: 1.0),
    )
}
"""Every convention by name; `decode` is that of the store."""


def predicted_share(
    groups: FloatArray, scale_bytes: ByteArray, scale: float, convention: Convention
) -> float:
    """The share of scale bytes [n] that a convention predicts for groups [n, 16].

    A byte counts as predicted where amax/6 or amax/4 gives it, since four over six stores either.
    """
    largest = amax(groups)
    with np.errstate(all="ignore"):
        multiplier = np.float32(convention.multiplier(scale, float(np.nanmax(largest))))
        six, four = (
            e4m3_encode(multiplier * (largest * np.float32(fraction)))
            for fraction in (1 / 6, 1 / 4)
        )
    return float(((scale_bytes == six) | (scale_bytes == four)).mean())


def detect(groups: FloatArray, scale_bytes: ByteArray, scale: float) -> tuple[str, ...]:
    """The names of every convention that predicts what was stored for groups [n, 16].

    `scale` is the positive global scale that was passed. Several names mean that these inputs do
    not tell them apart, as with a scale of 1; none, that the bytes follow no known convention.
    """
    return tuple(
        name
        for name, convention in CONVENTIONS.items()
        if predicted_share(groups, scale_bytes, scale, convention) >= LEAST_SHARE
    )
