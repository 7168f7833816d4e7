"""Minima and maxima of integers: IMNMX, VIMNMX, VIMNMX3, VIADDMNMX, in words, pairs and halves."""

from exact import signed
from handmade import case, check_cases, with_uniform_twins
from snippets import Family, snippet
from test_integer import s64, two

FAMILY = Family(
    snippet(
        "minimum_signed",
        "o0 = min((int)a, (int)b);",
        lambda a, b: min(signed(a), signed(b)),
        "IMNMX VIMNMX VIMNMX.S32",
    ),
    snippet(
        "maximum_signed",
        "o0 = max((int)a, (int)b);",
        lambda a, b: max(signed(a), signed(b)),
        "IMNMX VIMNMX VIMNMX.S32",
    ),
    snippet("minimum_unsigned", "o0 = min(a, b);", min, "IMNMX.U32 VIMNMX.U32"),
    snippet("maximum_unsigned", "o0 = max(a, b);", max, "IMNMX.U32 VIMNMX.U32"),
    snippet(
        "minimum_64",
        "s64 r = min((s64)pair(a, b), (s64)pair(c, d)); o0 = r; o1 = r >> 32;",
        lambda a, b, c, d: two(min(s64(a, b), s64(c, d))),
        "ISETP.LT.U32.AND IMNMX.S64",
        4,
    ),
    snippet(
        "maximum_64",
        "u64 r = max(pair(a, b), pair(c, d)); o0 = r; o1 = r >> 32;",
        lambda a, b, c, d: two(max(b << 32 | a, d << 32 | c)),
        "ISETP.GT.U32.AND IMNMX.U64",
        4,
    ),
    snippet(
        "minimum_of_3",
        "o0 = min(min((int)a, (int)b), (int)c);",
        lambda a, b, c: min(map(signed, (a, b, c))),
        "IMNMX VIMNMX3 VIMNMX.S32",
        3,
    ),
    snippet("maximum_of_3", "o0 = max(max(a, b), c);", max, "IMNMX.U32 VIMNMX3.U32 VIMNMX.U32", 3),
    snippet(
        "sum_minimum",
        "o0 = min((int)(a + b), (int)c);",
        lambda a, b, c: min(signed(a + b & 0xFFFFFFFF), signed(c)),
        "IADD3 VIADDMNMX IADD",
        3,
    ),
    snippet(
        "sum_maximum",
        "o0 = max(a + b, c);",
        lambda a, b, c: max(a + b & 0xFFFFFFFF, c),
        "IADD3 VIADDMNMX.U32 IADD",
        3,
    ),
)

test_forms, test_edges, test_drawn = FAMILY.tests()

CASES = with_uniform_twins(
    case(
        "VIADDMNMX R0,R2,R3,R4,P0",
        lambda a, b, c, p: (min if p else max)(signed(a + b & 0xFFFFFFFF), signed(c)),
        3,
        predicates=1,
    ),
    case(
        "VIADDMNMX.RELU R0,R2,R3,R4,PT",
        lambda a, b, c: max(0, min(signed(a + b & 0xFFFFFFFF), signed(c))),
        3,
    ),
    case("VIMNMX.S32 R0,R2,R3,PT", lambda a, b: min(signed(a), signed(b))),
    case("VIMNMX.RELU R0,R2,R3,!PT", lambda a, b: max(0, signed(a), signed(b))),
    case("IMNMX.U32 R0,R2,R3,P0", lambda a, b, p: min(a, b) if p else max(a, b), predicates=1),
    case("VIMNMX.U32 R0,PT,PT,R2,R3,!PT", max),
    case(
        "VIMNMX3 R0,R2,R3,R4,P0",
        lambda a, b, c, p: (min if p else max)(map(signed, (a, b, c))),
        3,
        predicates=1,
    ),
    case(
        "IMNMX.U64 PT,PT,R0,R2,R4,!PT,!PT",
        lambda a, b, c, d: two(max(b << 32 | a, d << 32 | c)),
        4,
        outs="R0 R1",
    ),
    case("IMNMX.S64 PT,PT,R0,R2,0x3,PT,!PT", lambda a, b: two(min(s64(a, b), 3)), outs="R0 R1"),
    case(
        "VIMNMX.U16x2 R0,PT,PT,R2,R3,!PT",
        lambda a, b: max(a & 0xFFFF, b & 0xFFFF) | max(a >> 16, b >> 16) << 16,
    ),
    case(
        "VIMNMX.S16x2 R0,R2,0x10001,PT",
        lambda a: min(signed(a & 0xFFFF, 16), 1) & 0xFFFF | min(signed(a >> 16, 16), 1) << 16,
        1,
    ),
)

test_handmade, test_handmade_drawn = check_cases(CASES)
