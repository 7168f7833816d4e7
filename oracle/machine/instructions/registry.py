"""Where each family registers the meaning of its opcodes."""

from __future__ import annotations

from collections.abc import Callable

from oracle.machine.context import Context, Modifiers

Meaning = Callable[[Context, Modifiers], None]

MEANINGS: dict[str, Meaning] = {}
"""Opcode without modifiers -> its meaning."""
OPERANDS: dict[str, tuple[int, ...]] = {}
"""How many operands the known forms of an opcode have, where its meaning does not count them."""


def meaning(*opcodes: str, operands: tuple[int, ...] = ()) -> Callable[[Meaning], Meaning]:
    """Register a function as the meaning of some opcodes, for so many operands (any by default)."""

    def register(function: Meaning) -> Meaning:
        for opcode in opcodes:
            assert opcode not in MEANINGS, f"{opcode} has two meanings"
            MEANINGS[opcode] = function
            if operands:
                OPERANDS[opcode] = operands
        return function

    return register
