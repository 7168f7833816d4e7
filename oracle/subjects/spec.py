"""What a subject is called on the command line, and how it is made from its name.

store                          the store kernel under each of its contracts
store:contract=store-sm12x     under one of them
store:k=L,v=L[,search=4over6]  with any two layouts
reference:k=L,v=L              the specification, as a writer or a reader
trtllm-gen, flashinfer-fa2, …  the readers of contracts.toml (`--reader`)
PATH.cubin[:KERNEL]            a store kernel of a cubin
package.module:function        a Python function called like `reshape_and_cache_flash`
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from oracle.contracts import DEFAULT_READERS, STORE_CONTRACTS, Contract, contract, contracts
from oracle.errors import UsageError
from oracle.machine.cubin import MAX_CUBIN_BYTES, Cubin
from oracle.quantize import ScaleSearch
from oracle.subjects.base import Reader, SubjectInfo, Writer
from oracle.subjects.binary import MachineWriter, artifact_digest
from oracle.subjects.callable import CallableWriter
from oracle.subjects.reference import ReferenceReader, ReferenceWriter
from oracle.subjects.source import store_writer
from oracle.subjects.store_abi import unsupported_params

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_Subject = TypeVar("_Subject", Writer, Reader)
_SEARCHES = {search.value: search for search in ScaleSearch}


def writers_from_specs(
    specs: Sequence[str], archs: Sequence[str], dtypes: Sequence[str]
) -> list[Writer]:
    """The writers that specs name; `archs` (none: each contract's own) and `dtypes` to build for.

    Raises UsageError for a spec nobody understands or an artefact that is no store kernel.
    """
    writers: list[Writer] = []
    for spec in specs:
        writers += _writers(spec, archs, dtypes)
    return _distinct(writers)


def _writers(spec: str, archs: Sequence[str], dtypes: Sequence[str]) -> list[Writer]:
    kind, _, rest = spec.partition(":")
    path, kernel = _cubin_path(spec)
    if path is not None:
        return _cubin_writers(spec, path, kernel, dtypes)
    if kind == "store":
        return _store_writers(spec, rest, archs, dtypes)
    if kind == "reference":
        options = _options(spec, rest, ("k", "v", "search"))
        k, v, search = _layouts_and_search(spec, options)
        info = SubjectInfo(spec, "writer", f"specification: K {k}, V {v}", "reference",
                           declared={"K": k, "V": v}, scale_search=search)  # fmt: skip
        return [ReferenceWriter(info, k, v)]
    if _FUNCTION.fullmatch(spec):
        return [CallableWriter(spec)]
    raise UsageError(
        f"no writer is called {spec!r}: give store, reference:k=…,v=…, a .cubin or module:function"
    )


def readers_from_specs(specs: Sequence[str]) -> list[Reader]:
    """The readers that specs name. Raises UsageError for a spec nobody understands."""
    readers: list[Reader] = []
    for spec in specs:
        kind, _, rest = spec.partition(":")
        if spec in _reader_names():
            readers.append(_contract_reader(contract(spec, "reader")))
        elif kind == "reference":
            k, v, _ = _layouts_and_search(spec, _options(spec, rest, ("k", "v")))
            name = f"specification: K {k}, V {v}"
            info = SubjectInfo(spec, "reader", name, "reference", declared={"K": k, "V": v})
            readers.append(ReferenceReader(info, k, v))
        else:
            names = ", ".join(_reader_names())
            raise UsageError(f"no reader is called {spec!r}: give {names} or reference:k=…,v=…")
    return _distinct(readers)


def default_subjects(
    archs: Sequence[str], dtypes: Sequence[str]
) -> tuple[list[Writer], list[Reader]]:
    """The store kernel under each contract, the specification of each, and the three readers."""
    promised = [contract(name, "writer") for name in STORE_CONTRACTS]
    references = [f"reference:k={c.k},v={c.v}" for c in promised]
    writers = writers_from_specs(["store", *references], archs, dtypes)
    return writers, readers_from_specs(DEFAULT_READERS)


def _reader_names() -> list[str]:
    return [row.name for row in contracts().values() if row.role == "reader"]


def _contract_reader(row: Contract) -> Reader:
    info = SubjectInfo(row.name, "reader", row.title, "reference", declared=row.declared)
    return ReferenceReader(info, row.k, row.v)


def _store_writers(
    spec: str, rest: str, archs: Sequence[str], dtypes: Sequence[str]
) -> list[Writer]:
    options = _options(spec, rest, ("contract", "k", "v", "search"))
    search = _search(spec, options)
    suffix = "" if search is ScaleSearch.MAX_OVER_6 else f",search={search.value}"
    if "k" in options or "v" in options:
        if "contract" in options:
            raise UsageError(f"{spec}: give a contract or two layouts, not both")
        k, v, _ = _layouts_and_search(spec, options)
        builds = [(f"store:k={k},v={v}", f"store kernel: K {k}, V {v}", k, v, "sm_100a")]
    else:
        names = [options["contract"]] if "contract" in options else list(STORE_CONTRACTS)
        builds = [_promised(spec, name) for name in names]
    return [
        store_writer(f"{identity}{suffix}", title, k, v, search, arch, dtype)
        for identity, title, k, v, own_arch in builds
        for arch in (archs or (own_arch,))
        for dtype in dtypes
    ]


def _promised(spec: str, name: str) -> tuple[str, str, str, str, str]:
    """Identity, title, layouts and default arch of the store kernel under one of its contracts."""
    if name not in STORE_CONTRACTS:
        known = ", ".join(STORE_CONTRACTS)
        raise UsageError(f"{spec}: the store kernel has no contract {name!r}: choose {known}")
    row = contract(name, "writer")
    return name, row.title, row.k, row.v, STORE_CONTRACTS[name]


def _cubin_path(spec: str) -> tuple[Path | None, str | None]:
    """Path and kernel of a cubin spec; a kernel name has no colon, a path may."""
    if spec.endswith(".cubin"):
        return Path(spec), None
    path, colon, kernel = spec.rpartition(":")
    return (Path(path), kernel) if colon and path.endswith(".cubin") else (None, None)


def read_cubin(path: Path) -> Cubin:
    """A cubin from a file. Raises UsageError where it is missing, too large or damaged."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CUBIN_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
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
    lowered = kernel.lower()
    named = [d for d, words in _DTYPE_WORDS.items() if any(word in lowered for word in words)]
    return tuple(named) if len(named) == 1 else tuple(dtypes)


_DTYPE_WORDS = {"bf16": ("bfloat16", "bf16"), "fp16": ("4half", "fp16", "float16e", "_half")}


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
    if "k" not in options or "v" not in options:
        raise UsageError(f"{spec}: give both layouts, as in k=linear,v=swizzle_4x4")
    return options["k"], options["v"], _search(spec, options)


def _distinct(subjects: list[_Subject]) -> list[_Subject]:
    """Subjects without repetitions of the same id."""
    return list({subject.info.id: subject for subject in subjects}.values())
