"""What FlashInfer's attention kernels are and read in each of several releases, oldest first.

A row is made of a release's machine code alone. Of every family and head size one kernel is
executed, the first by name; of the others only the digest is compared with the release before.
Wheels are read one at a time. Digests and the kernels to execute are kept on disk, so that a second
run needs no wheel, and no machine code is executed twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from oracle import diskcache
from oracle.errors import OracleError, UsageError
from oracle.run import Progress
from oracle.subjects.attention import KernelName
from oracle.subjects.binary import artifact_digest
from oracle.subjects.flashinfer import PACKAGE, cubin_files, kernel_names
from oracle.subjects.release import ArtifactOptions, Release, release_wheel, wheels_at_hand
from oracle.sweep import KeptRows, Row, executed
from oracle.timeline import rows_between

_DIGESTS, _CUBIN = ".digests.json", ".attention.cubin"


@dataclass(frozen=True)
class Family:
    """The kernels of a release that prefill, or decode, on one arch.

    `digests` is kernel name -> SHA-256 of its cubin, `before` the same of the release before (None
    for the first), `rows` are those of the kernels whose machine code was executed.
    """

    arch: str
    decodes: bool
    digests: Mapping[str, str]
    rows: tuple[Row, ...]
    before: Mapping[str, str] | None = None

    @property
    def head_sizes(self) -> tuple[int, ...]:
        """Head sizes there are kernels for, rising."""
        return tuple(sorted({KernelName.parse(name).head_size for name in self.digests}))

    @property
    def executed(self) -> tuple[str, ...]:
        """Names of the kernels that were executed to a sound end."""
        return tuple(dict.fromkeys(row.kernel for row in self.rows if not row.problem))

    @property
    def same(self) -> int:
        """Kernels that are byte for byte those of the release before."""
        before = self.before or {}
        return sum(before.get(name) == digest for name, digest in self.digests.items())

    @property
    def changed(self) -> int:
        """Kernels that the release before has with other bytes."""
        return len(self.digests.keys() & (self.before or {}).keys()) - self.same

    @property
    def added(self) -> int:
        """Kernels that the release before lacks."""
        return len(self.digests.keys() - (self.before or {}).keys())

    @property
    def gone(self) -> int:
        """Kernels that only the release before has."""
        return len((self.before or {}).keys() - self.digests.keys())


@dataclass(frozen=True)
class ReleaseRow:
    """One release.

    `holds` is None where its wheel could not be had and False where no such kernel is in it; `note`
    says why. `refused` are kernels whose name says too little, with the reason.
    """

    version: str
    holds: bool | None
    families: tuple[Family, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    note: str | None = None

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of all families."""
        return tuple(row for family in self.families for row in family.rows)


def timeline(
    versions: Sequence[str],
    options: ArtifactOptions,
    progress: Progress | None = None,
    jobs: int = 1,
) -> list[ReleaseRow]:
    """One row for each release. Raises NothingRan where none of them could be had."""
    kept = KeptRows()
    wheels = replace(options, keep=False)
    return rows_between(
        versions, lambda version: _row(version, wheels, kept, jobs), _compared, PACKAGE, progress
    )


def chosen(names: Iterable[str]) -> list[str]:
    """The kernels that are executed: the first by name of each arch, family and head size."""
    first: dict[tuple[str, str, int], str] = {}
    for name in sorted(names):
        kernel = KernelName.parse(name)
        first.setdefault((kernel.arch, kernel.group, kernel.head_size), name)
    return list(first.values())


def _row(version: str, options: ArtifactOptions, kept: KeptRows, jobs: int) -> ReleaseRow:
    try:
        kernels = _ReleaseKernels(Release(version, PACKAGE), options)
        digests, refused = kernels.digests, kernels.refused
        found = {name: kept.get(name, digests[name]) for name in chosen(digests)}
        files = kernels.cubins([name for name, rows in found.items() if rows is None])
        found |= dict(executed(files, kept, jobs))
    except OracleError as error:
        return ReleaseRow(version, None, note=str(error))
    rows = [row for made in found.values() for row in made or ()]
    if not digests and not refused:
        note = "there is no attention kernel with an NVFP4 KV cache in it"
        return ReleaseRow(version, False, note=note)
    groups: dict[tuple[str, bool], dict[str, str]] = {}
    for name, digest in digests.items():
        kernel = KernelName.parse(name)
        groups.setdefault((kernel.arch, kernel.decodes), {})[name] = digest
    families = tuple(
        Family(*key, group, tuple(row for row in rows if row.kernel in group))
        for key, group in sorted(groups.items())
    )
    return ReleaseRow(version, True, families, refused)


def _compared(row: ReleaseRow, before: ReleaseRow) -> ReleaseRow:
    known = {(family.arch, family.decodes): family.digests for family in before.families}
    families = tuple(
        replace(family, before=known.get((family.arch, family.decodes), {}))
        for family in row.families
    )
    return replace(row, families=families)


class _ReleaseKernels:
    """The kernels of one release, from the disk cache as far as it knows them, else its wheel."""

    def __init__(self, release: Release, options: ArtifactOptions) -> None:
        """Find the digests. Raises UsageError where the wheel is needed and cannot be had."""
        self._release, self._options = release, options
        self._read: dict[str, bytes] = {}
        known = diskcache.load(self._key(), _DIGESTS)
        every = json.loads(known) if known is not None else self._digests_of_wheel()
        self.refused = {name: reason for name in every if (reason := _refusal(name))}
        self.digests = {name: d for name, d in every.items() if name not in self.refused}

    def cubins(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Some of the kernels with their cubins. Raises UsageError as `__init__` does."""
        files = {name: self._cubin(name) for name in names}
        if None in files.values():
            with release_wheel(self._release, self._options) as wheel:
                files |= {name: data for name, data in cubin_files(wheel) if name in files}
        for name, data in files.items():
            if data is not None:
                yield name, data

    def _cubin(self, name: str) -> bytes | None:
        return self._read.get(name) or diskcache.load(self.digests[name], _CUBIN)

    def _key(self) -> str:
        """A wheel that is at hand may be any file: it is known by its size and time as well."""
        parts = [str(self._release).encode()]
        wheel = wheels_at_hand(self._options, PACKAGE).get(self._release.version)
        if wheel is not None:
            try:
                status = wheel.stat()
            except OSError as error:
                raise UsageError(f"{wheel}: {error.strerror or error}") from error
            parts.append(f"{status.st_size} {status.st_mtime_ns}".encode())
        return diskcache.key_of(parts)

    def _digests_of_wheel(self) -> dict[str, str]:
        """Digests by name; the cubins that are to be executed are kept, here and on disk."""
        digests = {}
        with release_wheel(self._release, self._options) as wheel:
            wanted = set(chosen(name for name in kernel_names(wheel) if not _refusal(name)))
            for name, data in cubin_files(wheel):
                digests[name] = artifact_digest(data)
                if name in wanted:
                    self._read[name] = data
                    diskcache.store(digests[name], _CUBIN, data)
        diskcache.store(self._key(), _DIGESTS, json.dumps(digests).encode())
        return digests


def _refusal(name: str) -> str:
    """Why a kernel cannot be placed by its name; empty where it can."""
    try:
        KernelName.parse(name)
    except UsageError as error:
        return str(error)
    return ""
