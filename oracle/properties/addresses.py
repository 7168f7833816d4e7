"""Promises about addresses: told from coded values on the geometry of a case, never from values.

The maps of a writer (`oracle.survey`) depend on its geometry and dtype alone, so the latest ones
are kept.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import cast

from oracle.addressmap import Read, Written
from oracle.errors import OracleError
from oracle.faults import Faults, faults_of, linear_data_faults
from oracle.findings import agreement
from oracle.geometry import PLANES, SIDES, CacheGeometry
from oracle.layout import LayoutUndefined
from oracle.probe import PAGES_IN_CACHE, PROBED_PAGES, probed
from oracle.properties.case import StoreCase
from oracle.properties.places import Places, named_places, spot_in_words
from oracle.properties.promise import Broken
from oracle.readerprobe import map_reader
from oracle.recognise import recognise
from oracle.subjects.base import AddressReader, Reader, Writer
from oracle.survey import survey
from oracle.verdict import Configuration, Finding, Witness

KEPT = 32
"""Maps that are kept: examples come back to the same small geometries."""


class NoLayout(OracleError):
    """The scales of a writer have no layout to look for them with."""

    exit_code = 1


@dataclass(frozen=True, eq=False)
class Mapped:
    """Where a writer stores the pages of the probe, and what was found about it."""

    geometry: CacheGeometry
    findings: tuple[Finding, ...]
    written: Written

    @cached_property
    def faults(self) -> tuple[tuple[str, str, Faults], ...]:
        """What is wrong, by side and plane."""
        return tuple((side, p, self._faults(side, p)) for p in reversed(PLANES) for side in SIDES)

    def _faults(self, side: str, plane: str) -> Faults:
        amap = self.written.maps.get((side, plane))
        if amap is None:
            # The survey maps data planes only where they are not linear.
            return linear_data_faults(self.geometry, side, PROBED_PAGES, self.written)
        return faults_of(amap, self.written)


def mapped(writer: Writer, case: StoreCase) -> Mapped:
    """The maps of a writer on the geometry of a case. Raises what `oracle.survey.survey` raises."""
    # Every object is hashable, which mypy does not see of a protocol.
    return _mapped(cast(Hashable, writer), probed(case.geometry), case.dtype)


@lru_cache(maxsize=KEPT)
def _mapped(writer: Writer, geometry: CacheGeometry, dtype: str) -> Mapped:
    findings, written = survey(writer, geometry, Configuration.of(geometry, dtype))
    return Mapped(geometry, tuple(findings), written)


def read_map(reader: Reader, case: StoreCase) -> Read:
    """The maps of a reader on the geometry of a case. Raises what it raises."""
    return _read_map(cast(Hashable, reader), probed(case.geometry))


@lru_cache(maxsize=KEPT)
def _read_map(reader: Reader, geometry: CacheGeometry) -> Read:
    if isinstance(reader, AddressReader):
        return reader.map(geometry)
    return map_reader(reader, geometry)


def places_of(writer: Writer, case: StoreCase) -> Places:
    """The places of the layouts a writer declares or, with nothing declared, of those it has.

    Raises NoLayout where it has none.
    """
    declared = writer.info.declared
    if declared:
        try:
            return named_places(case.geometry, declared["K"], declared["V"])
        except LayoutUndefined as error:
            raise NoLayout(f"what is declared is no layout of this page: {error}") from error
    maps = mapped(writer, case).written.maps
    tables = {}
    for side in SIDES:
        found = recognise(maps[side, "scale"])
        if found.table is None:
            raise NoLayout(f"the {side} scales have no layout to be read with: {found.reason}")
        tables[side] = found.table
    return Places(case.geometry, tables)


def bijective(writer: Writer, reader: Reader | None, case: StoreCase) -> Broken | None:
    """Two coordinates with one byte, a byte stored twice, or one of nobody."""
    for side, plane, faults in mapped(writer, case).faults:
        for witness in (faults.overlap, faults.gap):
            if witness is not None:
                return _told(side, plane, witness)
    return None


def in_region(writer: Writer, reader: Reader | None, case: StoreCase) -> Broken | None:
    """A byte outside the region of its plane, or at an address no GPU stores to."""
    for side, plane, faults in mapped(writer, case).faults:
        for witness in (faults.undefined, faults.out_of_region):
            if witness is not None:
                return _told(side, plane, witness)
    return None


def as_declared(writer: Writer, reader: Reader | None, case: StoreCase) -> Broken | None:
    """A plane that is laid out otherwise than its writer declares."""
    for finding in mapped(writer, case).findings:
        if finding.status != "match":
            names = " = ".join(finding.layouts) or finding.shape_stride or "a layout without a name"
            found = f"is {names}" if finding.status == "mismatch" else finding.status
            told = _told(finding.side, finding.plane, finding.witness or {})
            reason = f"declared {finding.declared}, but {found.replace('_', ' ')}: {told.reason}"
            return told._replace(reason=reason)
    return None


def nothing_declared(writer: Writer) -> str | None:
    """Why `as_declared` says nothing."""
    return None if writer.info.declared else f"nothing is declared about {writer.info.id}"


def agrees(writer: Writer, reader: Reader | None, case: StoreCase) -> Broken | None:
    """A scale that the reader looks for elsewhere than the writer puts it."""
    assert reader is not None
    maps = mapped(writer, case)
    read = read_map(reader, case)
    configuration = Configuration.of(maps.geometry, case.dtype)
    for side in SIDES:
        found = agreement(writer.info, reader.info, side, configuration, maps.written, read, True)
        if found.status == "agree":
            continue
        if found.witness is None:
            return Broken(f"{side} scales: {found.reason}", {"side": side, "plane": "scale"})
        witness = found.witness
        told = _told(side, "scale", witness)
        how = f"stored in {witness['writer']}, read from {witness['reader']}"
        return told._replace(reason=f"{told.reason} {how}")
    return None


def _told(side: str, plane: str, witness: Witness) -> Broken:
    """A witness of a finding in words, and with its side and plane.

    The case may have fewer pages than the probe whose page is named, so that is said.
    """
    named = dict(witness)
    if "page" in named:
        named["page"] = f"{named['page']} of the probe's {PAGES_IN_CACHE}"
    reason = f"{spot_in_words(named)} of the {side} {plane}".removeprefix(" of ")
    if "region_offset" in witness:
        reason += f", byte {witness['region_offset']} of its region"
    if "note" in witness:
        reason += f": {witness['note']}"
    if "stored" in witness:
        reason += f", in {witness['stored']}"
    return Broken(reason, {"side": side, "plane": plane, **witness})
