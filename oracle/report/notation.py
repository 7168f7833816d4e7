"""From the text of a shape:stride back to the table that it describes."""

from __future__ import annotations

import ast
import re

from oracle.errors import UsageError
from oracle.layout import Layout, Offsets

LONGEST = 400
"""Characters of a form that is read; a recovered one has some tens."""

_FORM = re.compile(r"([(),\d-]+):([(),\d-]+)(?:\+(\d+))?")
# No plane is so large, and a sum of such numbers could leave 64 bits.
_TOO_LARGE = re.compile(r"\d{13}")


def table_of(form: str, tokens: int, columns: int) -> Offsets:
    """The offsets [tokens, columns] that `shape:stride`, or `shape:stride+base`, stands for.

    Raises UsageError where the text is no such form or describes another domain.
    """
    found = _FORM.fullmatch(form) if len(form) <= LONGEST else None
    if found is None or _TOO_LARGE.search(form):
        raise UsageError("this is no shape:stride")
    try:
        layout = Layout(ast.literal_eval(found[1]), ast.literal_eval(found[2]))
    except (ValueError, SyntaxError) as error:
        raise UsageError("this is no shape:stride") from error
    if [mode.size for mode in layout.modes] != [tokens, columns]:
        raise UsageError(f"{form} describes no plane of {tokens} tokens by {columns} columns")
    return layout.table() + int(found[3] or 0)
