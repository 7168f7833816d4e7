"""The one result object: findings about single subjects, agreements of pairs, and the verdict.

A finding is about one subject, side, plane and geometry; an agreement about one writer, one
reader, side and geometry. A status decides which other fields carry something:

| status | meaning | carries |
|---|---|---|
| match | the map is the declared layout (or, with nothing declared, a named one) | layouts |
| mismatch | a sound map, but not the declared one | layouts or shape_stride, witness |
| overlap | two coordinates share a byte, or a byte is stored twice | defects, witness |
| out_of_region | a byte lands outside the plane it belongs to | defects, witness |
| gap | a byte of the plane is never written, or a coordinate never stored | defects, witness |
| undefined | a misaligned store, or code without a meaning | defects, witness, reason |
| unrecognised | nothing is declared and no candidate describes the map | witness |
| refused | the subject refuses the geometry by name | reason |
| unsupported | the subject cannot be executed, or its function failed | reason |
| not_run | it was not tried | reason |

Every count is of the coordinates of one page: the probes store several pages, and a finding whose
pages differ says so in its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import cache
from typing import Any

from oracle.geometry import CacheGeometry
from oracle.offsettable import OffsetTable
from oracle.subjects.base import SubjectInfo

SCHEMA_VERSION = "1.1"

FINDING_STATUSES = (
    "match", "mismatch", "overlap", "out_of_region", "gap", "undefined", "refused",
    "unrecognised", "unsupported", "not_run",
)  # fmt: skip
AGREEMENT_STATUSES = ("agree", "disagree", "undecided")

NOT_EXECUTED = frozenset({"unsupported", "not_run"})
"""Statuses of findings that were asked for and could not be had."""
NOT_OBTAINED = NOT_EXECUTED | {"refused"}
"""Statuses of findings that have no map."""
FAULTY = frozenset({"mismatch", "overlap", "out_of_region", "gap", "undefined", "unrecognised"})
"""Statuses that contradict what was declared."""


@dataclass(frozen=True)
class Defects:
    """Counts of bytes over one page.

    `collisions`: stores to a byte of the plane beyond its first; `never_written`: bytes of the
    plane no store touched; `below_region`, `above_region`: stores before and after the plane's
    region; `other_plane`: those of them that hit another plane of the cache. `other_head_rows`:
    stores outside the rows of their own head, be it inside the region or not; `misaligned`: stores
    (of several bytes each) at an address that is no multiple of their size. `clashing_pairs`: pairs
    of tokens that store to a byte of the plane both.
    """

    collisions: int = 0
    never_written: int = 0
    below_region: int = 0
    above_region: int = 0
    other_plane: int = 0
    other_head_rows: int = 0
    misaligned: int = 0
    clashing_pairs: int = 0


@dataclass(frozen=True)
class Clash:
    """Two tokens of a page, and the bytes of the plane that both store, over all heads.

    The tokens are one and the same where a token stores two of its own values to a byte.
    """

    first: int
    second: int
    bytes: int


@dataclass(frozen=True)
class Configuration:
    """The geometry of a finding, without the number of pages the probe happened to use."""

    head_size: int
    num_heads: int
    block_size: int
    cache_layout: str
    dtype: str

    @classmethod
    def of(cls, geometry: CacheGeometry, dtype: str) -> Configuration:
        """The configuration of a probed geometry."""
        return cls(
            geometry.head_size,
            geometry.num_heads,
            geometry.block_size,
            geometry.cache_layout,
            dtype,
        )

    def geometry(self) -> CacheGeometry:
        """The geometry of a cache of one page; raises UsageError for sizes that cannot exist."""
        return _geometry(self)


@cache
def _geometry(configuration: Configuration) -> CacheGeometry:
    return CacheGeometry(
        1,
        configuration.block_size,
        configuration.num_heads,
        configuration.head_size,
        configuration.cache_layout,
    )


Witness = Mapping[str, Any]
"""The smallest coordinate that shows a fault: head, token, column (and other keys in words)."""


@dataclass(frozen=True)
class Finding:
    """What one subject does with one plane of one side in one geometry.

    `layouts` names every candidate that fits everywhere; `shape_stride` describes a sound map that
    is one; `positions` counts the coordinates of the domain, `recovered` those whose byte was
    found. For the scales of a writer `keeps` names the writer contracts of contracts.toml that this
    layout keeps, and `misread_by` the reader contracts that would look elsewhere. `strays` counts
    the bytes that leave the region by where they land, such as "page+1 K data" for the next page,
    and `clashes` lists the first of the pairs of tokens that store to the same bytes. `table` has
    the offsets of one head of a scale plane that no name and no shape:stride describes.
    """

    subject: str
    side: str
    plane: str
    configuration: Configuration
    scale_search: str
    status: str
    layouts: tuple[str, ...] = ()
    declared: str | None = None
    shape_stride: str | None = None
    positions: int = 0
    recovered: int = 0
    defects: Defects = field(default_factory=Defects)
    strays: Mapping[str, int] = field(default_factory=dict)
    clashes: tuple[Clash, ...] = ()
    keeps: tuple[str, ...] = ()
    misread_by: tuple[str, ...] = ()
    witness: Witness | None = None
    reason: str | None = None
    table: OffsetTable | None = None


@dataclass(frozen=True)
class Agreement:
    """Whether a reader looks where a writer stored, for the scales of one side.

    `disagreeing` of `positions` coordinates differ; the witness has the coordinate, `writer` (where
    it was put) and `reader` (where the reader looks), as offsets in the plane and in words.
    `judged` marks an agreement that was declared or asked for, so that a disagreement is a fault.
    """

    writer: str
    reader: str
    side: str
    configuration: Configuration
    status: str
    positions: int = 0
    disagreeing: int = 0
    witness: Witness | None = None
    reason: str | None = None
    judged: bool = False


@dataclass(frozen=True)
class Launches:
    """How many launches of a subject a tier of the machine executed, and why that tier did.

    There is no reason where it was asked for, or the best there is.
    """

    subject: str
    tier: str
    count: int
    reason: str | None = None


@dataclass(frozen=True)
class Verdict:
    """Everything one run found out.

    Who executed the `launches` depends on how busy the computer was and on what its cache holds: it
    is the one thing that may differ between two runs, and no part of what was found.
    """

    subjects: tuple[SubjectInfo, ...]
    findings: tuple[Finding, ...]
    agreements: tuple[Agreement, ...]
    domain: Mapping[str, Any]
    environment: Mapping[str, Any]
    launches: tuple[Launches, ...] = field(default=(), compare=False)

    @property
    def judged(self) -> tuple[SubjectInfo, ...]:
        """Whom the verdict is about: the writers, or the readers where there is no writer."""
        writers = tuple(info for info in self.subjects if info.role == "writer")
        return writers or self.subjects

    @property
    def exit_code(self) -> int:
        """0 as declared; 1 a fault; 5 nothing was executed, or something asked for could not be.

        A refusal by name is what a host side should do, so it spoils nothing as long as something
        ran.
        """
        judged = {info.id for info in self.judged}
        found = [f for f in self.findings if f.subject in judged]
        faulty = any(f.status in FAULTY for f in found)
        if faulty or any(a.judged and a.status == "disagree" for a in self.agreements):
            return 1
        ran = any(f.status not in NOT_OBTAINED for f in found)
        if not ran or any(f.status in NOT_EXECUTED for f in found):
            return 5
        asked = {a.reader for a in self.agreements if a.judged}
        decided = {a.reader for a in self.agreements if a.judged and a.status != "undecided"}
        return 0 if asked == decided else 5

    def of_subject(self, subject: str) -> tuple[Finding, ...]:
        """The findings of one subject, in the order of the domain."""
        return tuple(f for f in self.findings if f.subject == subject)


def as_document(verdict: Verdict, tool: Mapping[str, str]) -> dict[str, Any]:
    """The verdict as the JSON document that reports/schema/verdict.schema.json describes."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": dict(tool),
        "environment": dict(verdict.environment),
        "domain": dict(verdict.domain),
        "subjects": [_subject(info) for info in verdict.subjects],
        "findings": [_flat(finding) for finding in verdict.findings],
        "agreements": [_flat(agreement) for agreement in verdict.agreements],
        "launches": [asdict(launches) for launches in verdict.launches],
        "exit_code": verdict.exit_code,
    }


def _subject(info: SubjectInfo) -> dict[str, Any]:
    return {
        **asdict(info),
        "scale_search": info.scale_search.value,
        "declared": dict(info.declared),
    }


def _flat(result: Finding | Agreement) -> dict[str, Any]:
    """A result's fields, with those of its configuration among them."""
    ordered: dict[str, Any] = {}
    for name, value in vars(result).items():
        if name != "configuration":
            ordered[name] = _plain(value)
        if name == "side":
            ordered.update(vars(result.configuration))
    return ordered


def _plain(value: Any) -> Any:
    """A field as JSON has it; `asdict` of a whole result, which copies all of it, takes longer."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def summarise(findings: Iterable[Finding]) -> dict[str, int]:
    """How many findings have each status."""
    counts = dict.fromkeys(FINDING_STATUSES, 0)
    for finding in findings:
        counts[finding.status] += 1
    return {status: count for status, count in counts.items() if count}
