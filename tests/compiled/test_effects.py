"""Memory, faults, divergence and the log: compiled code does what NumPy lanes do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from agreement import Outcome, differences, run
from handmade_ir import Code, filled, kernel, leave, parameters
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.machine import memory
from oracle.machine.builder import I32, I64
from oracle.machine.compiled import chunks, ifconvert
from oracle.machine.ir import Function, Terminator, Value
from oracle.machine.launch import Program
from oracle.machine.memory import Memory

pytest.importorskip("llvmlite", reason="the compiled tier needs llvmlite: pip install -e .[fast]")
from oracle.machine.compiled import runtime
from oracle.machine.compiled.build import NotCompiled, refusal
from oracle.machine.compiled.runtime import CompiledProgram

WORDS = np.arange(4096, dtype=np.uint32) * np.uint32(2654435761)


class Case:
    """A kernel on both tiers, over an input of words and an output of so many bytes."""

    def __init__(self, function: Function, output: int = 16384) -> None:
        self.numpy = Program(function)
        self.compiled = CompiledProgram(function)
        self.output = output

    def memory(self) -> tuple[Memory, list[int]]:
        memory = Memory()
        return memory, filled(memory, source=WORDS, out=self.output)

    def agree(
        self, grid: int = 3, block: int = 40, jobs: int = 1, extra: tuple[int, ...] = (),
        **options: int,
    ) -> Outcome:  # fmt: skip
        outcomes = []
        for program, more in ((self.numpy, {}), (self.compiled, {"jobs": jobs})):
            memory, bases = self.memory()
            params = parameters(*bases, *extra)
            shape = (grid, 1, 1), (block, 1, 1)
            outcomes.append(run(program, memory, *shape, params, **options, **more))
        assert not differences(*outcomes)
        return outcomes[0]


def number(c: Code) -> Value:
    """The number of a lane in the launch of blocks of 40."""
    return c.add(c.mul(c.special("ctaid.x"), c.word(40)), c.special("tid.x"))


def copy(
    size: int, offset: Callable[[Code, Value], Value] | None = None,
    guard: Callable[[Code, Value], Value] | None = None, source_offset: int = 0,
    target_offset: int = 0,
) -> Function:  # fmt: skip
    """Each lane copies `size` bytes from its place in the source to its place in the output."""
    c = Code()
    lane = number(c)
    index = offset(c, lane) if offset else lane
    takes = guard(c, lane) if guard else None
    step = c.const(I64, source_offset)
    words = c.load(c.add(c.at(c.parameter(0), lane, size), step), size, takes)
    c.pc = 16
    place = c.add(c.at(c.parameter(1), index, size), c.const(I64, target_offset))
    c.store(place, words, size, takes)
    return kernel(c.end(0, leave()))


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_every_size_is_copied(size: int) -> None:
    outcome = Case(copy(size)).agree()
    assert outcome.fault is None
    assert outcome.memory.region("out").bytes[: 120 * size].any()


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_predicated_accesses_touch_their_lanes_only(size: int) -> None:
    third = copy(size, guard=lambda c, x: c.ult(c.and_(x, c.word(7)), c.word(3)))
    outcome = Case(third).agree()
    assert sum(e.address.size for e in outcome.memory.stores) == 45


@pytest.mark.parametrize("block", [1, 15, 16, 17, 31, 32, 33, 40])
def test_groups_that_do_not_fill_a_vector(block: int) -> None:
    outcome = Case(copy(8)).agree(block=block)
    assert sum(e.address.size for e in outcome.memory.stores) == 3 * block


@pytest.mark.parametrize("size", [2, 4, 8, 16])
@pytest.mark.parametrize("side", ["source_offset", "target_offset"])
def test_misaligned_accesses_fault(size: int, side: str) -> None:
    outcome = Case(copy(size, **{side: size // 2})).agree()  # type: ignore[arg-type]
    assert outcome.fault is not None
    assert "misaligned" in outcome.fault


@pytest.mark.parametrize("size", [1, 4, 16])
@pytest.mark.parametrize("far", [WORDS.nbytes, -1, 1 << 40])
def test_loads_outside_fault(size: int, far: int) -> None:
    outcome = Case(copy(size, source_offset=far * size // size // size * size)).agree()
    assert outcome.fault is not None
    assert "loads" in outcome.fault


def test_a_fault_of_a_later_lane_is_told_as_numpy_lanes_tell_it() -> None:
    def last_one(c: Code, lane: Value) -> Value:
        return c.eq(lane, c.word(97))

    outcome = Case(copy(4, guard=last_one, source_offset=WORDS.nbytes)).agree()
    assert outcome.fault is not None
    assert f"{97 * 4} bytes past the end of source" in outcome.fault


def test_strays_are_recorded_and_dropped() -> None:
    outcome = Case(copy(8), output=8 * 50).agree()
    assert sum(e.address.size for e in outcome.memory.strays) == 70


def test_stores_to_what_is_read_only_are_strays() -> None:
    c = Code()
    c.store(c.at(c.parameter(0), number(c), 4), [c.special("tid.x")])
    outcome = Case(kernel(c.end(0, leave()))).agree()
    assert sum(e.address.size for e in outcome.memory.strays) == 120


def test_loads_of_bytes_nobody_wrote_fault_and_of_written_ones_do_not() -> None:
    def after_store(reach: int) -> Function:
        c = Code()
        place = c.at(c.parameter(1), number(c), 16)
        c.store(place, [c.word(7), c.word(8)], 8)
        c.pc = 16
        word = c.load(c.add(place, c.const(I64, reach)))[0]
        c.pc = 32
        c.store(c.add(place, c.const(I64, 12)), [word])
        return kernel(c.end(0, leave()))

    assert Case(after_store(4)).agree().fault is None
    outcome = Case(after_store(8)).agree()
    assert outcome.fault == "pc 0x0010 loads bytes nobody wrote, at out+0x8"


def test_racing_lanes_leave_what_numpy_lanes_leave() -> None:
    """Lanes of several CTAs store to one place, twice: the report says race, bytes still agree."""
    c = Code()
    base = c.parameter(1)
    slot = c.and_(number(c), c.word(3))
    for pc in (0, 16):
        c.pc = pc
        c.store(c.at(base, slot, 4), [c.add(number(c), c.word(pc))])
    outcomes = []
    function = kernel(c.end(0, leave()))
    for program, more in (
        (Program(function), {}),
        (CompiledProgram(function), {}),
        (CompiledProgram(function), {"jobs": 2, "chunk_lanes": 40}),
    ):
        memory = Memory()
        params = parameters(*filled(memory, source=WORDS, out=64))
        run(program, memory, (9, 1, 1), (40, 1, 1), params, **more)
        outcomes.append(memory.region("out").bytes.copy())
    assert np.array_equal(outcomes[0], outcomes[1])
    assert np.array_equal(outcomes[0], outcomes[2])


def counted_loop(rounds: Callable[[Code], Value], another: bool = False) -> Function:
    """Each lane stores in `rounds` rounds of a loop; how many may differ between lanes.

    With `another` loop behind it, the way out of this one is no region that could be converted.
    """
    first, body, last = Code(), Code(), Code()
    first.write("R0", first.word(0))
    first.write("R1", rounds(first))
    i = body.read("R0")
    slot = body.add(body.mul(number(body), body.word(8)), i)
    body.pc = 16
    body.store(body.at(body.parameter(1), slot, 4), [body.add(slot, body.word(1))])
    after = body.add(i, body.word(1))
    body.write("R0", after)
    again = body.ult(after, body.read("R1"))
    last.pc = 48
    last.store(last.at(last.parameter(1), number(last), 1), [last.read("R0")], 1)
    never = last.ult(last.special("ctaid.x"), last.word(0))
    return kernel(
        first.end(0, Terminator("jump", 0, target=16)),
        body.end(16, Terminator("branch", 32, again, 16, 48), 2),
        last.end(48, Terminator("branch", 48, never, 48, 64) if another else leave(48)),
        Code().end(64, leave(64)),
    )


@pytest.mark.parametrize("another", [False, True])
def test_lanes_that_disagree_on_a_loop(another: bool) -> None:
    rounds = counted_loop(lambda c: c.add(c.and_(number(c), c.word(7)), c.word(1)), another)
    case = Case(rounds)
    outcome = case.agree()
    assert (case.compiled.split_groups > 0) == another
    assert sum(e.address.size for e in outcome.memory.stores) == 120 * 4.5 + 120


def test_the_log_grows_and_the_next_launch_has_room() -> None:
    case = Case(counted_loop(lambda c: c.word(8)))
    case.agree(grid=2)
    assert case.compiled.records == 8
    case.agree(grid=3)


@pytest.mark.parametrize(("limit", "fault"), [(8 * 240 + 240, False), (8 * 240 + 239, True)])
def test_too_many_stores_are_a_fault(
    monkeypatch: pytest.MonkeyPatch, limit: int, fault: bool
) -> None:
    for module in (memory, chunks, runtime):
        monkeypatch.setattr(module, "MAX_LOGGED", limit)
    case = Case(counted_loop(lambda c: c.word(8)))
    outcome = case.agree(grid=6)
    assert (outcome.fault is not None) == fault
    assert not fault or f"over {limit} stores in one launch" in str(outcome.fault)


@pytest.mark.parametrize("jobs", [1, 2, 3])
@pytest.mark.parametrize("chunk_lanes", [40, 100, 16384])
def test_no_split_changes_anything(jobs: int, chunk_lanes: int) -> None:
    case = Case(counted_loop(lambda c: c.add(c.and_(number(c), c.word(3)), c.word(1)), True))
    case.agree(grid=11, jobs=jobs, chunk_lanes=chunk_lanes)


def test_endless_loops_end_at_the_step_limit() -> None:
    c = Code()
    c.write("R0", c.add(c.read("R0"), c.word(1)))
    function = kernel(c.end(0, Terminator("jump", 0, target=0), 3))
    outcome = Case(function).agree(step_limit=1000)
    assert outcome.fault is not None
    assert "step limit of 1000 instructions reached at pc 0x0000" in outcome.fault


def test_an_endless_loop_of_one_lane_ends_as_well() -> None:
    first, loop = Code(), Code()
    one = first.eq(first.special("tid.x"), first.word(5))
    function = kernel(
        first.end(0, Terminator("branch", 0, one, 16, 32)),
        loop.end(16, Terminator("jump", 16, target=16)),
        Code().end(32, leave(32)),
    )
    outcome = Case(function).agree(grid=1, step_limit=500)
    assert outcome.fault is not None
    assert "step limit of 500" in outcome.fault


def test_requirements_are_checked_in_the_lanes_that_come_to_them() -> None:
    def needs(limit: int) -> Function:
        c = Code()
        lane = number(c)
        holds = c.ult(lane, c.word(limit))
        c.emit("require", (), (holds, c.ult(lane, c.word(110))), ("lanes are few",))
        return kernel(c.end(0, leave()))

    assert Case(needs(110)).agree().fault is None
    assert Case(needs(109)).agree().fault == "pc 0x0000: lanes are few"


def test_constants_nobody_knows_fault_only_where_they_are_read() -> None:
    def reads(reached: bool) -> Function:
        first, second = Code(), Code()
        word = second.emit("ldc", (I32,), (second.word(0x3F0),), (0,))[0]
        second.store(second.at(second.parameter(1), number(second), 4), [word])
        way = first.ult(first.special("tid.x"), first.word(1000 * reached))
        return kernel(
            first.end(0, Terminator("branch", 0, way, 16, 32)),
            second.end(16, Terminator("jump", 16, target=32)),
            Code().end(32, leave(32)),
        )

    case = Case(reads(False))
    assert case.agree().fault is None
    assert case.compiled.reason == "a constant that nothing is known of"
    assert "not modelled" in str(Case(reads(True)).agree().fault)


def test_an_unknown_model_of_the_reciprocal_is_left_to_numpy_lanes() -> None:
    case = Case(copy(4))
    memory, bases = case.memory()
    case.compiled.launch(
        (1, 1, 1), (32, 1, 1), parameters(*bases), memory, rcp=lambda a: np.float32(1) / a
    )
    assert case.compiled.reason


def test_without_the_log_memory_is_the_same() -> None:
    case = Case(copy(8))
    (memory, bases), (silent, others) = case.memory(), case.memory()
    case.compiled.launch((3, 1, 1), (40, 1, 1), parameters(*bases), memory)
    case.compiled.launch((3, 1, 1), (40, 1, 1), parameters(*others), silent, log=False)
    assert np.array_equal(memory.region("out").data, silent.region("out").data)
    assert not silent.stores
    assert memory.stores


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda c: c.emit("ballot", (I32,), (c.eq(c.word(1), c.word(1)),) * 2), "ballot"),
        (lambda c: c.emit("load", (I32,), (c.const(I64, 0), c.eq(c.word(1), c.word(1))),
                          ("shared", 4)), "shared memory"),
        (lambda c: c.emit("ldc", (I32,), (c.special("tid.x"),), (3,)), "indexed by the lane"),
    ],
)  # fmt: skip
def test_what_stays_on_numpy_lanes_is_named(change: Callable[[Code], object], name: str) -> None:
    c = Code()
    change(c)
    function = kernel(c.end(0, leave()))
    assert name in str(refusal(function))
    with pytest.raises(NotCompiled, match=name):
        CompiledProgram(function)


# -- branches -------------------------------------------------------------------------------------

_REGISTERS = ("R1", "R2", "R3", "P0")


@st.composite
def forward_code(draw: st.DrawFn) -> Function:
    """Blocks that jump forward only, over registers that lanes and CTAs fill differently."""
    count = draw(st.integers(3, 9))
    blocks = []
    for k in range(count):
        c = Code()
        c.pc = 16 * k
        if k == 0:
            c.write("R1", number(c))
            c.write("R2", c.special("ctaid.x"))
            c.write("P0", c.eq(c.and_(c.special("tid.x"), c.word(1)), c.word(1)))
        r1, r2, r3, p0 = (c.read(name) for name in _REGISTERS)
        for target in draw(st.lists(st.sampled_from(_REGISTERS[:3]), max_size=3)):
            a, b = draw(st.permutations([r1, r2, r3]))[:2]
            kind = draw(st.sampled_from(["add", "xor", "mul"]))
            c.write(target, c.add(c._binary(kind, a, b), c.word(draw(st.integers(0, 99)))))
        if draw(st.booleans()):
            c.write("P0", c.ult(c.and_(r1, c.word(15)), c.word(draw(st.integers(0, 15)))))
        if draw(st.booleans()):
            place = c.at(c.parameter(1), c.add(c.mul(number(c), c.word(count)), c.word(k)), 4)
            c.store(place, [r3], guard=p0 if draw(st.booleans()) else None)
        kinds = ["branch", "jump", "exit"] if k < count - 1 else ["leave"]
        kind = draw(st.sampled_from(kinds))
        onward = st.integers(k + 1, count - 1)
        if kind == "leave":
            for j, value in enumerate((r1, r2, r3)):
                base = c.add(c.parameter(1), c.const(I64, 8192 + 2048 * j))
                c.store(c.at(base, number(c), 4), [value])
            end = leave(16 * k)
        elif kind == "branch":
            way = draw(st.sampled_from([p0, c.not_(p0), c.ult(r2, c.word(2))]))
            end = Terminator("branch", 16 * k, way, 16 * draw(onward), 16 * k + 16)
        elif kind == "jump":
            end = Terminator("jump", 16 * k, target=16 * draw(onward))
        else:
            some = c.eq(c.and_(r1, c.word(7)), c.word(draw(st.integers(0, 7))))
            end = Terminator("exit", 16 * k, some, fallthrough=16 * k + 16)
        blocks.append(c.end(16 * k, end, draw(st.integers(1, 4))))
    return kernel(*blocks)


@pytest.mark.parametrize("fault", ["guards", "registers", "arrivals", "meeting"])
def test_a_fault_planted_in_if_conversion_is_caught(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str
) -> None:
    """Two ways that store and count, and meet again, with lanes on both."""
    first, one, two, last = Code(), Code(), Code(), Code()
    odd = first.eq(first.and_(number(first), first.word(1)), first.word(1))
    first.write("R0", number(first))
    for k, c in ((1, one), (2, two)):
        c.pc = 16 * k
        c.store(c.at(c.parameter(1), number(c), 4), [c.word(k)], guard=c.eq(c.word(k), c.word(k)))
        c.write("R0", c.add(c.read("R0"), c.word(100 * k)))
    last.pc = 48
    last.store(last.at(last.parameter(1), last.add(number(last), last.word(1024)), 4),
               [last.read("R0")])  # fmt: skip
    function = kernel(
        first.end(0, Terminator("branch", 0, odd, 32, 16)),
        one.end(16, Terminator("jump", 16, target=48)),
        two.end(32, Terminator("jump", 32, target=48)),
        last.end(48, leave(48)),
    )
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(tmp_path / "healthy"))
    Case(function).agree()
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(tmp_path / "spoilt"))
    merger = ifconvert._Merger
    spoilt = {
        "guards": ("_masked", lambda self, op, args, mask: args),
        "registers": ("_write", lambda self, name, value, mask: healthy(self, name, value, None)),
        "arrivals": ("_both", lambda self, mask, condition: self._true()),
        "meeting": ("_arrive", lambda self, address, mask: healthy(self, address, None)),
    }
    name, wrong = spoilt[fault]
    healthy = getattr(merger, name)
    monkeypatch.setattr(merger, name, wrong)
    case = Case(function)
    with pytest.raises(AssertionError):
        case.agree()


@settings(max_examples=25, deadline=None)
@given(function=forward_code())
def test_code_with_random_branches(function: Function) -> None:
    assert Case(function).agree().fault is None
