"""What the meaning of an instruction is written against: operands in, registers out.

An operand is read as the type the instruction gives it; a modifier the reader does not know is
refused. Writes under a predicate keep the old value where the predicate is false, so that no later
stage needs to know of predication.
"""

from __future__ import annotations

from collections.abc import Mapping

from oracle.errors import OracleError
from oracle.machine.builder import F32, I1, I32, I64, Builder
from oracle.machine.disassembly import Instruction
from oracle.machine.ir import Op, Terminator, Value
from oracle.machine.operands import Address, Const, Imm, Operand, Reg, parse_operand

SIGN = 0x8000_0000

_SCALES = {"X4": 2, "X8": 3, "X16": 4}
"""How far a register of a shared or local address is shifted, by its suffix."""

_SIGNS = ("negate", "invert", "absolute", "logical_not")

WHOLE_FILE = "PR"
"""All predicates together; nvdisasm files this operand of P2R and R2P as the guard."""


class Unsupported(OracleError):
    """A form of an instruction that has no meaning here yet."""

    exit_code = 2


class Modifiers:
    """The dotted parts of an opcode; each must be taken by the instruction's meaning."""

    def __init__(self, names: list[str]) -> None:
        self._left = list(names)

    def take(self, name: str) -> bool:
        """Whether the modifier is present; it counts as understood."""
        if name in self._left:
            self._left.remove(name)
            return True
        return False

    def choose(self, *names: str, default: str = "") -> str:
        """Which of several modifiers is present, else the default."""
        return next((name for name in names if self.take(name)), default)

    def ignore(self, *names: str) -> None:
        """Modifiers that change nothing the machine models (cache hints, convergence notes)."""
        for name in names:
            self.take(name)

    @property
    def left(self) -> tuple[str, ...]:
        """Modifiers nobody took."""
        return tuple(self._left)


class Context(Builder):
    """Lowers the instructions of one block."""

    def __init__(self) -> None:
        super().__init__()
        self._registers: dict[str, Value] = {}
        self._written: dict[str, None] = {}
        self.guard: Value = self.const(I1, 1)
        self.instruction: Instruction
        self.terminator: Terminator | None = None
        self.symbols: Mapping[str, int] = {}

    def begin(self, instruction: Instruction) -> None:
        """Turn to the next instruction; its predicate becomes the guard of what it does."""
        self.instruction = instruction
        self.pc = instruction.address
        self.guard = self.const(I1, 1)
        if instruction.predicate is None or instruction.predicate == WHOLE_FILE:
            return
        guard = parse_operand(instruction.predicate)
        self.guard = self.predicate(guard)

    def finish(self) -> list[Op]:
        """The block's operations, register writes last."""
        for name in self._written:
            self.emit("set", (), (self._registers[name],), (name,))
        return self.ops

    # -- registers ------------------------------------------------------------------------------

    def read(self, name: str) -> Value:
        """The value of a register such as "R4" or "UP0"."""
        if name not in self._registers:
            kind = I1 if name.strip("U")[0] == "P" else I32
            self._registers[name] = self.emit("get", (kind,), (), (name,))[0]
        return self._registers[name]

    def write(self, name: str, value: Value) -> None:
        """Set a register where the guard holds."""
        if self.known(self.guard) != 1:
            value = self._guarded(name, value)
        self._registers[name] = value
        self._written[name] = None

    def _guarded(self, name: str, value: Value) -> Value:
        """What a register holds after a write under the guard."""
        old = self.read(name)
        if name[0] == "U" and "U" not in (self.instruction.predicate or ""):
            # Lanes decide about a register that the warp shares.
            return self.emit("uniform", (value.type,), (value, self.guard, old))[0]
        return self.select(self.guard, value, old)

    # -- operands in ----------------------------------------------------------------------------

    def refuse(self, why: str) -> Unsupported:
        """An error that names the instruction being lowered."""
        return Unsupported(f"{self.instruction.text}: {why}")

    def operand(self, position: int) -> Operand:
        """The operand at a position; Unsupported where the instruction has fewer."""
        try:
            return self.instruction.operands[position]
        except IndexError:
            raise self.refuse("too few operands") from None

    def _plain(self, operand: Operand, offset: int = 0) -> Value:
        """The 32 bits of an operand without its modifiers, `offset` words further on."""
        if isinstance(operand, Reg) and operand.file in ("R", "UR"):
            if operand.constant:
                return self.const(I32, 0)
            return self.read(f"{operand.file}{operand.index + offset}")
        if isinstance(operand, Const):
            return self.constant(operand, operand.offset + 4 * offset)
        if isinstance(operand, Imm):
            if isinstance(operand.value, float):
                return self.const(I32, self.instruction.immediate_bits)
            return self.const(I32, operand.value >> (32 * offset))
        raise self.refuse(f"operand {operand} is not understood")

    def constant(self, operand: Const, offset: int) -> Value:
        """The word of constant memory at `offset` plus the operand's register."""
        if not isinstance(operand.bank, int):
            raise self.refuse("constant banks given by a descriptor are not supported")
        at = self.const(I32, offset)
        if operand.base is not None and not operand.base.constant:
            at = self.add(at, self.read(f"{operand.base.file}{operand.base.index}"))
        return self.emit("ldc", (I32,), (at,), (operand.bank,))[0]

    def only(self, operand: Operand, *signs: str, suffixes: tuple[str, ...] = ()) -> None:
        """Refuse an operand with other signs ("negate", ...) or suffixes than the given ones."""
        found = getattr(operand, "suffixes", ())
        if any(name not in suffixes for name in found):
            raise self.refuse(f"operand suffix .{'.'.join(found)} is not understood")
        if any(getattr(operand, sign, False) for sign in _SIGNS if sign not in signs):
            raise self.refuse("the sign of an operand is not understood")

    def i32(self, operand: Operand) -> Value:
        """An integer operand: -x and ~x apply."""
        self.only(operand, "negate", "invert")
        value = self._plain(operand)
        if getattr(operand, "invert", False):
            value = self.not_(value)
        if getattr(operand, "negate", False):
            value = self.sub(self.const(I32, 0), value)
        return value

    def i32_part(self, operand: Operand) -> Value:
        """The 32 bits of an operand whose suffix and sign the instruction interprets itself."""
        return self._plain(operand)

    def words(self, operand: Operand, count: int) -> tuple[Value, ...]:
        """`count` consecutive registers."""
        self.only(operand)
        return tuple(self._plain(operand, word) for word in range(count))

    def i64(self, operand: Operand) -> Value:
        """A 64-bit operand: a register pair, 8 constant bytes, or a sign-extended immediate."""
        self.only(operand, "negate", "invert", suffixes=("64",))
        if isinstance(operand, Reg) and operand.constant:
            value = self.const(I64, 0)
        elif isinstance(operand, Imm):
            if not isinstance(operand.value, int):
                raise self.refuse("a 64-bit float immediate is not understood")
            value = self.const(I64, operand.value)
        else:
            value = self.join(self._plain(operand), self._plain(operand, 1))
        if getattr(operand, "invert", False):
            value = self.not_(value)
        if getattr(operand, "negate", False):
            value = self.sub(self.const(I64, 0), value)
        return value

    def float_bits(self, operand: Operand) -> Value:
        """The i32 bits of an f32 operand: |x| and -x apply."""
        self.only(operand, "negate", "absolute")
        value = self._plain(operand)
        if isinstance(operand, Imm):
            return value
        if getattr(operand, "absolute", False):
            value = self.and_(value, self.const(I32, ~SIGN))
        if getattr(operand, "negate", False):
            value = self.xor(value, self.const(I32, SIGN))
        return value

    def f32(self, operand: Operand) -> Value:
        """An f32 operand: |x| and -x apply."""
        value = self.bitcast(self._plain(operand))
        self.only(operand, "negate", "absolute")
        if isinstance(operand, Imm):
            return value
        if getattr(operand, "absolute", False):
            value = self.fabs(value)
        if getattr(operand, "negate", False):
            value = self.fneg(value)
        return value

    def f32_of_pair(self, operand: Operand, word: int) -> Value:
        """One half of an operand that holds two f32 in a register pair."""
        self.only(operand, "negate", suffixes=("F32x2.HI_LO", "F32x2", "HI_LO", "64", "F32"))
        if isinstance(operand, Imm):
            return self.bitcast(self._plain(operand))
        if not isinstance(operand, Reg | Const):
            raise self.refuse(f"operand {operand} is not understood")
        # A single f32 stands for both halves.
        value = self.bitcast(self._plain(operand, 0 if operand.suffixes == ("F32",) else word))
        return self.fneg(value) if operand.negate else value

    def fneg(self, value: Value) -> Value:
        """-x of an f32."""
        return self.bitcast(self.xor(self.bitcast(value), self.const(I32, SIGN)))

    def fabs(self, value: Value) -> Value:
        """|x| of an f32."""
        return self.bitcast(self.and_(self.bitcast(value), self.const(I32, ~SIGN)))

    def f32_const(self, bits: int) -> Value:
        """An f32 constant by its bits."""
        return self.const(F32, bits)

    def predicate(self, operand: Operand) -> Value:
        """A predicate operand: !p applies."""
        if not isinstance(operand, Reg) or operand.file not in ("P", "UP"):
            raise self.refuse(f"operand {operand} is not a predicate")
        self.only(operand, "logical_not")
        value = self.const(I1, 1)
        if not operand.constant:
            value = self.read(f"{operand.file}{operand.index}")
        return self.not_(value) if operand.logical_not else value

    def address(self, operand: Operand, wide: bool) -> Value:
        """A memory operand as an i64; without `wide` its registers are 32-bit offsets."""
        if not isinstance(operand, Address) or operand.space or operand.suffixes:
            raise self.refuse(f"address {operand} is not understood")
        total = self.const(I64 if wide else I32, operand.offset)
        for register in (operand.base, operand.uniform):
            if register is not None and not register.constant:
                total = self.add(total, self._address_part(register, wide))
        return total if wide else self.zext(total, I64)

    def _address_part(self, register: Reg, wide: bool) -> Value:
        self.only(register, suffixes=("64", "U32") if wide else tuple(_SCALES))
        low = self.read(f"{register.file}{register.index}")
        if not wide:
            return self.shl(low, _SCALES[register.suffixes[0]]) if register.suffixes else low
        if register.suffixes == ("U32",):
            return self.zext(low, I64)
        # A uniform register beside a 32-bit one holds the 64-bit base.
        if register.suffixes != ("64",) and register.file != "UR":
            raise self.refuse("an address of 32 bits is not understood here")
        return self.join(low, self.read(f"{register.file}{register.index + 1}"))

    # -- registers out --------------------------------------------------------------------------

    def _target(self, operand: Operand, files: tuple[str, ...]) -> Reg | None:
        if not isinstance(operand, Reg) or operand.file not in files:
            raise self.refuse(f"result {operand} is not understood")
        self.only(operand)
        return None if operand.constant else operand

    def set_i32(self, operand: Operand, value: Value, word: int = 0) -> None:
        """Write an i32 to a register, or to the one `word` further on."""
        register = self._target(operand, ("R", "UR"))
        if register is not None:
            self.write(f"{register.file}{register.index + word}", value)

    def set_i64(self, operand: Operand, value: Value) -> None:
        """Write an i64 to a register pair."""
        self.set_i32(operand, self.low(value))
        self.set_i32(operand, self.high(value), 1)

    def set_f32(self, operand: Operand, value: Value) -> None:
        """Write an f32 result, its NaN canonical."""
        self.set_i32(operand, self.fbits(value))

    def set_predicate(self, operand: Operand, value: Value) -> None:
        """Write a predicate register."""
        register = self._target(operand, ("P", "UP"))
        if register is not None:
            self.write(f"{register.file}{register.index}", value)
