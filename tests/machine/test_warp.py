"""Instructions across a warp: shuffles, votes, reductions, also where lanes have parted before."""

from collections.abc import Callable
from functools import reduce
from operator import and_, or_, xor

import numpy as np
from snippets import Family, Snippet, Words, snippet

LANES = np.arange(32)


def by_warp(function: Callable[..., Words]) -> Callable[[Words], Words]:
    """A function of one warp's operands, given as columns [32], on all warps."""

    def whole(words: Words) -> Words:
        warps = words.reshape(-1, 32, words.shape[1])
        rows = [np.atleast_2d(np.asarray(function(*warp.T), dtype=np.uint32)).T for warp in warps]
        return np.concatenate([np.broadcast_to(row, (32, row.shape[1])) for row in rows])

    return whole


def shuffled(mode: str, width: int) -> Callable[..., Words]:
    """shfl.sync by the PTX definition, lane by lane: the value and whether it was in range."""
    clamp = 0 if mode == "up" else 31
    segment = 32 - width

    def warp(value: Words, operand: Words) -> list[list[int]]:
        values, inside = [], []
        for lane in range(32):
            b = int(operand[lane]) & 31
            most = lane & segment | clamp & ~segment
            least = lane & segment
            source = {"up": lane - b, "down": lane + b, "bfly": lane ^ b,
                      "idx": least | b & ~segment & 31}[mode]  # fmt: skip
            ok = source >= most if mode == "up" else source <= most
            values.append(int(value[source if ok else lane]))
            inside.append(int(ok))
        return [values, inside]

    return warp


def shuffle(mode: str, width: int) -> Snippet:
    packed = (32 - width) << 8 | (0 if mode == "up" else 31)
    form = {"up": "UP", "down": "DOWN", "bfly": "BFLY", "idx": "IDX"}[mode]
    body = (
        f'asm("{{.reg .pred p; shfl.sync.{mode}.b32 %0|p, %2, %3, {packed}, -1;'
        ' selp.u32 %1, 1, 0, p;}" : "=r"(o0), "=r"(o1) : "r"(a), "r"(b));'
    )
    return snippet(
        f"shuffle_{mode}_{width}", body, by_warp(shuffled(mode, width)), f"SHFL.{form}", whole=True
    )


def ballot(holds: Words) -> int:
    return sum(1 << lane for lane in range(32) if holds[lane])


def reduction(
    name: str, function: Callable[[list[int]], int], forms: str, kind: str = ""
) -> Snippet:
    def warp(a: Words) -> int:
        values = a.view(np.int32).tolist() if kind else a.tolist()
        return np.full(32, function(values) & 0xFFFFFFFF, np.uint32)

    return snippet(
        f"reduce_{name}{'_signed' * bool(kind)}",
        f"o0 = __reduce_{name}_sync(~0u, {kind}a);",
        by_warp(warp),
        forms,
        1,
        whole=True,
    )


def after_parting(a: Words, b: Words) -> Words:
    """A butterfly maximum of what two ways through the code made."""
    made = np.where(a & 1 == 1, a * np.uint32(7), b // ((a | np.uint32(1)) & np.uint32(0xFF)))
    return np.full(32, made.max(), np.uint32)


def half_warp(a: Words, b: Words) -> Words:
    """Only lanes with an even pair exchange, each with its neighbour."""
    taking_part = LANES // 2 % 2 == 0
    return np.where(taking_part, a[LANES ^ 1], b)


FAMILY = Family(
    *(shuffle(mode, width) for mode in ("idx", "up", "down", "bfly") for width in (32, 16, 8, 2)),
    snippet("shuffle_known", "o0 = __shfl_xor_sync(~0u, a, 1); o1 = __shfl_sync(~0u, a, 3, 4);",
            by_warp(lambda a: [a[LANES ^ 1], a[LANES & ~3 | 3]]), "SHFL.BFLY SHFL.IDX", 1,
            whole=True),
    snippet("vote", "o0 = __ballot_sync(~0u, a > b); o1 = __any_sync(~0u, a > b);"
            " o2 = __all_sync(~0u, a >= b); o3 = __uni_sync(~0u, a > b);",
            by_warp(lambda a, b: [np.full(32, ballot(a > b), np.uint32),
                                  np.full(32, (a > b).any()), np.full(32, (a >= b).all()),
                                  np.full(32, (a > b).all() or not (a > b).any())]),
            "VOTE.ANY VOTE.ALL VOTE.EQ", whole=True),
    snippet("active", "o0 = 0; if (a > b) o0 = __activemask();",
            by_warp(lambda a, b: np.where(a > b, np.uint32(ballot(a > b)), 0)), "VOTE.ANY",
            whole=True),
    reduction("or", lambda x: reduce(or_, x), "REDUX.OR"),
    reduction("and", lambda x: reduce(and_, x), "REDUX"),
    reduction("xor", lambda x: reduce(xor, x), "REDUX.XOR"),
    reduction("add", sum, "REDUX.SUM.S32"),
    reduction("max", max, "REDUX.MAX CREDUX.MAX"),
    reduction("min", min, "REDUX.MIN CREDUX.MIN"),
    reduction("max", max, "REDUX.MAX.S32 CREDUX.MAX.S32", "(int)"),
    reduction("min", min, "REDUX.MIN.S32 CREDUX.MIN.S32", "(int)"),
    snippet("after_parting",
            "u32 m; if (a & 1) m = a * 7; else m = b / ((a | 1) & 0xff);"
            " for (int w = 16; w; w >>= 1) m = max(m, __shfl_xor_sync(~0u, m, w)); o0 = m;",
            by_warp(after_parting), "SHFL.BFLY BSYNC BSYNC.RECONVERGENT", whole=True),
    snippet("half_warp",
            "o0 = b; if ((threadIdx.x & 2) == 0) o0 = __shfl_xor_sync(0x33333333, a, 1);",
            by_warp(half_warp), "SHFL.BFLY", whole=True),
    snippet("synchronised",
            "__shared__ u32 s[128]; s[threadIdx.x] = a; __syncwarp();"
            " o0 = s[threadIdx.x ^ 5]; __syncwarp(0xffffffff);",
            by_warp(lambda a: a[LANES ^ 5]), "STS LDS NOP", 1, whole=True),
)  # fmt: skip

test_forms, test_edges, test_drawn = FAMILY.tests()
