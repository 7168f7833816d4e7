"""What leads up to the tensor core: fragments of 4-bit elements, and their product with scales.

`LDSM.U4x16P64TO8` is `ldmatrix` with `.b8x16.b4x16_p64` (PTX ISA): a row is 16 bytes of shared
memory of which the first 8 hold 16 4-bit elements; each comes out in the low half of a byte.
`QMUL4` multiplies four E2M1 codes by four E4M3 scales. Its product is not computed: the launch is
told which bits met, which is what an observer of layouts wants to know.
"""

from __future__ import annotations

from oracle.machine.builder import I32
from oracle.machine.context import Context, Modifiers
from oracle.machine.instructions.asynchronous import shared_address
from oracle.machine.instructions.registry import meaning
from oracle.machine.operands import Reg

_NIBBLES = {"N3210": (0, 1, 2, 3), "N7654": (4, 5, 6, 7), "N6420": (0, 2, 4, 6)}
_BYTES = {
    "B3210": (0, 1, 2, 3),
    "B0": (0, 0, 0, 0),
    "B1": (1, 1, 1, 1),
    "B2": (2, 2, 2, 2),
    "B3": (3, 3, 3, 3),
}


@meaning("LDSM")
def ldsm(c: Context, m: Modifiers) -> None:
    """d = this lane's part of a matrix in shared memory whose rows the lanes point to"""
    if not m.take("U4x16P64TO8"):
        raise c.refuse("only fragments of 4-bit elements are understood")
    shape = m.choose("M816", "MT1616")
    count = int(m.choose("2", "4", default="1"))
    # A 16x16 matrix of bytes takes two registers, an 8x16 one takes one.
    words = 2 * count if shape == "MT1616" else count
    if not shape or words > 4:
        raise c.refuse("the shape is not understood")
    address = shared_address(c, c.operand(1))
    results = c.emit("matrix", (I32,) * words, (address, c.guard), (shape, words))
    for word, value in enumerate(results):
        c.set_i32(c.operand(0), value, word)


@meaning("QMUL4")
def qmul4(c: Context, m: Modifiers) -> None:
    """d = four E2M1 codes of a, times four E4M3 scales of b, each product to E4M3"""
    if not all(m.take(name) for name in ("E4M3x4", "E2M1x4", "E4M3x4")):
        raise c.refuse("these formats are not understood")
    # What becomes of a product that is too large is no question of which bytes met.
    m.take("SATFINITE")
    target, codes, scales = c.instruction.operands
    selected = []
    for operand, known in ((codes, _NIBBLES), (scales, _BYTES)):
        if not isinstance(operand, Reg) or len(operand.suffixes) != 1:
            raise c.refuse("operands are not understood")
        if operand.suffixes[0] not in known:
            raise c.refuse(f"operand suffix .{operand.suffixes[0]} is not understood")
        selected.append("".join(map(str, known[operand.suffixes[0]])))
    arguments = (c.i32_part(codes), c.i32_part(scales), c.guard)
    c.set_i32(target, c.emit("multiply", (I32,), arguments, tuple(selected))[0])


@meaning("UNMODELLED")
def unmodelled(c: Context, m: Modifiers) -> None:
    """What a caller declared not to matter: modifier by modifier, that many registers become zero

    The first number is of the registers from the first operand on, and so forth.
    """
    for position, name in enumerate(m.left):
        m.take(name)
        for word in range(int(name)):
            c.set_i32(c.operand(position), c.const(I32, 0), word)


@meaning("UNMODELLEDROWS")
def unmodelled_rows(c: Context, m: Modifiers) -> None:
    """A matrix store a caller declared not to matter: the rows that lanes point to become zero

    The modifier is the number of 8-row matrices, one row of 16 bytes a lane.
    """
    rows = 8 * int(m.choose("1", "2", "4"))
    lane = c.emit("special", (I32,), (), ("laneid",))[0]
    guard = c.and_(c.guard, c.ult(lane, c.const(I32, rows)))
    zero = c.const(I32, 0)
    address = shared_address(c, c.operand(0))
    c.emit("store", (), (address, guard, zero, zero, zero, zero), ("shared", 16))
