"""By how much four over six decides, and what that means for the true error.

The true error of a candidate is the sum of squared differences between the group and what a reader
decodes, with nothing rounded. A store that compared true errors could never do worse than max/6.
A real one compares float32 sums made with approximate reciprocals. Each of these is within
`uncertainty` of the true error; hence, with the errors e of the two candidates and the
uncertainties u:

    e(stored) <= e(max/6) + u(4) + u(6)

always, and where the margin |e(6) - e(4)| exceeds u(4) + u(6), the choice is the true one, so that
the stored error is never larger. Other groups are near ties: there the stored error may be larger
than that of max/6, by no more than the uncertainties.

The bound: g, rcp(g), sf * rcp(g), r and rcp(r) are off by at most 1/2, 3/2, 1/2, 3/2 and 3/2 ulp,
together by less than 2^-20 of the step s = sf * global_scale. A difference d of a code q is then
off by (q s + |d|) 2^-20 at most, its own rounding included, and the sum of squares has 12 further
roundings on the way of any element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from oracle.numerics.exact import Exact, decode_e2m1, decode_e4m3, true_error

_RELATIVE = Fraction(1, 2**20)
_UNDERFLOW = Fraction(1, 2**140)
"""More than what 48 operations can lose below the smallest subnormal number."""


@dataclass(frozen=True)
class Margin:
    """True errors of the candidates of one group, and how far each computed sum may be off."""

    six: Fraction
    four: Fraction
    six_uncertainty: Fraction
    four_uncertainty: Fraction

    @classmethod
    def of(cls, group: Sequence[float], six: Exact, four: Exact, global_scale: float) -> Margin:
        """The margin of a finite group whose candidates are `six` and `four`."""
        return cls(
            true_error(group, six, global_scale),
            true_error(group, four, global_scale),
            uncertainty(group, six, global_scale),
            uncertainty(group, four, global_scale),
        )

    @property
    def width(self) -> Fraction:
        """u(4) + u(6): by how much the stored error can exceed that of max/6."""
        return self.six_uncertainty + self.four_uncertainty

    @property
    def near_tie(self) -> bool:
        """Whether rounding may decide."""
        return abs(self.six - self.four) <= self.width


def uncertainty(group: Sequence[float], candidate: Exact, global_scale: float) -> Fraction:
    """How far a store's computed error of a candidate may be from the true one.

    Holds for finite groups under a global scale for which `ordinary` is true.
    """
    step = abs(Fraction(decode_e4m3(candidate.scale_byte)) * Fraction(global_scale))
    total = _UNDERFLOW
    for code, x in zip(candidate.codes, group, strict=True):
        value = abs(Fraction(decode_e2m1(code))) * step
        difference = abs(value - abs(Fraction(x)))
        off = (value + difference) * _RELATIVE
        total += 2 * difference * off + off**2 + _RELATIVE * (difference + off) ** 2
    return total


def ordinary(group: Sequence[float], global_scale: float) -> bool:
    """Whether nothing in the choice overflows, and no reciprocal is flushed to zero."""
    amax = max(map(abs, group))
    return (
        all(map(math.isfinite, group))
        and amax < 2.0**60
        and 2.0**-100 < abs(global_scale) < 2.0**60
    )
