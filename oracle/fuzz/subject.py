"""What a session or a replay executes: one writer for each type of values, and maybe a reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oracle.errors import UsageError
from oracle.formats import DTYPES
from oracle.properties.builds import writers_of
from oracle.subjects.base import Reader, SubjectInfo, Writer
from oracle.subjects.release import ArtifactOptions
from oracle.subjects.spec import readers_from_specs
from oracle.text import counted, enumerated

_SHOWN = 8


@dataclass(frozen=True)
class Subject:
    """A writer that is known by `spec`, one for each dtype it takes, and the reader beside it.

    `reader_spec` is what the reader was asked for by, None where there is no reader. `made_from`
    are the arguments of `subject_from_specs`, with which another process makes it anew.
    """

    spec: str
    writers: Mapping[str, Writer]
    reader_spec: str | None = None
    reader: Reader | None = None
    made_from: tuple[Any, ...] = field(default=(), repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process makes the subject anew."""
        return subject_from_specs, self.made_from

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The types of values that some writer takes."""
        return tuple(self.writers)

    @property
    def ids(self) -> dict[str, str]:
        """The writer's id for each dtype; each is a spec by itself."""
        return {dtype: writer.info.id for dtype, writer in self.writers.items()}

    @property
    def infos(self) -> Iterator[SubjectInfo]:
        """Who is executed, each once."""
        seen = {writer.info.id: writer.info for writer in self.writers.values()}
        yield from seen.values()
        if self.reader is not None:
            yield self.reader.info

    @property
    def artifacts(self) -> dict[str, str | None]:
        """sha256 of what is executed, by the ids of the subjects."""
        return {info.id: info.artifact_sha256 for info in self.infos}


def subject_from_specs(
    spec: str,
    reader: str | None = None,
    archs: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    options: ArtifactOptions | None = None,
) -> Subject:
    """The subject that a writer's and a reader's spec name, for `dtypes` (none: all it takes).

    Raises UsageError where a spec names several writers of one dtype, or several readers, and what
    `writers_of` and `readers_from_specs` raise.
    """
    asked = tuple(dtypes) or tuple(DTYPES)
    found = writers_of(spec, archs, asked, options)
    writers: dict[str, Writer] = {}
    for dtype in asked:
        taking = [writer for writer in found if dtype in writer.info.dtypes]
        _check_single(spec, f"writers of {dtype}", [writer.info for writer in taking])
        writers.update((dtype, writer) for writer in taking)
    if not writers:
        raise UsageError(f"{spec} takes no {enumerated(asked, 'or')}")
    readers = readers_from_specs([] if reader is None else [reader], options)
    _check_single(str(reader), "readers", [each.info for each in readers])
    at_hand = None if options is None else ArtifactOptions(options.wheel_dir, offline=True)
    made_from = (spec, reader, tuple(archs), tuple(dtypes), at_hand)
    return Subject(spec, writers, reader, readers[0] if readers else None, made_from)


def _check_single(spec: str, what: str, infos: Sequence[SubjectInfo]) -> None:
    if len(infos) > 1:
        ids = [info.id for info in infos[:_SHOWN]]
        if len(infos) > _SHOWN:
            ids.append(counted(len(infos) - _SHOWN, "other"))
        raise UsageError(f"{spec} names several {what}: give {enumerated(ids, 'or')}")
