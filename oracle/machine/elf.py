"""The little of ELF that cubins and shared objects with embedded GPU code need.

Files are untrusted: every count, offset and size is checked against the file before use, names and
tables are bounded, and whatever does not hold raises UsageError. Only 64-bit little-endian files
are read, which is what every CUDA tool writes. Field names are those of the ELF specification.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from oracle.errors import UsageError

EM_CUDA = 190

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_REL = struct.Struct("<QQ")
_RELA = struct.Struct("<QQq")
_SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS, _SHT_REL = 2, 4, 8, 9
_SHF_COMPRESSED = 0x800

MAX_SECTIONS = 16_384
MAX_SYMBOLS = 65_536
MAX_RELOCATIONS = 1 << 20
MAX_NAMES_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Section:
    """One section; `data` is empty for sections that take no room in the file (`size` is not)."""

    name: str
    index: int
    type: int
    size: int
    link: int
    info: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class Symbol:
    """One entry of the symbol table; `section` is the index of the section it is defined in."""

    name: str
    value: int
    size: int
    kind: int
    other: int
    section: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """A patch a loader would apply: at `offset` of the section `target`, of the ELF type `type`."""

    target: int
    offset: int
    type: int
    symbol: str
    addend: int


class Elf:
    """A parsed file: header fields, `sections` in order, `symbols` and `relocations`."""

    def __init__(self, data: bytes, what: str) -> None:
        """Parse `data`; `what` names the file in messages. Raises UsageError."""
        self._what = what
        view = memoryview(data)
        if len(data) < _HEADER.size or data[:4] != b"\x7fELF":
            raise UsageError(f"{what} is not an ELF file: give a cubin or a shared object")
        if data[4] != 2 or data[5] != 1:
            raise UsageError(f"{what} is not a 64-bit little-endian ELF file")
        header = _HEADER.unpack_from(data)
        self.os_abi, self.abi_version = data[7], data[8]
        self.machine, self.flags = header[2], header[7]
        # Program headers are not used, but end most files: a truncated one is told by them.
        if header[10] and header[5] + header[9] * header[10] > len(data):
            raise self._broken("its program headers do not fit the file; is it truncated?")
        self._names_left = MAX_NAMES_BYTES
        self.sections = self._sections(view, header[6], *header[11:14])
        self._by_name = {section.name: section for section in self.sections}
        self.symbols = self._symbols()

    def section(self, name: str) -> Section | None:
        """The section called `name` (the last one, were there several), or None."""
        return self._by_name.get(name)

    def _broken(self, detail: str) -> UsageError:
        return UsageError(f"{self._what} is damaged: {detail}")

    def _sections(
        self, view: memoryview, table: int, entry: int, count: int, names: int
    ) -> tuple[Section, ...]:
        if count == 0:
            return ()
        if entry != _SECTION.size or count > MAX_SECTIONS or table + count * entry > len(view):
            raise self._broken("its section table does not fit the file")
        records = list(_SECTION.iter_unpack(view[table : table + count * entry]))
        for _, kind, flags, _, offset, size, *_ in records:
            if kind not in (0, _SHT_NOBITS) and offset + size > len(view):
                raise self._broken("a section reaches past its end; is it truncated?")
            if flags & _SHF_COMPRESSED:
                raise self._broken("compressed sections are not supported")
        if names >= count:
            raise self._broken("it has no section names")
        contents = [
            view[r[4] : r[4] + r[5]] if r[1] not in (0, _SHT_NOBITS) else view[:0] for r in records
        ]
        strings = bytes(contents[names])
        return tuple(
            Section(self._name(strings, r[0]), i, r[1], r[5], r[6], r[7], contents[i])
            for i, r in enumerate(records)
        )

    def _name(self, strings: bytes, offset: int) -> str:
        end = strings.find(0, offset)
        # Names may overlap, so a small file can spell out far more than its own size.
        self._names_left -= end - offset
        if end < 0 or self._names_left < 0:
            raise self._broken("a name is not terminated or the names are too long")
        return strings[offset:end].decode("utf-8", "backslashreplace")

    def _linked(self, section: Section) -> Section:
        if section.link >= len(self.sections):
            raise self._broken(f"{section.name} refers to a section that does not exist")
        return self.sections[section.link]

    def _symbols(self) -> tuple[Symbol, ...]:
        tables = [section for section in self.sections if section.type == _SHT_SYMTAB]
        if not tables:
            return ()
        table, strings = tables[0], bytes(self._linked(tables[0]).data)
        if len(table.data) % _SYMBOL.size or len(table.data) > MAX_SYMBOLS * _SYMBOL.size:
            raise self._broken("its symbol table has an impossible size")
        return tuple(
            Symbol(self._name(strings, name), value, size, info & 0xF, other, section)
            for name, info, other, section, value, size in _SYMBOL.iter_unpack(table.data)
        )

    def relocations(self) -> Iterator[Relocation]:
        """Every relocation of every section, in file order."""
        for section in self.sections:
            if section.type not in (_SHT_REL, _SHT_RELA):
                continue
            layout = _REL if section.type == _SHT_REL else _RELA
            if len(section.data) % layout.size or len(section.data) > MAX_RELOCATIONS * 24:
                raise self._broken(f"{section.name} has an impossible size")
            for offset, info, *addend in layout.iter_unpack(section.data):
                if info >> 32 >= len(self.symbols):
                    raise self._broken(f"{section.name} refers to a symbol that does not exist")
                name = self.symbols[info >> 32].name
                yield Relocation(
                    section.info, offset, info & 0xFFFFFFFF, name, addend[0] if addend else 0
                )
