"""Logic, shifts, and counting, reversing and extending bits."""

from itertools import product

from exact import signed
from handmade import Case, case, check_cases, with_uniform_twins
from snippets import Family, snippet

ONES = 0xFFFFFFFF


def table(index: int, a: int, b: int, c: int) -> int:
    """LOP3's definition: each bit of the result is looked up with the bits of a, b and c."""
    result = 0
    for bit in range(32):
        row = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | c >> bit & 1
        result |= (index >> row & 1) << bit
    return result


def funnel(hi: int, lo: int, amount: int) -> int:
    """The high word of {hi:lo} << amount."""
    return (hi << 32 | lo) << amount >> 32 & ONES


def sign_extended(x: int, bits: int) -> int:
    return signed(x & (1 << bits) - 1, bits) if bits else 0


FAMILY = Family(
    *(snippet(f"lop3_{index:02x}",
              f'asm("lop3.b32 %0, %1, %2, %3, {index};" : "=r"(o0) : "r"(a), "r"(b), "r"(c));',
              lambda a, b, c, index=index: table(index, a, b, c), "LOP3.LUT", 3,
              archs=("sm_80", "sm_120a"))
      for index in (0x01, 0x1E, 0x2B, 0x6A, 0x80, 0x96, 0xB1, 0xCA, 0xD8, 0xE8, 0xF4, 0xFE)),
    snippet("not_zero", "o0 = (a & b) != 0 ? 3 : 4;", lambda a, b: 3 if a & b else 4, "LOP3.LUT"),
    snippet("invert", "o0 = ~a;", lambda a: ~a, "LOP3.LUT", 1),
    snippet("shift_left", 'asm("shl.b32 %0, %1, %2;" : "=r"(o0) : "r"(a), "r"(b));',
            lambda a, b: a << b if b < 32 else 0, "SHF.L.U32"),
    snippet("shift_right", 'asm("shr.u32 %0, %1, %2;" : "=r"(o0) : "r"(a), "r"(b));',
            lambda a, b: a >> b if b < 32 else 0, "SHF.R.U32.HI"),
    snippet("shift_right_signed", 'asm("shr.s32 %0, %1, %2;" : "=r"(o0) : "r"(a), "r"(b));',
            lambda a, b: signed(a) >> min(b, 32), "SHF.R.S32.HI"),
    snippet("funnel_left", "o0 = __funnelshift_l(a, b, c);",
            lambda a, b, c: funnel(b, a, c % 32), "SHF.L.W.U32.HI", 3),
    snippet("funnel_right", "o0 = __funnelshift_r(a, b, c);",
            lambda a, b, c: (b << 32 | a) >> c % 32, "SHF.R.W.U32", 3),
    snippet("funnel_left_clamped", "o0 = __funnelshift_lc(a, b, c);",
            lambda a, b, c: funnel(b, a, min(c, 32)), "SHF.L.U32.HI", 3),
    snippet("funnel_right_clamped", "o0 = __funnelshift_rc(a, b, c);",
            lambda a, b, c: (b << 32 | a) >> min(c, 32), "SHF.R.U32", 3),
    snippet("shift_left_64",
            'u64 r; asm("shl.b64 %0, %1, %2;" : "=l"(r) : "l"(pair(a, b)), "r"(c));'
            "o0 = r; o1 = r >> 32;",
            lambda a, b, c: ((b << 32 | a) << c & ONES, (b << 32 | a) << c >> 32) if c < 64
            else (0, 0), "SHF.L.U32 SHF.L.U64.HI", 3),
    snippet("shift_right_64",
            'u64 r; asm("shr.u64 %0, %1, %2;" : "=l"(r) : "l"(pair(a, b)), "r"(c));'
            "o0 = r; o1 = r >> 32;",
            lambda a, b, c: ((b << 32 | a) >> c, (b << 32 | a) >> c >> 32) if c < 64 else (0, 0),
            "SHF.R.U64 SHF.R.U32.HI", 3),
    snippet("shift_right_64_signed",
            's64 r; asm("shr.s64 %0, %1, %2;" : "=l"(r) : "l"((s64)pair(a, b)), "r"(c));'
            "o0 = r; o1 = r >> 32;",
            lambda a, b, c: (signed(b << 32 | a, 64) >> min(c, 64),
                             signed(b << 32 | a, 64) >> min(c, 64) >> 32),
            "SHF.R.S64 SHF.R.S32.HI", 3),
    snippet("population", "o0 = __popc(a);", lambda a: a.bit_count(), "POPC", 1),
    snippet("leading_zeros", "o0 = __clz(a);", lambda a: 32 - a.bit_length(), "FLO.U32", 1),
    snippet("highest_one", 'asm("bfind.u32 %0, %1;" : "=r"(o0) : "r"(a));',
            lambda a: a.bit_length() - 1, "FLO.U32", 1),
    snippet("highest_shift", 'asm("bfind.shiftamt.u32 %0, %1;" : "=r"(o0) : "r"(a));',
            lambda a: 32 - a.bit_length() if a else -1, "FLO.U32.SH", 1),
    snippet("highest_not_sign", 'asm("bfind.s32 %0, %1;" : "=r"(o0) : "r"(a));',
            lambda a: (a if a >> 31 == 0 else a ^ ONES).bit_length() - 1, "FLO", 1),
    snippet("reverse", "o0 = __brev(a);", lambda a: int(f"{a:032b}"[::-1], 2), "BREV", 1),
    snippet("extract_signed", "o0 = (int)(a << 19) >> 19;", lambda a: sign_extended(a, 13),
            "SHF.L.U32 SHF.R.S32.HI", 1),
    snippet("extract_byte", "o0 = (signed char)(a >> 8);", lambda a: sign_extended(a >> 8, 8),
            "SHF.L.U32 SHF.R.S32.HI", 1),
    snippet("mask_clamped", 'asm("bmsk.clamp.b32 %0, %1, %2;" : "=r"(o0) : "r"(a), "r"(b));',
            lambda a, b: ((1 << min(b, 32)) - 1) << min(a, 32), "BMSK"),
    snippet("mask_wrapped", 'asm("bmsk.wrap.b32 %0, %1, %2;" : "=r"(o0) : "r"(a), "r"(b));',
            lambda a, b: ((1 << b % 32) - 1) << a % 32, "BMSK.W"),
    snippet("predicates",
            "bool p = a > b, q = b > c, r = c > d; o0 = ((p && !q) || (r != p)) ? 5 : 6;",
            lambda a, b, c, d: 5 if (a > b and not b > c) or ((c > d) != (a > b)) else 6,
            "ISETP.GT.U32.AND", 4),
    snippet("xor_or",
            'asm("{.reg .pred p, q, r, s; setp.lt.u32 p, %1, %2; setp.lt.u32 q, %2, %3;"'
            ' "setp.lt.u32 r, %3, %4; xor.pred s, p, q; or.pred s, s, r; selp.u32 %0, 1, 2, s;}"'
            ' : "=r"(o0) : "r"(a), "r"(b), "r"(c), "r"(d));',
            lambda a, b, c, d: 1 if ((a < b) != (b < c)) or c < d else 2,
            "ISETP.LT.U32.XOR ISETP.LT.U32.OR", 4),
)  # fmt: skip

test_forms, test_edges, test_drawn = FAMILY.tests()


def _shift(direction: str, kind: str, high: bool, wrap: bool) -> Case:
    width = int(kind[1:])

    def reference(lo: int, amount: int, hi: int) -> int:
        count = amount % width if wrap else min(amount, width)
        if direction == "L":
            moved = (hi << 32 | lo) << count & (1 << 64) - 1
        else:
            moved = (signed(hi << 32 | lo, 64) if kind[0] == "S" else hi << 32 | lo) >> count
        return moved >> 32 if high else moved

    marks = f"{direction}{'.W' if wrap else ''}.{kind}{'.HI' if high else ''}"
    return case(f"SHF.{marks} R0,R2,R3,R4", reference, 3)


def _predicate_tables(first: int, second: int) -> Case:
    def reference(a: int, p: int, q: int) -> tuple[int, int]:
        row = p << 2 | (1 - q) << 1 | 1
        return first >> row & 1, second >> row & 1

    text = f"PLOP3.LUT P2,P3,P0,!P1,PT,{first:#x},{second:#x}"
    return case(text, reference, 1, predicates=2, outs="P2 P3")


CASES = with_uniform_twins(
    *(_shift(*how) for how in product("LR", ("U32", "S32", "U64", "S64"), (False, True),
                                      (False, True)) if how[0] == "R" or how[1][0] == "U"),
    *(_predicate_tables(first, 0xFF ^ first) for first in range(0, 256, 5)),
    *(case(f"LOP3.LUT R0,R2,R3,R4,{index:#x},!PT",
           lambda a, b, c, index=index: table(index, a, b, c), 3) for index in range(0, 256, 3)),
    case("LOP3.LUT P2,R0,R2,R3,RZ,0xc0,P0", lambda a, b, p: ((a & b != 0) or p, a & b),
         predicates=1, outs="P2 R0"),
    case("LOP3.LUT P2,RZ,R2,0x7fffffff,RZ,0xc0,!PT", lambda a: a & 0x7FFFFFFF != 0, 1, outs="P2"),
    case("ULOP3.LUT UR0,UR2,~UR3,URZ,0xfc,!UPT", lambda a, b: a | b ^ ONES, outs="UR0"),
    case("UPLOP3.LUT UP2,UPT,UP0,UP1,UPT,0x28,0x0", lambda a, p, q: p != q, 1, predicates=2,
         outs="UP2"),
    case("USHF.R.S32.HI UR0,URZ,0x1f,UR2", lambda a: -(a >> 31), 1, outs="UR0"),
    case("USHF.L.U32 UR0,UR2,0x4,URZ", lambda a: a << 4, 1, outs="UR0"),
    case("USHF.R.U32.HI UR0,URZ,UR3,UR2", lambda a, b: a >> min(b, 32), outs="UR0"),
    case("USHF.L.U64.HI UR0,UR2,0x3,UR3", lambda a, b: (b << 32 | a) << 3 >> 32, outs="UR0"),
    case("SHF.R.U32.HI R0,RZ,0x20,R2", lambda a: 0, 1),
    case("SHF.L.U32 R0,R2,0x1f,RZ", lambda a: a << 31, 1),
    case("UPOPC UR0,UR2", lambda a: a.bit_count(), 1, outs="UR0"),
    case("UFLO.U32 UR0,UR2", lambda a: a.bit_length() - 1, 1, outs="UR0"),
    case("FLO.U32 R0,P2,R2", lambda a: (a.bit_length() - 1, a != 0), 1, outs="R0 P2"),
    case("UBREV UR0,UR2", lambda a: int(f"{a:032b}"[::-1], 2), 1, outs="UR0"),
    *(case(f"SGXT R0,R2,{bits:#x}", lambda a, bits=bits: sign_extended(a, bits), 1)
      for bits in (0, 1, 8, 31, 32, 40)[:5]),
    *(case(f"SGXT.U32 R0,R2,{bits:#x}", lambda a, bits=bits: a & (1 << bits) - 1, 1)
      for bits in (0, 1, 8, 31, 32)),
    case("USGXT UR0,UR2,0x8", lambda a: sign_extended(a, 8), 1, outs="UR0"),
    case("UBMSK UR0,UR2,UR3", lambda a, b: ((1 << min(b, 32)) - 1) << min(a, 32), outs="UR0"),
)  # fmt: skip

test_handmade, test_handmade_drawn = check_cases(CASES)
