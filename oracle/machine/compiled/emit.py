"""The intermediate representation as LLVM text: a function for groups of lanes, and one for a lane.

The group's function runs its lanes in lockstep. Lanes that have left are taken out by a mask; where
the others disagree on a branch, each is finished on its own by the second function, which can begin
at any block where that happens. Values that are the same for all lanes stay scalars.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from oracle.machine.compiled.abi import DONE, FAULT, STEP_LIMIT, Context, offset
from oracle.machine.compiled.coordinates import Coordinates
from oracle.machine.compiled.endings import Endings
from oracle.machine.compiled.flow import Registers, constants, reachable
from oracle.machine.compiled.loads import emit_load
from oracle.machine.compiled.pure import PURE_NAMES, emit_pure, signless_values
from oracle.machine.compiled.stores import emit_prefetch, emit_store
from oracle.machine.compiled.text import Typed, constant
from oracle.machine.ir import Block, Op, Value


class Emitter(Coordinates, Endings):
    """Writes one function. `lanes` is 1 for the function that finishes a single lane."""

    def group(self) -> str:
        """The function that runs all lanes of a group, and the loops over CTAs and groups."""
        text = self.text
        text.label("entry")
        self._variables()
        lanes = text.lanes
        first = text.everywhere("i64", "%first")
        index = ", ".join(f"i64 {i}" for i in range(lanes))
        kind = text.vector("i64")
        numbers = text.value(f"add {kind} {first}, <{index}>")
        threads = text.field(offset(Context, "threads"), "i64")
        alive = text.value(f"icmp ult {kind} {numbers}, {text.everywhere('i64', threads)}")
        text.line(f"store {text.vector('i1')} {alive}, ptr %active")
        living = self._count(alive)
        text.line(f"store i64 {living}, ptr %living")
        text.line(f"br label %{self._label(0)}")
        self._body()
        head = "define internal i32 @group(ptr noalias %context, i64 %cta, i64 %first) #0 {"
        return "\n".join([head, *text.lines, "}", _DRIVER.format(
            lanes=lanes,
            **{name: offset(Context, name) for name in ("first_cta", "cta_count", "threads")},
        )])  # fmt: skip

    def single(self, entries: set[int]) -> str:
        """The function that finishes one lane, from one of the blocks `entries` on."""
        text = self.text
        text.label("entry")
        self._variables()
        text.line("store i64 %steps_before, ptr %steps")
        text.line("store i64 %order_before, ptr %order")
        ways = " ".join(f"i32 {a}, label %in{a:x}" for a in sorted(entries))
        text.line(f"switch i32 %target, label %fault [ {ways} ]")
        for address in sorted(entries):
            text.label(f"in{address:x}")
            for name in sorted(self.live.get(address, ())):
                self._restore(name)
            text.line(f"br label %{self._label(address)}")
        self._body()
        head = (
            "define i32 @finish_lane(ptr noalias %context, i64 %cta, i64 %first, i64 %lane, "
            "i32 %target, ptr %registers, i64 %steps_before, i64 %order_before) #0 {"
        )
        return "\n".join([head, *text.lines, "}"])

    def _body(self) -> None:
        text = self.text
        for address in reachable(self.function):
            self._block(self.function.blocks[address])
        text.label("done")
        self._account()
        text.line(f"ret i32 {DONE}")
        text.label("fault")
        text.line(f"ret i32 {FAULT}")
        text.label("limit")
        text.line(f"ret i32 {STEP_LIMIT}")

    def _block(self, block: Block) -> None:
        text = self.text
        text.label(self._label(block.address))
        if block.length:
            self._issue(block.length, text.value("load i64, ptr %living"))
            self._check_limit(block.address)
        self.names = {}
        known = constants(block)
        signless = signless_values(block.ops, known)
        entry = self.varying.get(block.address, frozenset())
        sites = self._sites(block)
        stored_to: dict[Value, list[int]] = {}
        for op, site in zip(block.ops, sites, strict=True):
            if op.name == "store" and self.grouped:
                stored_to.setdefault(op.args[0], []).append(site)
        leaves = False
        for op, site in zip(block.ops, sites, strict=True):
            leaves |= op.name == "leave"
            self._op(op, entry, signless.__contains__, site)
            for value in op.results:
                for ahead in stored_to.get(value, ()):
                    emit_prefetch(text, ahead, self.names[value])
        self._write_back(block, entry)
        if leaves:
            text.line(
                f"br i1 {self._anyone()}, label %{self._label(block.address)}.on, label %done"
            )
            text.label(f"{self._label(block.address)}.on")
        self._terminate(block)

    def _sites(self, block: Block) -> list[int]:
        """The number of the site of each operation, -1 for those that are no access."""
        seen: dict[int, int] = {}
        numbers = []
        for op in block.ops:
            if op.name in ("load", "store"):
                seen[op.pc] = seen.get(op.pc, -1) + 1
                numbers.append(self.sites.number(op.pc, seen[op.pc]))
            else:
                numbers.append(-1)
        return numbers

    def _op(self, op: Op, entry: Registers, signless: Callable[[Value], bool], site: int) -> None:
        text = self.text
        args = [self.names[arg] for arg in op.args]
        if op.name == "const":
            kind = op.results[0].type
            self.names[op.results[0]] = Typed(constant(kind, int(op.attrs[0])), kind, False)
        elif op.name == "uniform":
            chosen = replace(op, name="select", args=(op.args[1], op.args[0], op.args[2]))
            parts = [args[1], args[0], args[2]]
            self.names[op.results[0]] = emit_pure(text, chosen, parts, signless)
        elif op.name in PURE_NAMES:
            self.names[op.results[0]] = emit_pure(text, op, args, signless)
        elif op.name == "get":
            self.names[op.results[0]] = self._get(str(op.attrs[0]), entry, op.results[0].type)
        elif op.name == "ldc":
            self.names[op.results[0]] = self._constant_word(op, args[0])
        elif op.name == "special":
            self.names[op.results[0]] = self._special(str(op.attrs[0]))
        elif op.name == "rcp":
            self.names[op.results[0]] = self._reciprocal(args[0])
        elif op.name == "load":
            size, lanes = int(op.attrs[1]), self._lanes(args[1], alike=not args[0].varying)
            words = emit_load(text, site, size, args[0], lanes, self._scratch())
            self.names.update(zip(op.results, words, strict=True))
        elif op.name == "store":
            size, lanes = int(op.attrs[1]), self._lanes(args[1])
            emit_store(text, site, size, args[0], args[2:], lanes, self._scratch(), self.log_lanes)
        elif op.name == "require":
            self._require(args[0], args[1])
        elif op.name == "issue":
            self._issue_masked(int(op.attrs[1]), args[0])
        elif op.name == "leave":
            self._leave(args[0])


_DRIVER = """
define i32 @launch(ptr noalias %context) #0 {{
entry:
  %pf = getelementptr i8, ptr %context, i64 {first_cta}
  %begin = load i64, ptr %pf
  %pn = getelementptr i8, ptr %context, i64 {cta_count}
  %number = load i64, ptr %pn
  %end = add i64 %begin, %number
  %pt = getelementptr i8, ptr %context, i64 {threads}
  %threads = load i64, ptr %pt
  br label %ctas
ctas:
  %cta = phi i64 [ %begin, %entry ], [ %cta1, %over ]
  %left = icmp ult i64 %cta, %end
  br i1 %left, label %groups, label %well
groups:
  %first = phi i64 [ 0, %ctas ], [ %first1, %next ]
  %more = icmp ult i64 %first, %threads
  br i1 %more, label %run, label %over
run:
  %status = call i32 @group(ptr %context, i64 %cta, i64 %first)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %next, label %bad
next:
  %first1 = add i64 %first, {lanes}
  br label %groups
over:
  %cta1 = add i64 %cta, 1
  br label %ctas
well:
  ret i32 0
bad:
  ret i32 %status
}}
"""
