"""Holds what a GPU stored against what the machine stores: the same code, the same requests.

The requests are the probe's, and one of special values. No byte of them hangs on the last bit of
MUFU.RCP, the one instruction whose result is not public, so every byte must be the same: the
probe's values are on the grid of the format at a global scale of 1, and the special ones end at a
scale of nothing or at the largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from oracle.addressmap import Written
from oracle.errors import OracleError
from oracle.formats import DTYPES
from oracle.geometry import PLANES, SIDES, CacheGeometry
from oracle.probe import WriterProbe, probed, writer_probe
from oracle.quantize import GROUP
from oracle.requests import StoreRequest
from oracle.subjects.base import Writer
from oracle.verdict import FAULTY, Finding, Witness


@dataclass(frozen=True)
class Difference:
    """The bytes of one plane that two executors leave different: how many, and the first of them.

    `offset` counts from the start of the cache; `first` is what the one stored there, `second` what
    the other did.
    """

    count: int
    offset: int
    first: int
    second: int


def differences(
    one: Writer, other: Writer, geometry: CacheGeometry, dtype: str
) -> dict[tuple[str, str], Difference]:
    """Where two writers leave different caches, by side and plane, over the same requests.

    Of several requests the first that shows a difference in a plane counts. Raises what the writers
    raise.
    """
    probe = writer_probe(probed(geometry), dtype)
    found: dict[tuple[str, str], Difference] = {}
    for request in (*probe.requests(probe.slots), _special(probe)):
        first, second = (writer.write(request).cache for writer in (one, other))
        offset = np.flatnonzero(first != second)
        where = probe.geometry.locate(offset)
        for s, side in enumerate(SIDES):
            for p, plane in enumerate(PLANES):
                here = offset[(where.side == s) & (where.plane == p)]
                if here.size and (side, plane) not in found:
                    at = int(here[0])
                    found[side, plane] = Difference(
                        here.size, at, int(first[at]), int(second[at])
                    )  # fmt: skip
    return found


def _special(probe: WriterProbe) -> StoreRequest:
    """Groups of one value each: zeros, infinities, NaN, too small and too large for any scale."""
    geometry, slots = probe.geometry, probe.slots
    groups = np.array([0, np.inf, 1e-7, -6e4, np.nan, -0.0, 6e4, -np.inf, -1e-7], np.float32)
    pattern = DTYPES[probe.dtype].encode(np.repeat(groups, GROUP))
    values = np.resize(pattern, (slots.size, geometry.num_heads, geometry.head_size))
    image = np.random.default_rng(2).integers(0, 256, geometry.cache_bytes, np.uint8)
    return StoreRequest(geometry, probe.dtype, values, values[::-1], slots, 1.0, 1.0, image)


def compared(
    one: Writer,
    twin: Writer,
    findings: Sequence[Finding],
    written: Written,
    geometry: CacheGeometry,
    dtype: str,
) -> list[Finding]:
    """The findings about a writer, with those of a plane that its twin stores otherwise undefined.

    A plane that is faulty by itself stays what it is and gets the difference as a reason. A twin
    that gives no bytes is not compared with: its own findings say why. Raises what else there is
    to raise where one of the two fails, as the comparison has requests of its own.
    """
    try:
        found = differences(one, twin, geometry, dtype)
    except OracleError:
        if _stores(twin, geometry, dtype):
            raise
        return list(findings)
    return [
        _differing(finding, found[finding.side, finding.plane], written, probed(geometry))
        if (finding.side, finding.plane) in found
        else finding
        for finding in findings
    ]


def _stores(writer: Writer, geometry: CacheGeometry, dtype: str) -> bool:
    """Whether a writer gives bytes at all."""
    probe = writer_probe(probed(geometry), dtype)
    try:
        writer.write(next(iter(probe.requests(probe.slots))))
    except OracleError:
        return False
    return True


def _differing(
    finding: Finding, difference: Difference, written: Written, geometry: CacheGeometry
) -> Finding:
    note = f"{difference.first:#04x} on the GPU, {difference.second:#04x} on the machine"
    many = difference.count > 1
    differ = f"{difference.count} bytes differ" if many else "1 byte differs"
    reason = f"{differ} from what the machine stores"
    if finding.status in FAULTY:
        told = "; ".join(filter(None, (finding.reason, f"{reason}: {note}")))
        return replace(finding, reason=told)
    witness = _witness(difference.offset, finding, written, geometry, note)
    return replace(finding, status="undefined", witness=witness, reason=reason)


def _witness(
    offset: int, finding: Finding, written: Written, geometry: CacheGeometry, note: str
) -> Witness:
    """Whose byte it is, as far as the map tells, and where it is."""
    where = geometry.locate(offset)
    witness: dict[str, int | str] = {
        "page": int(where.page),
        "head": int(where.head),
        "row": int(where.row),
        "col": int(where.col),
        "note": note,
    }
    amap = written.maps.get((finding.side, finding.plane))
    if amap is not None:
        owners = np.argwhere(amap.offset // amap.unit == offset)
        if owners.size:
            _, head, token, column = (int(i) for i in owners[0])
            place = "column" if finding.plane == "scale" else "element"
            witness = {**witness, "head": head, "token": token, place: column}
    return witness
