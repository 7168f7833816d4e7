"""Integer arithmetic: IADD3, IMAD, IABS, minima and maxima, LEA, and 64-bit sums in halves."""

from exact import signed
from handmade import case, check_cases, with_uniform_twins
from snippets import Family, snippet

M64 = (1 << 64) - 1


def two(x: int) -> tuple[int, int]:
    """The words of a 64-bit number, low first."""
    return x & 0xFFFFFFFF, (x & M64) >> 32


def s64(lo: int, hi: int) -> int:
    return signed(hi << 32 | lo, 64)


FAMILY = Family(
    snippet("add3", "o0 = a + b + c;", lambda a, b, c: a + b + c, "IADD3", 3),
    snippet("add", "o0 = a + b;", lambda a, b: a + b, "IADD3 IADD"),
    snippet("subtract", "o0 = a - b;", lambda a, b: a - b, "IADD3 IADD"),
    snippet("negate_sum", "o0 = -a - b;", lambda a, b: -a - b, "IADD3"),
    snippet("add_constant", "o0 = a + 12345;", lambda a: a + 12345, "IADD3 IADD", 1),
    snippet(
        "add64",
        "u64 r = pair(a, b) + pair(c, d); o0 = r; o1 = r >> 32;",
        lambda a, b, c, d: two((b << 32 | a) + (d << 32 | c)),
        "IADD3 IADD3.X IADD.64",
        4,
    ),
    snippet(
        "subtract64",
        "u64 r = pair(a, b) - pair(c, d); o0 = r; o1 = r >> 32;",
        lambda a, b, c, d: two((b << 32 | a) - (d << 32 | c)),
        "IADD3 IADD3.X IADD.64",
        4,
    ),
    snippet(
        "add64_constants",
        "u64 r = pair(a, b) + 0xfffffff0ull; o0 = r; o1 = r >> 32;"
        " r = pair(c, d) - 16; o2 = r; o3 = r >> 32;",
        lambda a, b, c, d: (*two((b << 32 | a) + 0xFFFFFFF0), *two((d << 32 | c) - 16)),
        "IADD3 IADD3.X IADD.64",
        4,
    ),
    snippet(
        "negate64",
        "u64 r = 0 - pair(a, b); o0 = r; o1 = r >> 32;",
        lambda a, b: two(-(b << 32 | a)),
        "IADD3 IADD3.X IADD IADD.64",
    ),
    snippet(
        "carry_chain",
        'asm("add.cc.u32 %0, %3, %4; addc.cc.u32 %1, %5, %6; addc.u32 %2, 0, 0;"'
        ': "=r"(o0), "=r"(o1), "=r"(o2) : "r"(a), "r"(b), "r"(c), "r"(d));',
        lambda a, b, c, d: (
            *two((c << 32 | a) + (d << 32 | b)),
            (c << 32 | a) + (d << 32 | b) >> 64,
        ),
        "IADD3 IADD3.X IADD IADD.X",
        4,
    ),
    snippet(
        "borrow_chain",
        'asm("sub.cc.u32 %0, %3, %4; subc.cc.u32 %1, %5, %6; subc.u32 %2, 0, 0;"'
        ': "=r"(o0), "=r"(o1), "=r"(o2) : "r"(a), "r"(b), "r"(c), "r"(d));',
        lambda a, b, c, d: (*two((c << 32 | a) - (d << 32 | b)), -((c << 32 | a) < (d << 32 | b))),
        "IADD3 IADD3.X IADD IADD.X",
        4,
    ),
    snippet(
        "add3_64",
        "u64 r = pair(a, b) + c + d; o0 = r; o1 = r >> 32;",
        lambda a, b, c, d: two((b << 32 | a) + c + d),
        "IADD3 IADD3.X IADD.64",
        4,
    ),
    snippet("multiply", "o0 = a * b;", lambda a, b: a * b, "IMAD"),
    snippet("multiply_add", "o0 = a * b + c;", lambda a, b, c: a * b + c, "IMAD", 3),
    snippet("multiply_constant", "o0 = a * 0x12345u + b;", lambda a, b: a * 0x12345 + b, "IMAD"),
    snippet("multiply_subtract", "o0 = c - a * b;", lambda a, b, c: c - a * b, "IMAD", 3),
    snippet("high_unsigned", "o0 = __umulhi(a, b);", lambda a, b: a * b >> 32, "IMAD.HI.U32"),
    snippet(
        "high_signed",
        "o0 = __mulhi((int)a, (int)b);",
        lambda a, b: signed(a) * signed(b) >> 32,
        "IMAD.HI",
    ),
    snippet(
        "wide_unsigned",
        "u64 r = (u64)a * b + pair(c, d); o0 = r; o1 = r >> 32;",
        lambda a, b, c, d: two(a * b + (d << 32 | c)),
        "IMAD.WIDE.U32",
        4,
    ),
    snippet(
        "wide_signed",
        "s64 r = (s64)(int)a * (int)b + (s64)pair(c, d); o0 = r; o1 = r >> 32;",
        lambda a, b, c, d: two(signed(a) * signed(b) + s64(c, d)),
        "IMAD.WIDE",
        4,
    ),
    snippet(
        "multiply64",
        "u64 r = pair(a, b) * pair(c, d); o0 = r; o1 = r >> 32;",
        lambda a, b, c, d: two((b << 32 | a) * (d << 32 | c)),
        "IMAD.WIDE.U32 IMAD",
        4,
    ),
    snippet(
        "multiply64_high",
        "u64 r = __umul64hi(pair(a, b), pair(c, d)); o0 = r; o1 = r >> 32;",
        lambda a, b, c, d: two((b << 32 | a) * (d << 32 | c) >> 64),
        "IMAD.WIDE.U32 IMAD.WIDE.U32.X",
        4,
    ),
    snippet("absolute", "o0 = abs((int)a);", lambda a: abs(signed(a)), "IABS", 1),
    snippet("shift_add", "o0 = (a << 5) + b;", lambda a, b: (a << 5) + b, "LEA"),
    snippet(
        "shift_add_high",
        "u64 r = (pair(a, b) << 4) + pair(c, d); o0 = r; o1 = r >> 32;",
        lambda a, b, c, d: two((b << 36 | a << 4) + (d << 32 | c)),
        "LEA LEA.HI.X IADD3.X IADD.64",
        4,
    ),
    snippet(
        "shift_add_signed",
        "s64 r = ((s64)(int)a << 3) + pair(c, d); o0 = r; o1 = r >> 32;",
        lambda a, b, c, d: two((signed(a) << 3) + (d << 32 | c)),
        "IMAD.WIDE",
        4,
    ),
    snippet(
        "divide_power_of_two",
        "o0 = (int)a / 16; o1 = (int)a % 16;",
        lambda a: (
            abs(signed(a)) // 16 * (-1 if signed(a) < 0 else 1),
            abs(signed(a)) % 16 * (-1 if signed(a) < 0 else 1),
        ),
        "LEA.HI",
        1,
    ),
)


test_forms, test_edges, test_drawn = FAMILY.tests()


def carries(*terms: int) -> tuple[int, int, int]:
    """The low word of a sum, and whether it carries at all and twice."""
    total = sum(terms)
    return total, total >> 32 >= 1, total >> 32 >= 2


def inv(x: int) -> int:
    return x ^ 0xFFFFFFFF


CASES = with_uniform_twins(
    case("IADD3 R0,P2,P3,R2,R3,R4", carries, 3, outs="R0 P2 P3"),
    case(
        "IADD3 R0,P2,P3,R2,-R3,-R4",
        lambda a, b, c: carries(a, inv(b), 1, inv(c), 1),
        3,
        outs="R0 P2 P3",
    ),
    case("IADD3 R0,P2,PT,RZ,-R2,RZ", lambda a: (-a, a == 0), 1, outs="R0 P2"),
    case("IADD3.X R0,P2,P3,R2,R3,R4,P0,P1", carries, 3, predicates=2, outs="R0 P2 P3"),
    case(
        "IADD3.X R0,P2,PT,R2,~R3,RZ,P0,!PT",
        lambda a, b, p: carries(a, inv(b), p)[:2],
        predicates=1,
        outs="R0 P2",
    ),
    case(
        "IADD3.X R0,PT,PT,R2,~R3,RZ,!P0,P1", lambda a, b, p, q: a + inv(b) + 1 - p + q, predicates=2
    ),
    case("UIADD3 UR0,UP2,UPT,-UR2,0x5,URZ", lambda a: carries(inv(a), 1, 5)[:2], 1, outs="UR0 UP2"),
    case(
        "UIADD3.X UR0,UPT,UPT,UR2,~UR3,URZ,UP0,!UPT",
        lambda a, b, p: a + inv(b) + p,
        predicates=1,
        outs="UR0",
    ),
    case(
        "UIADD3.64 UR0,UPT,UPT,UR2,-UR4,URZ",
        lambda a, b, c, d: two((b << 32 | a) - (d << 32 | c)),
        4,
        outs="UR0 UR1",
    ),
    case("IADD R0,P2,R2,-R3", lambda a, b: carries(a, inv(b), 1)[:2], outs="R0 P2"),
    case(
        "IADD.X R0,P2,R2,~R3,P0",
        lambda a, b, p: carries(a, inv(b), p)[:2],
        predicates=1,
        outs="R0 P2",
    ),
    case("UIADD UR0,UR2,-0x1", lambda a: a - 1, 1, outs="UR0"),
    case(
        "IADD.64 R0,R2,-R4", lambda a, b, c, d: two((b << 32 | a) - (d << 32 | c)), 4, outs="R0 R1"
    ),
    case("IADD.64 R0,R2,-0x8", lambda a, b: two((b << 32 | a) - 8), outs="R0 R1"),
    case("VIADD R0,R2,0xfffffffe", lambda a: a - 2, 1),
    case("UVIADD UR0,UR2,UR3", lambda a, b: a + b, outs="UR0"),
    case("IMAD.MOV R0,RZ,RZ,-R2", lambda a: -a, 1),
    case("IMAD.MOV.U32 R0,RZ,RZ,R2", lambda a: a, 1),
    case("IMAD.IADD R0,R2,0x1,-R3", lambda a, b: a - b),
    case("IMAD.SHL.U32 R0,R2,0x80000,RZ", lambda a: a << 19, 1),
    case("IMAD.U32 R0,R2,0x10000,R3", lambda a, b: (a << 16) + b),
    case("IMAD.X R0,R2,R3,~R4,P0", lambda a, b, c, p: a * b + inv(c) + p, 3, predicates=1),
    case(
        "IMAD.WIDE.U32 R0,P2,R2,R3,R4",
        lambda a, b, c, d: (*two(a * b + (d << 32 | c)), a * b + (d << 32 | c) >> 64),
        4,
        outs="R0 R1 P2",
    ),
    case(
        "IMAD.WIDE.U32.X R0,P2,R2,R3,R4,P0",
        lambda a, b, c, d, p: (*two(a * b + (d << 32 | c) + p), a * b + (d << 32 | c) + p >> 64),
        4,
        predicates=1,
        outs="R0 R1 P2",
    ),
    case("IMAD.HI.U32 R0,R2,R3,R4", lambda a, b, c, d: a * b + (d << 32 | c) >> 32, 4),
    case("UIMAD UR0,UR2,UR3,-UR4", lambda a, b, c: a * b - c, 3, outs="UR0"),
    case(
        "UIMAD.HI.U32 UR0,UR2,UR3,UR4",
        lambda a, b, c, d: a * b + (d << 32 | c) >> 32,
        4,
        outs="UR0",
    ),
    case(
        "UIMAD.WIDE.U32 UR0,UR2,UR3,UR4",
        lambda a, b, c, d: two(a * b + (d << 32 | c)),
        4,
        outs="UR0 UR1",
    ),
    case(
        "UIMAD.WIDE.U32 UR0,UP2,UR2,UR3,UR4",
        lambda a, b, c, d: (*two(a * b + (d << 32 | c)), a * b + (d << 32 | c) >> 64),
        4,
        outs="UR0 UR1 UP2",
    ),
    case("IABS R0,R2", lambda a: abs(signed(a)), 1),
    case(
        "UIMAD.WIDE UR0,UR2,UR3,UR4",
        lambda a, b, c, d: two(signed(a) * signed(b) + s64(c, d)),
        4,
        outs="UR0 UR1",
    ),
    case("LEA R0,P2,R2,R3,0x4", lambda a, b: carries(a << 4 & 0xFFFFFFFF, b)[:2], outs="R0 P2"),
    case(
        "LEA R0,P2,R2,-R3,0x1f",
        lambda a, b: carries(a << 31 & 0xFFFFFFFF, inv(b), 1)[:2],
        outs="R0 P2",
    ),
    case("LEA.HI R0,R2,R3,R4,0x7", lambda a, b, c: ((c << 32 | a) << 7 >> 32) + b, 3),
    case("LEA.HI R0,R2,R3,RZ,0x1", lambda a, b: (a << 1 >> 32) + b),
    case(
        "LEA.HI.X R0,R2,R3,R4,0x3,P0",
        lambda a, b, c, p: ((c << 32 | a) << 3 >> 32) + b + p,
        3,
        predicates=1,
    ),
    case(
        "LEA.HI.X.SX32 R0,R2,R3,0x1,P0",
        lambda a, b, p: (signed(a) << 1 >> 32) + b + p,
        predicates=1,
    ),
    case("LEA.HI.SX32 R0,R2,R3,0x1d", lambda a, b: (signed(a) << 29 >> 32) + b),
    case("ULEA UR0,UR2,UR3,0x18", lambda a, b: (a << 24) + b, outs="UR0"),
    case(
        "ULEA.HI.X UR0,UR2,UR3,UR4,0x1,UP0",
        lambda a, b, c, p: ((c << 32 | a) << 1 >> 32) + b + p,
        3,
        predicates=1,
        outs="UR0",
    ),
    case("ULEA.HI UR0,UR2,UR3,URZ,0x1c", lambda a, b: (a << 28 >> 32) + b, outs="UR0"),
)

test_handmade, test_handmade_drawn = check_cases(CASES)
