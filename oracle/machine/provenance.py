"""Provenance of bytes, as a pass over the representation: which input bytes decide a stored byte.

Every byte a kernel computes with gets a tag of eight bits, a set of eight labels. Tags enter with
loads: the tags of a region's bytes lie `SHADOW` above them, in a region of their own. They leave
with stores: after each store another one puts the tags of its bytes `SHADOW` above. The kernel that
comes of it is an ordinary one, so that every back end can execute it.

What is tagged with a label is what its bytes decide: by being moved, by arithmetic, and by choosing
(a `select`, a guarded write). The tags are a superset: who knows that two values cancel? Not
followed are the addresses of loads and stores and the branches that lead to them. Moves are
followed byte by byte, so that the half of a word that a permutation keeps has its own tags; a sum
passes tags upwards, as carries do; a floating-point result has those of all its operands' bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from oracle.machine.builder import I1, I32, I64, Builder
from oracle.machine.context import Unsupported
from oracle.machine.ir import Block, Function, Op, Type, Value
from oracle.machine.memory import Memory, Region, StoreEvent

SHADOW = 1 << 48
"""How far above a byte its tag lies."""
_PREFIX = "T."
_TAG = {Type.I1: I32, Type.I32: I32, Type.F32: I32, Type.I64: I64, Type.F64: I64}
_UNTAGGED = frozenset({"const", "ldc", "special"})
_BITWISE = frozenset({"and", "or", "xor"})
_UPWARDS = frozenset({"add", "sub", "mul"})
_SHIFTS = frozenset({"shl", "lshr", "ashr"})
_COMPARE = frozenset({"eq", "ult", "slt", "foeq", "folt", "fole", "funo"})
_WHOLE = frozenset(
    {"fbits", "fadd", "fsub", "fmul", "fma", "fmax", "fmin", "rcp"}
    | {"fpext", "fptrunc", "uitofp", "fptoui"}
)
_PASSED_ON = frozenset({"require", "converge", "abandon"})


def with_tags(function: Function) -> Function:
    """The kernel that computes tags beside its values.

    Raises Unsupported where it uses a primitive whose tags are not defined.
    """
    tagged = _tagged_registers(function)
    blocks = {address: _Pass(block, tagged).run() for address, block in function.blocks.items()}
    return replace(function, name=f"{function.name} with tags", blocks=blocks)


def _tagged_registers(function: Function) -> frozenset[str]:
    """The registers that ever hold what depends on a load."""
    tagged: set[str] = set()
    while True:
        before = len(tagged)
        for block in function.blocks.values():
            known = {
                op.results[0].index
                for op in block.ops
                if op.name == "get" and op.attrs[0] in tagged
            }
            for op in block.ops:
                if op.name == "load" or any(arg.index in known for arg in op.args):
                    known.update(result.index for result in op.results)
                if op.name == "set" and op.args[0].index in known:
                    tagged.add(str(op.attrs[0]))
        if len(tagged) == before:
            return frozenset(tagged)


class _Pass:
    """Writes one block anew with the tags of its values; None stands for no tag at all.

    A tag has a byte for each byte of its value; that of an i1 is the lowest byte of an i32.
    `tagged` are the registers that may hold tags.
    """

    def __init__(self, block: Block, tagged: frozenset[str]) -> None:
        self.block = block
        self.tagged = tagged
        self.code = Builder()
        self.values: dict[Value, Value] = {}
        self.tags: dict[Value, Value | None] = {}

    def run(self) -> Block:
        """The block with tags."""
        writes: list[Op] = []
        for op in self.block.ops:
            self.code.pc = op.pc
            if op.name == "set":
                writes.append(op)
                continue
            args = tuple(self.values[arg] for arg in op.args)
            results = self._same(op, args)
            self.values.update(zip(op.results, results, strict=True))
            for result, tag in zip(op.results, self._tags(op, args), strict=True):
                self.tags[result] = tag
        for op in writes:
            self._write(op)
        end = self.block.terminator
        if end.value is not None:
            end = replace(end, value=self.values[end.value])
        return replace(self.block, ops=self.code.ops, terminator=end)

    def _same(self, op: Op, args: tuple[Value, ...]) -> tuple[Value, ...]:
        kinds = tuple(result.type for result in op.results)
        return self.code.emit(op.name, kinds, args, op.attrs)

    def _write(self, op: Op) -> None:
        name, value = str(op.attrs[0]), op.args[0]
        self.code.emit("set", (), (self.values[value],), (name,))
        tag = self.tags[value]
        if name in self.tagged:
            bits = tag or self.code.const(I32, 0)
            self.code.emit("set", (), (bits,), (_PREFIX + name,))

    # -- the tags of an operation's results -----------------------------------------------------

    def _tags(self, op: Op, args: tuple[Value, ...]) -> list[Value | None]:
        if op.name == "load":
            return list(self._loaded(op, args))
        if op.name == "store":
            self._stored(op, args)
            return []
        if op.name in _PASSED_ON:
            return []
        if op.name in _UNTAGGED:
            return [None]
        if op.name == "get":
            return [self._get(str(op.attrs[0]))]
        tags = [self.tags[arg] for arg in op.args]
        if op.name == "shuffle":
            source = tags[0] or self.code.const(I32, 0)
            moved = self.code.emit("shuffle", (I32, I1), (source, *args[1:]), op.attrs)
            return [moved[0], None]
        return [self._tag(op, args, tags)]

    def _get(self, name: str) -> Value | None:
        if name not in self.tagged:
            return None
        return self.code.emit("get", (I32,), (), (_PREFIX + name,))[0]

    def _far(self, address: Value) -> Value:
        return self.code.add(address, self.code.const(I64, SHADOW))

    def _loaded(self, op: Op, args: tuple[Value, ...]) -> tuple[Value, ...]:
        if op.attrs[0] != "global":
            raise Unsupported(f"tags of {op.attrs[0]} memory are not followed")
        address, guard = args
        kinds = (I32,) * len(op.results)
        return self.code.emit("load", kinds, (self._far(address), guard), op.attrs)

    def _stored(self, op: Op, args: tuple[Value, ...]) -> None:
        if op.attrs[0] != "global":
            raise Unsupported(f"tags of {op.attrs[0]} memory are not followed")
        address, guard = args[:2]
        tags = tuple(self.tags[word] or self.code.const(I32, 0) for word in op.args[2:])
        self.code.emit("store", (), (self._far(address), guard, *tags), op.attrs)

    def _tag(self, op: Op, args: tuple[Value, ...], tags: list[Value | None]) -> Value | None:
        if all(tag is None for tag in tags):
            return None
        kind = op.results[0].type
        if op.name in _BITWISE:
            return self._bitwise(op, args, tags)
        if op.name in _UPWARDS:
            return self._upwards(self._union(tags))
        if op.name in _SHIFTS:
            return self._shifted(op, args, tags)
        if op.name in _COMPARE:
            return self._one(self._union(tags))
        if op.name in _WHOLE:
            return self._everywhere(self._one(self._union(tags)), kind)
        if op.name in ("select", "uniform"):
            return self._chosen(op, args, tags)
        if op.name in ("zext", "sext", "trunc", "bitcast"):
            return self._converted(op, tags[0])
        raise Unsupported(f"tags through {op.name} are not followed")

    def _union(self, tags: list[Value | None]) -> Value | None:
        """Of tags as wide as each other."""
        total: Value | None = None
        for tag in tags:
            if tag is not None:
                total = tag if total is None else self.code.or_(total, tag)
        return total

    def _bitwise(self, op: Op, args: tuple[Value, ...], tags: list[Value | None]) -> Value | None:
        """A byte of a constant that decides the result's byte leaves no tag to the other's."""
        for known, other in ((args[0], tags[1]), (args[1], tags[0])):
            bits = self.code.known(known)
            if bits is None or other is None or op.name == "xor" or op.results[0].type is I1:
                continue
            deciding = 0 if op.name == "and" else 0xFF
            data = bits.to_bytes(known.type.width // 8, "little")
            mask = int.from_bytes(bytes(0 if b == deciding else 0xFF for b in data), "little")
            return self.code.and_(other, self.code.const(other.type, mask))
        return self._union(tags)

    def _upwards(self, tag: Value | None) -> Value | None:
        """Each byte also has the tags of the lower ones."""
        step = 8
        while tag is not None and step < tag.type.width:
            tag = self.code.or_(tag, self.code.shl(tag, step))
            step *= 2
        return tag

    def _one(self, tag: Value | None) -> Value | None:
        """All bytes' tags in the lowest byte of an i32."""
        if tag is None:
            return None
        step = tag.type.width // 2
        while step >= 8:
            tag = self.code.or_(tag, self.code.lshr(tag, step))
            step //= 2
        word = self.code.trunc(tag, I32) if tag.type is I64 else tag
        return self.code.and_(word, self.code.const(I32, 0xFF))

    def _everywhere(self, one: Value | None, kind: Type) -> Value | None:
        """The tag of a value all of whose bytes have the tag in the lowest byte of `one`."""
        if one is None or kind is I1:
            return one
        wide = self.code.zext(one, I64) if _TAG[kind] is I64 else one
        return self.code.mul(wide, self.code.const(wide.type, 0x0101_0101_0101_0101))

    def _shifted(self, op: Op, args: tuple[Value, ...], tags: list[Value | None]) -> Value | None:
        amount, tag = self.code.known(args[1]), tags[0]
        kind = op.results[0].type
        if amount is None or tag is None:
            return self._everywhere(self._one(self._union(tags)), kind)
        whole, part = divmod(amount, 8)
        move = self.code.shl if op.name == "shl" else self.code.lshr
        result = move(tag, 8 * whole)
        if part and 8 * whole + 8 < kind.width:
            result = self.code.or_(result, move(tag, 8 * whole + 8))
        if op.name == "ashr":
            # Copies of the sign come down from the top byte.
            top = self.code.lshr(tag, kind.width - 8)
            for place in range(kind.width - 8 - 8 * whole, kind.width, 8):
                result = self.code.or_(result, self.code.shl(top, place))
        return result

    def _chosen(self, op: Op, args: tuple[Value, ...], tags: list[Value | None]) -> Value | None:
        order = (0, 1, 2) if op.name == "select" else (1, 0, 2)
        condition, first, second = (tags[i] for i in order)
        kind = op.results[0].type
        zero = self.code.const(_TAG[kind], 0)
        chosen = self.code.select(args[order[0]], first or zero, second or zero)
        return self._union([chosen, self._everywhere(condition, kind)])

    def _converted(self, op: Op, tag: Value | None) -> Value | None:
        source, kind = op.args[0].type, op.results[0].type
        if tag is None or op.name == "bitcast":
            return tag
        if op.name == "trunc":
            word = self.code.trunc(tag, I32) if tag.type is I64 else tag
            return self.code.and_(word, self.code.const(I32, 0xFF)) if kind is I1 else word
        if op.name == "sext" and source is I1:
            return self._everywhere(tag, kind)
        if kind is not I64:
            return tag
        wide = self.code.zext(tag, I64)
        if op.name == "sext":
            top = self._everywhere(self.code.lshr(tag, 24), I32)
            assert top is not None
            wide = self.code.or_(wide, self.code.shl(self.code.zext(top, I64), 32))
        return wide


def map_tags(memory: Memory, labels: Mapping[str, NDArray[np.uint8]]) -> None:
    """Map the tags of every region of a memory: those given by its name, zeros elsewhere.

    `labels` has a byte for each byte of a region, whose bits are its labels.
    """
    for region in list(memory.regions):
        data = np.zeros(region.data.size, np.uint8)
        if region.name in labels:
            data[: region.size] = labels[region.name]
        memory.regions.append(
            Region(
                f"tags of {region.name}", region.base + SHADOW, region.size, data,
                region.writable, None,
            )
        )  # fmt: skip


def split_tags(events: list[StoreEvent]) -> tuple[list[StoreEvent], list[StoreEvent]]:
    """The stores of a kernel with tags apart from the stores of their tags, which follow them.

    The address of a tag is `SHADOW` above that of its byte.
    """
    stores: list[StoreEvent] = []
    tags: list[StoreEvent] = []
    for event in events:
        high = event.address >= np.uint64(SHADOW)
        for keep, found in ((~high, stores), (high, tags)):
            if keep.any():
                found.append(event.part(keep))
    return stores, tags
