"""A function being generated: its registers, its lanes and what it counts.

Registers are variables of the function, each as a scalar and as a vector; what is known of a block
says which of the two holds at its entry.
"""

from __future__ import annotations

from oracle.machine.compiled.abi import Context, offset
from oracle.machine.compiled.access import Lanes, Scratch
from oracle.machine.compiled.flow import Registers, live_in, sets, successors, varying_registers
from oracle.machine.compiled.sites import Sites
from oracle.machine.compiled.text import Text, Typed
from oracle.machine.ir import Block, Function, Type, Value


def is_predicate(register: str) -> bool:
    """Whether a register holds a condition rather than a word."""
    return register.strip("U")[0] == "P"


class Frame:
    """What every part of the function's text needs."""

    def __init__(
        self, function: Function, lanes: int, log_lanes: int, registers: dict[str, int],
        sites: Sites, live: dict[int, Registers],
    ) -> None:  # fmt: skip
        self.function = function
        self.text = Text(lanes)
        self.grouped = lanes > 1
        self.log_lanes = log_lanes
        self.numbers = registers
        self.sites = sites
        self.live = live
        """Registers the function for single lanes may read, at the entry of its blocks."""
        self.needed = live_in(function)
        self.varying = varying_registers(function) if self.grouped else {}
        self.names: dict[Value, Typed] = {}
        """The values of the block being written."""
        self.entries: set[int] = set()
        """Blocks at which a single lane may have to go on."""

    def _restore(self, name: str) -> None:
        text = self.text
        place = text.value(f"add i64 %lane, {self.numbers[name] * self.log_lanes}")
        target = text.value(f"getelementptr i32, ptr %registers, i64 {place}")
        word = text.value(f"load i32, ptr {target}")
        if is_predicate(name):
            word = text.value(f"trunc i32 {word} to i1")
        text.line(f"store {self._scalar(name)} {word}, ptr %s.{name}")

    def _variables(self) -> None:
        text = self.text
        words = 4 * text.lanes
        text.line(f"%addresses = alloca [{text.lanes} x i64], align 64")
        text.line(f"%words = alloca [{words} x i32], align 64")
        for name in ("order", "steps", "issued", "living"):
            text.line(f"%{name} = alloca i64")
            text.line(f"store i64 {int(name == 'living')}, ptr %{name}")
        if self.grouped:
            size = self.log_lanes * max(1, len(self.numbers))
            text.line(f"%registers = alloca [{size} x i32], align 64")
            text.line(f"%targets = alloca {text.vector('i32')}, align 64")
            text.line(f"%active = alloca {text.vector('i1')}")
        for name in self.numbers:
            text.line(f"%s.{name} = alloca {self._scalar(name)}")
            text.line(f"store {self._scalar(name)} 0, ptr %s.{name}")
            if self.grouped:
                kind = text.vector(self._scalar(name))
                text.line(f"%v.{name} = alloca {kind}")
                text.line(f"store {kind} zeroinitializer, ptr %v.{name}")

    @staticmethod
    def _scalar(name: str) -> str:
        return "i1" if is_predicate(name) else "i32"

    def _label(self, address: int) -> str:
        return f"b{address:x}" if address in self.function.blocks else "fault"

    def _account(self) -> None:
        text = self.text
        for field, variable in (("steps", "steps"), ("lane_instructions", "issued")):
            new = text.value(f"load i64, ptr %{variable}")
            if variable == "steps" and not self.grouped:
                new = text.value(f"sub i64 {new}, %steps_before")
            total = text.value(f"add i64 {text.field(offset(Context, field), 'i64')}, {new}")
            text.line(f"store i64 {total}, ptr {text.at(offset(Context, field))}")

    def _count(self, mask: str) -> str:
        """How many lanes of a mask are set, i64."""
        text = self.text
        bits = text.value(f"zext i{text.lanes} {text.bits(mask)} to i64")
        return text.value(f"call i64 @llvm.ctpop.i64(i64 {bits})")

    def _issue(self, length: int, lanes: str) -> None:
        """Count instructions issued to so many lanes."""
        text = self.text
        steps = text.value(f"add i64 {text.value('load i64, ptr %steps')}, {length}")
        text.line(f"store i64 {steps}, ptr %steps")
        product = text.value(f"mul i64 {lanes}, {length}")
        issued = text.value(f"add i64 {text.value('load i64, ptr %issued')}, {product}")
        text.line(f"store i64 {issued}, ptr %issued")

    def _check_limit(self, address: int) -> None:
        text = self.text
        steps = text.value("load i64, ptr %steps")
        limit = text.field(offset(Context, "step_limit"), "i64")
        over = text.value(f"icmp ugt i64 {steps}, {limit}")
        label = self._label(address)
        text.line(f"br i1 {over}, label %{label}.limit, label %{label}.go, !prof !1")
        text.label(f"{label}.limit")
        text.line(f"store i64 {address}, ptr {text.at(offset(Context, 'limit_pc'))}")
        text.line("br label %limit")
        text.label(f"{label}.go")

    def _scratch(self) -> Scratch:
        return Scratch("%addresses", "%words", "fault")

    def _get(self, name: str, entry: Registers, kind: Type) -> Typed:
        varying = name in entry
        place = f"%{'v' if varying else 's'}.{name}"
        return Typed(
            self.text.value(f"load {self.text.type(kind, varying)}, ptr {place}"), kind, varying
        )

    def _write_back(self, block: Block, entry: Registers) -> None:
        """Registers to where the blocks that follow look for them."""
        text = self.text
        written = {name: self.names[value] for name, value in sets(block).items()}
        for name, value in written.items():
            place = f"%{'v' if value.varying else 's'}.{name}"
            text.line(f"store {text.typed(value)}, ptr {place}")
        if not self.grouped:
            return
        wanted: set[str] = set()
        for successor in successors(self.function, block.terminator):
            if successor in self.function.blocks:
                wanted |= self.varying[successor] & self.needed[successor]
        for name in sorted(wanted):
            held = written.get(name)
            if held is None and name not in entry:
                kind = Type.I1 if is_predicate(name) else Type.I32
                held = self._get(name, entry, kind)
            if held is not None and not held.varying:
                text.line(f"store {text.typed(text.spread(held))}, ptr %v.{name}")

    def _active(self) -> str:
        return self.text.value(f"load {self.text.vector('i1')}, ptr %active")

    def _anyone(self) -> str:
        text = self.text
        return text.value(f"icmp ne i{text.lanes} {text.bits(self._active())}, 0")

    def _both(self, condition: Typed) -> str:
        """The active lanes in which a condition holds, as a vector."""
        text = self.text
        return text.value(
            f"and {text.vector('i1')} {self._active()}, {text.spread(condition).name}"
        )

    def _lanes(self, guard: Typed, alike: bool = False) -> Lanes:
        """Who takes part in an access under a guard; `alike`: all lanes at one address."""
        text = self.text
        threads = text.field(offset(Context, "threads"), "i64")
        before = text.value(f"mul i64 %cta, {threads}")
        first = text.value(f"add i64 {before}, %first")
        if not self.grouped:
            return Lanes(guard, first, "%lane")
        if alike and not guard.varying:
            some = text.value(f"icmp ne i64 {text.value('load i64, ptr %living')}, 0")
            one = Typed(text.value(f"and i1 {guard.name}, {some}"), Type.I1, False)
            return Lanes(one, first, "0")
        mask = Typed(self._both(guard), Type.I1, True)
        return Lanes(mask, first, "0")

    def _require(self, holds: Typed, guard: Typed) -> None:
        text = self.text
        name = text.fresh()[1:]
        if self.grouped:
            wrong = text.value(
                f"xor {text.vector('i1')} {text.spread(holds).name}, "
                f"{text.everywhere('i1', 'true')}"
            )
            bad = text.bits(text.value(f"and {text.vector('i1')} {self._both(guard)}, {wrong}"))
            good = text.value(f"icmp eq i{text.lanes} {bad}, 0")
        else:
            absent = text.value(f"xor i1 {guard.name}, true")
            good = text.value(f"or i1 {absent}, {holds.name}")
        text.line(f"br i1 {good}, label %{name}r, label %fault, !prof !0")
        text.label(f"{name}r")

    def _issue_masked(self, length: int, mask: Typed) -> None:
        text = self.text
        lanes = self._count(self._both(mask))
        some = text.value(f"icmp ne i64 {lanes}, 0")
        steps = text.value(f"select i1 {some}, i64 {length}, i64 0")
        total = text.value(f"add i64 {text.value('load i64, ptr %steps')}, {steps}")
        text.line(f"store i64 {total}, ptr %steps")
        product = text.value(f"mul i64 {lanes}, {length}")
        issued = text.value(f"add i64 {text.value('load i64, ptr %issued')}, {product}")
        text.line(f"store i64 {issued}, ptr %issued")

    def _leave(self, mask: Typed) -> None:
        text = self.text
        leaving = self._both(mask)
        kind = text.vector("i1")
        left = text.value(f"xor {kind} {self._active()}, {leaving}")
        text.line(f"store {kind} {left}, ptr %active")
        text.line(f"store i64 {self._count(left)}, ptr %living")
