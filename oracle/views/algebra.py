"""Exact arithmetic on strided boxes: do two views share a byte, and which one first?

A view addresses `base + stride1*i1 + stride2*i2 + ...` for whole numbers i within its shape. Two
views share a byte where

    stride1*i1 + stride2*i2 + ... - stride1'*j1 - stride2'*j2 - ... = base' - base

has a solution in those bounds: one linear equation over bounded whole numbers. `solvable` decides
it without touching a byte. Three rewritings, each of them exact, make it small:

* A variable in [low, high] is counted from the end at which its term is smallest, so that all
  coefficients become positive and all variables start at 0.
* Terms of one coefficient are one term: x + y with x <= u and y <= v takes every value up to u+v.
* So do digits that follow each other: where b = m*a and x reaches at least m-1, a*x + b*y takes
  every multiple of a up to a*(u + m*v). A dense view of any number of dimensions is one term.

What is left is searched from the largest coefficient down. The terms still to come reach from 0 to
some sum in steps of their greatest common divisor g, so only an interval of values, and of those
only one residue class modulo g, can lead anywhere. With the strides of real caches one value or
none remains at each level; the problem as such is NP-complete, so a search is given up, loudly,
after `MAX_STEPS`.

Everything is a Python integer: nothing overflows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import NamedTuple, TypeAlias

from oracle.errors import NothingRan

MAX_STEPS = 200_000
"""Values tried for one equation before it is given up: well below a second."""


class Undecided(NothingRan):
    """Strides too irregular for the search to end: no answer was obtained."""


class Variable(NamedTuple):
    """A whole number from `low` to `high`, both included, times its coefficient."""

    coefficient: int
    low: int
    high: int


Terms: TypeAlias = tuple[tuple[int, int], ...]
"""(coefficient, bound): positive coefficients of variables 0..bound, the largest first."""


@dataclass
class _Budget:
    """Steps left to a search."""

    left: int

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Undecided(
                "the strides are too irregular to decide which views overlap: give strides in "
                "which one dimension steps over another"
            )


def solvable(variables: Iterable[Variable], target: int) -> bool:
    """Whether the variables can be chosen so that their terms sum to `target`.

    Raises Undecided after `MAX_STEPS` values.
    """
    terms, target = _normal(variables, target)
    if target < 0:
        return False
    return _decided(terms, target)


def smallest(variables: Sequence[Variable], target: int) -> tuple[int, ...] | None:
    """The lexicographically smallest solution, or None where there is none.

    That a variable can be at most v is monotone in v, so each one is found by bisection, the ones
    before it held.
    """
    if not solvable(variables, target):
        return None
    held = list(variables)
    for place, (coefficient, low, high) in enumerate(variables):
        # Most of a smallest solution stands at its lower bound, so that is tried before halving.
        middle = low
        while low < high:
            held[place] = Variable(coefficient, low, middle)
            if solvable(held, target):
                high = middle
            else:
                low = middle + 1
            middle = (low + high) // 2
        held[place] = Variable(coefficient, low, low)
    return tuple(variable.low for variable in held)


def _normal(variables: Iterable[Variable], target: int) -> tuple[Terms, int]:
    """The equation with positive, distinct coefficients and variables from 0; target < 0: none."""
    bounds: dict[int, int] = {}
    for coefficient, low, high in variables:
        if low > high:
            return (), -1
        target -= coefficient * (low if coefficient > 0 else high)
        if coefficient and low < high:
            bounds[abs(coefficient)] = bounds.get(abs(coefficient), 0) + high - low
    return _joined(bounds), target


def _joined(bounds: dict[int, int]) -> Terms:
    """Join digits that follow each other, the smallest coefficients first, until none do."""
    terms: list[tuple[int, int]] = []
    for coefficient, bound in sorted(bounds.items()):
        for place, (smaller, reach) in enumerate(terms):
            factor, rest = divmod(coefficient, smaller)
            if rest == 0 and reach >= factor - 1:
                terms[place] = (smaller, reach + factor * bound)
                break
        else:
            terms.append((coefficient, bound))
    return tuple(reversed(terms))


@lru_cache(maxsize=2**14)
def _decided(terms: Terms, target: int) -> bool:
    """Whether a normal equation has a solution; planes of one shape pose the same ones again."""
    if len(terms) < 2:
        return _divides(terms, target)
    return _search(terms, target, _Budget(MAX_STEPS))


def _divides(terms: Terms, target: int) -> bool:
    if not terms:
        return target == 0
    ((coefficient, bound),) = terms
    quotient, rest = divmod(target, coefficient)
    return rest == 0 and quotient <= bound


def _search(terms: Terms, target: int, budget: _Budget) -> bool:
    """Depth first over the largest term; `terms` holds at least two."""
    (coefficient, bound), rest = terms[0], terms[1:]
    step = gcd(*(smaller for smaller, _ in rest))
    reach = sum(smaller * most for smaller, most in rest)
    low = max(0, -((reach - target) // coefficient))
    high = min(bound, target // coefficient)
    common = gcd(coefficient, step)
    if target % common:
        return False
    # coefficient * value = target (mod step) has one solution modulo step / common.
    modulus = step // common
    first = target // common * pow(coefficient // common, -1, modulus) % modulus
    for value in range(low + (first - low) % modulus, high + 1, modulus):
        budget.spend()
        left = target - coefficient * value
        # With one term to come, the interval and the residue have decided already.
        if len(rest) == 1 or _search(rest, left, budget):
            return True
    return False
