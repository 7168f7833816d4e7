"""HTML and SVG put together from elements, so that no text can ever be taken for markup."""

from __future__ import annotations

import html
import json
from typing import TypeAlias

from oracle.text import NO_BREAK, printable


class Markup(str):
    """Markup that is ready; every other text is escaped where it becomes part of an element."""

    __slots__ = ()


Attribute: TypeAlias = "str | int | float | bool | None"

_VOID = frozenset({"meta", "input"})


def escaped(text: str) -> Markup:
    """`text` as it is to be read, on one line: what cannot be printed is spelled as an escape.

    That takes the sting out of characters that change the direction of what follows them, too.
    """
    if isinstance(text, Markup):
        return text
    words = NO_BREAK.join(printable(part) for part in text.split(NO_BREAK))
    return Markup(html.escape(words))


def element(tag: str, /, *children: str, **attributes: Attribute) -> Markup:
    """An element: children that are no Markup are escaped, and so are the values of attributes.

    An attribute's underscores stand for hyphens, one at its end for nothing (`class_`); True makes
    an attribute without a value, None and False none.
    """
    words = [tag]
    for attribute, value in attributes.items():
        if value is None or value is False:
            continue
        spelled = attribute.rstrip("_").replace("_", "-")
        words.append(spelled if value is True else f'{spelled}="{escaped(str(value))}"')
    start = f"<{' '.join(words)}>"
    if tag in _VOID:
        return Markup(start)
    return Markup(f"{start}{''.join(map(escaped, children))}</{tag}>")


def joined(*parts: str) -> Markup:
    """Several parts in a row."""
    return Markup("".join(map(escaped, parts)))


def data(document: object, identity: str) -> Markup:
    """A script element that holds JSON and is never run; nothing in it can end it early."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return element("script", Markup(text), type="application/json", id=identity)
