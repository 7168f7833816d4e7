"""What warps wait for: mbarriers with transaction counts, and named barriers.

An mbarrier (PTX ISA, "mbarrier") goes through phases. A phase is over when as many arrivals as the
barrier was initialised with have come and no expected bytes are outstanding; then the next phase
begins with the same count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from oracle.machine.memory import MachineFault

_Waiter = TypeVar("_Waiter")
_COUNT_LIMIT = 1 << 20


@dataclass(slots=True)
class MBarrier:
    """An mbarrier: `pending` arrivals and `outstanding` bytes left in the phase, phases over."""

    address: int
    count: int
    pending: int
    outstanding: int = 0
    phases: int = 0

    @classmethod
    def initialised(cls, address: int, low_word: int) -> MBarrier:
        """A barrier whose state a kernel stores: 2**20 minus its count, in bits 1..20."""
        count = _COUNT_LIMIT - (low_word >> 1 & (2 * _COUNT_LIMIT - 1))
        if not 0 < count < _COUNT_LIMIT:
            raise MachineFault(f"mbarrier {address:#x} is initialised with {low_word:#x}")
        return cls(address, count, count)

    def arrive(self, arrivals: int = 1, expected: int = 0) -> None:
        """Count arrivals, after `expected` bytes more. MachineFault beyond the count."""
        self.outstanding += expected
        self.pending -= arrivals
        if self.pending < 0:
            raise MachineFault(f"mbarrier {self.address:#x} gets more arrivals than {self.count}")
        self._advance()

    def complete(self, size: int) -> None:
        """Bytes have arrived."""
        self.outstanding -= size
        self._advance()

    def _advance(self) -> None:
        if self.pending == 0 and self.outstanding == 0:
            self.phases += 1
            self.pending = self.count

    def over(self, parity: int) -> bool:
        """Whether the latest phase of that parity is over."""
        return self.phases & 1 != parity

    def __str__(self) -> str:
        """The barrier and what it waits for, in words."""
        return (
            f"mbarrier {self.address:#x} in phase {self.phases}, {self.pending} of {self.count} "
            f"arrivals and {self.outstanding} bytes to come"
        )


@dataclass(slots=True)
class NamedBarrier(Generic[_Waiter]):
    """A barrier at which a number of threads meet."""

    expected: int
    arrived: int = 0
    waiting: list[_Waiter] = field(default_factory=list)

    def join(self, waiter: _Waiter, threads: int) -> list[_Waiter]:
        """Wait; everyone who waits where these threads are the last ones, else nobody."""
        self.waiting.append(waiter)
        self.arrived += threads
        return self.release() if self.arrived >= self.expected else []

    def release(self) -> list[_Waiter]:
        """Let everyone go and begin anew."""
        if self.arrived > self.expected:
            raise MachineFault(f"{self.arrived} threads meet at a barrier of {self.expected}")
        free, self.waiting, self.arrived = self.waiting, [], 0
        return free
