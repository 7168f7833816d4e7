"""What a promise is, and what is said where one is broken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from oracle.errors import NothingRan, OracleError
from oracle.machine.context import Unsupported
from oracle.properties.case import StoreCase
from oracle.subjects.base import Reader, Writer


@dataclass(frozen=True)
class Violation:
    """A promise that a case breaks.

    `reason` is one line in plain words; `witness` the smallest coordinate that shows it, with its
    page and byte, as far as the promise is about coordinates. `wrong` are the bytes of the cache
    that break it in the plane of the witness, where the promise is about bytes.
    """

    promise: str
    reason: str
    witness: Mapping[str, Any]
    wrong: tuple[int, ...] = field(default=(), compare=False, repr=False)


class Broken(NamedTuple):
    """What a violation consists of, but for its promise."""

    reason: str
    witness: Mapping[str, Any]
    wrong: tuple[int, ...] = ()


Search: TypeAlias = Callable[[Writer, Reader | None, StoreCase], Broken | None]
"""Looks for what breaks a promise."""


def _fits(writer: Writer) -> str | None:
    return None


@dataclass(frozen=True)
class Promise:
    """One property that a store has whatever it is given.

    `text` says it in a sentence. `unfit` tells why the promise says nothing about a writer, None
    where it does; `reads` marks one that is about a reader as well.
    """

    name: str
    text: str
    search: Search
    unfit: Callable[[Writer], str | None] = _fits
    reads: bool = False

    def inapplicable(self, writer: Writer, reader: Reader | None) -> str | None:
        """Why the promise says nothing about a writer and a reader; None where it does."""
        if self.reads and reader is None:
            return "no reader is named"
        return self.unfit(writer)

    def check(self, writer: Writer, reader: Reader | None, case: StoreCase) -> Violation | None:
        """How a case breaks the promise; None where it keeps it.

        A writer that fails on a case it does not refuse breaks any promise. Raises NothingRan where
        the promise, the writer or the reader says nothing about the case, and Unsupported where the
        writer cannot be executed.
        """
        reason = self.inapplicable(writer, reader)
        reason = reason or refusal(writer, reader if self.reads else None, case)
        if reason is not None:
            raise NothingRan(f"{self.name}: {reason}")
        try:
            broken = self.search(writer, reader, case)
        except (NothingRan, Unsupported):
            raise
        except OracleError as error:
            broken = Broken(str(error), {})
        return None if broken is None else Violation(self.name, *broken)


def refusal(writer: Writer, reader: Reader | None, case: StoreCase) -> str | None:
    """Why a writer or a reader has no answer to a case; None where both have."""
    if case.dtype not in writer.info.dtypes:
        return f"{writer.info.id} takes {' and '.join(writer.info.dtypes)}, not {case.dtype}"
    for party in (writer, reader):
        if party is not None:
            reason = party.unsupported_reason(case.geometry, case.dtype)
            if reason is not None:
                return f"{party.info.id} refuses the geometry: {reason}"
    return None
