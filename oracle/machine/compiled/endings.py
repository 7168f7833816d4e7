"""How a block ends: branches that all lanes take alike, and those on which lanes part."""

from __future__ import annotations

from oracle.machine.compiled.abi import DONE
from oracle.machine.compiled.flow import sets, successors
from oracle.machine.compiled.frame import Frame, is_predicate
from oracle.machine.compiled.text import Typed
from oracle.machine.ir import Block, Type


class Endings(Frame):
    """Terminators."""

    def _terminate(self, block: Block) -> None:
        end, text = block.terminator, self.text
        value = self.names[end.value] if end.value is not None else None
        if value is None:
            target = "done" if end.kind == "exit" else self._label(
                end.target if end.kind == "jump" else end.fallthrough
            )  # fmt: skip
            text.line(f"br label %{target}")
        elif end.kind == "branch" and not value.varying:
            ways = self._label(end.target), self._label(end.fallthrough)
            text.line(f"br i1 {value.name}, label %{ways[0]}, label %{ways[1]}")
        elif end.kind == "exit" and not value.varying:
            text.line(f"br i1 {value.name}, label %done, label %{self._label(end.fallthrough)}")
        elif end.kind == "exit":
            self._leave(value)
            text.line(f"br i1 {self._anyone()}, label %{self._label(end.fallthrough)}, label %done")
        elif end.kind == "branch":
            self._part_ways(block, value)
        else:
            self._return(block, value)

    def _part_ways(self, block: Block, value: Typed) -> None:
        """A branch on which the lanes may disagree."""
        text, end, label = self.text, block.terminator, self._label(block.address)
        kind = f"i{text.lanes}"
        active = text.bits(self._active())
        taken = text.bits(self._both(value))
        everyone = text.value(f"icmp eq {kind} {taken}, {active}")
        text.line(f"br i1 {everyone}, label %{self._label(end.target)}, label %{label}.part")
        text.label(f"{label}.part")
        nobody = text.value(f"icmp eq {kind} {taken}, 0")
        text.line(
            f"br i1 {nobody}, label %{self._label(end.fallthrough)}, label %{label}.split, !prof !0"
        )
        text.label(f"{label}.split")
        words = text.vector("i32")
        ways = [text.everywhere("i32", str(a)) for a in (end.target, end.fallthrough)]
        targets = text.value(f"select {text.typed(value)}, {words} {ways[0]}, {words} {ways[1]}")
        self._split(block, targets)

    def _split(self, block: Block, targets: str) -> None:
        """Finish every active lane on its own, each from its own address."""
        text = self.text
        after = successors(self.function, block.terminator)
        self.entries.update(a for a in after if a in self.function.blocks)
        needed: set[str] = set()
        for successor in after:
            needed |= self.live.get(successor, frozenset())
        written = {name: self.names[value] for name, value in sets(block).items()}
        entry = self.varying[block.address]
        for name in sorted(needed):
            kind = Type.I1 if is_predicate(name) else Type.I32
            held = text.spread(written.get(name) or self._get(name, entry, kind))
            word = held.name
            if kind is Type.I1:
                word = text.value(f"zext {text.typed(held)} to {text.vector('i32')}")
            place = text.at(4 * self.log_lanes * self.numbers[name], "%registers")
            text.line(f"store {text.vector('i32')} {word}, ptr {place}, align 4")
        text.line(f"store {text.vector('i32')} {targets}, ptr %targets")
        mask = text.value(f"zext i{text.lanes} {text.bits(self._active())} to i32")
        steps = text.value("load i64, ptr %steps")
        order = text.value("load i64, ptr %order")
        status = text.value(
            f"call i32 @finish(ptr %context, i64 %cta, i64 %first, i32 {mask}, ptr %targets, "
            f"ptr %registers, i64 {steps}, i64 {order})"
        )
        well = text.value(f"icmp eq i32 {status}, {DONE}")
        label = f"{self._label(block.address)}.bad"
        text.line(f"br i1 {well}, label %done, label %{label}")
        text.label(label)
        text.line(f"ret i32 {status}")

    def _return(self, block: Block, value: Typed) -> None:
        text, label = self.text, self._label(block.address)
        address = value.name
        if value.varying:
            active = text.bits(self._active())
            wide = text.value(f"zext i{text.lanes} {active} to i32")
            lane = text.value(f"call i32 @llvm.cttz.i32(i32 {wide}, i1 true)")
            kind = text.vector("i32")
            address = text.value(f"extractelement {kind} {value.name}, i32 {lane}")
            same = text.value(f"icmp eq {kind} {value.name}, {text.everywhere('i32', address)}")
            agree = text.bits(self._both(Typed(same, Type.I1, True)))
            all_agree = text.value(f"icmp eq i{text.lanes} {agree}, {active}")
            text.line(f"br i1 {all_agree}, label %{label}.same, label %{label}.split")
            text.label(f"{label}.split")
            self._split(block, value.name)
            text.label(f"{label}.same")
        ways = " ".join(f"i32 {a}, label %{self._label(a)}" for a in self.function.return_points)
        text.line(f"switch i32 {address}, label %fault [ {ways} ]")
