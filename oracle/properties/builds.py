"""A writer beside the builds of the same code for other archs, and how both come from a spec."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from oracle.contracts import STORE_CONTRACTS
from oracle.geometry import CacheGeometry
from oracle.machine.tiers import default_tier
from oracle.requests import Stored, StoreRequest
from oracle.subjects.base import SubjectInfo, Writer
from oracle.subjects.release import ArtifactOptions
from oracle.subjects.spec import artefact_of, writers_from_specs

COMPARED_ARCHS = ("sm_90", "sm_100a", "sm_120a")
"""What the store kernel is built for to be compared: conversions in software, and by either of the
Blackwell families' instructions."""


class Builds:
    """A writer that knows the builds of its code for other archs, which are made when asked for."""

    def __init__(self, writer: Writer, all_builds: Callable[[], Sequence[Writer]]) -> None:
        self.info: SubjectInfo = writer.info
        self._writer = writer
        self._all_builds = all_builds

    @cached_property
    def others(self) -> tuple[Writer, ...]:
        """The builds for other archs. Raises what `writers_from_specs` raises."""
        mine = _apart_from_arch(self.info)
        return tuple(
            each
            for each in self._all_builds()
            if each.info.arch != self.info.arch and _apart_from_arch(each.info) == mine
        )

    def unsupported_reason(self, geometry: CacheGeometry, dtype: str) -> str | None:
        """What the writer's host side says to a geometry and dtype."""
        return self._writer.unsupported_reason(geometry, dtype)

    def write(self, request: StoreRequest) -> Stored:
        """What the writer stores."""
        return self._writer.write(request)


def other_builds(writer: Writer) -> tuple[Writer, ...]:
    """The builds of a writer for other archs, as far as it knows of any."""
    return writer.others if isinstance(writer, Builds) else ()


def writers_of(
    spec: str,
    archs: Sequence[str] = (),
    dtypes: Sequence[str] = ("bf16",),
    options: ArtifactOptions | None = None,
) -> list[Writer]:
    """The writers of a spec, each with its builds for other archs.

    `archs`, `dtypes`, `options` and errors are those of `writers_from_specs`; a tier of the machine
    that the environment asks for and that is not here raises UsageError as well.
    """
    # A writer would say so in every case, as if the case were to blame.
    default_tier()
    found = writers_from_specs([spec], archs, dtypes, options)
    return [_with_builds(writer, spec, options) for writer in found]


def _with_builds(writer: Writer, spec: str, options: ArtifactOptions | None) -> Writer:
    base = spec.partition("@")[0]
    kind = base.partition(":")[0]
    if kind == "store" or kind in STORE_CONTRACTS:
        archs: Sequence[str] = COMPARED_ARCHS
    elif (artefact := artefact_of(spec)) is not None:
        base, archs = artefact, ()
    else:
        return writer
    dtypes = writer.info.dtypes
    return Builds(writer, lambda: writers_from_specs([base], archs, dtypes, options))


def _apart_from_arch(info: SubjectInfo) -> str:
    """The id of a build without the name of its arch."""
    return info.id.replace(info.arch, "*") if info.arch else info.id
