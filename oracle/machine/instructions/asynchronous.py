"""Work that overlaps: mbarriers, TMA, copies past the registers, and who is elected to start it.

Operations of the uniform datapath (UTMALDG, UTCBAR, SYNCS with a uniform result) are done once for
the warp; those of vector registers by every active lane. Fences order what this machine does in
order anyway. An mbarrier is named by its shared address.
"""

from __future__ import annotations

from oracle.machine.builder import I1, I32, I64
from oracle.machine.context import Context, Modifiers
from oracle.machine.instructions.integer import is_predicate
from oracle.machine.instructions.registry import meaning
from oracle.machine.ir import Terminator, Value
from oracle.machine.operands import Address, Operand, Reg

ONCE, EACH = "once", "each"
"""Done by the warp as one, or by every active lane."""


def shared_address(c: Context, operand: Operand) -> Value:
    """A shared memory operand as an i64; of a generic address the low word names the byte."""
    if isinstance(operand, Address) and operand.base is not None and operand.base.suffixes:
        raise c.refuse("a generic address is not understood here")
    return c.address(operand, wide=False)


def _uniform_base(c: Context, operand: Operand) -> Reg:
    if (
        not isinstance(operand, Address)
        or operand.uniform is None
        or operand.uniform.constant
        or operand.base is not None
        or operand.offset
        or operand.space
    ):
        raise c.refuse(f"address {operand} is not understood")
    return operand.uniform


def _word(c: Context, first: Reg, offset: int) -> Value:
    return c.read(f"{first.file}{first.index + offset}")


def _wide(c: Context, value: Value) -> Value:
    return c.zext(value, I64)


@meaning("SYNCS")
def syncs(c: Context, m: Modifiers) -> None:
    """An mbarrier: EXCH initialises, ARRIVE counts arrivals and bytes, PHASECHK asks for a phase"""
    if m.take("PHASECHK"):
        _phase(c, m)
    elif m.take("EXCH"):
        if not m.take("64"):
            raise c.refuse("only the exchange of a whole mbarrier is understood")
        target, address, source = c.instruction.operands
        if not isinstance(target, Reg) or not target.constant or not isinstance(source, Reg):
            raise c.refuse("operands are not understood")
        low = c.i32(source)
        c.emit("mbarrier", (), (shared_address(c, address), low, c.guard), ("init", ONCE))
    elif m.take("ARRIVE"):
        _arrive(c, m)


def _phase(c: Context, m: Modifiers) -> None:
    waits = m.take("TRYWAIT")
    m.take("TRANS64")
    target, address, parity = c.instruction.operands
    bit = c.lshr(c.i32(parity), 31)
    arguments = (shared_address(c, address), bit, c.guard)
    over = c.emit("phase", (I1,), arguments, (int(waits),))[0]
    c.set_predicate(target, over)


_ARRIVALS = {
    # What PTX compiles to which: arrive, arrive with a count, the increment of a cp.async arrival,
    # expect_tx, complete_tx; without any of these, arrive.expect_tx.
    "A1T0": "arrive",
    "ART0": "arrive_many",
    "A0T1": "expect",
    "A0TR": "expect",
    "A0TX": "complete",
}


def _arrive(c: Context, m: Modifiers) -> None:
    """A1T0: one arrival; ART0: as many as c; A0TR, A0TX: c bytes are expected or there"""
    m.take("TRANS64")
    m.take("RED")
    form = m.choose(*_ARRIVALS)
    target, address, source = c.instruction.operands
    if not isinstance(target, Reg) or not target.constant:
        raise c.refuse("the state an arrival returns is not modelled")
    operand = {"A1T0": c.const(I32, 0), "A0T1": c.const(I32, 1)}.get(form)
    if operand is None:
        operand = c.i32(source)
    name = _ARRIVALS.get(form, "arrive")
    c.emit("mbarrier", (), (shared_address(c, address), operand, c.guard), (name, EACH))


@meaning("ARRIVES")
def arrives(c: Context, m: Modifiers) -> None:
    """The copies of this lane are done, which here they are at once

    TRANSCNT takes back the byte that A0T1 made the barrier expect, ARVCNT is an arrival.
    """
    form = m.choose("TRANSCNT", "ARVCNT")
    if not (m.take("LDGSTSBAR") and m.take("64") and form):
        raise c.refuse("this arrival is not modelled")
    address = shared_address(c, c.operand(0))
    name, value = ("complete", 1) if form == "TRANSCNT" else ("arrive", 0)
    c.emit("mbarrier", (), (address, c.const(I32, value), c.guard), (name, EACH))


@meaning("UTCBAR")
def utcbar(c: Context, m: Modifiers) -> None:
    """Arrive when the tensor core is done, which here is at once"""
    first = _uniform_base(c, c.operand(0))
    if not isinstance(c.operand(1), Reg) or not getattr(c.operand(1), "constant", False):
        raise c.refuse("an arrival at several CTAs is not understood")
    arguments = (_wide(c, _word(c, first, 0)), c.const(I32, 0), c.guard)
    c.emit("mbarrier", (), arguments, ("arrive", ONCE))


@meaning("UTMALDG")
def utmaldg(c: Context, m: Modifiers) -> None:
    """A tile of a tensor map to shared memory; {shared, mbarrier, coordinates...} in registers"""
    rank = int(m.choose("2D", "3D", "4D", "5D", default="0D")[0])
    if not rank or len(c.instruction.operands) != 2:
        raise c.refuse("operands are not understood")
    first, pointer = _uniform_base(c, c.operand(0)), _uniform_base(c, c.operand(1))
    coordinates = [_word(c, first, 2 + i) for i in range(rank)]
    where = (_wide(c, _word(c, first, 0)), _wide(c, _word(c, first, 1)))
    tensor_map = c.join(_word(c, pointer, 0), _word(c, pointer, 1))
    c.emit("tile", (), (*where, *coordinates, tensor_map, c.guard), (rank,))


@meaning("UGETNEXTWORKID")
def ugetnextworkid(c: Context, m: Modifiers) -> None:
    """Ask for the next CTA of the grid to take over; the answer, 16 bytes, is that there is none"""
    m.ignore("BROADCAST")
    answer, barrier = (_uniform_base(c, c.operand(i)) for i in (0, 1))
    arguments = (_wide(c, _word(c, answer, 0)), _wide(c, _word(c, barrier, 0)), c.guard)
    c.emit("workid", (), arguments)


@meaning("LDGSTS")
def ldgsts(c: Context, m: Modifiers) -> None:
    """shared memory = global memory"""
    m.ignore("LTC64B", "LTC128B", "LTC256B", "BYPASS", "ACCESS")
    m.take("E")
    size = int(m.choose("64", "128", default="32")) // 8
    target, source = c.instruction.operands
    shared = shared_address(c, target)
    c.emit("copy", (), (shared, c.address(source, wide=True), c.guard), (size,))


@meaning("STAS")
def stas(c: Context, m: Modifiers) -> None:
    """shared memory = a, its bytes counted on an mbarrier; {shared, mbarrier} in a register pair"""
    size = int(m.choose("64", "128", default="32")) // 8
    where, source = c.instruction.operands
    if not isinstance(where, Address) or where.base is None or where.uniform or where.offset:
        raise c.refuse("operands are not understood")
    words = c.words(source, size // 4)
    shared = _wide(c, _word(c, where.base, 0))
    c.emit("store", (), (shared, c.guard, *words), ("shared", size))
    barrier = _wide(c, _word(c, where.base, 1))
    c.emit("mbarrier", (), (barrier, c.const(I32, size), c.guard), ("complete", EACH))


@meaning("UCGABAR_ARV")
def cluster_arrive(c: Context, m: Modifiers) -> None:
    """Arrive at the cluster's barrier; whoever does so waits there later, which is what counts"""


@meaning("UCGABAR_WAIT")
def cluster_wait(c: Context, m: Modifiers) -> None:
    """Wait for the CTAs of the cluster, which is this one alone"""
    c.terminator = Terminator("barrier", c.pc, fallthrough=c.pc + 16)


@meaning("ELECT")
def elect(c: Context, m: Modifiers) -> None:
    """p = this lane is the chosen one of the active lanes"""
    target, index, among = c.instruction.operands
    if not getattr(index, "constant", False) or not is_predicate(among):
        raise c.refuse("operands are not understood")
    guard = c.and_(c.guard, c.predicate(among))
    c.set_predicate(target, c.emit("elect", (I1,), (guard,))[0])


@meaning("ATOMS", "ATOMG")
def atomic(c: Context, m: Modifiers) -> None:
    """d = memory; memory = operation(memory, a)"""
    m.ignore("E", "STRONG", "GPU", "SYS", "CTA")
    operation = m.choose("ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR", "EXCH")
    signed = m.choose("S32", "U32") == "S32"
    operands = [o for o in c.instruction.operands if not is_predicate(o)]
    if not operation or (signed and operation != "ADD") or len(operands) != 3:
        raise c.refuse("this atomic operation is not understood")
    space = "global" if c.instruction.opcode.startswith("ATOMG") else "shared"
    target, address, source = operands
    at = c.address(address, wide=space == "global")
    before = c.emit("atomic", (I32,), (at, c.i32(source), c.guard), (space, operation))[0]
    c.set_i32(target, before)


@meaning("USETMAXREG")
def usetmaxreg(c: Context, m: Modifiers) -> None:
    """Give up registers, or get more: there are always enough"""
    m.ignore("DEALLOC", "CTAPOOL")
    if m.take("TRY_ALLOC"):
        c.set_predicate(c.operand(0), c.const(I1, 1))


@meaning("UTCATOMSWS")
def utcatomsws(c: Context, m: Modifiers) -> None:
    """Tensor memory: FIND_AND_SET allocates, always from column 0; AND gives back"""
    m.ignore("ALIGN", "AND")
    if m.take("FIND_AND_SET"):
        found, column, _ = c.instruction.operands
        c.set_predicate(found, c.const(I1, 1))
        c.set_i32(column, c.const(I32, 0))


@meaning("FENCE", "UTMACCTL", "ACQBULK", "PREEXIT", "UVIRTCOUNT")
def ordered(c: Context, m: Modifiers) -> None:
    """Order, prefetch and hand-over between launches; the machine executes everything in order"""
    for name in m.left:
        m.take(name)
