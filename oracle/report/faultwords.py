"""What a fault's witness and counts say, as sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oracle.text import counted, enumerated
from oracle.verdict import Defects, Finding

_CLASHES_TOLD = 3
_COORDINATES = ("page", "head", "column", "element")
_BYTE = ("page", "head", "row", "col")


_DEEDS = {
    "writer": ("stored on top of another", "never written"),
    "reader": ("looked at for another one too", "never looked at"),
}
"""What is said of bytes that several coordinates share, and of those that none has."""


def sentence(witness: Mapping[str, Any]) -> str | None:
    """`the scale of token 3 (page 1, head 0, column 0) is stored in page 1 V data`.

    None for a witness of a kind that has no sentence.
    """
    note = str(witness.get("note", ""))
    if witness.get("padding"):
        return _padding(witness, note)
    if note == "this byte is never written" and witness.keys() >= set(_BYTE):
        where = ", ".join(f"{name} {witness[name]}" for name in _BYTE)
        return f"the byte at {where}{_offset(witness)} is never written"
    if "token" not in witness or not witness.keys() & {"column", "element"}:
        return None
    one = f"the {_thing(witness)} of {_spot(witness)}"
    other = witness.get("with")
    if note == "shares its byte" and isinstance(other, Mapping):
        return f"{_together(witness, other)} share one byte{_offset(witness)}"
    if note == "its byte is stored more than once":
        return f"the byte of {one} is stored more than once{_offset(witness)}"
    if note == "no byte of the cache explains the value read":
        return f"{note} for {one}"
    if note == "stored a second time" and "stored" in witness:
        return f"{one} is stored a second time, {_within(str(witness['stored']))}"
    if note.startswith(("stored ", "looked for ")):
        return f"{one} is {note}"
    expected = [key for key in witness if key not in {*_COORDINATES, "token", "found", "note"}]
    if "found" in witness and len(expected) == 1:
        return f"{one} is at {witness['found']}; {expected[0]} puts it at {witness[expected[0]]}"
    return None


def _padding(witness: Mapping[str, Any], note: str) -> str:
    """A token that has no slot, and where it went all the same."""
    if "stored" in witness:
        place = str(witness["stored"])
    elif note.startswith("stored in "):
        place = note.removeprefix("stored in ")
    else:
        place = ", ".join(f"{k} {witness[k]}" for k in _COORDINATES if k in witness)
    where = f" {_preposition(place)}{place}" if place else ""
    return f"padding was stored: a token with slot -1 was written{where}"


def _preposition(place: str) -> str:
    return "" if place.endswith("allocation") else "to "


def _within(place: str) -> str:
    return place if place.endswith("allocation") else f"in {place}"


def _thing(witness: Mapping[str, Any]) -> str:
    return "scale" if "column" in witness else "code"


def _where(witness: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {witness[name]}" for name in _COORDINATES if name in witness)


def _spot(witness: Mapping[str, Any]) -> str:
    return f"token {witness['token']} ({_where(witness)})"


def _together(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Two coordinates, what they have in common said once."""
    other = {**{key: one[key] for key in (*_COORDINATES, "token") if key in one}, **other}
    things = f"the {_thing(one)}s of"
    if _where(one) == _where(other):
        return f"{things} token {one['token']} and token {other['token']} ({_where(one)})"
    return f"{things} {_spot(one)} and {_spot(other)}"


def _offset(witness: Mapping[str, Any]) -> str:
    return f", offset {witness['region_offset']} of the plane" if "region_offset" in witness else ""


def defects_in_words(defects: Defects, role: str) -> str:
    """The counts that are not zero, for one page, of a writer or a reader; empty where all are.

    What leaves the region may be in another plane or in another head's rows: the same bytes.
    """
    counts = defects.collisions, defects.never_written
    parts = [f"{count:,} {what}" for count, what in zip(counts, _DEEDS[role], strict=True) if count]
    outside = _outside(defects)
    rows = "outside the rows of their head"
    if outside:
        parts.append(outside)
    if defects.other_head_rows:
        parts.append(f"{'in all ' if outside else ''}{defects.other_head_rows:,} {rows}")
    if defects.misaligned:
        parts.append(f"{counted(defects.misaligned, 'store')} misaligned")
    return "; ".join(parts)


def _outside(defects: Defects) -> str:
    """`8 below and 3 above the region, all of them in another plane`."""
    ways = ((defects.below_region, "below"), (defects.above_region, "above"))
    words = enumerated(f"{count:,} {way}" for count, way in ways if count)
    if not words:
        return ""
    other = defects.other_plane
    if not other:
        return f"{words} the region"
    total = defects.below_region + defects.above_region
    count = "all" if other == total else f"{other:,}"
    whose = "" if total == 1 else f"{count} of them "
    return f"{words} the region, {whose}in another plane"


def landings_in_words(finding: Finding) -> list[str]:
    """`They land: 8 in page+1 K data`, `1 pair of tokens clashes, bytes in brackets: 0 and 4 (4)`.

    One sentence each, for what there is.
    """
    landed = enumerated(f"{count:,} {_within(place)}" for place, count in finding.strays.items())
    parts = [f"They land: {landed}"] if landed else []
    if finding.clashes:
        shown = enumerated(
            f"{clash.first} and {clash.second} ({clash.bytes:,})"
            for clash in finding.clashes[:_CLASHES_TOLD]
        )
        pairs = finding.defects.clashing_pairs
        verb = "clashes" if pairs == 1 else "clash"
        few = ", the first of them" if pairs > _CLASHES_TOLD else ""
        parts.append(f"{counted(pairs, 'pair')} of tokens {verb}{few}, bytes in brackets: {shown}")
    return parts
