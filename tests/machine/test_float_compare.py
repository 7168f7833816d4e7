"""Comparisons of floats into predicates and words: FSETP and FSET, ordered and unordered."""

import math
from itertools import product as every

from exact import flushed, number
from handmade import Case, case, check_cases, with_uniform_twins
from snippets import Family, Snippet, snippet

COMPARE = {
    "lt": lambda x, y: x < y, "le": lambda x, y: x <= y, "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y, "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y and not math.isnan(x) and not math.isnan(y),
    "ltu": lambda x, y: not x >= y, "leu": lambda x, y: not x > y, "gtu": lambda x, y: not x <= y,
    "geu": lambda x, y: not x < y, "neu": lambda x, y: x != y,
    "equ": lambda x, y: x == y or math.isnan(x) or math.isnan(y),
    "num": lambda x, y: not math.isnan(x) and not math.isnan(y),
    "nan": lambda x, y: math.isnan(x) or math.isnan(y),
}  # fmt: skip

# The compiler tests for the opposite of half the comparisons, and chooses the other way round.
EMITTED = {
    "lt": "geu",
    "le": "gtu",
    "eq": "neu",
    "ltu": "ge",
    "leu": "gt",
    "equ": "ne",
    "num": "nan",
}


def comparison(how: str, ftz: bool) -> Snippet:
    compare = COMPARE[how]
    f = flushed if ftz else float
    body = (
        f'asm("{{.reg .pred p; setp.{how}{".ftz" * ftz}.f32 p, %1, %2; selp.u32 %0, 1, 2, p;}}"'
        ' : "=r"(o0) : "f"(f(a)), "f"(f(b)));'
    )
    return snippet(
        f"setp_{how}{'_ftz' * ftz}",
        body,
        lambda a, b: 1 if compare(f(number(a)), f(number(b))) else 2,
        f"FSETP.{EMITTED.get(how, how).upper()}{'.FTZ' * ftz}.AND",
        kind="float",
    )


FAMILY = Family(
    *(comparison(how, False) for how in COMPARE),
    *(comparison(how, True) for how in ("lt", "geu", "neu", "nan")),
    snippet(
        "comparison_joined",
        'asm("{.reg .pred p, q; setp.lt.f32 p, %1, %2; setp.gtu.or.f32 q, %3, %4, p;"'
        ' "selp.u32 %0, 1, 2, q;}" : "=r"(o0) : "f"(f(a)), "f"(f(b)), "f"(f(c)), "f"(f(d)));',
        lambda a, b, c, d: 1 if number(a) < number(b) or not number(c) <= number(d) else 2,
        "FSETP.GTU.OR",
        4,
        kind="float",
    ),
    snippet(
        "set_float",
        'float r; asm("set.ge.f32.f32 %0, %1, %2;" : "=f"(r) : "f"(f(a)), "f"(f(b))); o0 = u(r);',
        lambda a, b: 0x3F800000 if number(a) >= number(b) else 0,
        "FSET.BF.GE.AND",
        kind="float",
    ),
    snippet(
        "set_mask",
        'asm("set.neu.u32.f32 %0, %1, %2;" : "=r"(o0) : "f"(f(a)), "f"(f(b)));',
        lambda a, b: 0xFFFFFFFF if number(a) != number(b) else 0,
        "FSETP.NEU.AND",
        kind="float",
    ),
)

test_forms, test_edges, test_drawn = FAMILY.tests()


def _compared(how: str, ftz: bool, op: str) -> Case:
    compare, f = COMPARE[how], flushed if ftz else float

    def reference(a: int, b: int, p: int) -> tuple[int, int]:
        result = compare(f(number(a)), f(abs(number(b))))
        join = {"AND": lambda x: x and p, "OR": lambda x: x or p, "XOR": lambda x: x != p}[op]
        return join(result), join(not result)

    text = f"FSETP.{how.upper()}{'.FTZ' * ftz}.{op} P2,P3,R2,|R3|,P0"
    return case(text, reference, predicates=1, outs="P2 P3", kind="float")


CASES = with_uniform_twins(
    *(
        _compared(how, ftz, op)
        for how, ftz, op in every(COMPARE, (False, True), ("AND", "OR", "XOR"))
    ),
    case(
        "UFSETP.GEU.AND UP2,UPT,UR2,UR3,UPT",
        lambda a, b: not number(a) < number(b),
        outs="UP2",
        kind="float",
    ),
    case(
        "FSET.BF.LT.AND R0,R2,R3,P0",
        lambda a, b, p: 0x3F800000 if number(a) < number(b) and p else 0,
        predicates=1,
        kind="float",
    ),
    case(
        "FSET.GTU.OR R0,R2,R3,P0",
        lambda a, b, p: -1 if not number(a) <= number(b) or p else 0,
        predicates=1,
        kind="float",
    ),
)

test_handmade, test_handmade_drawn = check_cases(CASES)
