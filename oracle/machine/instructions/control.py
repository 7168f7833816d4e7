"""Control flow: branches, calls, exits, convergence and CTA barriers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from oracle.machine.builder import I1, I32
from oracle.machine.context import Context, Modifiers
from oracle.machine.disassembly import Instruction
from oracle.machine.instructions.registry import meaning
from oracle.machine.ir import Terminator, Value
from oracle.machine.operands import Imm, Label, Operand, Reg

ENDS_BLOCK = frozenset(
    {"BRA", "BRX", "BRXU", "EXIT", "CALL", "RET", "BSYNC", "WARPSYNC", "BAR", "UCGABAR_WAIT"}
)
"""Opcodes after which a new block begins."""
GUARDED_BY_BRANCH = frozenset({"BRX", "RET", "BSYNC", "WARPSYNC", "BAR", "UCGABAR_WAIT"})
"""Those whose meaning knows no guard; where they have one, a branch goes around them."""


def guarding_branch(instruction: Instruction, target: int) -> Instruction:
    """A branch to `target` under the guard of an instruction."""
    text = f"{target:#x}"
    return replace(instruction, opcode="BRA", operands=(Imm(text, target),), operand_text=text)


def targets(instruction: Instruction, symbols: Mapping[str, int]) -> tuple[int, ...]:
    """Addresses an instruction may jump to."""
    base = instruction.opcode.split(".")[0]
    if base in ("BRA", "BSSY"):
        return tuple(
            o.value for o in instruction.operands if isinstance(o, Imm) and isinstance(o.value, int)
        )
    if base == "CALL":
        found = (_called(o, symbols) for o in instruction.operands[-1:])
        return tuple(address for address in found if address is not None)
    return ()


def _called(operand: Operand, symbols: Mapping[str, int]) -> int | None:
    """The address a call goes to: that of a routine, or one the compiler jumps to this way."""
    if isinstance(operand, Imm) and isinstance(operand.value, int):
        return operand.value
    return symbols.get(operand.name) if isinstance(operand, Label) else None


def _condition(c: Context, operands: tuple[Operand, ...]) -> Value:
    value = c.guard
    for operand in operands:
        value = c.and_(value, c.predicate(operand))
    return value


@meaning("BRA")
def bra(c: Context, m: Modifiers) -> None:
    """Go to the target where the guard and the predicate operands hold

    DIV goes where not all lanes of a mask are here, to code that gathers them, CONV passes over
    such code where they are. Here they are gathered on the spot, so that DIV is never taken; CONV
    need not be.
    """
    m.ignore("U", "INC", "DEC")
    *conditions, target = c.instruction.operands
    if not isinstance(target, Imm) or not isinstance(target.value, int):
        raise c.refuse("the target is not understood")
    if m.take("DIV"):
        (mask,) = conditions
        _gather(c, c.select(c.guard, c.i32(mask), c.const(I32, 0)))
    elif m.take("CONV"):
        _jump(c, c.pc + 16, c.const(I1, 1))
    elif m.take("ANY"):
        # The warp goes as one where any of its lanes would.
        votes = c.emit("ballot", (I32,), (_condition(c, tuple(conditions)), c.const(I1, 1)))[0]
        _jump(c, target.value, c.not_(c.eq(votes, c.const(I32, 0))))
    else:
        _jump(c, target.value, _condition(c, tuple(conditions)))


@meaning("BRX", "BRXU")
def brx(c: Context, m: Modifiers) -> None:
    """Go to the address in a register, which the compiler took from a jump table"""
    register, offset = c.instruction.operands
    if not isinstance(offset, Imm) or not isinstance(offset.value, int):
        raise c.refuse("operands are not understood")
    address = c.add(c.i32(register), c.const(I32, c.pc + 16 + offset.value))
    c.terminator = Terminator("ret", c.pc, address)


def _jump(c: Context, target: int, condition: Value) -> None:
    known = c.known(condition)
    if known == 1:
        c.terminator = Terminator("jump", c.pc, target=target)
    elif known == 0:
        c.terminator = Terminator("jump", c.pc, target=c.pc + 16)
    else:
        c.terminator = Terminator("branch", c.pc, condition, target, c.pc + 16)


@meaning("CALL", operands=(1,))
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
    if not m.take("REL") or len(c.instruction.operands) != 2:
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
    condition = _condition(c, c.instruction.operands)
    everyone = c.known(condition) == 1
    value, after = (None, -1) if everyone else (condition, c.pc + 16)
    c.terminator = Terminator("exit", c.pc, value, fallthrough=after)


def _barrier_register(c: Context) -> int:
    register = c.instruction.operands[-1 if c.instruction.opcode.startswith("BSYNC") else 0]
    return _index(c, register)


def _index(c: Context, register: Operand) -> int:
    if not isinstance(register, Reg) or register.file != "B":
        raise c.refuse("operands are not understood")
    c.only(register)
    return register.index


@meaning("BSSY", operands=(2,))
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
    c.terminator = Terminator("reconverge", c.pc, fallthrough=c.pc + 16, token=_barrier_register(c))


@meaning("BREAK")
def leave_scope(c: Context, m: Modifiers) -> None:
    """Take lanes out of a convergence scope where the guard and the predicate hold"""
    m.ignore("RELIABLE")
    *conditions, register = c.instruction.operands
    c.emit("abandon", (), (_condition(c, tuple(conditions)),), (_index(c, register),))


@meaning("WARPSYNC", operands=(0, 1))
def warpsync(c: Context, m: Modifiers) -> None:
    """Wait for the lanes of a mask"""
    everyone = m.take("ALL")
    m.ignore("EXCLUSIVE")
    _gather(c, c.const(I32, -1) if everyone else c.i32(c.instruction.operands[-1]))


def _gather(c: Context, mask: Value) -> None:
    c.terminator = Terminator("warpsync", c.pc, mask, fallthrough=c.pc + 16)


@meaning("BAR")
def bar(c: Context, m: Modifiers) -> None:
    """Wait for the whole CTA at barrier 0, or for a number of threads at a named barrier"""
    m.ignore("DEFER_BLOCKING")
    if not m.take("SYNC") or len(c.instruction.operands) > 2:
        raise c.refuse("only waiting at a barrier is supported")
    number = c.i32(c.operand(0))
    if len(c.instruction.operands) == 2:
        meeting = c.or_(number, c.shl(c.i32(c.operand(1)), 16))
        c.terminator = Terminator("meet", c.pc, meeting, fallthrough=c.pc + 16)
    elif c.known(number) == 0:
        c.terminator = Terminator("barrier", c.pc, fallthrough=c.pc + 16)
    else:
        raise c.refuse("a named barrier of the whole CTA is not supported")


@meaning(
    "NOP", "YIELD", "NANOSLEEP", "DEPBAR", "LDGDEPBAR", "MEMBAR", "ERRBAR", "CGAERRBAR", "CCTL"
)
def nothing(c: Context, m: Modifiers) -> None:
    """Order and timing only; the machine executes loads and stores in order"""
    for name in m.left:
        m.take(name)


@meaning("BPT")
def trap(c: Context, m: Modifiers) -> None:
    """A trap: reaching it is a fault"""
    m.ignore("TRAP", "INT")
    c.emit("require", (), (c.const(c.guard.type, 0), c.guard), ("the kernel traps",))
