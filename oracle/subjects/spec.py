"""What a subject is called on the command line, and how it is made from its name.

store                          the store kernel under each of its contracts
store-sm100, store-sm12x       under one of them
store:k=L,v=L[,search=4over6]  with any two layouts
reference:k=L,v=L              the specification, as a writer or a reader
trtllm-gen, flashinfer-fa2, …  the readers of contracts.toml (`--reader`)
flashinfer-cubin==0.6.13[:GLOB], PATH.whl[:GLOB], PATH.cubin
                               attention kernels as readers, executed whole
split:NAME,k=L,v=L             the specification reading through a carving of the cache (`--reader`)
package.module:function[,…]    a dequantiser as a reader (`oracle.subjects.dequantiser`)
PATH.cubin[:KERNEL]            a store kernel of a cubin
vllm==VERSION                  vLLM's store kernels, from the wheel of a release
PATH                           the same from a wheel, a shared object or an installed package
vllm==VERSION:sm_100f/bf16/max6   one of them, by the id that a report prints
package.module:function[@cuda] a Python function called like `reshape_and_cache_flash`, its
                               tensors on the GPU
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from oracle.candidates import candidate
from oracle.contracts import DEFAULT_READERS, STORE_CONTRACTS, Contract, contract, contracts
from oracle.errors import UsageError
from oracle.files import read_at_most
from oracle.machine.cubin import MAX_CUBIN_BYTES, Cubin
from oracle.quantize import ScaleSearch
from oracle.subjects.base import Reader, SubjectInfo, Writer
from oracle.subjects.binary import MachineWriter, artifact_digest
from oracle.subjects.callable import CallableReader, CallableWriter
from oracle.subjects.flashinfer import parse_source, readers_of
from oracle.subjects.function import check_no_file
from oracle.subjects.reference import ReferenceReader, ReferenceWriter
from oracle.subjects.release import ArtifactOptions, parse_release
from oracle.subjects.source import store_writer
from oracle.subjects.splits import split_reader
from oracle.subjects.store_abi import unsupported_params
from oracle.subjects.vllm import writers_from_artifact

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_STORE_FUNCTION = re.compile(rf"{_FUNCTION.pattern}(?:@cuda)?")
_KERNEL_ID = re.compile(r"sm_\w+(/\w+)+")
_BUILT = re.compile(r"(store[^@]*)@(sm_\w+)/(bf16|fp16)")
_Subject = TypeVar("_Subject", Writer, Reader)
_ARTIFACTS = (".whl", ".zip", ".so", ".fatbin")
_SEARCHES = {search.value: search for search in ScaleSearch}


def writers_from_specs(
    specs: Sequence[str],
    archs: Sequence[str],
    dtypes: Sequence[str],
    options: ArtifactOptions | None = None,
    default_arch: str | None = None,
) -> list[Writer]:
    """The writers that specs name; `archs` and `dtypes` to build for.

    Without `archs` the store kernel is built for `default_arch`, or else for each contract's own;
    artefacts are searched as they are. `options` say where releases come from. Raises UsageError
    for a spec nobody understands or an artefact that is no store kernel, NothingRan where an
    artefact holds none.
    """
    writers: list[Writer] = []
    for spec in specs:
        writers += _writers(spec, archs, dtypes, options or ArtifactOptions(), default_arch)
    return _distinct(writers)


def _writers(
    spec: str,
    archs: Sequence[str],
    dtypes: Sequence[str],
    options: ArtifactOptions,
    default_arch: str | None,
) -> list[Writer]:
    kind, _, rest = spec.partition(":")
    path, kernel = _cubin_path(spec)
    if path is not None:
        return _cubin_writers(spec, path, kernel, dtypes)
    artefact = artefact_of(spec)
    if artefact is not None:
        return _artefact_writers(spec, artefact, archs, dtypes, options)
    built = _BUILT.fullmatch(spec)
    if built is not None:
        # The id that a report prints: one build of the store kernel.
        return _writers(built[1], (built[2],), (built[3],), options, None)
    if kind == "store" or kind in STORE_CONTRACTS:
        chosen = archs or ((default_arch,) if default_arch else ())
        return _store_writers(spec, kind, rest, chosen, dtypes)
    if kind == "reference":
        k, v, search = _layouts_and_search(spec, _options(spec, rest, ("k", "v", "search")))
        info = SubjectInfo(spec, "writer", f"specification: K {k}, V {v}", "reference",
                           declared={"K": k, "V": v}, scale_search=search)  # fmt: skip
        return [ReferenceWriter(info, k, v)]
    check_no_file(spec, "store")
    if _STORE_FUNCTION.fullmatch(spec):
        return [CallableWriter(spec)]
    raise UsageError(
        f"no writer is called {spec!r}: give store, reference:k=…,v=…, vllm==VERSION, the path of "
        "a .cubin, .whl or .so, or module:function"
    )


def readers_from_specs(
    specs: Sequence[str], options: ArtifactOptions | None = None
) -> list[Reader]:
    """The readers that specs name; `options` say where releases come from.

    Raises UsageError for a spec nobody understands.
    """
    releases = options or ArtifactOptions()
    readers: list[Reader] = []
    for spec in specs:
        kind, _, rest = spec.partition(":")
        check_no_file(spec, "dequantise")
        if spec in _reader_names():
            readers.append(_contract_reader(contract(spec, "reader")))
        elif kind == "reference":
            k, v, _ = _layouts_and_search(spec, _options(spec, rest, ("k", "v")))
            name = f"specification: K {k}, V {v}"
            info = SubjectInfo(spec, "reader", name, "reference", declared={"K": k, "V": v})
            readers.append(ReferenceReader(info, k, v))
        elif (source := parse_source(spec)) is not None:
            readers += readers_of(source, releases)
        elif kind == "split":
            name, _, layouts = rest.partition(",")
            k, v, _ = _layouts_and_search(spec, _options(spec, layouts, ("k", "v")))
            readers.append(split_reader(spec, name, k, v))
        elif _FUNCTION.fullmatch(spec.partition(",")[0]):
            readers.append(CallableReader(spec))
        elif spec.partition(",")[0] in _reader_names():
            raise UsageError(f"{spec!r} is no single reader: repeat --reader for each")
        else:
            names = ", ".join(_reader_names())
            raise UsageError(
                f"no reader is called {spec!r}: give {names}, reference:k=…,v=…, "
                "flashinfer-cubin==VERSION or module:function"
            )
    return _distinct(readers)


def default_writers(
    archs: Sequence[str], dtypes: Sequence[str], default_arch: str | None = None
) -> list[Writer]:
    """The store kernel under each of its contracts, and the specification of each."""
    promised = [contract(name, "writer") for name in STORE_CONTRACTS]
    references = [f"reference:k={c.k},v={c.v}" for c in promised]
    specs = ["store", *references]
    return writers_from_specs(specs, archs, dtypes, default_arch=default_arch)


def default_readers() -> list[Reader]:
    """The readers a default verdict holds every writer against."""
    return readers_from_specs(DEFAULT_READERS)


def _reader_names() -> list[str]:
    return [row.name for row in contracts().values() if row.role == "reader"]


def _contract_reader(row: Contract) -> Reader:
    info = SubjectInfo(row.name, "reader", row.title, "reference", declared=row.declared)
    return ReferenceReader(info, row.k, row.v)


def _store_writers(
    spec: str, kind: str, rest: str, archs: Sequence[str], dtypes: Sequence[str]
) -> list[Writer]:
    options = _options(spec, rest, ("search",) if kind in STORE_CONTRACTS else ("k", "v", "search"))
    search = _search(spec, options)
    searched = "" if search is ScaleSearch.MAX_OVER_6 else f"search={search.value}"
    if "k" in options or "v" in options:
        k, v, _ = _layouts_and_search(spec, options)
        identity = ",".join(filter(None, (f"store:k={k},v={v}", searched)))
        builds = [(identity, f"store kernel: K {k}, V {v}", k, v, "sm_100a")]
    else:
        rows = [contract(name, "writer") for name in STORE_CONTRACTS if kind in ("store", name)]
        builds = [
            (":".join(filter(None, (row.name, searched))), row.title, row.k, row.v,
             STORE_CONTRACTS[row.name])
            for row in rows
        ]  # fmt: skip
    return [
        store_writer(identity, title, k, v, search, arch, dtype)
        for identity, title, k, v, own_arch in builds
        for arch in (archs or (own_arch,))
        for dtype in dtypes
    ]


def artefact_of(spec: str) -> str | None:
    """The release, wheel, shared object, fatbin or directory that a spec names; None for others.

    The spec may also be the id that a report prints of one kernel of it: ARTEFACT:ARCH/DTYPE/….
    """
    artefact, colon, build = spec.rpartition(":")
    if colon and _KERNEL_ID.fullmatch(build) and is_artifact(artefact):
        return artefact
    return spec if is_artifact(spec) else None


def _artefact_writers(
    spec: str,
    artefact: str,
    archs: Sequence[str],
    dtypes: Sequence[str],
    options: ArtifactOptions,
) -> list[Writer]:
    """All writers of an artefact, or the one whose id the spec is."""
    found = writers_from_artifact(artefact, archs, dtypes, options)
    if spec == artefact:
        return found
    named = [writer for writer in found if writer.info.id == spec]
    if not named:
        known = ", ".join(writer.info.id.removeprefix(f"{artefact}:") for writer in found)
        values = "/".join(dtypes)
        raise UsageError(f"{spec} is not among the kernels of {artefact} for {values}: {known}")
    return named


def is_artifact(spec: str) -> bool:
    """Whether a spec names a release, a wheel, a shared object, a fatbin or a directory."""
    # Not by `Path.is_dir`, which raises for a name that is too long.
    return parse_release(spec) is not None or Path(spec).suffix in _ARTIFACTS or os.path.isdir(spec)


def _cubin_path(spec: str) -> tuple[Path | None, str | None]:
    """Path and kernel of a cubin spec; a kernel name has no colon, a path may."""
    if spec.endswith(".cubin"):
        return Path(spec), None
    path, colon, kernel = spec.rpartition(":")
    return (Path(path), kernel) if colon and path.endswith(".cubin") else (None, None)


def read_cubin(path: Path) -> Cubin:
    """A cubin from a file. Raises UsageError where it is missing, too large or damaged."""
    data = read_at_most(path, MAX_CUBIN_BYTES)
    try:
        return Cubin.parse(data)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _cubin_writers(
    spec: str, path: Path, kernel: str | None, dtypes: Sequence[str]
) -> list[Writer]:
    cubin = read_cubin(path)
    names = [kernel] if kernel else [
        name for name, info in cubin.kernels.items() if unsupported_params(info) is None
    ]  # fmt: skip
    if not names:
        reasons = [f"{name}: {unsupported_params(k)}" for name, k in cubin.kernels.items()]
        raise UsageError(f"{path} holds no store kernel ({'; '.join(reasons) or 'no kernel'})")
    return [
        MachineWriter(
            SubjectInfo(
                id=f"{path}:{name}",
                role="writer",
                name=name,
                executor="machine",
                arch=cubin.arch,
                kernel=name,
                artifact_sha256=artifact_digest(cubin.data),
                dtypes=_dtypes_of(name, dtypes),
            ),
            cubin,
            name,
        )
        for name in names
    ]


def _dtypes_of(kernel: str, dtypes: Sequence[str]) -> tuple[str, ...]:
    """The inputs a kernel takes, where its name says so."""
    named = []
    rest = kernel.lower()
    for dtype, words in _DTYPE_WORDS.items():
        if any(word in rest for word in words):
            named.append(dtype)
        # What names bf16 must not be taken for fp16 as well: "bfloat16" ends in "float16".
        for word in words:
            rest = rest.replace(word, " ")
    return tuple(named) if len(named) == 1 else tuple(dtypes)


_DTYPE_WORDS = {"bf16": ("bfloat16", "bf16"), "fp16": ("4half", "fp16", "float16", "_half")}


def _options(spec: str, text: str, known: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or name not in known or name in options:
            raise UsageError(f"{spec}: {part!r} is not understood: give {'=…, '.join(known)}=…")
        options[name] = value
    return options


def _search(spec: str, options: dict[str, str]) -> ScaleSearch:
    name = options.get("search", ScaleSearch.MAX_OVER_6.value)
    if name not in _SEARCHES:
        raise UsageError(f"{spec}: no scale search {name!r}: choose {', '.join(_SEARCHES)}")
    return _SEARCHES[name]


def _layouts_and_search(spec: str, options: dict[str, str]) -> tuple[str, str, ScaleSearch]:
    for side in ("k", "v"):
        if side in options:
            candidate(options[side])
    if "k" not in options or "v" not in options:
        raise UsageError(f"{spec}: give both layouts, as in k=linear,v=swizzle_4x4")
    return options["k"], options["v"], _search(spec, options)


def _distinct(subjects: list[_Subject]) -> list[_Subject]:
    """Subjects without repetitions of the same id."""
    return list({subject.info.id: subject for subject in subjects}.values())
