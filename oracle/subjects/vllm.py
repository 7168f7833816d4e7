"""vLLM's own store kernel, as its releases ship it: machine code out of a wheel, executed here.

`vllm::reshape_and_cache_nvfp4_kernel<scalar_t[, NVFP4KVScaleSearch]>` is compiled for bf16 and fp16
and, from the release on that added four over six, for both scale searches; a wheel holds it for
several archs. Each combination is one subject.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

from oracle.contracts import contract
from oracle.errors import NothingRan
from oracle.geometry import CacheGeometry
from oracle.machine.archs import arch_number, capability_of
from oracle.machine.context import Unsupported
from oracle.machine.cubin import Cubin, KernelInfo
from oracle.machine.demangle import demangle
from oracle.machine.disassembly import disassemble
from oracle.machine.memory import MachineFault
from oracle.quantize import ScaleSearch
from oracle.requests import Stored, StoreRequest
from oracle.subjects.archive import shown
from oracle.subjects.base import SubjectInfo, Writer
from oracle.subjects.binary import MachineWriter
from oracle.subjects.extraction import cubins, extract
from oracle.subjects.gpucode import Found, loaded_on, mangled
from oracle.subjects.release import ArtifactOptions, parse_release, release_wheel
from oracle.subjects.store_abi import (
    WARP,
    StoreAbi,
    StoreLaunch,
    has_swizzle_switch,
    threads_per_group,
    unsupported_params,
)
from oracle.subjects.vllm_host import TAKEN, SideTensor, Taken, host_check, misreading

STORE_KERNEL = "reshape_and_cache_nvfp4_kernel"

_ARGUMENTS = re.compile(rf"vllm::{STORE_KERNEL}<([^<>,]+)(?:, \(vllm::NVFP4KVScaleSearch\)(\d+))?>")
_DTYPES = {"c10::BFloat16": "bf16", "c10::Half": "fp16"}
_SEARCHES = {"0": ScaleSearch.MAX_OVER_6, "1": ScaleSearch.FOUR_OVER_SIX}


@dataclass(frozen=True)
class Variant:
    """What the template arguments of a store kernel say: its inputs and scale search."""

    dtype: str
    search: ScaleSearch

    @classmethod
    def of(cls, kernel: str) -> Variant | None:
        """The variant of a mangled kernel name; None where its arguments are not understood."""
        match = _ARGUMENTS.fullmatch(demangle(kernel))
        if match is None or match[1] not in _DTYPES or (match[2] or "0") not in _SEARCHES:
            return None
        return cls(_DTYPES[match[1]], _SEARCHES[match[2] or "0"])


def title(kernel: str) -> str:
    """A kernel's name for a reader: demangled, the enumeration of the scale search shortened."""
    return shown(re.sub(r"\(vllm::NVFP4KVScaleSearch\)", "search ", demangle(kernel)))


class VllmWriter(MachineWriter):
    """One variant of the store kernel, launched as vLLM's host side launches it.

    `order` is that of the dimensions in which the sides of the cache are handed over
    (`oracle.subjects.vllm_host`).
    """

    def __init__(
        self, info: SubjectInfo, cubin: Cubin, kernel: str, abi: StoreAbi, order: str = TAKEN
    ) -> None:
        super().__init__(info, cubin, kernel)
        self.abi = abi
        self.order = order

    def unsupported_reason(self, geometry: CacheGeometry, dtype: str) -> str | None:
        """What the host side says to the cache it is handed."""
        return host_check(geometry, dtype, self.order)

    def launch(self, geometry: CacheGeometry, tokens: int) -> StoreLaunch:
        """The launch of a store of so many tokens."""
        tensor = SideTensor.of(geometry, self.order)
        taken = Taken.of(tensor, geometry.num_heads, geometry.head_size)
        return taken.launch(tokens, self.abi)

    def write(self, request: StoreRequest) -> Stored:
        """Run the kernel over the request.

        Raises MachineFault where what it does is undefined.
        """
        geometry = request.geometry
        try:
            stored = super().write(request)
        except MachineFault as error:
            idle = idle_lanes(geometry, self.abi)
            if not idle:
                raise
            raise MachineFault(
                f"a group is spread over {self.abi.threads_per_group} threads that shuffle with "
                f"the mask of a whole warp, while {idle} of its lanes have no group of the token "
                f"and sit out: CUDA leaves that undefined ({error})"
            ) from error
        mistaken = misreading(geometry, self.order)
        return stored if mistaken is None else replace(stored, faults=(mistaken, *stored.faults))

    def handed(self, order: str) -> VllmWriter:
        """The same writer, given the sides of the cache in another order of dimensions."""
        other = copy(self)
        other.order = order
        other.info = replace(self.info, id=f"{self.info.id}/{order}")
        return other

    def under(self, rcp: str) -> VllmWriter:
        """The same writer under another of the machine's models of the reciprocal."""
        other = copy(self)
        other._rcp = rcp
        return other


def idle_lanes(geometry: CacheGeometry, abi: StoreAbi) -> int:
    """Lanes of the last warp without a group, where threads that share a group would shuffle."""
    if abi.threads_per_group == 1:
        return 0
    threads = geometry.num_heads * geometry.scale_columns * abi.threads_per_group
    return -threads % WARP


class UnlaunchableWriter:
    """A store kernel of a kind nobody has taught the tool to launch: every finding says why."""

    def __init__(self, info: SubjectInfo, reason: str) -> None:
        self.info = info
        self.reason = reason

    def unsupported_reason(self, geometry: CacheGeometry, dtype: str) -> str | None:
        """Geometries are not what stands in the way."""
        return None

    def write(self, request: StoreRequest) -> Stored:
        """Raises Unsupported with the reason."""
        raise Unsupported(self.reason)


def writers_from_artifact(
    what: str, archs: Sequence[str], dtypes: Sequence[str], options: ArtifactOptions | None = None
) -> list[Writer]:
    """The store kernels of a release ("vllm==0.33.0") or of an artefact's path, one an arch,
    dtype and scale search.

    `archs` such as "sm_103" name GPUs, whatever the suffix: for each the code is taken that a
    driver would load there, and where that is the code of another arch it is told; none means all.
    Raises UsageError where the artefact is damaged or cannot be had, NothingRan where it has no
    such kernel, or none for one of the GPUs.
    """
    options = options or ArtifactOptions()
    found = store_cubins(what, archs, options)
    writers = writers_of(what, found, dtypes)
    for arch in dict.fromkeys(archs):
        codes = loaded_on(arch, found, mangled(STORE_KERNEL))
        others = [f for f in codes if capability_of(f.arch) != capability_of(arch)]
        if others:
            names = " and ".join(dict.fromkeys(f.arch for f in others))
            options.notify(f"{shown(what)}: {arch} loads the code for {names}")
            writers = [_loaded(writer, arch, others) for writer in writers]
    return writers


def _loaded(writer: Writer, arch: str, codes: Sequence[Found]) -> Writer:
    """The writer, whose name says so where a GPU of another arch loads its code."""
    if writer.info.artifact_sha256 in {found.sha256 for found in codes}:
        assert isinstance(writer, VllmWriter | UnlaunchableWriter)
        writer.info = replace(writer.info, name=f"{writer.info.name}, as {arch} loads it")
    return writer


def store_cubins(
    what: str, archs: Sequence[str] = (), options: ArtifactOptions | None = None
) -> tuple[Found, ...]:
    """The cubins of a release or an artefact's path that hold store kernels.

    `archs` and errors are those of `writers_from_artifact`.
    """
    with _located(what, options or ArtifactOptions()) as path:
        return extract(path, STORE_KERNEL, archs)


def writers_of(what: str, found: Sequence[Found], dtypes: Sequence[str]) -> list[Writer]:
    """The store kernels of some cubins as writers; `what` says where they come from.

    Raises NothingRan where there is none for the dtypes.
    """
    with ThreadPoolExecutor() as pool:
        # Most of a disassembly is waiting for the process that does it.
        threads = list(pool.map(_threads_of, found))
    writers = [w for f, t in zip(found, threads, strict=True) for w in _writers(what, f, t, dtypes)]
    if not writers:
        raise NothingRan(f"{what} has no {STORE_KERNEL} for {' or '.join(dtypes)}")
    return _distinguished(sorted(writers, key=_order))


@dataclass(frozen=True)
class KernelRow:
    """A kernel of an artefact: the member and the cubin it stands in, and whether it is launched.

    `title` is the demangled name; `refusal` says why the kernel cannot be launched as a store
    kernel, None where it can.
    """

    member: str
    arch: str
    title: str
    kernel: KernelInfo
    cubin: Cubin
    sha256: str
    refusal: str | None


def kernels_of(
    what: str, options: ArtifactOptions | None = None, matching: str | None = None
) -> list[KernelRow]:
    """The kernels of a release or an artefact's path whose mangled names hold `matching`.

    Without `matching`, all those of a cubin given by itself, and the store kernels of anything
    else. Raises UsageError and NothingRan as `writers_from_artifact` does.
    """
    with _located(what, options or ArtifactOptions()) as path:
        if matching is None and path.suffix == ".cubin":
            matching = ""
        found = extract(path, STORE_KERNEL) if matching is None else cubins(path, matching)
        text = mangled(STORE_KERNEL) if matching is None else matching
        return [
            KernelRow(
                each.member, each.arch, title(name), kernel, each.cubin, each.sha256,
                unsupported_params(kernel),
            )
            for each in found
            for name, kernel in each.cubin.kernels.items()
            if text in name
        ]  # fmt: skip


@contextmanager
def _located(what: str, options: ArtifactOptions) -> Iterator[Path]:
    release = parse_release(what)
    if release is None:
        yield Path(what)
    else:
        with release_wheel(release, options) as wheel:
            yield wheel


def _threads_of(found: Found) -> dict[str, int]:
    """Kernel name -> threads that share a group."""
    return {name: threads_per_group(code) for name, code in disassemble(found.cubin).items()}


def _writers(
    what: str, found: Found, threads: Mapping[str, int], dtypes: Sequence[str]
) -> Iterator[Writer]:
    for kernel in found.cubin.kernels.values():
        if mangled(STORE_KERNEL) not in kernel.name:
            continue
        variant = Variant.of(kernel.name)
        reason = unsupported_params(kernel)
        if variant is None:
            info = _info(what, found, kernel, shown(kernel.name))
            reason = f"{title(kernel.name)} has template arguments that are not understood"
            yield UnlaunchableWriter(info, reason)
        elif variant.dtype in dtypes:
            info = _info(what, found, kernel, f"{variant.dtype}/{variant.search.value}")
            info = replace(info, scale_search=variant.search, dtypes=(variant.dtype,))
            if reason is not None:
                reason = f"{title(kernel.name)} cannot be launched: {reason}"
                yield UnlaunchableWriter(info, reason)
            else:
                yield from _launched(info, found, kernel, threads[kernel.name])


def _launched(
    info: SubjectInfo, found: Found, kernel: KernelInfo, threads: int
) -> Iterator[VllmWriter]:
    if not has_swizzle_switch(kernel):
        yield VllmWriter(info, found.cubin, kernel.name, StoreAbi(threads))
        return
    # Which value a caller passes stands in its host code: each is a subject of its own.
    for switch, v_layout in ((True, "swizzle_4x4"), (False, "linear")):
        declared = {**info.declared, "V": v_layout}
        subject = replace(info, id=f"{info.id}/swizzle_v_sf={switch:d}", declared=declared)
        yield VllmWriter(subject, found.cubin, kernel.name, StoreAbi(threads, switch))


def _info(what: str, found: Found, kernel: KernelInfo, label: str) -> SubjectInfo:
    release = parse_release(what)
    origin = f"vLLM {release.version}" if release is not None else shown(Path(what).name)
    return SubjectInfo(
        id=f"{what}:{found.arch}/{label}",
        role="writer",
        name=f"{origin} store kernel, {found.arch}",
        executor="machine",
        arch=found.arch,
        kernel=title(kernel.name),
        artifact_sha256=found.sha256,
        declared=contract("vllm-store", "writer").declared,
    )


def _order(writer: Writer) -> tuple[int, str, str]:
    """By arch, then by dtype and scale search, which is how titles sort."""
    info = writer.info
    return arch_number(info.arch or ""), info.arch or "", info.kernel or ""


def _distinguished(writers: list[Writer]) -> list[Writer]:
    """Writers whose ids differ: where two share one, the digest of the code tells them apart."""
    ids = [writer.info.id for writer in writers]
    for writer in writers:
        if ids.count(writer.info.id) > 1 and isinstance(writer, VllmWriter | UnlaunchableWriter):
            digest = writer.info.artifact_sha256 or ""
            writer.info = replace(writer.info, id=f"{writer.info.id}@{digest[:8]}")
    return writers
