"""Loads and stores of every width in global, shared, local and constant memory."""

import numpy as np
from snippets import BLOCK, UNIFORM, Family, Words, snippet


def bytes_of(*words: int) -> bytes:
    return b"".join(word.to_bytes(4, "little") for word in words)


def picked(size: int, is_signed: bool):  # type: ignore[no-untyped-def]
    """The element of `size` bytes among the 16 of a row that the first word chooses."""

    def reference(*row: int) -> int:
        place = row[0] % (16 // size) * size
        return int.from_bytes(bytes_of(*row)[place : place + size], "little", signed=is_signed)

    return reference


def replaced(size: int, count: int):  # type: ignore[no-untyped-def]
    """A row of zeros after a store of the low bytes of b, c, d at a place a chooses."""

    def reference(a: int, b: int, c: int, d: int) -> tuple[int, ...]:
        row = bytearray(16)
        place = a % (16 // size) * size
        row[place : place + size] = (bytes_of(b, c, d) + bytes(4))[:size]
        words = (int.from_bytes(row[i : i + 4], "little") for i in (0, 4, 8, 12))
        return tuple(words)[:count]

    return reference


ROW = "const {0}* p = (const {0}*)(in + i); o0 = p[a % {1}];"
STORE = "out[i] = make_uint4(0, 0, 0, 0); {0}* p = ({0}*)(out + i); p[a % {1}] = {2}; return;"
NEIGHBOUR = (
    "__shared__ {0} s[{1}]; s[threadIdx.x] = {2}; __syncthreads(); {0} r = s[threadIdx.x ^ 37]; {3}"
)
LOCAL = (
    "{0} t[16]; for (int k = 0; k < 16; ++k) t[k] = ({0})(a * (k + 1));"
    "for (int k = 0; k < (int)(b & 15); ++k) t[(c + k) & 15] ^= t[(d * k) & 15]; o0 = t[c & 15];"
)


def local_array(bits: int):  # type: ignore[no-untyped-def]
    def reference(a: int, b: int, c: int, d: int) -> int:
        mask = (1 << bits) - 1
        array = [a * (k + 1) & mask for k in range(16)]
        for k in range(b & 15):
            array[c + k & 15] ^= array[(d * k & 0xFFFFFFFF) & 15]
        return array[c & 15]

    return reference


MODERN = ("sm_90", "sm_100a", "sm_120a")


def local_bytes(a: int, b: int, c: int, d: int) -> tuple[int, ...]:
    row = bytearray(16)
    for k in range(b & 7):
        place = a + k * c & 15
        row[place] = row[place] + d + k & 0xFF
    return tuple(int.from_bytes(row[i : i + 4], "little") for i in (0, 4, 8, 12))


OWN = (
    "{0}* p = ({0}*)(out + i); p[0] = a; p[1] = a; p[2] = a; p[3] = a; p[a & 3] = {1};"
    " p[b & 3] = {2}; {3}"
)


def own(a: int, b: int, c: int, _: int) -> list[int]:
    """Four elements after a store at a place that a chooses and one at b's."""
    elements = [a] * 4
    elements[a & 3] = b
    elements[b & 3] = c
    return elements


def halves(x: int) -> tuple[int, int]:
    return x & 0xFFFFFFFF, x >> 32


def neighbour(words: Words) -> Words:
    return words.reshape(-1, BLOCK, 4)[:, np.arange(BLOCK) ^ 37].reshape(-1, 4)


def exchanged(words: Words) -> Words:
    return words + words.reshape(-1, 2, 4)[:, ::-1].reshape(-1, 4)


def _low_byte_signed(words: Words) -> Words:
    return (neighbour(words)[:, :1] << 24).view(np.int32) >> 24


TABLE = ", ".join(f"{k * 0x01010101 ^ 0x5A}u" for k in range(16))

FAMILY = Family(
    snippet("load_u8", ROW.format("unsigned char", 16), picked(1, False), "LDG.E.U8.CONSTANT", 4),
    snippet("load_s8", ROW.format("signed char", 16), picked(1, True),
            "LDG.E.S8.CONSTANT LDG.E.U8.CONSTANT", 4),
    snippet("load_u16", ROW.format("unsigned short", 8), picked(2, False), "LDG.E.U16.CONSTANT",
            4),
    snippet("load_s16", ROW.format("short", 8), picked(2, True),
            "LDG.E.S16.CONSTANT LDG.E.U16.CONSTANT", 4),
    snippet("load_32", ROW.format("unsigned", 4), picked(4, False), "LDG.E.CONSTANT", 4),
    snippet("load_64", "uint2 r = ((const uint2*)(in + i))[a & 1]; o0 = r.x; o1 = r.y;",
            lambda *row: row[2:] if row[0] & 1 else row[:2], "LDG.E.64.CONSTANT", 4),
    snippet("load_128", "uint4 r = in[i ^ 1]; o0 = r.x + a; o1 = r.y + b; o2 = r.z + c;"
            " o3 = r.w + d;",
            exchanged, "LDG.E.128.CONSTANT LDCU.128", 4,
            whole=True),
    snippet("load_volatile",
            "volatile u32* p = (volatile u32*)(out + i); p[1] = a; o0 = p[1] + 1;",
            lambda a: a + 1, "LDG.E.STRONG.SYS STG.E.STRONG.SYS", 1),
    snippet("load_bypassing", "o0 = __ldcg((const u32*)(in + i) + 1); o1 = __ldcs(&in[i].z);",
            lambda a, b, c: (b, c), "LDG.E.STRONG.GPU LDG.E.EF", 3),
    snippet("store_8", STORE.format("unsigned char", 16, "b"), replaced(1, 4), "STG.E.U8", 4),
    snippet("store_16", STORE.format("unsigned short", 8, "b"), replaced(2, 4), "STG.E.U16", 4),
    snippet("store_32", STORE.format("unsigned", 4, "b"), replaced(4, 4), "STG.E", 4),
    snippet("store_64", STORE.format("uint2", 2, "make_uint2(b, c)"), replaced(8, 4), "STG.E.64",
            4),
    snippet("store_some",
            "out[i] = make_uint4(a, b, c, d); if (a > b) ((u32*)(out + i))[1] = c; return;",
            lambda a, b, c, d: (a, c if a > b else b, c, d), "STG.E", 4),
    snippet("shared_32", NEIGHBOUR.format("unsigned", BLOCK, "a", "o0 = r;"),
            lambda words: neighbour(words)[:, :1], "STS LDS BAR.SYNC.DEFER_BLOCKING", 4,
            whole=True),
    snippet("shared_u8", NEIGHBOUR.format("unsigned char", BLOCK, "a", "o0 = r;"),
            lambda words: neighbour(words)[:, :1] & 0xFF, "STS.U8 LDS.U8", 4, whole=True),
    snippet("shared_s8", NEIGHBOUR.format("signed char", BLOCK, "a", "o0 = r;"),
            _low_byte_signed, "STS.U8 LDS.S8", 4, whole=True),
    snippet("shared_u16", NEIGHBOUR.format("unsigned short", BLOCK, "a", "o0 = r;"),
            lambda words: neighbour(words)[:, :1] & 0xFFFF, "STS.U16 LDS.U16", 4, whole=True),
    snippet("shared_64", NEIGHBOUR.format("uint2", BLOCK, "make_uint2(a, b)",
                                          "o0 = r.x; o1 = r.y;"),
            lambda words: neighbour(words)[:, :2], "STS.64 LDS.64", 4, whole=True),
    snippet("shared_128", NEIGHBOUR.format("uint4", BLOCK, "v",
                                           "o0 = r.x; o1 = r.y; o2 = r.z; o3 = r.w;"),
            neighbour, "STS.128 LDS.128", 4, whole=True),
    snippet("local_32", LOCAL.format("unsigned"), local_array(32), "STL LDL STL.128", 4),
    snippet("local_8", LOCAL.format("unsigned char"), local_array(8), "STL.U8 LDL.U8", 4),
    snippet("local_16", LOCAL.format("unsigned short"), local_array(16), "STL.U16 LDL.U16", 4),
    snippet("constant_table", "o0 = table[a & 15]; o1 = table[5];",
            lambda a: ((a & 15) * 0x01010101 ^ 0x5A, 5 * 0x01010101 ^ 0x5A), "LDC", 1),
    snippet("constant_bytes", "o0 = ((const unsigned char*)table)[5]; o1 = 0;",
            lambda a: ((0x01010101).to_bytes(4, "little")[1], 0), "LDC.U8", 1),
    snippet("uniform_words", "o0 = a + k0; o1 = a ^ k1; o2 = a * k2; o3 = k3;",
            lambda a: (a + UNIFORM[0], a ^ UNIFORM[1], a * UNIFORM[2], UNIFORM[3]),
            "ULDC.64 LDC.64", 1, archs=MODERN),
    snippet("uniform_pair", "u64 r = pair(a, b) + pair(k0, k1); o0 = r; o1 = r >> 32;",
            lambda a, b: halves((b << 32 | a) + (UNIFORM[1] << 32 | UNIFORM[0])),
            "ULDC.64 LDCU.64", 2, archs=MODERN),
    snippet("own_stores", OWN.format("unsigned", "b", "c", "o0 = p[d & 3];"),
            lambda *row: own(*row)[row[3] & 3], "LDG.E", 4),
    snippet("own_stores_16", OWN.format("unsigned short", "b", "c", "o0 = p[d & 3];"),
            lambda *row: own(*row)[row[3] & 3] & 0xFFFF, "LDG.E.U16", 4),
    snippet("own_stores_64",
            "uint2* p = (uint2*)(out + i); p[a & 1] = make_uint2(b, c); p[(a ^ 1) & 1] ="
            " make_uint2(c, d); uint2 r = p[b & 1]; o0 = r.x; o1 = r.y;",
            lambda a, b, c, d: (b, c) if a & 1 == b & 1 else (c, d), "LDG.E.64", 4),
    snippet("own_stores_128",
            "out[i] = v; __syncthreads(); uint4 r = out[i ^ 1]; __syncthreads(); o0 = r.x;"
            " o1 = r.y; o2 = r.z; o3 = r.w;",
            lambda words: words.reshape(-1, 2, 4)[:, ::-1].reshape(-1, 4),
            "LDG.E.128", 4, whole=True),
    snippet("store_hints",
            "((u32*)(out + i))[0] = a; __stcs((u32*)(out + i) + 1, b); __stwt((u32*)(out + i) + 2,"
            " c); ((volatile unsigned char*)(out + i))[12] = d; ((volatile unsigned char*)"
            "(out + i))[13] = 0; ((volatile unsigned short*)(out + i))[7] = 1; return;",
            lambda a, b, c, d: (a, b, c, d & 0xFF | 0x10000),
            "STG.E.EF STG.E.U8.STRONG.SYS STG.E.U16.STRONG.SYS", 4),
    snippet("local_128",
            "__align__(16) unsigned char t[16] = {}; for (int k = 0; k < (int)(b & 7); ++k)"
            " t[(a + k * c) & 15] += d + k; uint4 r = *(uint4*)t; o0 = r.x; o1 = r.y; o2 = r.z;"
            " o3 = r.w;", local_bytes,
            "LDL.128 STL.128", 4),
    helpers=f"__constant__ unsigned table[16] = {{{TABLE}}};\n",
)  # fmt: skip

test_forms, test_edges, test_drawn = FAMILY.tests()
