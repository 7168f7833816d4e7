"""Turns recovered maps into findings and agreements."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from oracle.addressmap import MISSING, AddressMap, Read, Written
from oracle.candidates import candidate
from oracle.contracts import kept, misread_by
from oracle.faults import Faults, faults_of, linear_data_faults, reader_faults_of
from oracle.geometry import PLANES, SIDES, CacheGeometry
from oracle.offsettable import MAX_RUNS, OffsetTable, runs_of
from oracle.recognise import Recognition, expected_offset, linear_data_shape, recognise
from oracle.subjects.base import SubjectInfo
from oracle.verdict import FAULTY, Agreement, Configuration, Finding, Witness


def not_obtained(
    info: SubjectInfo, configuration: Configuration, status: str, reason: str
) -> list[Finding]:
    """Findings that say why there is no map: refused, unsupported or not_run."""
    return [
        Finding(
            info.id,
            side,
            plane,
            configuration,
            info.scale_search.value,
            status,
            declared=declared_layout(info, side, plane),
            reason=reason,
        )
        for plane in PLANES
        for side in SIDES
    ]


def writer_findings(
    info: SubjectInfo, configuration: Configuration, written: Written
) -> list[Finding]:
    """One finding for each plane and side of what a writer did."""
    findings = []
    for (side, plane), amap in written.maps.items():
        faults = faults_of(amap, written)
        findings.append(_finding(info, side, plane, configuration, amap, faults, written.faults))
    return findings


def data_finding(
    info: SubjectInfo,
    side: str,
    configuration: Configuration,
    geometry: CacheGeometry,
    pages: tuple[int, ...],
    written: Written,
) -> Finding:
    """The finding about a data plane known to be linear, without a map of its every element."""
    faults = linear_data_faults(geometry, side, pages, written)
    declared = declared_layout(info, side, "data")
    status, witness = "match", None
    for each, shown in faults.by_status.items():
        if shown is not None:
            status, witness = each, shown
            break
    positions = geometry.num_heads * geometry.block_size * geometry.head_size
    return Finding(
        info.id,
        side,
        "data",
        configuration,
        info.scale_search.value,
        status,
        layouts=("linear",),
        declared=declared,
        shape_stride=linear_data_shape(geometry.block_size, geometry.head_size),
        positions=positions,
        recovered=positions,
        defects=faults.defects,
        witness=witness,
        reason="; ".join(written.faults[:3]) or None if status in FAULTY else None,
    )


def reader_findings(info: SubjectInfo, configuration: Configuration, read: Read) -> list[Finding]:
    """One finding for each plane and side of where a reader looks."""
    findings = []
    for (side, plane), amap in read.maps.items():
        faults = reader_faults_of(amap)
        findings.append(_finding(info, side, plane, configuration, amap, faults, ()))
    return findings


def declared_layout(info: SubjectInfo, side: str, plane: str) -> str | None:
    """The layout of a plane that a subject declares: what declares any has its data linear."""
    if plane == "data":
        return "linear" if info.declared else None
    return info.declared.get(side)


def _finding(
    info: SubjectInfo,
    side: str,
    plane: str,
    configuration: Configuration,
    amap: AddressMap,
    faults: Faults,
    told: tuple[str, ...],
) -> Finding:
    declared = declared_layout(info, side, plane)
    recognition = recognise(amap)
    status, witness = _status(amap, declared, recognition, faults.by_status)
    reason = recognition.reason
    if status in FAULTY and told:
        reason = "; ".join(told[:3])
    one_page = amap.offset[0]
    claims = info.role == "writer" and plane == "scale" and recognition.table is not None
    return Finding(
        info.id,
        side,
        plane,
        configuration,
        info.scale_search.value,
        status,
        layouts=recognition.layouts,
        declared=declared,
        shape_stride=recognition.shape_stride,
        positions=one_page.size,
        recovered=int(amap.found.sum(axis=(1, 2, 3)).min()),
        defects=faults.defects,
        strays=faults.strays,
        clashes=faults.clashes,
        keeps=kept(side, recognition.layouts, amap.geometry) if claims else (),
        misread_by=misread_by(side, recognition.layouts, amap.geometry) if claims else (),
        witness=witness,
        reason=reason,
        table=_table(amap, recognition, witness or {}),
    )


def _table(amap: AddressMap, recognition: Recognition, witness: Witness) -> OffsetTable | None:
    """The offsets of one head, that of the witness or the first, of scales nothing else describes.

    None also where nothing was found at all, and where it would be too long.
    """
    described = recognition.layouts or recognition.shape_stride
    if amap.plane != "scale" or described or not amap.found.any():
        return None
    page, head = witness.get("page", amap.pages[0]), witness.get("head", 0)
    if page not in amap.pages:
        page, head = amap.pages[0], 0
    relative = amap.page_relative()[amap.pages.index(page), head].ravel()
    start = amap.geometry.scale_base(amap.side)
    runs = runs_of(None if at == MISSING else at - start for at in relative.tolist())
    return OffsetTable(page, head, runs) if len(runs) <= MAX_RUNS else None


def _status(
    amap: AddressMap,
    declared: str | None,
    recognition: Recognition,
    wrong: Mapping[str, Witness | None],
) -> tuple[str, Witness | None]:
    for status, witness in wrong.items():
        if witness is not None:
            return status, witness
    if declared is None:
        if recognition.layouts:
            return "match", None
        return "unrecognised", _first_difference(amap, "linear")
    if declared in recognition.layouts:
        return "match", None
    return "mismatch", _first_difference(amap, declared)


def _first_difference(amap: AddressMap, layout: str) -> Witness | None:
    """The smallest coordinate that is not where a layout puts it."""
    geometry = amap.geometry
    tokens = geometry.block_size
    if amap.plane == "data":
        width = geometry.head_size
        table = np.arange(tokens * width).reshape(tokens, width)
    else:
        reason = candidate(layout).undefined_reason(tokens, geometry.scale_columns)
        if reason is not None:
            return {"note": reason}
        table = candidate(layout).table(tokens, geometry.scale_columns)
    expected = expected_offset(amap, table)
    different = np.argwhere(expected != amap.offset)
    if different.size == 0:
        return None
    spot = tuple(int(i) for i in different[0])
    return {
        **_where(amap, spot),
        layout: _place(amap, int(expected[spot])),
        "found": _place(amap, int(amap.offset[spot])),
    }


def _where(amap: AddressMap, spot: tuple[int, ...]) -> dict[str, int]:
    _, head, token, column = spot
    place = "element" if amap.plane == "data" else "column"
    return {"head": head, "token": token, place: column}


def _place(amap: AddressMap, offset: int) -> str:
    """An offset in words: the plane offset in the head's own plane, or the region it is in."""
    byte = offset // amap.unit
    where = amap.geometry.locate(byte)
    if not where.inside:
        return amap.geometry.plane_name(byte)
    half = "" if amap.unit == 1 else (" high" if offset % 2 else " low")
    plane = amap.geometry.plane_name(byte).split(" ", 2)[2]
    return f"{plane} head {where.head} row {where.row} col {where.col}{half}"


def agreement(
    writer: SubjectInfo,
    reader: SubjectInfo,
    side: str,
    configuration: Configuration,
    written: Written,
    read: Read,
    judged: bool,
) -> Agreement:
    """Whether a reader looks for the scales of one side where a writer put them."""
    put, looked = written.maps[side, "scale"], read.maps[side, "scale"]
    both = put.found & looked.found
    differs = both & (put.offset != looked.offset)
    disagreeing = int(differs.sum(axis=(1, 2, 3)).max())
    witness: Witness | None = None
    reason = None
    if disagreeing:
        status = "disagree"
        spot = tuple(int(i) for i in np.argwhere(differs)[0])
        witness = {
            **_where(put, spot),
            "writer": _place(put, int(put.offset[spot])),
            "reader": _place(looked, int(looked.offset[spot])),
        }
    elif both.all():
        status = "agree"
    else:
        status = "undecided"
        lost = int((~both).sum(axis=(1, 2, 3)).max())
        reason = f"{lost} coordinates were not found in the writer or the reader"
    return Agreement(
        writer.id,
        reader.id,
        side,
        configuration,
        status,
        positions=put.offset[0].size,
        disagreeing=disagreeing,
        witness=witness,
        reason=reason,
        judged=judged,
    )
