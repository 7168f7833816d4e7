"""One shape:stride for many geometries, in symbols, where one holds in all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction

from oracle.verdict import Finding

_MEANING = {"T": "block size", "S": "scale columns", "D": "head size"}
_NUMBER = re.compile(r"\d+")
_SYMBOL = re.compile(r"[TSD]")
_GROUP = 16


def skeleton(form: str) -> str:
    """A shape:stride without its numbers: `((#,#),#):((#,#),#)`."""
    return _NUMBER.sub("#", form)


def symbols_of(forms: Iterable[str]) -> str:
    """`T: block size, S: scale columns`: the extents of a geometry that forms speak of."""
    used = {symbol for form in forms if ":" in form for symbol in _SYMBOL.findall(form)}
    return ", ".join(f"{symbol}: {what}" for symbol, what in _MEANING.items() if symbol in used)


def in_symbols(findings: Sequence[Finding]) -> str | None:
    """`((4,T/4),S):((1,4S),4)`: numbers that change are a fixed multiple of T, S or both.

    The same numbers everywhere stay numbers. None where there is no form, or no such multiple.
    """
    forms = [finding.shape_stride or "" for finding in findings]
    if not all(forms) or len(set(map(skeleton, forms))) != 1:
        return None
    places = zip(*(map(int, _NUMBER.findall(form)) for form in forms), strict=True)
    words = [_word(numbers, findings) for numbers in places]
    known = [word for word in words if word is not None]
    if len(known) < len(words):
        return None
    spelled = iter(known)
    return _NUMBER.sub(lambda _: next(spelled), forms[0])


def _word(numbers: Sequence[int], findings: Sequence[Finding]) -> str | None:
    """What a number of the forms is in all of them: itself, or a multiple of the extents."""
    if len(set(numbers)) == 1:
        return str(numbers[0])
    tokens = [finding.configuration.block_size for finding in findings]
    if findings[0].plane == "data":
        name, widths = "D", [finding.configuration.head_size for finding in findings]
    else:
        name, widths = "S", [finding.configuration.head_size // _GROUP for finding in findings]
    both = [token * width for token, width in zip(tokens, widths, strict=True)]
    for symbol, extents in (("T", tokens), (name, widths), (f"T{name}", both)):
        ratios = {Fraction(n, extent) for n, extent in zip(numbers, extents, strict=True)}
        if len(ratios) == 1:
            ratio = ratios.pop()
            times = "" if ratio.numerator == 1 else str(ratio.numerator)
            over = "" if ratio.denominator == 1 else f"/{ratio.denominator}"
            return f"{times}{symbol}{over}"
    return None
