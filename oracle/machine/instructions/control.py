"""Control flow: branches, calls, exits, convergence and CTA barriers."""

from __future__ import annotations

from collections.abc import Mapping

from oracle.machine.builder import I32
from oracle.machine.context import Context, Modifiers
from oracle.machine.disassembly import Instruction
from oracle.machine.instructions.registry import meaning
from oracle.machine.ir import Terminator, Value
from oracle.machine.operands import Imm, Label, Operand, Reg

ENDS_BLOCK = frozenset({"BRA", "EXIT", "CALL", "RET", "BSYNC", "WARPSYNC", "BAR"})
"""Opcodes after which a new block begins."""


def targets(instruction: Instruction, symbols: Mapping[str, int]) -> tuple[int, ...]:
    """Addresses an instruction may jump to."""
    base = instruction.opcode.split(".")[0]
    if base in ("BRA", "BSSY"):
        return tuple(o.value for o in instruction.operands if _is_target(o))
    if base == "CALL":
        found = (_called(o, symbols) for o in instruction.operands[-1:])
        return tuple(address for address in found if address is not None)
    return ()


def _called(operand: Operand, symbols: Mapping[str, int]) -> int | None:
    """The address a call goes to: that of a routine, or one the compiler jumps to this way."""
    if isinstance(operand, Imm) and isinstance(operand.value, int):
        return operand.value
    return symbols.get(operand.name) if isinstance(operand, Label) else None


def _is_target(operand: Operand) -> bool:
    return isinstance(operand, Imm) and isinstance(operand.value, int)


def _condition(c: Context, operands: tuple[Operand, ...]) -> Value:
    value = c.guard
    for operand in operands:
        value = c.and_(value, c.predicate(operand))
    return value


@meaning("BRA")
def bra(c: Context, m: Modifiers) -> None:
    """Go to the target where the guard and the predicate operands hold"""
    m.ignore("U", "DIV", "CONV", "INC", "DEC")
    *conditions, target = c.instruction.operands
    if not isinstance(target, Imm) or not isinstance(target.value, int):
        raise c.refuse("the target is not understood")
    _jump(c, target.value, _condition(c, tuple(conditions)))


def _jump(c: Context, target: int, condition: Value) -> None:
    known = c.known(condition)
    if known == 1:
        c.terminator = Terminator("jump", c.pc, target=target)
    elif known == 0:
        c.terminator = Terminator("jump", c.pc, target=c.pc + 16)
    else:
        c.terminator = Terminator("branch", c.pc, condition, target, c.pc + 16)


@meaning("CALL")
def call(c: Context, m: Modifiers) -> None:
    """Go to a local routine; the caller has put the return address in a register"""
    m.ignore("NOINC")
    target = _called(c.instruction.operands[-1], c.symbols)
    if not m.take("REL") or target is None:
        raise c.refuse("only calls of routines in the same section are understood")
    _jump(c, target, c.guard)


@meaning("RET")
def ret(c: Context, m: Modifiers) -> None:
    """Go to the address in a register pair, relative to the function named"""
    m.ignore("NODEC")
    if not m.take("REL") or c.known(c.guard) != 1 or len(c.instruction.operands) != 2:
        raise c.refuse("operands are not understood")
    register, label = c.instruction.operands
    if not isinstance(label, Label) or not isinstance(register, Reg):
        raise c.refuse("operands are not understood")
    plain = Reg(register.file, register.index)
    base = c.symbols.get(label.name)
    if base is None:
        raise c.refuse("the function it is relative to is unknown")
    address = c.add(c.i32(plain), c.const(I32, base))
    c.terminator = Terminator("ret", c.pc, address)


@meaning("EXIT")
def leave(c: Context, m: Modifiers) -> None:
    """The lane is done where the guard holds"""
    value = None if c.known(c.guard) == 1 else _condition(c, c.instruction.operands)
    c.terminator = Terminator("exit", c.pc, value, fallthrough=-1 if value is None else c.pc + 16)


def _barrier_register(c: Context) -> int:
    register = c.instruction.operands[-1 if c.instruction.opcode.startswith("BSYNC") else 0]
    if not isinstance(register, Reg) or register.file != "B":
        raise c.refuse("operands are not understood")
    return register.index


@meaning("BSSY")
def bssy(c: Context, m: Modifiers) -> None:
    """Open a convergence scope"""
    m.ignore("RECONVERGENT", "RELIABLE")
    if c.known(c.guard) != 1:
        raise c.refuse("a convergence scope under a predicate is not understood")
    c.emit("converge", (), (), (_barrier_register(c),))


@meaning("BSYNC")
def bsync(c: Context, m: Modifiers) -> None:
    """Wait for the lanes of the scope"""
    m.ignore("RECONVERGENT", "RELIABLE")
    if c.known(c.guard) != 1:
        raise c.refuse("a wait under a predicate is not understood")
    c.terminator = Terminator(
        "reconverge", c.pc, fallthrough=c.pc + 16, token=_barrier_register(c)
    )


@meaning("BREAK")
def leave_scope(c: Context, m: Modifiers) -> None:
    """Take lanes out of a convergence scope where the guard and the predicate hold"""
    m.ignore("RELIABLE")
    *conditions, register = c.instruction.operands
    if not isinstance(register, Reg) or register.file != "B":
        raise c.refuse("operands are not understood")
    c.emit("abandon", (), (_condition(c, tuple(conditions)),), (register.index,))


@meaning("WARPSYNC")
def warpsync(c: Context, m: Modifiers) -> None:
    """Wait for the lanes of a mask"""
    everyone = m.take("ALL")
    m.ignore("EXCLUSIVE")
    if c.known(c.guard) != 1:
        raise c.refuse("a wait under a predicate is not understood")
    mask = c.const(I32, -1) if everyone else c.i32(c.instruction.operands[-1])
    c.terminator = Terminator("warpsync", c.pc, mask, fallthrough=c.pc + 16)


@meaning("BAR")
def bar(c: Context, m: Modifiers) -> None:
    """Wait for the whole CTA at barrier 0"""
    m.ignore("DEFER_BLOCKING")
    if not m.take("SYNC") or c.known(c.guard) != 1 or len(c.instruction.operands) != 1:
        raise c.refuse("only __syncthreads() is supported")
    if c.known(c.i32(c.operand(0))) != 0:
        raise c.refuse("only barrier 0 of the whole CTA is supported")
    c.terminator = Terminator("barrier", c.pc, fallthrough=c.pc + 16)


@meaning("NOP", "YIELD", "NANOSLEEP", "DEPBAR", "LDGDEPBAR", "MEMBAR", "ERRBAR", "CCTL")
def nothing(c: Context, m: Modifiers) -> None:
    """Order and timing only; the machine executes loads and stores in order"""
    for name in m.left:
        m.take(name)


@meaning("BPT")
def trap(c: Context, m: Modifiers) -> None:
    """A trap: reaching it is a fault"""
    m.ignore("TRAP", "INT")
    c.emit("require", (), (c.const(c.guard.type, 0), c.guard), ("the kernel traps",))
