"""If-conversion: branches on which lanes disagree become masks, on the intermediate representation.

A region is a branch and the blocks between it and the place where its ways meet again, entered
through the branch alone and without loops. (Where a short way out of a loop ends the kernel, the
branch that leaves the loop has such a region as well: its ways meet at the beginning of the loop.)
Its blocks are put one after the other into the
branch's block. A block's mask says which lanes would have run it; what it stores, checks or writes
to a register happens under that mask. Two operations exist only in code converted so:

| issue | attrs: address, length; (mask) | the lanes of the mask issue a block's instructions |
| leave | (mask) | the lanes of the mask are done |
"""

from __future__ import annotations

from dataclasses import replace

from oracle.machine.compiled.flow import predecessors, successors, varying_registers, varying_values
from oracle.machine.ir import Block, Function, Op, Terminator, Type, Value

MAX_REGION_OPS = 60_000
"""More operations than this are not put into one block."""
MAX_LOOP_TAIL_OPS = 200
"""More operations than this, to be done by lanes that leave a loop, are not put into the loop."""
_INNER = frozenset({"jump", "branch", "reconverge", "exit"})
_GUARD_POSITION = {"load": 1, "store": 1, "require": 1}


def if_convert(function: Function) -> Function:
    """The same kernel without the branches on which the lanes of a vector may disagree.

    Branches that are not the entry of a region, such as those of loops, stay.
    """
    converted = replace(function, blocks=dict(function.blocks))
    changed = True
    while changed:
        changed = False
        entry = varying_registers(converted)
        for address in sorted(converted.blocks, reverse=True):
            block = converted.blocks.get(address)
            if block is None or block.terminator.kind != "branch":
                continue
            if block.terminator.value in varying_values(block, entry[address]):
                changed |= _convert(converted, address)
    return converted


def _convert(function: Function, head: int) -> bool:
    """Convert the region that begins at a branch; whether there is one."""
    region = _region(function, head)
    if region is None:
        return False
    inner, meeting = region
    merged = _Merger(function, head, inner, meeting).merge()
    function.blocks[head] = merged
    for address in inner:
        del function.blocks[address]
    return True


def _region(function: Function, head: int) -> tuple[list[int], int] | None:
    """The blocks between a branch and the place where its ways meet (-1: nowhere), in order."""
    before = predecessors(function)
    inner: list[int] = []
    inside = {head}
    frontier = set(successors(function, function.blocks[head].terminator))
    size = len(function.blocks[head].ops)
    while len(frontier) > 1:
        ready = [a for a in sorted(frontier) if _may_join(function, a, before, inside)]
        if not ready:
            return None
        address = ready[0]
        block = function.blocks[address]
        size += len(block.ops)
        if size > MAX_REGION_OPS:
            return None
        inner.append(address)
        inside.add(address)
        frontier.discard(address)
        following = successors(function, block.terminator)
        if any(a in inside for a in following):
            return None
        frontier.update(following)
    meeting = min(frontier, default=-1)
    if 0 <= meeting <= head and size - len(function.blocks[head].ops) > MAX_LOOP_TAIL_OPS:
        return None
    return inner, meeting


def _may_join(
    function: Function, address: int, before: dict[int, set[int]], inside: set[int]
) -> bool:
    block = function.blocks.get(address)
    return (
        block is not None
        and before[address] <= inside
        and address not in function.return_points
        and block.terminator.kind in _INNER
        and not any(_reads_far_constant(block, op) for op in block.ops)
    )


def _reads_far_constant(block: Block, op: Op) -> bool:
    """Whether an operation reads constant memory at a place that is only known when it runs."""
    if op.name != "ldc":
        return False
    return all(other.results != op.args for other in block.ops if other.name == "const")


class _Merger:
    """Writes the blocks of a region into one."""

    def __init__(self, function: Function, head: int, inner: list[int], meeting: int) -> None:
        self.function = function
        self.head = head
        self.inner = inner
        self.meeting = meeting
        self.ops: list[Op] = []
        self.count = 0
        self.registers: dict[str, Value] = {}
        self.written: dict[str, None] = {}
        self.masks: dict[int, Value] = {}
        self.pc = 0

    def merge(self) -> Block:
        """The block that does what the region did."""
        head = self.function.blocks[self.head]
        self._append(head, None)
        self._leave_by(head.terminator, None)
        for address in self.inner:
            block = self.function.blocks[address]
            mask = self.masks.pop(address)
            if block.length:
                self._emit("issue", (), (mask,), (address, block.length))
            self._append(block, mask)
            self._leave_by(block.terminator, mask)
        for name in self.written:
            self._emit("set", (), (self.registers[name],), (name,))
        end = Terminator("jump", head.terminator.pc, target=self.meeting)
        if self.meeting < 0:
            end = Terminator("exit", head.terminator.pc)
        return Block(head.address, head.length, self.ops, end)

    def _emit(
        self,
        name: str,
        results: tuple[Type, ...],
        args: tuple[Value, ...] = (),
        attrs: tuple[int | str, ...] = (),
    ) -> tuple[Value, ...]:
        values = tuple(Value(self.count + i, kind) for i, kind in enumerate(results))
        self.count += len(values)
        self.ops.append(Op(name, args, attrs, values, self.pc))
        return values

    def _read(self, name: str, kind: Type) -> Value:
        if name not in self.registers:
            self.registers[name] = self._emit("get", (kind,), (), (name,))[0]
        return self.registers[name]

    def _append(self, block: Block, mask: Value | None) -> None:
        """The operations of a block, those with effects under a mask."""
        self.names: dict[Value, Value] = {}
        for op in block.ops:
            self.pc = op.pc
            args = [self.names[arg] for arg in op.args]
            if op.name == "get":
                self.names[op.results[0]] = self._read(str(op.attrs[0]), op.results[0].type)
                continue
            if op.name == "set":
                self._write(str(op.attrs[0]), args[0], mask)
                continue
            if mask is not None:
                args = self._masked(op, args, mask)
            kinds = tuple(result.type for result in op.results)
            results = self._emit(op.name, kinds, tuple(args), op.attrs)
            self.names.update(zip(op.results, results, strict=True))

    def _masked(self, op: Op, args: list[Value], mask: Value) -> list[Value]:
        position = _GUARD_POSITION.get(op.name)
        if op.name in ("issue", "leave"):
            position = 0
        if position is None:
            return args
        args[position] = self._emit("and", (Type.I1,), (args[position], mask))[0]
        return args

    def _write(self, name: str, value: Value, mask: Value | None) -> None:
        if mask is not None:
            old = self._read(name, value.type)
            value = self._emit("select", (value.type,), (mask, value, old))[0]
        self.registers[name] = value
        self.written[name] = None

    def _leave_by(self, end: Terminator, mask: Value | None) -> None:
        """Hand a block's mask on to the blocks that follow it."""
        self.pc = end.pc
        if end.value is None:
            if end.kind == "exit":
                self._emit("leave", (), (mask if mask is not None else self._true(),))
            else:
                self._arrive(end.target if end.kind == "jump" else end.fallthrough, mask)
            return
        condition = self.names[end.value]
        opposite = self._emit("xor", (Type.I1,), (condition, self._true()))[0]
        taken, rest = (self._both(mask, part) for part in (condition, opposite))
        if end.kind == "exit":
            self._emit("leave", (), (taken,))
        else:
            self._arrive(end.target, taken)
        self._arrive(end.fallthrough, rest)

    def _true(self) -> Value:
        return self._emit("const", (Type.I1,), (), (1,))[0]

    def _both(self, mask: Value | None, condition: Value) -> Value:
        return condition if mask is None else self._emit("and", (Type.I1,), (mask, condition))[0]

    def _arrive(self, address: int, mask: Value | None) -> None:
        if address == self.meeting:
            return
        arriving = mask if mask is not None else self._true()
        other = self.masks.get(address)
        if other is not None:
            arriving = self._emit("or", (Type.I1,), (other, arriving))[0]
        self.masks[address] = arriving
