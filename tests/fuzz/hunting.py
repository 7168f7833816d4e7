"""Runs a worker of a session in this process, and keeps what it tells."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oracle.fuzz.failure import Failure
from oracle.fuzz.messages import Asked, Tally, Task, Told
from oracle.fuzz.subject import Subject
from oracle.fuzz.worker import Worker
from oracle.properties.strategies import Limits
from oracle.subjects.base import Reader, Writer

LIMITS = Limits(head_sizes=(16, 64, 128), num_heads=(1, 2, 3), block_sizes=(1, 4, 8, 16))
"""Few geometries: those that a swizzle is defined for, and the least that it is not."""


class Ear:
    """The session's end of a pipe: hears everything, and asks `orders` one after the other."""

    def __init__(self, orders: Sequence[Asked] = ()) -> None:
        self.told: list[Told] = []
        self._orders = list(orders)

    def send(self, told: Told) -> None:
        self.told.append(told)

    def poll(self) -> bool:
        return bool(self._orders)

    def recv(self) -> Asked:
        return self._orders.pop(0)

    @property
    def failures(self) -> list[Failure]:
        return [told for told in self.told if isinstance(told, Failure)]

    @property
    def tallies(self) -> list[Tally]:
        return [told for told in self.told if isinstance(told, Tally)]

    @property
    def examples(self) -> int:
        return sum(tally.examples for tally in self.tallies)


def subject_of(writer: Writer, reader: Reader | None = None) -> Subject:
    name = reader.info.id if reader is not None else None
    return Subject(writer.info.id, {"bf16": writer}, name, reader)


def task_of(directory: Path, **task: Any) -> Task:
    """A task for a worker in this process, with seed 0, over few geometries."""
    options = {"seed": 0, "first": 0, "step": 1, "cap": 5, "limits": LIMITS, **task}
    return Task(database=directory, session=os.getppid(), **options)


def hunt(writer: Writer, directory: Path, examples: int, **task: Any) -> Ear:
    """What a worker tells that executes so many examples of a writer of bf16."""
    ear = Ear()
    Worker(subject_of(writer), task_of(directory, examples=examples, **task), ear).run()
    return ear
