"""Every promise of `oracle.properties`, one test each, against the subject of `--subject`."""

from __future__ import annotations

import warnings

import pytest
from expectations import Stale
from suite import Suite

from oracle.errors import NothingRan, OracleError
from oracle.properties.promise import Promise
from oracle.properties.strategies import Found, find_violation, store_cases
from oracle.subjects.base import Writer
from oracle.text import printable


def test_keeps(promise: Promise, writer: Writer, suite: Suite) -> None:
    """The writer keeps the promise in every case that is tried."""
    expected = suite.expected_reason(promise, writer)
    try:
        found = _search(promise, writer, suite)
    except Unfit as unfit:
        if expected is not None:
            warnings.warn(_stale(promise, writer, expected, str(unfit)), stacklevel=1)
        pytest.skip(printable(str(unfit)))
    except OracleError as error:
        pytest.fail(printable(f"{promise.name}: {error}"), pytrace=False)
    if found is not None:
        if expected is not None:
            pytest.xfail(printable(f"{expected[0]} ({found.violation.reason})"))
        pytest.fail(suite.report(promise, writer, found), pytrace=False)
    if expected is not None:
        warnings.warn(_stale(promise, writer, expected, "it is kept"), stacklevel=1)


class Unfit(Exception):
    """The promise says nothing about the subject, or the subject cannot be executed here."""


def _search(promise: Promise, writer: Writer, suite: Suite) -> Found | None:
    reason = promise.inapplicable(writer, suite.reader)
    if reason is not None:
        raise Unfit(reason)
    try:
        reader = suite.reader if promise.reads else None
        cases = store_cases(writer, reader, suite.limits, suite.dtypes)
        return find_violation(promise, writer, suite.reader, cases, suite.chosen)
    except NothingRan as error:
        raise Unfit(str(error)) from error


def _stale(promise: Promise, writer: Writer, expected: tuple[str, str], why: str) -> Stale:
    return Stale(
        printable(f"{expected[1]} expects {writer.info.id} to break {promise.name}, but {why}")
    )
