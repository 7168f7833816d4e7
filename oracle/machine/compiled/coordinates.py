"""What a lane is told from outside: constants, its coordinates, the model of the reciprocal."""

from __future__ import annotations

from oracle.machine.compiled.abi import Context, bank_offsets, offset
from oracle.machine.compiled.frame import Frame
from oracle.machine.compiled.pure import constant_of
from oracle.machine.compiled.text import Typed
from oracle.machine.ir import Op, Type


class Coordinates(Frame):
    """Constants and coordinates."""

    def _constant_word(self, op: Op, at: Typed) -> Typed:
        text = self.text
        table, words = bank_offsets(int(op.attrs[0]))
        if not at.name.isdecimal():
            self._check_constant(int(op.attrs[0]), at, words)
        data = text.field(table, "ptr")
        index = text.value(f"lshr i32 {at.name}, 2")
        wide = text.value(f"zext i32 {index} to i64")
        place = text.value(f"getelementptr i32, ptr {data}, i64 {wide}")
        word = text.value(f"load i32, ptr {place}, align 4, !invariant.load !2")
        return Typed(word, Type.I32, False)

    def _check_constant(self, bank: int, at: Typed, words: int) -> None:
        text = self.text
        name = text.fresh()[1:]
        wide = text.value(f"zext i32 {at.name} to i64")
        index = text.value(f"lshr i64 {wide}, 2")
        inside = text.value(f"icmp ult i64 {index}, {text.field(words, 'i64')}")
        text.line(f"br i1 {inside}, label %{name}k, label %fault")
        text.label(f"{name}k")
        if bank == 0:
            known = text.field(offset(Context, "known_constants"), "ptr")
            flag = text.value(f"load i8, ptr {text.at(wide, known)}")
            good = text.value(f"icmp ne i8 {flag}, 0")
            text.line(f"br i1 {good}, label %{name}l, label %fault")
            text.label(f"{name}l")

    def _special(self, name: str) -> Typed:
        text = self.text
        base, _, axis = name.partition(".")
        if base == "ctaid":
            x = text.field(offset(Context, "grid_x"), "i64")
            y = text.field(offset(Context, "grid_y"), "i64")
            rows = text.value(f"udiv i64 %cta, {x}")
            wide = {
                "x": lambda: text.value(f"urem i64 %cta, {x}"),
                "y": lambda: text.value(f"urem i64 {rows}, {y}"),
                "z": lambda: text.value(f"udiv i64 {rows}, {y}"),
            }[axis]()
            return Typed(text.value(f"trunc i64 {wide} to i32"), Type.I32, False)
        if base == "tid":
            table = text.field(offset(Context, f"tid_{axis}"), "ptr")
            place = text.value(f"getelementptr i32, ptr {table}, i64 {self._thread()}")
            kind = text.type(Type.I32, self.grouped)
            return Typed(text.value(f"load {kind}, ptr {place}, align 4"), Type.I32, self.grouped)
        return self._of_thread(name)

    def _thread(self) -> str:
        return "%first" if self.grouped else self.text.value("add i64 %first, %lane")

    def _of_thread(self, name: str) -> Typed:
        """laneid, warpid or lt_mask, from the number of the thread in its CTA."""
        text = self.text
        thread = Typed(text.value(f"trunc i64 {self._thread()} to i32"), Type.I32, False)
        if self.grouped:
            index = ", ".join(f"i32 {i}" for i in range(text.lanes))
            first = text.spread(thread)
            thread = Typed(text.value(f"add {text.typed(first)}, <{index}>"), Type.I32, True)
        varying = self.grouped

        def const(bits: int) -> str:
            return constant_of(text, Type.I32, bits, varying).name

        if name == "warpid":
            return Typed(text.value(f"lshr {text.typed(thread)}, {const(5)}"), Type.I32, varying)
        lane = Typed(text.value(f"and {text.typed(thread)}, {const(31)}"), Type.I32, varying)
        if name == "laneid":
            return lane
        kind = text.type(Type.I32, varying)
        bit = text.value(f"shl {kind} {const(1)}, {lane.name}")
        return Typed(text.value(f"sub {kind} {bit}, {const(1)}"), Type.I32, varying)

    def _reciprocal(self, a: Typed) -> Typed:
        text = self.text
        wide = text.field(offset(Context, "rcp_step"), "i64")
        step = text.value(f"trunc i64 {wide} to i32")
        name = "rcp_lanes" if a.varying else "rcp_one"
        kind = text.type(Type.F32, a.varying)
        return Typed(
            text.value(f"call {kind} @{name}({text.typed(a)}, i32 {step})"), Type.F32, a.varying
        )
