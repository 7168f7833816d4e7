"""Moves and choices: MOV, SEL, FSEL, PRMT, predicates as words, special registers."""

from exact import signed
from handmade import Case, case, check_cases, with_uniform_twins
from snippets import UNIFORM, Family, snippet


def permuted(a: int, selector: int, b: int) -> int:
    """PRMT by its definition: bytes 0..3 are a's, 4..7 b's; bit 3 of a nibble spreads the sign."""
    source = a.to_bytes(4, "little") + b.to_bytes(4, "little")
    chosen = bytearray()
    for place in range(4):
        nibble = selector >> 4 * place & 15
        byte = source[nibble & 7]
        chosen.append((0xFF if byte & 0x80 else 0) if nibble & 8 else byte)
    return int.from_bytes(chosen, "little")


FAMILY = Family(
    snippet("choose", "o0 = (int)a > 0 ? b : c;", lambda a, b, c: b if signed(a) > 0 else c, "SEL",
            3),
    snippet("choose_float",
            'asm("{.reg .pred p; setp.gt.u32 p, %1, 7; selp.f32 %0, %2, %3, p;}" : "=r"(o0) :'
            ' "r"(a), "f"(-f(b)), "f"(fabsf(f(c))));',
            lambda a, b, c: b ^ 0x80000000 if a > 7 else c & 0x7FFFFFFF, "FSEL", 3),
    snippet("permute", "o0 = __byte_perm(a, b, c);",
            lambda a, b, c: permuted(a, c & 0x7777, b), "PRMT LOP3.LUT", 3),
    snippet("permute_signs", 'asm("prmt.b32 %0, %1, %2, %3;" : "=r"(o0) : "r"(a), "r"(b), "r"(c));',
            lambda a, b, c: permuted(a, c, b), "PRMT", 3),
    snippet("permute_known", "o0 = __byte_perm(a, b, 0x6325);",
            lambda a, b: permuted(a, 0x6325, b), "PRMT"),
    snippet("constant", "o0 = a ^ 0x3f803f80; o1 = 0x3f800000;",
            lambda a: (a ^ 0x3F803F80, 0x3F800000), "LOP3.LUT", 1),
    snippet("uniform_choice", "u32 r = k2 > k3 ? k0 * 3 : k1; o0 = a + r;",
            lambda a: a + UNIFORM[0] * 3, "ULDC LDCU UISETP.GT.AND", 1,
            archs=("sm_90", "sm_100a", "sm_120a")),
    snippet("flags",
            "bool p = a > b, q = b > c, r = c > d; for (int k = 0; k < 3; ++k) { if (p) o0 += b;"
            "bool s = p; p = q; q = r; r = s; } o1 = p | q << 1 | r << 2;",
            lambda a, b, c, d: (a + b * ((a > b) + (b > c) + (c > d)),
                                (a > b) | (b > c) << 1 | (c > d) << 2), "SEL", 4),
)  # fmt: skip

test_forms, test_edges, test_drawn = FAMILY.tests()

SELECTORS = (0x3210, 0x7632, 0x5410, 0x7610, 0x6420, 0x7531, 0x0123, 0x4440, 0x7770, 0x8888)
SELECTORS += (0x9991, 0xBA98, 0xFEDC, 0xB3A2, 0xF7E6, 0x7732, 0x3340, 0x2107)


def _move(text: str, index: int, **more: object) -> Case:
    return case(text, lambda *words: words[index], index + 1, **more)  # type: ignore[arg-type]


CASES = with_uniform_twins(
    _move("MOV R0,R2", 0),
    case("MOV32I R0,0x12345678", lambda a: 0x12345678, 1),
    case("MOV R0,0xcafef00d", lambda a: 0xCAFEF00D, 1),
    case("MOV.64 R0,R2", lambda a, b: (a, b), outs="R0 R1"),
    _move("UMOV UR0,UR2", 0, outs="UR0"),
    case("UMOV.64 UR0,UR2", lambda a, b: (a, b), outs="UR0 UR1"),
    _move("R2UR UR0,R2", 0, outs="UR0"),
    _move("R2UR.FILL UR0,R2", 0, outs="UR0"),
    case("@P0 MOV R2,R3", lambda a, b, p: b if p else a, predicates=1, outs="R2"),
    case("@!P0 MOV R2,R3", lambda a, b, p: a if p else b, predicates=1, outs="R2"),
    case("@!PT MOV R2,R3", lambda a, b: a, outs="R2"),
    case("SEL R0,R2,R3,!P0", lambda a, b, p: b if p else a, predicates=1),
    case("SEL R0,RZ,0x1,P0", lambda a, p: 1 - p, 1, predicates=1),
    case("USEL UR0,UR2,UR3,UP0", lambda a, b, p: a if p else b, predicates=1, outs="UR0"),
    case("USEL.64 UR0,UR2,UR4,!UP0", lambda a, b, c, d, p: (c, d) if p else (a, b), 4,
         predicates=1, outs="UR0 UR1"),
    case("SEL.64 R0,R2,R4,P0", lambda a, b, c, d, p: (a, b) if p else (c, d), 4,
         predicates=1, outs="R0 R1"),
    case("FSEL R0,-R2,|R3|,P0", lambda a, b, p: a ^ 0x80000000 if p else b & 0x7FFFFFFF,
         predicates=1, kind="float"),
    case("FSEL R0,R2,+INF ,!P0", lambda a, p: 0x7F800000 if p else a, 1, predicates=1,
         kind="float"),
    *(case(f"PRMT R0,R2,{selector:#x},R3",
           lambda a, b, selector=selector: permuted(a, selector, b)) for selector in SELECTORS),
    case("PRMT R0,R2,R3,R4", permuted, 3),
    case("UPRMT UR0,UR2,0x7604,UR3", lambda a, b: permuted(a, 0x7604, b), outs="UR0"),
    case("P2R R0,PR,RZ,0x7f", lambda a, p, q: p | q << 1, 1, predicates=2),
    case("P2R R0,PR,R2,0x2", lambda a, p, q: a & ~2 | q << 1, 1, predicates=2),
    case("R2P PR,R2,0xd", lambda a, p, q: (a & 1, a >> 2 & 1, a >> 3 & 1), 1, predicates=2,
         outs="P0 P2 P3"),
    case("UP2UR UR0,UPR,UR2,0x3", lambda a, p, q: a & ~3 | p | q << 1, 1, predicates=2,
         outs="UR0"),
    case("R2P PR,R2.B2,0x5", lambda a, p, q: (a >> 16 & 1, a >> 18 & 1), 1, predicates=2,
         outs="P0 P2"),
    case("CS2R R0,SRZ", lambda a: (0, 0), 1, outs="R0 R1"),
    case("CS2R.32 R0,SRZ", lambda a: 0, 1),
    case("S2R R0,SRZ", lambda a: 0, 1),
)  # fmt: skip

test_handmade, test_handmade_drawn = check_cases(CASES)
