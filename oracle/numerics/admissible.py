"""For every group, the scale bytes and codes that a conforming store may write.

The scale byte of a candidate involves no reciprocal and is therefore known. The codes are known up
to the multiplier (`oracle.numerics.freedom`), on which they depend monotonically: where the least
and the greatest multiplier give the same code, nothing is open. Four over six has two candidates;
where the choice between them depends on a reciprocal, both are alternatives.

An element's set of codes is a mask of 16 bits. It is exact where evaluations of different
reciprocals err independently of each other: every code in it is what some results within one ulp
lead to, and no other code is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oracle.formats import ByteArray, FloatArray, WordArray, e2m1_encode, e4m3_encode
from oracle.numerics.decision import Candidate, settle, try_all
from oracle.numerics.freedom import Freedom, reciprocal_of
from oracle.quantize import GROUP, ScaleSearch

Mask = NDArray[np.bool_]

_FRACTIONS = {
    ScaleSearch.MAX_OVER_6: (np.float32(1 / 6),),
    ScaleSearch.FOUR_OVER_SIX: (np.float32(1 / 6), np.float32(1 / 4)),
}
_BIT: WordArray = np.array([1 << code for code in range(16)], np.uint16)
_POPULATION = np.array([bin(mask).count("1") for mask in range(1 << 16)], np.uint8)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_INFINITY = np.uint32(0x7F800000)
_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class Admissible:
    """What may be stored for groups [...], as one alternative or two.

    `scale_bytes` [..., a] are the alternatives' scale bytes, `possible` [..., a] whether each can
    come about, `codes` [..., a, 16] the sets of codes that go with it: bit c is set where code c is
    admissible.
    """

    scale_bytes: ByteArray
    possible: Mask
    codes: WordArray

    def admits(self, codes: ByteArray, scale_bytes: ByteArray) -> tuple[Mask, Mask]:
        """Which scale bytes [...] and which codes [..., 16] of what was stored are admissible.

        Codes are judged by the alternative whose scale byte was stored, or, where it is nobody's,
        by all of them.
        """
        same = self.possible & (self.scale_bytes == scale_bytes[..., None])
        known = same.any(axis=-1)
        judges = np.where(known[..., None], same, self.possible)
        member = (self.codes & _BIT[codes][..., None, :]) != 0
        return known, (member & judges[..., None]).any(axis=-2)

    @property
    def near_tie(self) -> Mask:
        """Groups [...] whose scale byte depends on a reciprocal: both candidates are possible."""
        differ = np.asarray(self.scale_bytes[..., 0] != self.scale_bytes[..., -1])
        return differ & self.possible.all(axis=-1)

    @property
    def free(self) -> Mask:
        """Groups [...] for which more than one outcome is admissible."""
        several = (_POPULATION[self.codes] > 1).any(axis=-1) & self.possible
        return np.asarray(several.any(axis=-1)) | self.near_tie


def admissible(
    x: FloatArray, global_scale: float, search: ScaleSearch = ScaleSearch.MAX_OVER_6
) -> Admissible:
    """The admissible sets of float32 groups [..., 16] under a global decode scale.

    Raises ValueError unless `x` is float32 with a last axis of 16.
    """
    if x.dtype != np.float32 or x.ndim == 0 or x.shape[-1] != GROUP:
        raise ValueError(f"expected float32 groups [..., {GROUP}], got {x.dtype} {list(x.shape)}")
    groups = np.ascontiguousarray(x).reshape(-1, GROUP)
    g = reciprocal_of(global_scale)
    freedom = Freedom.under(g)
    count, alternatives = len(groups), len(_FRACTIONS[search])
    scale_bytes = np.empty((count, alternatives), np.uint8)
    possible = np.empty((count, alternatives), np.bool_)
    masks = np.empty((count, alternatives, GROUP), np.uint16)
    with np.errstate(all="ignore"):
        for start in range(0, count, _CHUNK):
            part = slice(start, start + _CHUNK)
            found = _candidates(groups[part], g, search, freedom)
            possible[part] = settle(groups[part], found, freedom) if alternatives == 2 else True
            for column, candidate in enumerate(found):
                scale_bytes[part, column] = candidate.scale_bytes
                masks[part, column] = candidate.masks
        if alternatives == 2:
            unsettled = np.flatnonzero(possible.all(axis=-1))
            for start in range(0, unsettled.size, _CHUNK):
                rows = unsettled[start : start + _CHUNK]
                masks[rows] = try_all(groups[rows], scale_bytes[rows], freedom)
                possible[rows] = masks[rows].any(axis=-1)
    outer = x.shape[:-1]
    return Admissible(
        scale_bytes.reshape(*outer, alternatives),
        possible.reshape(*outer, alternatives),
        masks.reshape(*outer, alternatives, GROUP),
    )


def explained(x: FloatArray, global_scale: float, codes: ByteArray, scale_bytes: ByteArray) -> Mask:
    """For which groups [..., 16] some single multiplier leads to all codes stored: [...].

    A store computes one multiplier a group. So codes that are admissible one by one may still be
    impossible together, as where one tie went up and another down.
    """
    r = Freedom.under(reciprocal_of(global_scale)).r
    found = np.zeros(scale_bytes.shape, np.bool_)
    with np.errstate(all="ignore"):
        for values in r.values:
            product = x * values[scale_bytes][..., None]
            found |= (e2m1_encode(product) == codes).all(axis=-1)
    return found


def amax(groups: FloatArray) -> FloatArray:
    """max |x| over the last axis of [..., 16]; a NaN counts only where all are NaN."""
    magnitude = groups.view(np.uint32) & _MAGNITUDE
    nan = magnitude > _INFINITY
    if nan.any():
        magnitude = np.where(nan & ~nan.all(axis=-1, keepdims=True), np.uint32(0), magnitude)
    greatest: NDArray[np.uint32] = magnitude.max(axis=-1)
    return greatest.view(np.float32)


def _candidates(
    groups: FloatArray, g: np.float32, search: ScaleSearch, freedom: Freedom
) -> list[Candidate]:
    """What each fraction of amax leads to, before any choice between them."""
    largest = amax(groups)
    found = []
    for fraction in _FRACTIONS[search]:
        scale_bytes = e4m3_encode(g * (largest * fraction))
        r = freedom.r
        low = e2m1_encode(groups * r.low[scale_bytes][:, None])
        high = e2m1_encode(groups * r.high[scale_bytes][:, None])
        masks: WordArray = _BIT[low] | _BIT[high]
        wide = np.flatnonzero(~r.narrow[scale_bytes])
        if wide.size:
            masks[wide] = 0
            for values in r.values:
                multiplier = values[scale_bytes[wide]][:, None]
                masks[wide] |= _BIT[e2m1_encode(groups[wide] * multiplier)]
        found.append(Candidate(scale_bytes, low, high, masks))
    return found
