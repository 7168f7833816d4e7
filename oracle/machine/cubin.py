"""Reads a cubin: its arch, its kernels, their parameters, code, constants and symbols.

A cubin is an ELF file. The code of a kernel stands in `.text.<kernel>`, its attributes in
`.nv.info.<kernel>` and, by symbol, in `.nv.info`; constant bank b in `.nv.constant<b>.<kernel>` or,
shared by all kernels, in `.nv.constant<b>`; static shared memory in `.nv.shared.<kernel>`. The
attribute records are those that `cuobjdump -elf` prints as EIATTR_*.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from oracle.errors import UsageError
from oracle.machine.elf import EM_CUDA, Elf, Relocation, Section, Symbol

MAX_CUBIN_BYTES = 64 << 20
INSTRUCTION_BYTES = 16

_STT_FUNC = 2
_STO_CUDA_ENTRY = 0x10
_CONSTANT_SECTION = re.compile(r"\.nv\.constant([1-9][0-9]?)(?:\.(.+))?", re.DOTALL)
_TARGET_OPTION = re.compile(rb"-arch[ =](sm_([0-9]+)[af]?)(?![0-9a-z])")
# Attribute records: the payload of format 4 has its own length, the others fit the record.
_EIFMT_SVAL = 4
_MAX_THREADS, _PARAM_CBANK, _REQUIRED_THREADS = 0x05, 0x0A, 0x10
_FRAME_SIZE, _MIN_STACK_SIZE, _REGISTER_COUNT = 0x11, 0x12, 0x2F
_KPARAM_INFO, _KPARAM_INFO_LARGE = 0x17, 0x45
_PAYLOAD_BYTES = {
    _MAX_THREADS: 12,
    _PARAM_CBANK: 8,
    _REQUIRED_THREADS: 12,
    _FRAME_SIZE: 8,
    _MIN_STACK_SIZE: 8,
    _REGISTER_COUNT: 8,
    _KPARAM_INFO: 12,
    _KPARAM_INFO_LARGE: 12,
}


@dataclass(frozen=True, slots=True)
class Param:
    """One kernel parameter: `offset` and `size` in bytes within the parameter block."""

    ordinal: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """What is known of one kernel without decoding it. Sizes are in bytes.

    `code` is the whole text section: the kernel starts at `entry` in it, local routines follow.
    `symbols` maps every function of that section to its offset there (targets of CALL).
    `constants` maps a constant bank to its initial bytes; bank 0 is left out, as the launch makes
    it: parameters start at `param_base` there. `relocations` apply to the code,
    `relocated_banks` are the banks whose bytes a loader would patch.
    `max_threads` and `required_threads` bound and fix the block's (x, y, z); None where the source
    declares neither.
    """

    name: str
    params: tuple[Param, ...]
    param_base: int
    param_size: int
    code: bytes
    entry: int
    register_count: int | None
    shared_bytes: int
    stack_bytes: int
    max_threads: tuple[int, int, int] | None
    required_threads: tuple[int, int, int] | None
    constants: Mapping[int, bytes]
    symbols: Mapping[str, int]
    relocations: tuple[Relocation, ...]
    relocated_banks: frozenset[int]

    def unsupported_relocations(self) -> tuple[str, ...]:
        """Every patch the code needs from a loader, in words; empty where it needs none."""
        return tuple(
            f"type {r.type} against {r.symbol or 'a section'} at {r.offset:#x}"
            for r in self.relocations
        )


@dataclass(frozen=True, slots=True)
class Cubin:
    """A parsed cubin: `arch` such as "sm_100a", and its kernels by (mangled) name."""

    arch: str
    kernels: Mapping[str, KernelInfo]
    data: bytes

    @classmethod
    def parse(cls, data: bytes) -> "Cubin":
        """Parse the bytes of a cubin. Raises UsageError where they are not a sound cubin."""
        if len(data) > MAX_CUBIN_BYTES:
            raise UsageError(f"the cubin is larger than {MAX_CUBIN_BYTES >> 20} MiB")
        elf = Elf(data, "the cubin")
        if elf.machine != EM_CUDA:
            raise UsageError("the file is ELF but no cubin: it holds code of another machine")
        reader = _KernelReader(elf)
        return cls(_arch(elf), {k.name: k for k in reader.kernels()}, data)

    def kernel(self, name: str | None = None) -> KernelInfo:
        """The kernel called `name`, or the only one. Raises UsageError naming those there are."""
        if name is None and len(self.kernels) == 1:
            return next(iter(self.kernels.values()))
        if name is not None and name in self.kernels:
            return self.kernels[name]
        names = ", ".join(self.kernels) or "none"
        wanted = "name one kernel" if name is None else f"there is no kernel {name}"
        raise UsageError(f"{wanted}: the cubin holds {names}")


def _arch(elf: Elf) -> str:
    """The arch with its suffix (a: arch-specific, f: family), such as "sm_100a".

    The ELF flags hold the number: in bits 8..15 from ABI version 8 on, in bits 0..7 before. They do
    not tell sm_100a from sm_100f or sm_100 (a flag for arch-specific code exists, and assemblers do
    not set it reliably), so the option the assembler left in `.note.nv.tkinfo` goes first.
    """
    modern = elf.abi_version >= 8
    number = elf.flags >> 8 & 0xFF if modern else elf.flags & 0xFF
    if number < 50:
        raise UsageError(f"the cubin's flags {elf.flags:#x} name no arch")
    note = elf.section(".note.nv.tkinfo")
    for match in _TARGET_OPTION.finditer(bytes(note.data) if note else b""):
        if int(match[2]) == number:
            return match[1].decode()
    accelerated = elf.flags & (0x8 if modern else 0x800)
    return f"sm_{number}{'a' if accelerated else ''}"


def _attributes(section: Section | None) -> Iterator[tuple[int, bytes]]:
    """(attribute, payload) of each record of a `.nv.info` section."""
    data = bytes(section.data) if section else b""
    position = 0
    while position < len(data):
        if position + 4 > len(data):
            raise UsageError("the cubin is damaged: an attribute record is cut off")
        form, attribute, length = struct.unpack_from("<BBH", data, position)
        position += 4
        payload = b""
        if form == _EIFMT_SVAL:
            payload = data[position : position + length]
            position += length
            if len(payload) < max(length, _PAYLOAD_BYTES.get(attribute, 0)):
                raise UsageError(f"the cubin is damaged: attribute {attribute:#x} is cut off")
        elif attribute in _PAYLOAD_BYTES:
            raise UsageError(f"the cubin is damaged: attribute {attribute:#x} has no payload")
        yield attribute, payload


class _KernelReader:
    """Collects the kernels of one cubin."""

    def __init__(self, elf: Elf) -> None:
        """Index what is kept by symbol or by section. Raises UsageError."""
        self._elf = elf
        self._functions: dict[int, dict[str, int]] = {}
        for symbol in elf.symbols:
            if symbol.kind == _STT_FUNC:
                self._functions.setdefault(symbol.section, {})[symbol.name] = symbol.value
        self._relocations: dict[int, list[Relocation]] = {}
        for relocation in elf.relocations():
            self._relocations.setdefault(relocation.target, []).append(relocation)
        self._by_symbol: dict[tuple[int, int], int] = {}
        for attribute, payload in _attributes(elf.section(".nv.info")):
            if attribute in (_REGISTER_COUNT, _FRAME_SIZE, _MIN_STACK_SIZE):
                symbol, value = struct.unpack_from("<II", payload)
                self._by_symbol[attribute, symbol] = value

    def kernels(self) -> Iterator[KernelInfo]:
        """Every kernel, in the order of the symbol table."""
        for index, symbol in enumerate(self._elf.symbols):
            if symbol.kind == _STT_FUNC and symbol.other & _STO_CUDA_ENTRY:
                yield self._kernel(index, symbol)

    def _kernel(self, index: int, symbol: Symbol) -> KernelInfo:
        name = symbol.name
        text = self._elf.section(f".text.{name}")
        if text is None or text.index != symbol.section:
            raise UsageError(f"the cubin is damaged: kernel {name} has no code section")
        code = bytes(text.data)
        if not code or len(code) % INSTRUCTION_BYTES or symbol.value >= len(code):
            raise UsageError(f"the cubin is damaged: the code of kernel {name} has a wrong size")
        params: list[Param] = []
        base, size = 0, 0
        threads: dict[int, tuple[int, int, int]] = {}
        for attribute, payload in _attributes(self._elf.section(f".nv.info.{name}")):
            if attribute == _KPARAM_INFO:
                ordinal, offset, packed = struct.unpack_from("<4xHHI", payload)
                params.append(Param(ordinal, offset, packed >> 18))
            elif attribute == _KPARAM_INFO_LARGE:
                params.append(Param(*struct.unpack_from("<4xHHH", payload)))
            elif attribute == _PARAM_CBANK:
                base, size = struct.unpack_from("<4xHH", payload)
            elif attribute in (_MAX_THREADS, _REQUIRED_THREADS):
                threads[attribute] = struct.unpack_from("<III", payload)
        params.sort(key=lambda param: param.ordinal)
        self._check_params(name, params, size)
        shared = self._elf.section(f".nv.shared.{name}")
        banks, relocated = self._constants(name)
        return KernelInfo(
            name=name,
            params=tuple(params),
            param_base=base,
            param_size=size,
            code=code,
            entry=symbol.value,
            register_count=self._by_symbol.get((_REGISTER_COUNT, index)),
            shared_bytes=shared.size if shared else 0,
            stack_bytes=max(
                self._by_symbol.get((_FRAME_SIZE, index), 0),
                self._by_symbol.get((_MIN_STACK_SIZE, index), 0),
            ),
            max_threads=threads.get(_MAX_THREADS),
            required_threads=threads.get(_REQUIRED_THREADS),
            constants=banks,
            symbols=self._functions[text.index],
            relocations=tuple(self._relocations.get(text.index, ())),
            relocated_banks=relocated,
        )

    @staticmethod
    def _check_params(name: str, params: list[Param], size: int) -> None:
        if [param.ordinal for param in params] != list(range(len(params))):
            raise UsageError(f"the cubin is damaged: kernel {name} lacks some of its parameters")
        if any(param.offset + param.size > size for param in params):
            raise UsageError(f"the cubin is damaged: kernel {name} has parameters out of bounds")

    def _constants(self, name: str) -> tuple[dict[int, bytes], frozenset[int]]:
        """Initial bytes of each bank but 0 that `name` can read, and which need patching."""
        banks: dict[int, bytes] = {}
        relocated = set()
        for section in self._elf.sections:
            match = _CONSTANT_SECTION.fullmatch(section.name)
            if match and match[2] in (None, name):
                bank = int(match[1])
                banks[bank] = bytes(section.data)
                if section.index in self._relocations:
                    relocated.add(bank)
        return banks, frozenset(relocated)
