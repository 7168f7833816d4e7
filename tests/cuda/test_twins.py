"""Store kernels on a GPU: their findings, and what is said where they differ from the machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fakegpu import SM90, AfterLaunch, FakeGpu
from hypothesis import given, settings
from hypothesis import strategies as st
from mutants import mutant_writer
from subjects import TableWriter

from oracle.cuda.archs import Device
from oracle.cuda.driver import U8
from oracle.cuda.launcher import ALIGNMENT, SMALLEST_ZONE, Launch, Launched
from oracle.formats import FloatArray
from oracle.geometry import CacheGeometry
from oracle.machine.context import Unsupported
from oracle.machine.memory import MachineFault
from oracle.machine.primitives import RCP_MODELS
from oracle.probe import PAGES_IN_CACHE, writer_probe
from oracle.quantize import ScaleSearch
from oracle.reference import reference_write
from oracle.requests import Stored, StoreRequest
from oracle.run import Domain, run_verdict
from oracle.subjects.base import SubjectInfo
from oracle.subjects.binary import MachineWriter
from oracle.subjects.cuda import GpuExecution, on_gpu, with_executors
from oracle.subjects.source import store_writer
from oracle.subjects.spec import writers_from_specs
from oracle.twins import differences
from oracle.verdict import Finding, Verdict

SM100 = Device("Nobody's B200", (10, 0), 13000)
SMALL = Domain((64,), (2,), (4,), ("HND",), ("bf16",))
LAYOUTS = ("linear", "swizzle_4x4")


def store(
    k: str = "linear",
    v: str = "swizzle_4x4",
    search: ScaleSearch = ScaleSearch.MAX_OVER_6,
    dtype: str = "bf16",
) -> MachineWriter:
    return store_writer("store", "store", k, v, search, "sm_90", dtype)


def both(writer: MachineWriter, gpu: FakeGpu, domain: Domain = SMALL) -> Verdict:
    there = on_gpu(writer, gpu.device, GpuExecution(lambda: gpu), compared=True)
    return run_verdict([writer, there], [], domain)


def facts(verdict: Verdict, subject: str) -> list[Finding]:
    """The findings about a subject, but for what only a log of stores can tell."""
    return [replace(f, subject="", reason=None) for f in verdict.of_subject(subject)]


@pytest.mark.parametrize(
    ("k", "v", "dtype", "search"),
    [
        ("linear", "swizzle_4x4", "bf16", ScaleSearch.MAX_OVER_6),
        ("swizzle_4x4", "linear", "fp16", ScaleSearch.FOUR_OVER_SIX),
        ("inverse_4x4", "linear", "bf16", ScaleSearch.FOUR_OVER_SIX),
    ],
)
def test_a_gpu_that_does_the_same_gives_the_same_findings(
    k: str, v: str, dtype: str, search: ScaleSearch
) -> None:
    gpu = FakeGpu()
    verdict = both(store(k, v, search, dtype), gpu, replace(SMALL, dtypes=(dtype,)))
    here, there = verdict.subjects
    assert (there.id, there.executor) == (f"store@sm_90/{dtype}#cuda", "cuda")
    assert there.name == "store, on Nobody's GPU (compute capability 9.0, CUDA 13.0)"
    assert (there.arch, there.kernel, there.declared) == (here.arch, here.kernel, here.declared)
    assert facts(verdict, here.id) == facts(verdict, there.id)
    assert {f.status for f in verdict.findings} == {"match"}
    assert gpu.runs > 0
    assert verdict.exit_code == 0


@pytest.mark.parametrize(
    ("mutant", "told"),
    [
        ("NHD strides for HND", None),
        ("heads rotated", None),
        ("nibbles exchanged", None),
        ("another page cleared", None),
        ("zero stored before the cache", "1 bytes stored at 4096 bytes before cache"),
        ("zero stored past the cache", "1 bytes stored at 1000 bytes past the end of cache"),
        ("padding stored", "32 bytes stored at 32 bytes before cache"),
    ],
)
def test_a_broken_kernel_shows_the_same_faults_on_a_gpu(mutant: str, told: str | None) -> None:
    writer = mutant_writer(mutant)
    verdict = both(writer, FakeGpu(SM100))
    here, there = (facts(verdict, info.id) for info in verdict.subjects)
    assert here == there
    assert verdict.exit_code == 1
    reasons = [f.reason for f in verdict.of_subject(verdict.subjects[1].id) if f.reason]
    assert told is None or all(reason.startswith(told) for reason in reasons)


def test_a_kernel_that_faults_on_the_gpu_is_undefined() -> None:
    class Far(FakeGpu):
        def run(self, launch: Launch) -> Launched:
            beyond = bytearray(launch.params)
            beyond[5] ^= 1
            return super().run(replace(launch, params=bytes(beyond)))

    verdict = both(store(), Far())
    there = verdict.of_subject("store@sm_90/bf16#cuda")
    assert {f.status for f in there} == {"undefined"}
    assert all("CUDA_ERROR_ILLEGAL_ADDRESS" in (f.reason or "") for f in there)
    assert verdict.exit_code == 1


def test_code_for_another_gpu_is_unsupported_by_name() -> None:
    verdict = both(store(), FakeGpu(SM100))
    there = verdict.of_subject(verdict.subjects[1].id)
    assert {f.status for f in there} == {"unsupported"}
    assert there[0].reason == (
        "code for sm_90 needs compute capability 9.0 or a later 9.x; Nobody's B200 has 10.0"
    )
    assert {f.status for f in verdict.of_subject(verdict.subjects[0].id)} == {"match"}
    assert verdict.exit_code == 5


# ---- Where the two differ ------------------------------------------------------------------------


def geometry() -> CacheGeometry:
    return next(SMALL.geometries())


def flipping(*offsets: int, after: int = 0) -> AfterLaunch:
    """Flips a bit of bytes of the cache, from some launch on."""
    # The cache is the last buffer; behind it is a red zone of the smallest size.
    start = -SMALLEST_ZONE - -(-geometry().cache_bytes // ALIGNMENT) * ALIGNMENT
    launches = 0

    def tamper(allocation: U8) -> None:
        nonlocal launches
        launches += 1
        if launches > after:
            for offset in offsets:
                allocation[start + offset] ^= 1

    return tamper


def in_the_comparison(*offsets: int) -> FakeGpu:
    """A GPU that stores like the machine until the map is known, and then one bit otherwise."""
    launches_of_the_map = 3 + writer_probe(geometry(), "bf16").passes
    return FakeGpu(tamper=flipping(*offsets, after=launches_of_the_map))


def test_one_byte_that_differs_is_a_fault_with_its_witness() -> None:
    where = geometry()
    offset = int(where.scale_offset("V", 1, 1, 3, 2))
    gpu = FakeGpu(tamper=flipping(offset))
    found = differences(
        on_gpu(store(), SM90, GpuExecution(lambda: gpu)), store(), where, "bf16"
    )  # fmt: skip
    assert list(found) == [("V", "scale")]
    difference = found["V", "scale"]
    assert (difference.count, difference.offset) == (1, offset)
    assert difference.first == difference.second ^ 1


def test_the_verdict_names_page_head_token_and_both_values() -> None:
    offset = int(geometry().data_offset("K", 2, 1, 3, 4))
    verdict = both(store(), in_the_comparison(offset))
    there = {(f.side, f.plane): f for f in verdict.of_subject("store@sm_90/bf16#cuda")}
    fault = there.pop(("K", "data"))
    assert {f.status for f in there.values()} == {"match"}
    assert fault.status == "undefined"
    witness = dict(fault.witness or {})
    note = str(witness.pop("note"))
    assert witness == {"page": 2, "head": 1, "token": 3, "element": 8, "row": 3, "col": 4}
    on_the_gpu, on_the_machine = (int(part.split()[0], 16) for part in note.split(", "))
    assert on_the_gpu == on_the_machine ^ 1
    assert fault.reason == "1 byte differs from what the machine stores"
    assert verdict.exit_code == 1


def test_a_swizzled_scale_is_told_by_its_token() -> None:
    verdict = both(store(), in_the_comparison(int(geometry().scale_offset("V", 1, 0, 1, 2))))
    (fault,) = (f for f in verdict.findings if f.status == "undefined")
    witness = dict(fault.witness or {})
    # Row 1, column 2 of the plane holds the scale of token 2, column 1.
    assert (witness["token"], witness["column"]) == (2, 1)
    assert (witness["row"], witness["col"]) == (1, 2)


@settings(max_examples=8)
@given(st.lists(st.integers(0, geometry().page_bytes * PAGES_IN_CACHE - 1), min_size=1, max_size=6))
def test_every_byte_is_compared(offsets: list[int]) -> None:
    """Wherever bytes are flipped, they are counted in their planes, the first of them is shown."""

    class Flipped(TableWriter):
        def write(self, request: StoreRequest) -> Stored:
            cache = super().write(request).cache
            cache[chosen] ^= 1
            return Stored(cache)

    chosen, where = sorted(set(offsets)), geometry()
    found = differences(Flipped(*LAYOUTS), TableWriter(*LAYOUTS), where, "bf16")
    at = where.locate(np.array(chosen))
    expected: dict[tuple[str, str], list[int]] = {}
    for offset, side, plane in zip(chosen, at.side, at.plane, strict=True):
        expected.setdefault(("KV"[side], ("data", "scale")[plane]), []).append(offset)
    assert {key: (d.count, d.offset) for key, d in found.items()} == {
        key: (len(some), some[0]) for key, some in expected.items()
    }


@pytest.mark.parametrize("search", ScaleSearch)
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_no_compared_byte_hangs_on_the_last_bit_of_a_reciprocal(
    search: ScaleSearch, dtype: str
) -> None:
    """Each reciprocal of the store may be an ulp off, each way, and the bytes are the same."""

    class Off:
        def __init__(self) -> None:
            self.info = SubjectInfo("off", "writer", "off", "reference")
            self._noise = np.random.default_rng(0)

        def unsupported_reason(self, geometry: CacheGeometry, dtype: str) -> None:
            return None

        def write(self, request: StoreRequest) -> Stored:
            def rcp(x: FloatArray) -> FloatArray:
                way = self._noise.integers(0, 3, np.shape(x))
                return np.choose(way, [model(x) for model in RCP_MODELS.values()])

            return Stored(reference_write(request, "linear", "linear", search, rcp))

    exact = store("linear", "linear", search, dtype)
    assert differences(Off(), exact, geometry(), dtype) == {}


@pytest.mark.parametrize("last", [8, 10, 12])
def test_a_gpu_that_fails_while_it_is_compared_is_no_match(last: int) -> None:
    """Its map is known after seven launches; the last of thirteen is that of special values."""
    gpu = FakeGpu(tamper=lambda allocation: fail())

    def fail() -> None:
        if gpu.runs > last:
            raise MachineFault("the GPU fell off the bus")

    verdict = both(store(), gpu)
    here, there = verdict.subjects
    assert {f.status for f in verdict.of_subject(here.id)} == {"match"}
    assert {(f.status, f.reason) for f in verdict.of_subject(there.id)} == {
        ("undefined", "the GPU fell off the bus")
    }
    assert verdict.exit_code == 1


def test_a_machine_that_gives_no_bytes_says_so_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: StoreRequest) -> Stored:
        raise Unsupported("not understood here")

    gpu = FakeGpu()
    writer = store()
    other = on_gpu(writer, gpu.device, GpuExecution(lambda: gpu), compared=True)
    monkeypatch.setattr(writer, "write", refuse)
    verdict = run_verdict([writer, other], [], SMALL)
    here, there = verdict.subjects
    assert {f.status for f in verdict.of_subject(here.id)} == {"unsupported"}
    assert {f.status for f in verdict.of_subject(there.id)} == {"match"}
    assert verdict.exit_code == 5


# ---- Which executor ------------------------------------------------------------------------------


def test_executors_are_applied_to_machine_code_alone() -> None:
    writers = writers_from_specs(
        ["store-sm100", "reference:k=linear,v=linear"], ("sm_90",), ["bf16"]
    )
    ids = {
        executors: [w.info.id for w in with_executors(writers, executors, SM90)]
        for executors in (("machine",), ("cuda",), ("machine", "cuda"))
    }
    here, reference = "store-sm100@sm_90/bf16", "reference:k=linear,v=linear"
    assert ids["machine",] == [here, reference]
    assert ids["cuda",] == [f"{here}#cuda", reference]
    assert ids["machine", "cuda"] == [here, f"{here}#cuda", reference]


def test_nothing_is_compared_with_an_executor_that_was_not_asked_for() -> None:
    (alone,) = with_executors([store()], ["cuda"], SM90)
    assert isinstance(alone, MachineWriter)
    assert alone.twin is None
    _, compared = with_executors([store()], ["machine", "cuda"], SM90)
    assert isinstance(compared, MachineWriter)
    assert compared.twin is not None


def test_a_store_of_no_tokens_is_no_launch() -> None:
    gpu = FakeGpu()
    probe = writer_probe(geometry(), "bf16")
    request = next(probe.requests(np.zeros(0, np.int64)))
    stored = on_gpu(store(), SM90, GpuExecution(lambda: gpu)).write(request)
    assert np.array_equal(stored.cache, request.cache)
    assert gpu.runs == 0
