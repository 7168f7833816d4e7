"""The scale plane that a violation is about, to be drawn: what should be where, and what is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.addressmap import IntArray
from oracle.candidates import candidate
from oracle.errors import OracleError
from oracle.geometry import SIDES
from oracle.properties.addresses import mapped
from oracle.properties.case import StoreCase
from oracle.properties.promise import Violation
from oracle.recognise import expected_offset, recognise
from oracle.subjects.base import Writer

ROWS = 16
"""Tokens of a larger plane that are drawn, in whole bands of four."""
_BAND = 4


@dataclass(frozen=True, eq=False)
class AffectedPlane:
    """The scales of one side, and which of them are to blame.

    `table` int64 [T, S] holds flat offsets, those of the declared layout or, with none declared,
    the recovered ones; `offending` [T, S] are scales that are elsewhere or that the witness names.
    `first_token` is the token of the first row.
    """

    side: str
    layout: str
    table: IntArray
    offending: NDArray[np.bool_]
    first_token: int = 0

    def near(self, rows: int = ROWS) -> AffectedPlane:
        """The rows around the first offender."""
        token = int(self.offending.any(axis=1).argmax())
        start = max(0, min(token // _BAND * _BAND, len(self.table) - rows))
        kept = slice(start, start + rows)
        return AffectedPlane(self.side, self.layout, self.table[kept], self.offending[kept], start)


def affected_plane(writer: Writer, case: StoreCase, violation: Violation) -> AffectedPlane | None:
    """The plane of a violation that is about scales; None where it is not, or there is no layout.

    What offends is found with the maps of the writer as well as told by the witness, so that all
    of a fault shows and not its first coordinate alone.
    """
    witness = violation.witness
    side = witness.get("side")
    if side not in SIDES or witness.get("plane") != "scale":
        return None
    try:
        amap = mapped(writer, case).written.maps[side, "scale"]
    except OracleError:
        amap = None
    tokens, columns = case.block_size, case.geometry.scale_columns
    declared = writer.info.declared.get(side)
    if declared is not None:
        try:
            table = candidate(declared).table(tokens, columns)
        except OracleError:
            return None
    else:
        recovered = None if amap is None else recognise(amap).table
        if recovered is None:
            return None
        table = recovered
    offending = _named(table, witness) | _named(table, witness.get("with"))
    if amap is not None:
        offending |= (amap.offset != expected_offset(amap, table)).any(axis=(0, 1))
    return AffectedPlane(side, declared or "as recovered", table, offending)


def _named(table: IntArray, spot: Any) -> NDArray[np.bool_]:
    """The cells that a coordinate names: by token and column, or by the stored row and col."""
    offending = np.zeros(table.shape, np.bool_)
    if not isinstance(spot, Mapping):
        return offending
    tokens, columns = table.shape
    token, column = spot.get("token"), spot.get("column")
    if token in range(tokens) and column in range(columns):
        offending[token, column] = True
    row, col = spot.get("row"), spot.get("col")
    if row in range(tokens) and col in range(columns):
        offending |= table == row * columns + col
    return offending
