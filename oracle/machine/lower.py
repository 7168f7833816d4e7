"""Lowers a kernel's instructions to the intermediate representation.

Code is cut into basic blocks at branch targets and after whatever ends a block. Everything the
machine cannot execute is collected and refused at once, by name, before anything runs; code that
cannot be reached needs no meaning and is dropped.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from oracle.machine.context import WHOLE_FILE, Context, Modifiers, Unsupported
from oracle.machine.cubin import Cubin
from oracle.machine.disassembly import Instruction, disassemble
from oracle.machine.instructions import MEANINGS
from oracle.machine.instructions.control import (
    ENDS_BLOCK,
    GUARDED_BY_BRANCH,
    guarding_branch,
    targets,
)
from oracle.machine.instructions.registry import OPERANDS
from oracle.machine.ir import PURE, Block, Function, Op, Terminator, Value

JUMP_TABLES = 2
"""The constant bank in which the compiler keeps the tables of indirect jumps."""
WARP_WIDE = frozenset({"shuffle", "ballot"})


def lower(
    cubin: Cubin, kernel: str | None = None, instructions: Sequence[Instruction] | None = None
) -> Function:
    """Lower one kernel (the only one by default).

    `instructions` stand for what the cubin's code decodes to, where the caller has that already or
    has put others in their place. Raises Unsupported with every instruction form, and every
    relocation, that has no meaning.
    """
    info = cubin.kernel(kernel)
    instructions = instructions or disassemble(cubin)[info.name]
    refused = [f"relocation {text}" for text in info.unsupported_relocations()]
    if info.entry:
        refused.append(f"entry at {info.entry:#x}")
    constants = {b: data for b, data in info.constants.items() if b not in info.relocated_banks}
    tables = _jump_tables(constants.get(JUMP_TABLES, b""), len(instructions))
    blocks, problems = basic_blocks(instructions, info.symbols, tables)
    function = Function(
        name=info.name,
        arch=cubin.arch,
        blocks=blocks,
        return_points=(
            *(i.address + 16 for i in instructions if i.opcode.split(".")[0] == "CALL"),
            *tables,
        ),
        shared_bytes=info.shared_bytes,
        local_bytes=info.stack_bytes,
        param_base=info.param_base,
        constants=constants,
    )
    reachable = _reachable(function)
    function.blocks = {a: block for a, block in blocks.items() if a in reachable}
    refused += _missing_banks(function.blocks, set(constants))
    if any(address in reachable for address, _ in problems):
        refused += [text for _, text in problems]
    if refused:
        listed = "; ".join(dict.fromkeys(refused))
        raise Unsupported(f"kernel {info.name} ({cubin.arch}) cannot be executed: {listed}")
    function.warp_wide = bool(function.primitives & WARP_WIDE)
    _drop_dead(function)
    return function


def _jump_tables(table: bytes, instructions: int) -> tuple[int, ...]:
    """Addresses that an indirect jump may go to, of all that the compiler's tables hold."""
    words = struct.unpack(f"<{len(table) // 4}I", table[: len(table) // 4 * 4])
    return tuple(word for word in words if word % 16 == 0 and word < 16 * instructions)


def _missing_banks(blocks: Mapping[int, Block], known: set[int]) -> list[str]:
    """Constant banks that are read but hold what only a loader knows; bank 0 is the launch's."""
    read = {int(op.attrs[0]) for block in blocks.values() for op in block.ops if op.name == "ldc"}
    return [f"constant bank {bank} is filled by a loader" for bank in sorted(read - known - {0})]


def basic_blocks(
    instructions: Sequence[Instruction],
    symbols: Mapping[str, int],
    entries: Collection[int] = (),
) -> tuple[dict[int, Block], list[tuple[int, str]]]:
    """The blocks of some code by address, and what could not be lowered.

    `entries` are addresses that begin a block besides the targets of jumps. Each problem is the
    address of its block and a text that names the instruction.
    """
    leaders = {0, *entries}
    for instruction in instructions:
        leaders.update(targets(instruction, symbols))
        if instruction.opcode.split(".")[0] in ENDS_BLOCK:
            leaders.add(instruction.address + 16)
    blocks: dict[int, Block] = {}
    problems: list[tuple[int, str]] = []
    start = 0
    for position, instruction in enumerate(instructions):
        following = instruction.address + 16
        if following in leaders or position == len(instructions) - 1:
            for block, failed in _blocks_of(instructions[start : position + 1], symbols):
                blocks[block.address] = block
                problems += [(block.address, text) for text in failed]
            start = position + 1
    return blocks, problems


def _blocks_of(
    part: Sequence[Instruction], symbols: Mapping[str, int]
) -> Iterator[tuple[Block, list[str]]]:
    """The block of straight-line code, in two where its last instruction waits under a guard."""
    last = part[-1]
    unguarded = last.predicate in (None, WHOLE_FILE)
    if unguarded or last.opcode.split(".")[0] not in GUARDED_BY_BRANCH:
        yield _block(part[0].address, part, symbols)
        return
    # A branch around the wait; no instruction has the address that the wait's own block gets.
    waiting = last.address + 8
    yield _block(part[0].address, (*part[:-1], guarding_branch(last, waiting)), symbols)
    yield _block(waiting, (replace(last, predicate=None),), symbols)


def _reachable(function: Function) -> set[int]:
    """Blocks that execution can come to; padding and what is only there for debuggers is not."""
    found: set[int] = set()
    waiting = [0]
    while waiting:
        address = waiting.pop()
        if address not in found and address in function.blocks:
            found.add(address)
            waiting += _successors(function, function.blocks[address].terminator)
    return found


def _block(
    address: int, part: Sequence[Instruction], symbols: Mapping[str, int]
) -> tuple[Block, list[str]]:
    context = Context()
    problems: list[str] = []
    for instruction in part:
        try:
            _lower_one(context, instruction, symbols)
        except Unsupported as error:
            problems.append(str(error))
    last = part[-1].address
    end = context.terminator or Terminator("jump", last, target=last + 16)
    return Block(address, len(part), context.finish(), end), problems


def _lower_one(context: Context, instruction: Instruction, symbols: Mapping[str, int]) -> None:
    base, *names = instruction.opcode.split(".")
    context.begin(instruction)
    meaning = MEANINGS.get(base)
    if meaning is None:
        raise Unsupported(f"opcode {instruction.opcode} at {instruction.address:#06x}")
    if instruction.predicate == WHOLE_FILE and base not in ("P2R", "R2P"):
        raise context.refuse("a guard that is no predicate is not understood")
    counts = OPERANDS.get(base)
    if counts is not None and len(instruction.operands) not in counts:
        raise context.refuse("operands are not understood")
    modifiers = Modifiers(names)
    context.symbols = symbols
    try:
        meaning(context, modifiers)
    except (ValueError, IndexError):
        # A meaning unpacks the operands it knows; any other number of them is another form.
        raise context.refuse("operands are not understood") from None
    if modifiers.left:
        raise context.refuse(f"modifier .{'.'.join(modifiers.left)} is not understood")


def _drop_dead(function: Function) -> None:
    """Remove register writes nobody reads and the pure operations that fed them."""
    reads = {a: _names(b, "get") for a, b in function.blocks.items()}
    writes = {a: _names(b, "set") for a, b in function.blocks.items()}
    live_in = {a: set(names) for a, names in reads.items()}
    live_out: dict[int, set[str]] = {a: set() for a in function.blocks}
    order = sorted(function.blocks, reverse=True)
    changed = True
    while changed:
        changed = False
        for address in order:
            out: set[str] = set()
            for successor in _successors(function, function.blocks[address].terminator):
                out |= live_in.get(successor, set())
            if out != live_out[address]:
                live_out[address] = out
                changed = True
            live_in[address] = reads[address] | (out - writes[address])
    for address, block in function.blocks.items():
        block.ops = _needed(block, live_out[address])


def _names(block: Block, kind: str) -> set[str]:
    return {str(op.attrs[0]) for op in block.ops if op.name == kind}


def _successors(function: Function, end: Terminator) -> tuple[int, ...]:
    if end.kind == "ret":
        return function.return_points
    return tuple(a for a in (end.target, end.fallthrough) if a >= 0)


def _needed(block: Block, live: set[str]) -> list[Op]:
    used: set[Value] = set()
    if block.terminator.value is not None:
        used.add(block.terminator.value)
    kept: list[Op] = []
    for op in reversed(block.ops):
        if op.name == "set":
            wanted = op.attrs[0] in live
        else:
            wanted = op.name not in PURE or any(result in used for result in op.results)
        if wanted:
            kept.append(op)
            used.update(op.args)
    return kept[::-1]
