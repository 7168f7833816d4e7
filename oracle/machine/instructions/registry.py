"""Where each family registers the meaning of its opcodes."""

from __future__ import annotations

from collections.abc import Callable

from oracle.machine.context import Context, Modifiers

Meaning = Callable[[Context, Modifiers], None]

MEANINGS: dict[str, Meaning] = {}
"""Opcode without modifiers -> its meaning."""


def meaning(*opcodes: str) -> Callable[[Meaning], Meaning]:
    """Register a function as the meaning of some opcodes."""

    def register(function: Meaning) -> Meaning:
        for opcode in opcodes:
            assert opcode not in MEANINGS, f"{opcode} has two meanings"
            MEANINGS[opcode] = function
        return function

    return register
