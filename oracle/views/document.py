"""An examination as a JSON document: every answer, whether it was good or not."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import Any

from oracle.views.density import density
from oracle.views.examine import SHARING, WORDS, Examination
from oracle.views.owners import Coordinate
from oracle.views.planes import AXES

SCHEMA_VERSION = "1.1"

MAX_RUNS = 4096
"""Runs of a round trip that a document lists; `runs_left_out` counts the others."""


def as_document(examination: Examination, exit_code: int) -> dict[str, Any]:
    """Everything an examination found out."""
    carving, owners = examination.carving, examination.owners
    tensor = carving.tensor
    return {
        "schema_version": SCHEMA_VERSION,
        "sound": not examination.faults,
        "faults": list(examination.faults),
        "sound_splits": list(examination.sound_splits),
        "tensor": {**asdict(tensor), "head_size": tensor.head_size},
        "split": carving.split.name,
        "scale_layouts": dict(examination.asked.scale_layouts),
        "layout": examination.asked.layout,
        "departures": list(examination.departures),
        "questions": [_question(examination, name) for name in WORDS],
        "outside": _outside(examination),
        "bytes": {
            "storage": tensor.storage_bytes,
            "owned": owners.owned,
            "page_stride": tensor.page_stride if tensor.pages > 1 else None,
            "owned_in_page": None if owners.owned is None else owners.owned // tensor.pages,
        },
        "planes": [
            {
                "side": plane.side,
                "plane": plane.kind,
                "base": plane.base,
                "shape": dict(zip(AXES, plane.shape, strict=True)),
                "strides": plane.strides._asdict(),
                **asdict(density(plane)),
            }
            for plane in carving.planes
        ],
        "unequal_parts": examination.unequal_parts,
        "parties": [asdict(party) for party in examination.parties],
        "slice": _slice(examination),
        "round_trip": _round_trip(examination),
        "exit_code": exit_code,
    }


def _question(examination: Examination, name: str) -> dict[str, Any]:
    shared = examination.owners.answers[name]
    found = {"name": name, "apart": shared is None, "answer": WORDS[name], "witness": None}
    if shared is None:
        return found
    witness = {
        "byte": shared.byte,
        "first": _owner(examination, shared.first),
        "second": _owner(examination, shared.second),
    }
    return {**found, "answer": SHARING[name], "witness": witness}


def _owner(examination: Examination, owner: Coordinate) -> dict[str, Any]:
    stored = {"row": owner.row, "col": owner.column} if owner.kind == "scale" else {}
    return {**examination.logical(owner), **stored}


def _outside(examination: Examination) -> dict[str, Any] | None:
    found = examination.owners.outside
    return found and {"offset": found[0], **_owner(examination, found[1])}


def _slice(examination: Examination) -> dict[str, Any] | None:
    found = examination.slice
    if found is None:
        return None
    return {
        "heads": [found.heads.start, found.heads.stop],
        "tokens": [found.tokens.start, found.tokens.stop],
        "closed": found.closed,
        "open_sides": dict(found.open_sides),
        "carve_first": found.carve_first,
        "runs": [asdict(runs) for runs in found.runs],
    }


def _round_trip(examination: Examination) -> dict[str, Any] | None:
    found = examination.round_trip
    if found is None:
        return None
    listed = [asdict(run) for run in islice(found.runs(), MAX_RUNS)]
    return {
        "writer": found.writer,
        "reader": found.reader,
        "pages": found.pages,
        "coordinates": found.coordinates,
        "kept": found.kept,
        "replaced": found.replaced,
        "unwritten": found.unwritten,
        "witness": found.witness,
        "runs_left_out": found.run_count - len(listed),
        "runs": listed,
    }
