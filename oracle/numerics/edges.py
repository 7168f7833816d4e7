"""Edge vectors: groups and global scales at the limits, with what a store makes of each.

Two contracts are in play. By the *store arithmetic* every byte follows from the input but for the
reciprocal: a writer that stores another byte is at fault. By the *value contract* a reader gets
back what was stored, within half a step of E2M1; the arithmetic itself breaks it for what the
format cannot hold and for global scales that do not fit, and then no writer is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oracle.formats import DTYPES, FloatArray, FloatFormat, WordArray
from oracle.geometry import SIDES
from oracle.numerics.admissible import admissible
from oracle.numerics.capture import Capture, Groups, Inputs
from oracle.quantize import GROUP, ScaleSearch, dequantize, quantize

EQUAL, ALLOWED, DEFECT = "equal", "allowed", "defect"
"""What a writer stores: the reference's bytes, others that are admissible, or neither."""

KEPT = "kept"
"""The value contract holds."""


@dataclass(frozen=True)
class Edge:
    """A group and a global scale; `group` gives 16 values of a format, `signalling` is the element
    that is a signalling NaN instead."""

    name: str
    group: Callable[[FloatFormat], Sequence[float]]
    scale: float = 1.0
    signalling: int | None = None

    def patterns(self, dtype: str) -> WordArray:
        """The group as patterns of a dtype, uint16 [16]."""
        verbs = DTYPES[dtype]
        patterns = verbs.encode(np.array(self.group(verbs.format), np.float32))
        if self.signalling is not None and verbs.format.infinity_code is not None:
            patterns[self.signalling] = verbs.format.infinity_code + 1
        return patterns


TIES = (6.0, -4.5, 3.25, -2.5, 1.75, 1.25, -0.75, 0.25, 0.0, -0.0, 5.0, -3.5, 0.5, -1.75, 1.5, -5.0)
"""Amax is 6, so that the multiplier is 1 under a global scale of 1, and ten elements are ties."""
WITNESS = (6.0, *[4.5] * 15)
"""4.5 is no value of E2M1, but 3 times the scale under which 6 is stored as 4."""
BOTH_EXACT = (12.0, 6.0, -6.0, *[0.0] * 13)
NEAR_TIE = (8.5, 4, -1.5, 0.5, -10, -8.5, 10.5, -8, 4.5, 4, 0.5, -11.5, -3, -3, 6, 5)
"""Both candidates err so nearly alike that the order of summation decides."""
WORSE_TAKEN = (1, 11, 3.5, 5.5, 1.5, 12, -11.5, -3.5, 4, 0, 3, 2.5, 2, -12, -9, -3)
"""Under a global scale of 1.2 rounding takes the 4, whose true error is larger by 6 in 10^7."""


def _same(*values: float) -> Callable[[FloatFormat], Sequence[float]]:
    """These values in every format, filled up with zeros."""
    return lambda _: (*values, *[0.0] * (GROUP - len(values)))


def _times(values: Sequence[float], factor: float) -> Callable[[FloatFormat], Sequence[float]]:
    return lambda _: [value * factor for value in values]


def _largest(fmt: FloatFormat) -> Sequence[float]:
    return (fmt.decode_spec(fmt.max_code), *[1.0] * (GROUP - 1))


def _smallest(fmt: FloatFormat) -> Sequence[float]:
    return (fmt.decode_spec(1), *[0.0] * (GROUP - 1))


EDGES = (
    Edge("all +0", _same()),
    Edge("all -0", _same(*[-0.0] * GROUP)),
    Edge("one element, the first", _same(3.0)),
    Edge("one element, the last", _same(*[0.0] * 15, -3.0)),
    Edge("one element that is tiny", _smallest),
    Edge("every E2M1 tie", _same(*TIES)),
    Edge("the same, scale 2^-7", _times(TIES, 2.0**-7), 2.0**-7),
    Edge("the same, scale 0.0137", _times(TIES, 0.0137), 0.0137),
    Edge("E4M3 tie, to even below", _same(6.375, 1.0)),
    Edge("E4M3 tie, to even above", _same(7.125, 1.0)),
    Edge("smallest normal scale", _same(6 * 2.0**-6, 2.0**-6)),
    Edge("smallest subnormal scale", _same(6 * 2.0**-9, 2.0**-9)),
    Edge("scale between subnormals", _same(8 * 2.0**-9, 2.0**-9)),
    Edge("scale ties with zero", _same(6 * 2.0**-10, 2.0**-10)),
    Edge("scale below all", _same(6 * 2.0**-12, 2.0**-12)),
    Edge("largest scale", _same(2688.0, 448.0)),
    Edge("scale saturates, a little", _same(2688.0, 2688.0), 0.9375),
    Edge("scale saturates, by half", _same(5376.0, 448.0)),
    Edge("largest finite value", _largest),
    Edge("a NaN among numbers", _same(math.nan, 3.0, 1.0)),
    Edge("a signalling NaN", _same(1.0, 3.0, 1.0), signalling=0),
    Edge("nothing but NaN", _same(*[math.nan] * GROUP)),
    Edge("+infinity", _same(math.inf, 3.0, 1.0)),
    Edge("-infinity", _same(-math.inf, 3.0, 1.0)),
    Edge("global scale amax/448", _same(*TIES), 6 / 448),
    Edge("global scale amax/2688", _same(*TIES), 6 / 2688),
    Edge("global scale 0", _same(*TIES), 0.0),
    Edge("global scale 0, all +0", _same(), 0.0),
    Edge("global scale negative", _same(*TIES), -1.0),
    Edge("global scale subnormal", _same(*TIES), 1e-40),
    Edge("global scale smallest normal", _same(*TIES), 2.0**-126),
    Edge("global scale 2^126", _same(*TIES), 2.0**126),
    Edge("global scale 3e38", _same(*TIES), 3e38),
    Edge("global scale +infinity", _same(*TIES), math.inf),
    Edge("global scale NaN", _same(*TIES), math.nan),
    Edge("4.5 beside 6", _same(*WITNESS)),
    Edge("4.5 beside 6, amax/2688", _same(*WITNESS), 6 / 2688),
    Edge("both candidates exact", _same(*BOTH_EXACT)),
    Edge("near tie of the candidates", _same(*NEAR_TIE)),
    Edge("near tie, the worse taken", _same(*WORSE_TAKEN), 1.2),
)


@dataclass(frozen=True, eq=False)
class Expected:
    """What is right for an edge: the reference's bytes, and what else is admissible.

    `open_codes` counts the elements with several admissible codes, `open_scale` tells whether the
    scale byte is open too. `value` is `KEPT` or what becomes of the value contract, `blame` who
    would have to change something then.
    """

    codes: NDArray[np.uint8]
    scale_byte: int
    open_codes: int
    open_scale: bool
    value: str
    blame: str


def expected(edge: Edge, dtype: str, search: ScaleSearch) -> Expected:
    """What the store arithmetic gives for an edge, under a correctly rounded reciprocal."""
    x = DTYPES[dtype].decode(edge.patterns(dtype))
    codes, scale_byte = quantize(x, edge.scale, search)
    allowed = admissible(x, edge.scale, search)
    union = np.bitwise_or.reduce(allowed.codes[allowed.possible], axis=0)
    open_codes = int(np.count_nonzero(union & (union - np.uint16(1))))
    value, blame = _value_contract(x, codes, int(scale_byte), edge.scale)
    return Expected(codes, int(scale_byte), open_codes, bool(allowed.near_tie), value, blame)


def _value_contract(
    x: FloatArray, codes: NDArray[np.uint8], scale_byte: int, scale: float
) -> tuple[str, str]:
    """What becomes of a group on its way through the cache, and who is to blame."""
    decoded = dequantize(codes, np.uint8(scale_byte), scale)  # type: ignore[arg-type]
    usable = math.isfinite(scale) and scale > 0
    if np.isnan(x).all():
        # The scale byte is a NaN as well, so what is read back is one.
        return KEPT, ""
    if np.isnan(decoded).any():
        return "reads back as NaN", "caller: no usable scale"
    if np.isnan(x).any():
        return "a NaN reads back as a number", "format: E2M1 has no NaN"
    if np.isinf(x).any():
        return "an infinity reads back as a number", "format: E2M1 has no infinity"
    largest = np.abs(x).max()
    # Half a step of E2M1 is at most a sixth of amax, and the scale at most a sixteenth too large.
    with np.errstate(all="ignore"):
        error = np.abs(decoded.astype(np.float64) - x).max()
    if error <= float(largest) / 6 * (1 + 1 / 16):
        return KEPT, ""
    blame = "caller: the scale does not fit" if usable else "caller: no usable scale"
    if not np.any(decoded):
        return "reads back as zeros", blame
    if scale_byte & 0x7F == 0x7E:
        return "clipped", blame
    return "the scale has too few bits", blame


def judge_edges(
    capture: Capture, search: ScaleSearch, edges: Sequence[Edge] = EDGES
) -> list[tuple[str, Groups]]:
    """For each edge, how a writer's bytes compare, and the bytes of K; V is judged with it."""
    verdicts: list[list[str]] = [[] for _ in edges]
    kept: list[Groups | None] = [None] * len(edges)
    for inputs, members in _launches(capture.dtype, edges):
        stored = capture(inputs)
        for side, indices in zip(SIDES, members, strict=True):
            for row, index in enumerate(indices):
                group = Groups(stored[side].codes[row], stored[side].scale_bytes[row])
                verdicts[index].append(_verdict(edges[index], capture.dtype, search, group))
                if side == "K":
                    kept[index] = group
    order = (DEFECT, ALLOWED, EQUAL)
    return [
        (min(found, key=order.index), group)
        for found, group in zip(verdicts, kept, strict=True)
        if group is not None
    ]


def _launches(
    dtype: str, edges: Sequence[Edge]
) -> Iterator[tuple[Inputs, tuple[list[int], list[int]]]]:
    """Requests that store each edge on both sides, K and V never with one and the same scale."""
    by_scale: dict[str, list[int]] = {}
    for index, edge in enumerate(edges):
        by_scale.setdefault(repr(edge.scale), []).append(index)
    batches = list(by_scale.values())
    for position, key_members in enumerate(batches):
        members = (key_members, batches[position - 1])
        longest = max(map(len, members))
        key, value = (
            np.stack([edges[side[i % len(side)]].patterns(dtype) for i in range(longest)])
            for side in members
        )
        scales = (edges[side[0]].scale for side in members)
        yield Inputs(key, value, *scales), members


def _verdict(edge: Edge, dtype: str, search: ScaleSearch, stored: Groups) -> str:
    x = DTYPES[dtype].decode(edge.patterns(dtype))
    codes, scale_byte = quantize(x, edge.scale, search)
    if stored.scale_bytes == scale_byte and (stored.codes == codes).all():
        return EQUAL
    scale_right, codes_right = admissible(x, edge.scale, search).admits(
        stored.codes, np.asarray(stored.scale_bytes)
    )
    return ALLOWED if scale_right and codes_right.all() else DEFECT
