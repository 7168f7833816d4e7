"""The survey gives the findings of the probe, and leaves to it what it cannot tell."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from mutants import MUTANTS, mutant_writer
from wheels import store_cubin

from oracle import survey
from oracle.findings import writer_findings
from oracle.geometry import SIDES, CacheGeometry
from oracle.machine import tiers
from oracle.machine.cubin import Cubin
from oracle.probe import AddressesVary, map_writer, probed
from oracle.requests import ByteStores, Stored, StoreRequest
from oracle.run import WHOLE_DOMAIN, Domain, run_verdict
from oracle.subjects.base import SubjectInfo, Writer
from oracle.subjects.binary import MachineWriter
from oracle.subjects.spec import writers_from_specs
from oracle.verdict import Configuration, Finding


def store_writer(dtype: str = "bf16") -> MachineWriter:
    """The store kernel with vLLM's swizzle and no host side, so that any geometry is launched."""
    cubin = Cubin.parse(store_cubin("sm_100f", dtype, 1))
    (name,) = cubin.kernels
    declared = {"K": "linear", "V": "swizzle_4x4"}
    info = SubjectInfo("s", "writer", "s", "machine", "sm_100f", name, "0" * 64, declared)
    return MachineWriter(info, cubin, name)


def both(writer: Writer, geometry: CacheGeometry, dtype: str) -> tuple[list[Finding], ...]:
    configuration = Configuration.of(geometry, dtype)
    surveyed, written = survey.survey(writer, geometry, configuration)
    mapped = map_writer(writer, geometry, dtype)
    for side in SIDES:
        offsets = (each.maps[side, "scale"].offset for each in (written, mapped))
        assert np.array_equal(*offsets)
    return surveyed, writer_findings(writer.info, configuration, mapped)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("layout", ["HND", "NHD"])
@pytest.mark.parametrize(
    ("head_size", "heads", "tokens"),
    [(64, 2, 16), (128, 1, 4), (96, 2, 16), (80, 3, 8), (16, 1, 4), (32, 4, 12), (144, 2, 20),
     (48, 3, 4), (576, 2, 32)],
)  # fmt: skip
def test_the_findings_are_those_of_the_probe(
    head_size: int, heads: int, tokens: int, layout: str, dtype: str
) -> None:
    geometry = probed(CacheGeometry(1, tokens, heads, head_size, layout))
    assert survey._survey(store_writer(dtype), geometry, dtype) is not None
    surveyed, mapped = both(store_writer(dtype), geometry, dtype)
    assert surveyed == mapped


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_kernel_is_caught_as_the_probe_catches_it(name: str) -> None:
    geometry = CacheGeometry(1, 16, 2, 128, "HND")
    writer = mutant_writer(name)
    try:
        mapped = map_writer(writer, geometry, "bf16")
    except AddressesVary as error:
        with pytest.raises(AddressesVary, match=re.escape(str(error))):
            survey.survey(writer, probed(geometry), Configuration.of(geometry, "bf16"))
        return
    configuration = Configuration.of(geometry, "bf16")
    surveyed, _ = survey.survey(writer, geometry, configuration)
    assert surveyed == writer_findings(writer.info, configuration, mapped)
    assert {finding.status for finding in surveyed} != {"match"}


def test_a_writer_without_a_log_is_left_to_the_probe() -> None:
    (reference,) = writers_from_specs(["reference:k=linear,v=tile_8x4"], (), ())
    geometry = CacheGeometry(1, 8, 1, 64, "NHD")
    surveyed, mapped = both(reference, geometry, "bf16")
    assert surveyed == mapped


def test_words_tell_all_coordinates_apart() -> None:
    for count in (1, 5, survey._STEP, 3 * survey._STEP + 1):
        scales, _ = survey._scale_words(count)
        assert len(set(map(tuple, scales.T.tolist()))) == scales.shape[1] >= count
        # A code is what never changes, so a scale has to.
        assert (scales != scales[0]).any(axis=0).all()
        codes, _ = survey._code_words(count)
        assert len(set(map(tuple, codes.tolist()))) == len(codes) >= count


class Restless:
    """A writer that stores the same bytes in another order every time."""

    def __init__(self, writer: Writer) -> None:
        self.info = writer.info
        self._writer = writer
        self._noise = np.random.default_rng(0)

    def unsupported_reason(self, geometry: CacheGeometry, dtype: str) -> str | None:
        return self._writer.unsupported_reason(geometry, dtype)

    def write(self, request: StoreRequest) -> Stored:
        stored = self._writer.write(request)
        assert stored.stores is not None
        order = self._noise.permutation(stored.stores.offset.size)
        shuffled = ByteStores(stored.stores.offset[order], stored.stores.value[order])
        return replace(stored, stores=shuffled)


@pytest.mark.parametrize("head_size", [64, 128])
def test_the_order_of_stores_changes_nothing(head_size: int) -> None:
    geometry = CacheGeometry(4, 16, 2, head_size, "HND")
    surveyed, mapped = both(Restless(store_writer()), geometry, "bf16")
    assert surveyed == mapped == both(store_writer(), geometry, "bf16")[0]


def test_native_code_and_processes_change_nothing() -> None:
    domain = Domain((64, 96), (1, 2), (4, 16), ("HND",), ("bf16",))
    writer = store_writer()
    slowly = run_verdict([writer.on_tier("numpy")], [], domain)
    assert {each.tier for each in slowly.launches} == {"numpy"}
    assert run_verdict([writer], [], domain, jobs=2) == slowly
    if tiers.installed():
        natively = run_verdict([writer.on_tier("compiled")], [], domain, jobs=2)
        assert natively == slowly
        assert "compiled" in {each.tier for each in natively.launches}
        assert sum(e.count for e in natively.launches) == sum(e.count for e in slowly.launches)


def test_the_whole_domain_has_what_it_says() -> None:
    assert WHOLE_DOMAIN.head_sizes == tuple(range(16, 592, 16))
    for sizes, ends in ((WHOLE_DOMAIN.num_heads, (1, 16)), (WHOLE_DOMAIN.block_sizes, (4, 128))):
        assert (sizes[0], sizes[-1]) == ends
    assert sum(1 for _ in WHOLE_DOMAIN.geometries()) == 36 * 5 * 6 * 2


def test_misaligned_stores_are_counted_and_end_nothing() -> None:
    """V's data of a page of 4 tokens of one group begins 36 bytes in: four stores of 8 bytes."""
    verdict = run_verdict([store_writer()], [], Domain((16,), (1,), (4,), ("HND",), ("bf16",)))
    found = {(f.side, f.plane): f for f in verdict.findings}
    v = found["V", "data"]
    assert (v.status, v.defects.misaligned, v.recovered) == ("undefined", 4, v.positions)
    assert v.witness is not None
    assert (v.witness["token"], v.witness["element"]) == (0, 0)
    assert "misaligned" in str(v.reason)
    assert found["K", "data"].defects.misaligned == 0
    assert verdict.exit_code == 1


def test_where_a_stray_scale_lands_is_counted() -> None:
    """Head size 96, 2 heads, page 16: six columns, so that the 2-D swizzle leaves its plane."""
    verdict = run_verdict([store_writer()], [], Domain((96,), (2,), (16,), ("HND",), ("bf16",)))
    v = next(f for f in verdict.findings if (f.side, f.plane) == ("V", "scale"))
    # Independently, from the formula: stored row and column of every (token, column) of a head.
    places = [
        (head, token, row * 6 + column + head * 96)
        for head in range(2)
        for token in range(16)
        for s in range(6)
        # Six columns in four quarters make each a single column wide.
        for row, column in [(token // 4 * 4 + s, token % 4)]
    ]
    inside = [place for *_, place in places if place < 192]
    assert v.defects.above_region == len(places) - len(inside) == sum(v.strays.values())
    assert v.defects.collisions == len(inside) - len(set(inside))
    assert v.defects.never_written == 192 - len(set(inside))
    assert v.defects.other_head_rows == sum(place // 96 != head for head, _, place in places)
    assert v.strays == {"page+1 K data": v.defects.above_region}
    pairs: dict[tuple[int, int], int] = {}
    first: dict[int, int] = {}
    for _, token, place in sorted(places):
        if place < 192:
            owner = first.setdefault(place, token)
            if sum(1 for *_, p in places if p == place) > 1 and owner != token:
                pair = (min(owner, token), max(owner, token))
                pairs[pair] = pairs.get(pair, 0) + 1
    assert {(c.first, c.second): c.bytes for c in v.clashes} == pairs
    assert v.defects.clashing_pairs == len(pairs)
