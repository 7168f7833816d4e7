"""Integer comparisons: ISETP, its uniform, extended and 64-bit forms, and what combines them."""

import operator
from itertools import product

from exact import signed
from handmade import Case, case, check_cases, with_uniform_twins
from snippets import Family, Snippet, snippet

COMPARISONS = {
    "LT": operator.lt,
    "EQ": operator.eq,
    "LE": operator.le,
    "GT": operator.gt,
    "NE": operator.ne,
    "GE": operator.ge,
}
C_SPELLING = {"LT": "<", "EQ": "==", "LE": "<=", "GT": ">", "NE": "!=", "GE": ">="}
COMBINED = {"AND": operator.and_, "OR": operator.or_, "XOR": operator.xor}


def wide(lo: int, hi: int) -> int:
    return hi << 32 | lo


def compared(how: str, bits: int, unsigned: bool) -> Snippet:
    """`o0 = a ? b` of 32 or 64 bits."""
    compare = COMPARISONS[how]
    kind = {(32, True): "u32", (32, False): "int", (64, True): "u64", (64, False): "s64"}
    name = kind[bits, unsigned]
    left, right = ("a", "b") if bits == 32 else ("pair(a, b)", "pair(c, d)")
    body = f"o0 = ({name}){left} {C_SPELLING[how]} ({name}){right} ? 7 : 9;"

    def reference(*words: int) -> int:
        x, y = words if bits == 32 else (wide(*words[:2]), wide(*words[2:]))
        if not unsigned:
            x, y = signed(x, bits), signed(y, bits)
        return 7 if compare(x, y) else 9

    return snippet(
        f"{name}_{how.lower()}", body, reference, emitted(how, bits, unsigned), bits // 16
    )


def emitted(how: str, bits: int, unsigned: bool) -> str:
    """The forms of such a choice: the compiler tests for the opposite of half of them."""
    how = {"LT": "GE", "LE": "GT", "EQ": "NE"}.get(how, how)
    equality = how == "NE"
    if bits == 32:
        return (
            "ISETP.NE.AND ISETP.NE.U32.AND" if equality else f"ISETP.{how}{'.U32' * unsigned}.AND"
        )
    high = "NE.U32" if equality else f"{how}{'.U32' * unsigned}"
    whole = "NE.U64" if equality else f"{how}.{'U' if unsigned else 'S'}64"
    return f"ISETP.{how}.U32.AND ISETP.{high}.AND.EX ISETP.{whole}.AND"


FAMILY = Family(
    *(compared(how, bits, unsigned) for how, bits, unsigned
      in product(COMPARISONS, (32, 64), (True, False))),
    snippet("both", "o0 = (int)a < (int)b && c > d ? 1 : 2;",
            lambda a, b, c, d: 1 if signed(a) < signed(b) and c > d else 2, "ISETP.GT.U32.AND", 4),
    snippet("either", "o0 = (int)a < (int)b || c > d ? 1 : 2;",
            lambda a, b, c, d: 1 if signed(a) < signed(b) or c > d else 2,
            "ISETP.LT.OR ISETP.GE.AND", 4),
    snippet("exclusive",
            'asm("{.reg .pred p, q; setp.lt.s32 p, %1, %2; setp.gt.xor.u32 q, %3, %4, p;"'
            ' "selp.u32 %0, 1, 2, q;}" : "=r"(o0) : "r"(a), "r"(b), "r"(c), "r"(d));',
            lambda a, b, c, d: 1 if (signed(a) < signed(b)) != (c > d) else 2,
            "ISETP.GT.U32.XOR", 4),
    snippet("two_results",
            'asm("{.reg .pred p, q, r; setp.lt.s32 r, %2, %3; setp.ge.and.s32 p|q, %4, %5, r;"'
            ' "selp.u32 %0, 1, 2, p; selp.u32 %1, 1, 2, q;}"'
            ' : "=r"(o0), "=r"(o1) : "r"(a), "r"(b), "r"(c), "r"(d));',
            lambda a, b, c, d: (1 if signed(a) < signed(b) and signed(c) >= signed(d) else 2,
                                1 if signed(a) < signed(b) and signed(c) < signed(d) else 2),
            "ISETP.GE.AND", 4),
)  # fmt: skip

test_forms, test_edges, test_drawn = FAMILY.tests()


def _case(how: str, unsigned: bool, op: str, extended: bool, uniform: bool) -> Case:
    compare, join = COMPARISONS[how], COMBINED[op]

    def reference(a: int, b: int, p: int, q: int = 0) -> tuple[int, int]:
        x, y = (a, b) if unsigned else (signed(a), signed(b))
        result = compare(x, y)
        if extended:
            # q is what the comparison of the low words gave: it decides between equal words.
            result = bool(q) if x == y else compare(x, y)
        return join(result, p), join(not result, p)

    u = "U" if uniform else ""
    opcode = f"{u}ISETP.{how}{'.U32' if unsigned else ''}.{op}{'.EX' if extended else ''}"
    low = f",{u}P1" if extended else ""
    text = f"{opcode} {u}P2,{u}P3,{u}R2,{u}R3,{u}P0{low}"
    return case(text, reference, predicates=1 + extended, outs=f"{u}P2 {u}P3")


def _case64(how: str, unsigned: bool) -> Case:
    def reference(a: int, b: int, c: int, d: int, p: int) -> tuple[int, int]:
        x, y = wide(a, b), wide(c, d)
        if not unsigned:
            x, y = signed(x, 64), signed(y, 64)
        result = COMPARISONS[how](x, y)
        return result and p, (not result) and p

    text = f"UISETP.{how}.{'U' if unsigned else 'S'}64.AND UP2,UP3,UR2,UR4,UP0"
    return case(text, reference, 4, predicates=1, outs="UP2 UP3")


CASES = with_uniform_twins(
    *(_case(how, unsigned, op, extended, uniform) for how, unsigned, op, extended, uniform
      in product(COMPARISONS, (True, False), COMBINED, (True, False), (True, False))
      if not (uniform and op == "XOR")),
    *(_case64(how, unsigned) for how, unsigned in product(COMPARISONS, (True, False))),
    case("ISETP.NE.S64.AND P2,PT,R2,RZ,PT", lambda a, b: (a | b) != 0, outs="P2"),
    case("ISETP.LE.AND P2,PT,RZ,UR2,PT", lambda a: signed(a) >= 0, 1, outs="P2"),
    case("ISETP.GT.AND P2,PT,R2,-0x18,!P0", lambda a, p: signed(a) > -24 and not p, 1,
         predicates=1, outs="P2"),
)  # fmt: skip

test_handmade, test_handmade_drawn = check_cases(CASES)
