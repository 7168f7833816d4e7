"""Lines of LLVM's textual form: fresh names, types of a lane or a vector, constants by bits."""

from __future__ import annotations

from dataclasses import dataclass

from oracle.machine.ir import Type

SCALAR = {
    Type.I1: "i1", Type.I32: "i32", Type.I64: "i64", Type.F32: "float", Type.F64: "double",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Typed:
    """A value in the text: its name, its kind, and whether it is a vector, an element a lane."""

    name: str
    kind: Type
    varying: bool


class Text:
    """Collects the lines of one LLVM function that treats `lanes` lanes at once."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.lines: list[str] = []
        self._names = 0

    def fresh(self) -> str:
        """A name nobody has."""
        self._names += 1
        return f"%x{self._names}"

    def line(self, text: str) -> None:
        """One instruction without a result."""
        self.lines.append("  " + text)

    def label(self, name: str) -> None:
        """The beginning of a basic block."""
        self.lines.append(f"{name}:")

    def value(self, text: str) -> str:
        """One instruction; the name of its result."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def type(self, kind: Type, varying: bool) -> str:
        """How a type is spelled, for one lane or for all."""
        return self.vector(SCALAR[kind]) if varying else SCALAR[kind]

    def vector(self, scalar: str) -> str:
        """How a vector with one element a lane is spelled."""
        return f"<{self.lanes} x {scalar}>"

    def typed(self, value: Typed) -> str:
        """A value with its type before it, as operands are written."""
        return f"{self.type(value.kind, value.varying)} {value.name}"

    def everywhere(self, scalar: str, name: str) -> str:
        """A scalar's name, or constant, in every lane; the vector's name."""
        one = self.value(f"insertelement {self.vector(scalar)} poison, {scalar} {name}, i64 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        vector = self.vector(scalar)
        return self.value(f"shufflevector {vector} {one}, {vector} poison, {zeros}")

    def spread(self, value: Typed) -> Typed:
        """A value as one with an element for each lane."""
        if value.varying:
            return value
        return Typed(self.everywhere(SCALAR[value.kind], value.name), value.kind, True)

    def bits(self, mask: str) -> str:
        """The bits of a vector of conditions as one integer, lane 0 lowest."""
        return self.value(f"bitcast {self.vector('i1')} {mask} to i{self.lanes}")

    def field(self, offset: int, kind: str, base: str = "%context") -> str:
        """The value of a field, `offset` bytes into a structure."""
        return self.value(f"load {kind}, ptr {self.at(offset, base)}")

    def at(self, offset: int | str, base: str = "%context") -> str:
        """The address `offset` bytes after another."""
        return self.value(f"getelementptr i8, ptr {base}, i64 {offset}")


def constant(kind: Type, bits: int) -> str:
    """A constant given by its bits, as an operand of its own type."""
    if kind is Type.I1:
        return "true" if bits else "false"
    if kind is Type.F32:
        return f"bitcast (i32 {bits} to float)"
    if kind is Type.F64:
        return f"bitcast (i64 {bits} to double)"
    return str(bits)
