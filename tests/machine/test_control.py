"""Branches, loops, calls, jump tables, early exits, divergence and CTA barriers."""

import numpy as np
from exact import number, pattern, quotient, signed
from snippets import BLOCK, UNIFORM, Family, Words, snippet

M = 0xFFFFFFFF


def loop_with_exits(a: int, b: int) -> int:
    total = 0
    for k in range(a & 7, 100, 3):
        if k == b & 63:
            break
        if k & b == 2:
            continue
        total += k * b
    return total


def collatz_like(a: int, b: int) -> int:
    for k in range(8):
        if a > b:
            a = a - b & M
            if a == 5:
                break
            b = b * 3 + 1 & M
        else:
            b = b - a & M
            a ^= k
    return a + b


def uniform_loop(a: int, b: int) -> int:
    for k in range(UNIFORM[2]):
        b = b * a + k & M
    return b


def called(a: int, b: int, n: int) -> int:
    result = 1
    for _ in range(n):
        result = result * a + b & M
        if result & 1:
            b = b + 1 & M
    return result


def switched(a: int, b: int) -> int:
    a &= 15
    if a == 4:
        return sum(b * k for k in range(b & 7))
    values = {0: b * 3, 1: b + 7, 2: b // 7, 3: b ^ 9, 5: b % 11, 6: ~b, 7: b >> 3}
    return values.get(a, 1)


def truncating(a: int, b: int) -> tuple[int, int]:
    x, y = signed(a), signed(b)
    q = abs(x) // abs(y)
    q = -q if (x < 0) != (y < 0) else q
    return q, x - q * y


def divided_64(a: int, b: int, c: int, d: int) -> tuple[int, ...]:
    x, y = signed(b << 32 | a, 64), signed((d << 32 | c) or 1, 64)
    q = abs(x) // abs(y)
    q = -q if (x < 0) != (y < 0) else q
    r = x - q * y
    return q, q >> 32, r, r >> 32


def reduced(words: Words) -> Words:
    """Each CTA's largest first word, in every thread."""
    largest = words[:, 0].reshape(-1, BLOCK).max(axis=1)
    return np.repeat(largest, BLOCK)[:, None]


TREE = (
    "__shared__ u32 s[128]; s[threadIdx.x] = a; __syncthreads();"
    "for (int w = 64; w; w >>= 1) { if (threadIdx.x < w) s[threadIdx.x] = max(s[threadIdx.x],"
    " s[threadIdx.x + w]); __syncthreads(); } o0 = s[0];"
)


def uneven(words: Words) -> Words:
    """Threads take another way to each of two barriers and read what others wrote before."""
    a = words[:, 0].reshape(-1, BLOCK)
    written = np.where(a & 1 == 1, a * np.uint32(3), a + np.uint32(1))
    return np.roll(written, -1, axis=1).reshape(-1, 1)


FAMILY = Family(
    snippet("loop", "o0 = 0; for (u32 k = a & 7; k < 100; k += 3) { if (k == (b & 63)) break;"
            " if ((k & b) == 2) continue; o0 += k * b; }", loop_with_exits, "BRA"),
    snippet("nested", "for (int k = 0; k < 8; ++k) { if (a > b) { a -= b; if (a == 5) goto done;"
            " b = b * 3 + 1; } else { b -= a; a ^= k; } } done: o0 = a + b;", collatz_like,
            "BRA BREAK WARPSYNC.ALL BSSY BSSY.RECONVERGENT BSYNC BSYNC.RECONVERGENT"),
    snippet("call", "o0 = twice(a, b, c & 7); if (a > b) o0 += twice(b, a, c & 3);",
            lambda a, b, c: called(a, b, c & 7) + (called(b, a, c & 3) if a > b else 0),
            "CALL.REL.NOINC RET.REL.NODEC", 3),
    snippet("switch", "switch (a & 15) { case 0: o0 = b * 3; break; case 1: o0 = b + 7; break;"
            " case 2: o0 = b / 7; break; case 3: o0 = b ^ 9; break; case 4: o0 = 0;"
            " for (u32 k = 0; k < (b & 7); ++k) o0 += b * k; break; case 5: o0 = b % 11; break;"
            " case 6: o0 = ~b; break; case 7: o0 = b >> 3; break; default: o0 = 1; }", switched,
            "BRX BRA"),
    snippet("early_return", "out[i] = make_uint4(1, 2, 3, 4); if (a > b) return; if (c & 1)"
            " { out[i].x = c; return; } out[i].y = a; return;",
            lambda a, b, c: (c if a <= b and c & 1 else 1, a if a <= b and not c & 1 else 2, 3, 4),
            "EXIT", 3),
    snippet("divide_32", "o0 = (int)a / (int)(b ? b : 1); o1 = (int)a % (int)(b ? b : 1);",
            lambda a, b: truncating(a, b or 1), "I2F.RP F2I.FTZ.U32.TRUNC.NTZ IABS"),
    snippet("divide_u32", "o0 = a / (b | 1); o1 = a % (b | 1);",
            lambda a, b: (a // (b | 1), a % (b | 1)), "I2F.U32.RP"),
    snippet("divide_64", "s64 x = pair(a, b), y = pair(c, d); y = y ? y : 1; s64 q = x / y,"
            " r = x % y; o0 = q; o1 = q >> 32; o2 = r; o3 = r >> 32;", divided_64,
            "I2F.U64.RP F2I.U64.TRUNC CALL.REL.NOINC RET.REL.NODEC", 4),
    snippet("divide_in_branch", "if (a & 1) o0 = u(f(b) / f(c)); else o0 = u(f(c) / f(b));",
            lambda a, b, c: pattern(quotient(*map(number, (b, c) if a & 1 else (c, b)))),
            "CALL.REL.NOINC FCHK", 3, kind="float"),
    snippet("tree", TREE, reduced, "BAR.SYNC.DEFER_BLOCKING", 4, whole=True),
    snippet("uneven_barriers", "__shared__ u32 s[128]; if (a & 1) { s[threadIdx.x] = a * 3;"
            " __syncthreads(); } else { s[threadIdx.x] = a + 1; __syncthreads(); }"
            " o0 = s[(threadIdx.x + 1) & 127];", uneven, "BAR.SYNC.DEFER_BLOCKING", 4, whole=True),
    snippet("uniform_branch", "o0 = b; if (k2 > 4) { for (int k = 0; k < k2; ++k)"
            " o0 = o0 * a + k; } else { o0 = in[0].x; }", uniform_loop, "BRA"),
    snippet("trap", "if (a == 0x76543210u) __trap(); o0 = b;", lambda a, b: b, "BPT.TRAP"),
    snippet("fences", "__threadfence(); out[i] = v; __threadfence_block(); o0 = a + 1;",
            lambda a: a + 1, "MEMBAR.SC.GPU MEMBAR.SC.CTA ERRBAR CCTL.IVALL CGAERRBAR", 1),
    helpers="__device__ __noinline__ u32 twice(u32 a, u32 b, int n) { u32 r = 1;"
    " for (int k = 0; k < n; ++k) { r = r * a + b; if (r & 1) ++b; } return r; }\n",
)  # fmt: skip

test_forms, test_edges, test_drawn = FAMILY.tests()
