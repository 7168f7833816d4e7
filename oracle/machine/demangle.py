"""Kernel names as their source spells them: the part of the Itanium C++ ABI that kernels need.

    _ZN4vllm6kernelIN3c108BFloat16ELi4EEEvPKT_   ->   vllm::kernel<c10::BFloat16, 4>

Read are nested names and template arguments that are types, integers or packs, with the
substitutions (`S0_`) by which a mangled name refers back to its own parts. Return and parameter
types are left out. What is not understood stays mangled, so that a name is never made up.
"""

from __future__ import annotations

MAX_NAME = 4096
"""Longest name, mangled or not, that is taken apart: substitutions can double it at every step."""
MAX_DEPTH = 64

_BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char",
    "h": "unsigned char", "s": "short", "t": "unsigned short", "i": "int", "j": "unsigned int",
    "l": "long", "m": "unsigned long", "x": "long long", "y": "unsigned long long",
    "n": "__int128", "o": "unsigned __int128", "f": "float", "d": "double", "e": "long double",
}  # fmt: skip
_SUFFIX = {"P": "*", "R": "&", "O": "&&", "K": " const", "V": " volatile"}
_LITERAL_SUFFIX = {"int": "", "unsigned int": "u", "long": "l", "unsigned long": "ul",
                   "long long": "ll", "unsigned long long": "ull"}  # fmt: skip
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class _NotUnderstood(Exception):
    """A part of the ABI that is not read here, or no mangled name at all."""


def demangle(name: str) -> str:
    """The source's name of a kernel with its template arguments, or `name` itself."""
    if not name.startswith("_Z") or len(name) > MAX_NAME:
        return name
    try:
        # An empty nested name is no name.
        return _Reader(name).encoding() or name
    except (_NotUnderstood, IndexError, ValueError):
        return name


class _Reader:
    """Reads one mangled name from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 2
        self._depth = 0
        self._known: list[str] = []

    def encoding(self) -> str:
        """The name of a function; what follows are its types."""
        return self._name()

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        found = self._peek(text)
        self._at += len(text) if found else 0
        return found

    def _note(self, text: str) -> str:
        """Remember a part that a substitution may refer to."""
        if len(text) > MAX_NAME:
            raise _NotUnderstood
        self._known.append(text)
        return text

    def _name(self) -> str:
        if self._take("N"):
            return self._nested()
        std = "std::" if self._take("St") else ""
        name = std + self._identifier()
        if self._peek("I"):
            name = self._note(name) + self._arguments()
        return name

    def _nested(self) -> str:
        prefix = ""
        while not self._take("E"):
            if self._take("St"):
                prefix = "std"
            elif self._peek("S"):
                prefix = self._substitution()
            elif self._peek("I"):
                prefix = self._note(prefix + self._arguments())
            else:
                part = self._identifier()
                prefix = self._note(f"{prefix}::{part}" if prefix else part)
        return prefix

    def _identifier(self) -> str:
        self._take("L")
        start = self._at
        while self._text[self._at].isdigit():
            self._at += 1
        length = int(self._text[start : self._at])
        name = self._text[self._at : self._at + length]
        self._at += length
        if len(name) < length or not name:
            raise _NotUnderstood
        return "(anonymous namespace)" if name.startswith("_GLOBAL_") else name

    def _substitution(self) -> str:
        self._at += 1
        end = self._text.index("_", self._at)
        position, self._at = self._text[self._at : end], end + 1
        index = 0
        for digit in position:
            index = 36 * index + _DIGITS.index(digit)
        return self._known[index + bool(position)]

    def _arguments(self) -> str:
        self._take("I")
        return f"<{', '.join(self._listed())}>"

    def _listed(self) -> list[str]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _NotUnderstood
        found: list[str] = []
        while not self._take("E"):
            if self._take("J"):
                found += self._listed()
            elif self._take("L"):
                found.append(self._literal())
            else:
                found.append(self._type())
        self._depth -= 1
        return found

    def _literal(self) -> str:
        kind = self._type()
        sign = "-" if self._take("n") else ""
        end = self._text.index("E", self._at)
        digits, self._at = self._text[self._at : end], end + 1
        if not digits.isdecimal():
            raise _NotUnderstood
        if kind == "bool" and digits in "01":
            return ("false", "true")[int(digits)]
        if kind in _LITERAL_SUFFIX:
            return sign + digits + _LITERAL_SUFFIX[kind]
        return f"({kind}){sign}{digits}"

    def _type(self) -> str:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _NotUnderstood
        found = self._type_inside()
        self._depth -= 1
        return found

    def _type_inside(self) -> str:
        letter = self._text[self._at]
        if letter in _BUILTIN:
            self._at += 1
            return _BUILTIN[letter]
        if letter in _SUFFIX:
            self._at += 1
            return self._note(self._type() + _SUFFIX[letter])
        if letter == "N":
            return self._name()
        if letter == "S" and not self._peek("St"):
            found = self._substitution()
            return self._note(found + self._arguments()) if self._peek("I") else found
        if self._peek("St") or letter.isdigit():
            name = self._name()
            return self._note(name)
        raise _NotUnderstood
