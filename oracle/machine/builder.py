"""Builds the primitives of one basic block, simplifying as it goes.

Equal pure operations are merged and the algebra that SASS idioms leave behind (a move written as
a multiplication by one, a 64-bit add split into halves with a carry) is folded, so that back ends
see what the compiler meant. Every rule here is an identity of the primitives; none looks at SASS.
"""

from __future__ import annotations

from collections.abc import Callable

from oracle.machine.ir import PURE, Op, Type, Value

I1, I32, I64, F32, F64 = Type.I1, Type.I32, Type.I64, Type.F32, Type.F64

_BITCAST = {I32: F32, F32: I32, I64: F64, F64: I64}
_COMMUTATIVE = frozenset({"add", "mul", "and", "or", "xor", "eq", "foeq"})


def _signed(bits: int, width: int) -> int:
    return bits - (1 << width) if bits >> (width - 1) else bits


_FOLD: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, w: a + b,
    "sub": lambda a, b, w: a - b,
    "mul": lambda a, b, w: a * b,
    "and": lambda a, b, w: a & b,
    "or": lambda a, b, w: a | b,
    "xor": lambda a, b, w: a ^ b,
    "shl": lambda a, b, w: a << b,
    "lshr": lambda a, b, w: a >> b,
    "ashr": lambda a, b, w: _signed(a, w) >> b,
    "eq": lambda a, b, w: int(a == b),
    "ult": lambda a, b, w: int(a < b),
    "slt": lambda a, b, w: int(_signed(a, w) < _signed(b, w)),
}


class Builder:
    """Emits operations into ``ops``; ``pc`` is the address of the instruction being lowered."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.pc = 0
        self._count = 0
        self._definition: dict[Value, Op] = {}
        self._known: dict[tuple[object, ...], Value] = {}

    # -- emission -------------------------------------------------------------------------------

    def emit(
        self,
        name: str,
        results: tuple[Type, ...],
        args: tuple[Value, ...] = (),
        attrs: tuple[int | str, ...] = (),
    ) -> tuple[Value, ...]:
        """Append one primitive and return its results; an equal pure one is reused."""
        key = (name, results, args, attrs)
        if name in PURE and key in self._known:
            return (self._known[key],)
        values = tuple(Value(self._count + i, t) for i, t in enumerate(results))
        self._count += len(values)
        op = Op(name, args, attrs, values, self.pc)
        self.ops.append(op)
        for value in values:
            self._definition[value] = op
        if name in PURE:
            self._known[key] = values[0]
        return values

    def _one(
        self, name: str, result: Type, *args: Value, attrs: tuple[int | str, ...] = ()
    ) -> Value:
        return self.emit(name, (result,), args, attrs)[0]

    def const(self, kind: Type, bits: int) -> Value:
        """A constant given by its bit pattern, reduced to the type's width."""
        return self._one("const", kind, attrs=(bits & ((1 << kind.width) - 1),))

    def known(self, value: Value) -> int | None:
        """The bit pattern of a constant, else None."""
        op = self._definition[value]
        return int(op.attrs[0]) if op.name == "const" else None

    def _is(self, value: Value, name: str) -> Op | None:
        op = self._definition[value]
        return op if op.name == name else None

    # -- integers -------------------------------------------------------------------------------

    def _binary(self, name: str, a: Value, b: Value, result: Type | None = None) -> Value:
        kind = result or a.type
        x, y = self.known(a), self.known(b)
        if x is not None and y is not None:
            return self.const(kind, _FOLD[name](x, y, a.type.width))
        if name in _COMMUTATIVE and x is not None:
            a, b = b, a
        return self._one(name, kind, a, b)

    def add(self, a: Value, b: Value) -> Value:
        """a + b, wrapping; a + (0 - b) becomes a - b."""
        if self.known(a) == 0:
            return b
        if self.known(b) == 0:
            return a
        for x, y in ((a, b), (b, a)):
            negated = self._is(y, "sub")
            if negated and self.known(negated.args[0]) == 0:
                return self.sub(x, negated.args[1])
        return self._binary("add", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        """a - b, wrapping."""
        if self.known(b) == 0:
            return a
        return self.const(a.type, 0) if a == b else self._binary("sub", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        """a * b, wrapping; a power of two becomes a shift."""
        for x, y in ((a, b), (b, a)):
            factor = self.known(y)
            if factor is not None and factor & (factor - 1) == 0:
                return (
                    self.const(a.type, 0) if factor == 0 else self.shl(x, factor.bit_length() - 1)
                )
        return self._binary("mul", a, b)

    def and_(self, a: Value, b: Value) -> Value:
        """Bitwise and."""
        ones = (1 << a.type.width) - 1
        for x, y in ((a, b), (b, a)):
            if self.known(y) == ones:
                return x
            if self.known(y) == 0:
                return y
        return a if a == b else self._binary("and", a, b)

    def or_(self, a: Value, b: Value) -> Value:
        """Bitwise or."""
        ones = (1 << a.type.width) - 1
        for x, y in ((a, b), (b, a)):
            if self.known(y) == 0:
                return x
            if self.known(y) == ones:
                return y
        return a if a == b else self._binary("or", a, b)

    def xor(self, a: Value, b: Value) -> Value:
        """Bitwise exclusive or."""
        for x, y in ((a, b), (b, a)):
            if self.known(y) == 0:
                return x
            inner = self._is(x, "xor")
            if inner and self.known(y) is not None and inner.args[1] == y:
                return inner.args[0]
        return self.const(a.type, 0) if a == b else self._binary("xor", a, b)

    def not_(self, a: Value) -> Value:
        """Bitwise complement."""
        return self.xor(a, self.const(a.type, -1))

    def shl(self, a: Value, n: int | Value) -> Value:
        """a << n for n below the width."""
        return self._shift("shl", a, n)

    def lshr(self, a: Value, n: int | Value) -> Value:
        """Logical a >> n for n below the width."""
        return self._shift("lshr", a, n)

    def ashr(self, a: Value, n: int | Value) -> Value:
        """Arithmetic a >> n for n below the width."""
        return self._shift("ashr", a, n)

    def _shift(self, name: str, a: Value, n: int | Value) -> Value:
        amount = self.const(a.type, n) if isinstance(n, int) else n
        return a if self.known(amount) == 0 else self._binary(name, a, amount)

    def eq(self, a: Value, b: Value) -> Value:
        """a == b."""
        return self.const(I1, 1) if a == b else self._binary("eq", a, b, I1)

    def ult(self, a: Value, b: Value) -> Value:
        """Unsigned a < b."""
        return self._binary("ult", a, b, I1)

    def slt(self, a: Value, b: Value) -> Value:
        """Signed a < b."""
        return self._binary("slt", a, b, I1)

    def select(self, p: Value, a: Value, b: Value) -> Value:
        """p ? a : b."""
        condition = self.known(p)
        if condition is not None:
            return a if condition else b
        if a == b:
            return a
        if a.type is I1:
            # Predicates are combined far more often than chosen: keep them in the bit algebra.
            return self.or_(self.and_(p, a), self.and_(self.not_(p), b))
        return self._one("select", a.type, p, a, b)

    # -- conversions ----------------------------------------------------------------------------

    def zext(self, a: Value, kind: Type) -> Value:
        """Zero-extend to a wider integer type."""
        bits = self.known(a)
        return self.const(kind, bits) if bits is not None else self._one("zext", kind, a)

    def sext(self, a: Value, kind: Type) -> Value:
        """Sign-extend to a wider integer type."""
        bits = self.known(a)
        if bits is not None:
            return self.const(kind, _signed(bits, a.type.width))
        return self._one("sext", kind, a)

    def trunc(self, a: Value, kind: Type) -> Value:
        """The low bits of an integer."""
        bits = self.known(a)
        if bits is not None:
            return self.const(kind, bits)
        for name in ("zext", "sext"):
            wider = self._is(a, name)
            if wider and wider.args[0].type is kind:
                return wider.args[0]
        joined = self._halves(a)
        if kind is I32 and joined:
            return joined[0]
        return self._one("trunc", kind, a)

    def bitcast(self, a: Value) -> Value:
        """The same bits as the other type of the same width."""
        kind = _BITCAST[a.type]
        bits = self.known(a)
        if bits is not None:
            return self.const(kind, bits)
        for name in ("bitcast", "fbits"):
            # fbits only renames a NaN, and no floating operation tells one NaN from another.
            inner = self._is(a, name)
            if inner and (name == "bitcast" or kind is F32):
                return inner.args[0]
        return self._one("bitcast", kind, a)

    def join(self, low: Value, high: Value) -> Value:
        """The i64 {high:low} of two i32; undoes `low` and `high` of one value."""
        if self.known(high) == 0:
            return self.zext(low, I64)
        first, second = self._is(low, "trunc"), self._is(high, "trunc")
        if first and second:
            shifted = self._is(second.args[0], "lshr")
            if shifted and self.known(shifted.args[1]) == 32 and shifted.args[0] == first.args[0]:
                return first.args[0]
        sign = self._is(high, "ashr")
        if sign and self.known(sign.args[1]) == 31 and sign.args[0] == low:
            return self.sext(low, I64)
        return self.or_(self.zext(low, I64), self.shl(self.zext(high, I64), 32))

    def _halves(self, a: Value) -> tuple[Value, Value] | None:
        """(low, high) where ``a`` was made by `join` of two plain words."""
        joined = self._is(a, "or")
        if not joined:
            return None
        low, shifted = (self._definition[arg] for arg in joined.args)
        if low.name != "zext" or shifted.name != "shl" or self.known(shifted.args[1]) != 32:
            return None
        high = self._is(shifted.args[0], "zext")
        if high is None or low.args[0].type is not I32 or high.args[0].type is not I32:
            return None
        return low.args[0], high.args[0]

    def low(self, a: Value) -> Value:
        """The low i32 of an i64."""
        return self.trunc(a, I32)

    def high(self, a: Value) -> Value:
        """The high i32 of an i64."""
        joined = self._halves(a)
        if joined:
            return joined[1]
        wider = self._is(a, "sext")
        if wider and wider.args[0].type is I32:
            return self.ashr(wider.args[0], 31)
        if self._is(a, "zext"):
            return self.const(I32, 0)
        return self.trunc(self.lshr(a, 32), I32)

    # -- floating point -------------------------------------------------------------------------

    def fbits(self, a: Value) -> Value:
        """The bits of an f32 result, its NaN made canonical."""
        bits = self.known(a)
        if bits is not None:
            return self.const(I32, 0x7FFFFFFF if bits & 0x7FFFFFFF > 0x7F800000 else bits)
        return self._one("fbits", I32, a)

    def float(self, name: str, *args: Value) -> Value:
        """fadd, fsub, fmul, fma, fmax or fmin of its arguments."""
        return self._one(name, args[0].type, *args)

    def fcompare(self, name: str, a: Value, b: Value) -> Value:
        """foeq, folt, fole or funo."""
        return self._one(name, I1, a, b)

    def convert(self, name: str, a: Value, kind: Type) -> Value:
        """fpext, fptrunc, uitofp or fptoui."""
        return self._one(name, kind, a)

    def rcp(self, a: Value) -> Value:
        """The reciprocal under the launch's model."""
        return self._one("rcp", F32, a)
