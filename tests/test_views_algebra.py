"""Tests of the bounded equations: equal to trying everything, and loud where they give up."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.errors import OracleError
from oracle.views import algebra
from oracle.views.algebra import Undecided, Variable, smallest, solvable

relaxed = settings(deadline=None)  # a busy machine is no failure

COEFFICIENTS = [0, 1, 2, 3, 4, 8, 9, 12, 27, -1, -3, -4, -9]


def every_solution(variables: list[Variable], target: int) -> list[tuple[int, ...]]:
    ranges = [range(v.low, v.high + 1) for v in variables]
    return [
        values
        for values in product(*ranges)
        if sum(v.coefficient * x for v, x in zip(variables, values, strict=True)) == target
    ]


@st.composite
def equations(draw: st.DrawFn) -> tuple[list[Variable], int]:
    variables = []
    for _ in range(draw(st.integers(0, 5))):
        low = draw(st.integers(-3, 3))
        length = draw(st.integers(-1, 3))
        variables.append(Variable(draw(st.sampled_from(COEFFICIENTS)), low, low + length))
    return variables, draw(st.integers(-40, 40))


@relaxed
@given(equations())
def test_the_answer_is_that_of_trying_everything(equation: tuple[list[Variable], int]) -> None:
    solutions = every_solution(*equation)
    assert solvable(*equation) == bool(solutions)
    assert smallest(*equation) == min(solutions, default=None)


@pytest.mark.parametrize("coefficients", list(product([1, 2, 3, 5], repeat=3)))
def test_every_target_of_small_equations(coefficients: tuple[int, ...]) -> None:
    for bounds in product([0, 1, 3], repeat=3):
        variables = [Variable(c, 0, b) for c, b in zip(coefficients, bounds, strict=True)]
        reach = sum(c * b for c, b in zip(coefficients, bounds, strict=True))
        for target in range(-1, reach + 2):
            assert solvable(variables, target) == bool(every_solution(variables, target))


def test_numbers_beyond_64_bits_are_exact() -> None:
    huge = 10**30
    variables = [Variable(huge, 0, huge), Variable(1, 0, huge - 1)]
    assert smallest(variables, huge**2 + 5) == (huge, 5)
    assert not solvable(variables, huge**2 + huge)


def test_a_hopeless_search_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    # A subset sum of numbers about the same size, which nothing prunes.
    numbers = [3_000_017 + 7919 * k * k for k in range(24)]
    variables = [Variable(number, 0, 1) for number in numbers]
    monkeypatch.setattr(algebra, "MAX_STEPS", 1000)
    with pytest.raises(Undecided) as caught:
        solvable(variables, sum(numbers) // 2)
    assert isinstance(caught.value, OracleError)
    assert caught.value.exit_code == 5
    assert "irregular" in str(caught.value)
