"""Lowers a kernel's instructions to the intermediate representation.

Code is cut into basic blocks at branch targets and after whatever ends a block. Everything the
machine cannot execute is collected and refused at once, by name, before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oracle.machine.context import WHOLE_FILE, Context, Modifiers, Unsupported
from oracle.machine.cubin import Cubin
from oracle.machine.disassembly import Instruction, disassemble
from oracle.machine.instructions import MEANINGS
from oracle.machine.instructions.control import ENDS_BLOCK, targets
from oracle.machine.ir import PURE, Block, Function, Op, Terminator, Value

WARP_WIDE = frozenset({"shuffle", "ballot"})


def lower(cubin: Cubin, kernel: str | None = None) -> Function:
    """Lower one kernel (the only one by default).

    Raises Unsupported with every instruction form, and every relocation, that has no meaning.
    """
    info = cubin.kernel(kernel)
    instructions = disassemble(cubin)[info.name]
    refused = [f"relocation {text}" for text in info.unsupported_relocations()]
    if info.entry:
        refused.append(f"entry at {info.entry:#x}")
    blocks, problems = basic_blocks(instructions, info.symbols)
    refused += problems
    constants = {b: data for b, data in info.constants.items() if b not in info.relocated_banks}
    refused += _missing_banks(blocks, set(constants))
    if refused:
        listed = "; ".join(dict.fromkeys(refused))
        raise Unsupported(f"kernel {info.name} ({cubin.arch}) cannot be executed: {listed}")
    function = Function(
        name=info.name,
        arch=cubin.arch,
        blocks=blocks,
        return_points=tuple(
            i.address + 16 for i in instructions if i.opcode.split(".")[0] == "CALL"
        ),
        shared_bytes=info.shared_bytes,
        local_bytes=info.stack_bytes,
        param_base=info.param_base,
        constants=constants,
    )
    function.warp_wide = bool(function.primitives & WARP_WIDE)
    _drop_dead(function)
    return function


def _missing_banks(blocks: Mapping[int, Block], known: set[int]) -> list[str]:
    """Constant banks that are read but hold what only a loader knows; bank 0 is the launch's."""
    read = {
        int(op.attrs[0]) for block in blocks.values() for op in block.ops if op.name == "ldc"
    }
    return [f"constant bank {bank} is filled by a loader" for bank in sorted(read - known - {0})]


def basic_blocks(
    instructions: Sequence[Instruction], symbols: Mapping[str, int]
) -> tuple[dict[int, Block], list[str]]:
    """The blocks of some code by address, and each instruction that could not be lowered, in words."""
    leaders = {0}
    for instruction in instructions:
        leaders.update(targets(instruction, symbols))
        if instruction.opcode.split(".")[0] in ENDS_BLOCK:
            leaders.add(instruction.address + 16)
    blocks: dict[int, Block] = {}
    problems: list[str] = []
    start = 0
    for position, instruction in enumerate(instructions):
        following = instruction.address + 16
        if following in leaders or position == len(instructions) - 1:
            part = instructions[start : position + 1]
            block, failed = _block(part, symbols)
            blocks[part[0].address] = block
            problems += failed
            start = position + 1
    return blocks, problems


def _block(part: Sequence[Instruction], symbols: Mapping[str, int]) -> tuple[Block, list[str]]:
    context = Context()
    problems: list[str] = []
    for instruction in part:
        try:
            _lower_one(context, instruction, symbols)
        except Unsupported as error:
            problems.append(str(error))
    last = part[-1].address
    end = context.terminator or Terminator("jump", last, target=last + 16)
    return Block(part[0].address, len(part), context.finish(), end), problems


def _lower_one(context: Context, instruction: Instruction, symbols: Mapping[str, int]) -> None:
    base, *names = instruction.opcode.split(".")
    context.begin(instruction)
    meaning = MEANINGS.get(base)
    if meaning is None:
        raise Unsupported(f"opcode {instruction.opcode} at {instruction.address:#06x}")
    if instruction.predicate == WHOLE_FILE and base not in ("P2R", "R2P"):
        raise context.refuse("a guard that is no predicate is not understood")
    modifiers = Modifiers(names)
    context.symbols = symbols
    try:
        meaning(context, modifiers)
    except ValueError:
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
