"""Compiles small kernels, runs them on the machine over vectors of operands, and checks them.

A snippet is the body of a kernel: it turns the words a, b, c, d (unsigned) into o0..o3, of which
those its reference gives are compared. The snippets of one family are one translation unit, so
that an arch costs one compilation. A snippet says which opcode forms it is there for, and they
must occur in its code more often than in that of a kernel that only copies.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from oracle.machine.archs import arch_number
from oracle.machine.cubin import Cubin
from oracle.machine.disassembly import Instruction, disassemble
from oracle.machine.launch import Program
from oracle.machine.lower import lower
from oracle.machine.memory import Memory
from oracle.toolchain import NVRTC_PACKAGE, compile_cuda, tool_versions

ARCHS = ("sm_80", "sm_90", "sm_100a", "sm_120a")
RECORDED = "13.5"
"""The NVRTC whose code generation the declared forms describe; another may choose other forms."""
WIDTH = 4
UNIFORM = (0x01234567, 0xFEDCBA98, 5, 0x80000003)
"""The launch's k0 .. k3, the same for all lanes; the last two are signed."""
BLOCK = 128
"""Threads of a CTA."""
CALM: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
"""Settings of drawn tests: a busy machine is no failure."""
DRAWN = 8
"""Draws of up to 24 rows of operands for each snippet."""
Words = NDArray[np.uint32]
Reference = Callable[..., "int | tuple[int, ...]"]

_PROLOGUE = """
typedef unsigned u32; typedef unsigned long long u64; typedef long long s64;
__device__ __forceinline__ float f(u32 x) { return __uint_as_float(x); }
__device__ __forceinline__ u32 u(float x) { return __float_as_uint(x); }
__device__ __forceinline__ u64 pair(u32 lo, u32 hi) { return (u64)hi << 32 | lo; }
"""
_KERNEL = """
extern "C" __global__ void %s_kernel(const uint4* __restrict__ in, uint4* out, u32 k0, u32 k1,
                                     int k2, int k3) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const uint4 v = in[i];
  u32 a = v.x, b = v.y, c = v.z, d = v.w, o0 = a, o1 = b, o2 = c, o3 = d;
  { %s }
  out[i] = make_uint4(o0, o1, o2, o3);
}
"""
_COPY = "copy_only"


@dataclass(frozen=True)
class Snippet:
    """A kernel body, what it should give, and the forms it exercises (some on each arch).

    `archs` limits where it compiles; `kind` says what its operands are: one of OPERANDS. The
    reference of a `whole` takes all operands [128 * blocks, arity] and gives all outputs.
    """

    name: str
    body: str
    reference: Reference
    forms: tuple[str, ...]
    arity: int = 2
    archs: tuple[str, ...] = ARCHS
    kind: str = "word"
    whole: bool = False

    def compiles_for(self, arch: str) -> bool:
        """Whether it compiles for one of ARCHS, or for another arch of a generation of its own."""
        if arch in ARCHS:
            return arch in self.archs
        return arch_number(arch) // 10 in {arch_number(own) // 10 for own in self.archs}


def snippet(
    name: str, body: str, reference: Reference, forms: str, arity: int = 2, **more: object
) -> Snippet:
    """A snippet; `forms` are separated by blanks."""
    return Snippet(name, body, reference, tuple(forms.split()), arity, **more)  # type: ignore[arg-type]


class Family:
    """The snippets of one test module."""

    def __init__(self, *snippets: Snippet, headers: Sequence[str] = (), helpers: str = "") -> None:
        self.snippets = {s.name: s for s in snippets}
        assert len(self.snippets) == len(snippets), "two snippets have one name"
        self._headers = "".join(f"#include <{header}>\n" for header in headers)
        self._helpers = helpers

    @property
    def forms(self) -> set[str]:
        """Every form some snippet declares."""
        return {form for s in self.snippets.values() for form in s.forms}

    @functools.cache  # noqa: B019
    def cubin(self, arch: str) -> Cubin:
        """All snippets that compile for an arch, each as the kernel NAME_kernel."""
        bodies = {s.name: s.body for s in self.snippets.values() if s.compiles_for(arch)}
        kernels = (_KERNEL % (name, body) for name, body in {**bodies, _COPY: ""}.items())
        source = self._headers + _PROLOGUE + self._helpers + "".join(kernels)
        return Cubin.parse(compile_cuda(source, arch, name="snippets.cu"))

    @functools.cache  # noqa: B019
    def _code(self, arch: str) -> dict[str, tuple[Instruction, ...]]:
        kernels = disassemble(self.cubin(arch))
        return {name.removesuffix("_kernel"): code for name, code in kernels.items()}

    def occurring(self, name: str, arch: str) -> Counter[str]:
        """Forms in a snippet's code, beyond those that loading and storing takes."""
        ours, copying = (Counter(i.opcode for i in self._code(arch)[k]) for k in (name, _COPY))
        return ours - copying

    @functools.cache  # noqa: B019
    def program(self, name: str, arch: str) -> Program:
        """A snippet lowered and compiled."""
        return Program(lower(self.cubin(arch), f"{name}_kernel", self._code(arch)[name]))

    def run(self, name: str, arch: str, operands: Words) -> Words:
        """The outputs uint32 [n, 4] of a snippet for operands uint32 [n, arity]."""
        return run(self.program(name, arch), operands)

    def assert_occurs(self, name: str) -> None:
        """Each arch shows some of the declared forms, and all archs together show all."""
        chosen = self.snippets[name]
        left = set(chosen.forms)
        for arch in chosen.archs:
            found = self.occurring(name, arch)
            assert set(chosen.forms) & set(found), f"{name} on {arch} compiles to {dict(found)}"
            left -= set(found)
        assert not left, f"{name} has no {left}: " + str(
            {arch: dict(self.occurring(name, arch)) for arch in chosen.archs}
        )

    def check(self, name: str, operands: Words) -> None:
        """Compare a snippet on all its archs with its reference."""
        chosen = self.snippets[name]
        if chosen.whole:
            operands = np.pad(operands, ((0, -len(operands) % BLOCK), (0, 0)))
            expected = np.asarray(chosen.reference(operands), np.uint32)
        else:
            expected = expect(chosen.reference, operands)
        for arch in chosen.archs:
            found = self.run(name, arch, operands)[:, : expected.shape[1]]
            assert_equal(f"{name} on {arch}", operands, found, expected)

    def tests(self) -> tuple[Callable[[str], None], ...]:
        """The three tests of a family: its forms occur, edge operands, drawn operands."""
        each = pytest.mark.parametrize("name", self.snippets)

        def test_forms(name: str) -> None:
            version = str(tool_versions()[NVRTC_PACKAGE])
            if not version.startswith(RECORDED + "."):
                pytest.skip(f"the forms are those of NVRTC {RECORDED}, and this is {version}")
            self.assert_occurs(name)

        def test_edges(name: str) -> None:
            chosen = self.snippets[name]
            self.check(name, grid(OPERANDS[chosen.kind].edges, chosen.arity))

        def test_drawn(name: str) -> None:
            chosen = self.snippets[name]
            drawn_rows(chosen.kind, chosen.arity)(functools.partial(self.check, name))()

        return each(test_forms), each(test_edges), each(test_drawn)


def drawn_rows(kind: str, arity: int) -> Callable[[Callable[[Words], None]], Callable[[], None]]:
    """Makes a check of operands [n, arity] one that Hypothesis calls with operands it draws."""

    def decorate(check: Callable[[Words], None]) -> Callable[[], None]:
        @settings(max_examples=DRAWN, **CALM)
        @given(operands=rows(OPERANDS[kind].drawn, arity))
        def run_check(operands: Words) -> None:
            check(operands)

        return run_check

    return decorate


def expect(reference: Reference, operands: Words) -> Words:
    """The reference's outputs uint32 [n, outputs], one row of operands at a time."""
    rows = []
    for row in operands.tolist():
        result = reference(*row)
        rows.append(result if isinstance(result, tuple) else (result,))
    return np.array([[word & 0xFFFFFFFF for word in row] for row in rows], dtype=np.uint32)


def assert_equal(what: str, operands: Words, found: Words, expected: Words) -> None:
    """Fail with the first row that differs."""
    wrong = (found != expected).any(axis=1)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        told = [[f"{int(w):#x}" for w in words[row]] for words in (operands, found, expected)]
        raise AssertionError(
            f"{what}: {np.count_nonzero(wrong)} of {len(wrong)} rows differ, first "
            f"f({', '.join(told[0])}) = {told[1]}, expected {told[2]}"
        )


def lanes(operands: Words) -> Words:
    """Operands uint32 [n, arity] for whole CTAs, [128 * blocks, 4]; what is left is zero."""
    inputs = np.zeros((-(-len(operands) // BLOCK) * BLOCK, WIDTH), np.uint32)
    inputs[: len(operands), : operands.shape[1]] = operands
    return inputs


def params(source: int, target: int) -> bytes:
    """The parameter block of a snippet."""
    addresses = np.array([source, target], np.uint64).tobytes()
    return addresses + np.array(UNIFORM, np.uint32).tobytes()


def run(program: Program, operands: Words) -> Words:
    """Run a kernel of the snippets' shape over operands uint32 [n, arity]; outputs [n, 4]."""
    count = len(operands)
    inputs = lanes(operands)
    blocks = len(inputs) // BLOCK
    memory = Memory()
    source = memory.map("in", inputs)
    target = memory.map("out", np.zeros_like(inputs), writable=True, initialised=False)
    program.launch((blocks, 1, 1), (BLOCK, 1, 1), params(source.base, target.base), memory)
    assert not memory.strays
    return target.bytes.view(np.uint32).reshape(-1, WIDTH)[:count].copy()


# Operands

WORDS = (0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF)
WORDS += (0x10000, 0x12345678, 0x55555555, 0x7FFFFFFE, 0x7FFFFFFF, 0x80000000, 0x80000001)
WORDS += (0xCAFEF00D, 0xFFFF0000, 0xFFFFFFFE, 0xFFFFFFFF)

_POSITIVE = (0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0x33800000, 0x33800001, 0x3F000000, 0x3F7FFFFF)
_POSITIVE += (0x3F800000, 0x3F800001, 0x3FC00000, 0x40000000, 0x40200000, 0x40490FDB, 0x4B000001)
_POSITIVE += (0x4B800001, 0x4F000000, 0x4F800000, 0x5F000000, 0x5F800000, 0x7E800000, 0x7F7FFFFF)
_POSITIVE += (0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF)
FLOATS = _POSITIVE + tuple(x | 0x80000000 for x in _POSITIVE)
"""Zeros, subnormals, around 1, halves, limits of integers, infinity, NaNs of both kinds."""

_CODES = (0, 1, 2, 0x7F, 0x80, 0x3FF, 0x400, 0x401, 0x3C00, 0x3C01, 0x3E00, 0x3F80, 0x3F81, 0x4000)
_CODES += (0x4100, 0x7800, 0x7BFF, 0x7C00, 0x7C01, 0x7E00, 0x7F7F, 0x7F80, 0x7F81, 0x7FFF)
_CODES += tuple(code | 0x8000 for code in _CODES)
HALVES = tuple(
    code | _CODES[(7 * place + 5) % len(_CODES)] << 16 for place, code in enumerate(_CODES)
)
"""Pairs of codes that are special in fp16 or bf16."""

_word = st.integers(0, 0xFFFFFFFF)


def _float(exponents: tuple[int, int], mantissa_bits: int) -> st.SearchStrategy[int]:
    """Patterns of float32 with few mantissa bits in a range of exponents, so that ties occur."""
    sign, exponent = st.integers(0, 1), st.integers(*exponents)
    mantissa = st.integers(0, (1 << mantissa_bits) - 1)
    return st.builds(
        lambda s, e, m: s << 31 | e << 23 | m << 23 - mantissa_bits, sign, exponent, mantissa
    )


@dataclass(frozen=True)
class Operands:
    """What the words of a snippet are: edge values, tried in combination, and how to draw more."""

    edges: Sequence[int]
    drawn: st.SearchStrategy[int]


def _near(edges: Sequence[int]) -> st.SearchStrategy[int]:
    steps = st.integers(-2, 2)
    return st.builds(lambda edge, step: edge + step & 0xFFFFFFFF, st.sampled_from(edges), steps)


OPERANDS = {
    "word": Operands(WORDS, _near(WORDS) | _word),
    "float": Operands(
        FLOATS, _near(FLOATS) | _float((90, 160), 23) | _float((120, 134), 11) | _word
    ),
    "half": Operands(HALVES, st.sampled_from(HALVES) | _word),
}


def rows(element: st.SearchStrategy[int], arity: int) -> st.SearchStrategy[Words]:
    """Operands uint32 [n, arity] for a few lanes."""
    row = st.tuples(*[element] * arity)
    return st.lists(row, min_size=4, max_size=24).map(lambda r: np.array(r, np.uint32))


def grid(edges: Sequence[int], arity: int, limit: int = 1024) -> Words:
    """Every combination of edges, or `limit` of them drawn at random where there are more."""
    if arity == 0:
        return np.zeros((1, 0), np.uint32)
    total = len(edges) ** arity
    every = np.arange(total)
    chosen = every if total <= limit else np.random.default_rng(0).choice(every, limit, False)
    digits = [chosen // len(edges) ** place % len(edges) for place in range(arity)]
    return np.array(edges, np.uint32)[np.stack(digits, axis=1)]
