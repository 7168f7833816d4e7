"""Tables of offsets as runs: nothing is lost, and what is regular is short."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from documents import mutants
from hypothesis import given
from hypothesis import strategies as st

from oracle.addressmap import AddressMap, Read
from oracle.candidates import CANDIDATES
from oracle.findings import reader_findings
from oracle.geometry import CacheGeometry
from oracle.offsettable import MAX_RUNS, offsets_of, runs_of
from oracle.probe import PROBED_PAGES, probed
from oracle.subjects.base import SubjectInfo
from oracle.verdict import Configuration, Finding

OFFSETS = st.lists(st.none() | st.integers(-9, 9))


@given(OFFSETS)
def test_runs_give_back_what_they_were_made_from(offsets: list[int | None]) -> None:
    assert offsets_of(runs_of(offsets)) == offsets


@given(OFFSETS)
def test_no_two_neighbouring_runs_are_one(offsets: list[int | None]) -> None:
    runs = runs_of(offsets)
    assert all(count > 0 for _, _, count in runs)
    for (first, step, count), (following, _, _) in pairwise(runs):
        if first is not None and following is not None:
            # A single offset would have taken the next one for its second.
            assert count > 1
            assert following != first + step * count
        else:
            assert first is not following


@pytest.mark.parametrize("name", CANDIDATES)
def test_a_named_layout_takes_a_run_or_two_for_each_token_and_tile(name: str) -> None:
    table = CANDIDATES[name].table(128, 32)
    assert len(runs_of(table.ravel().tolist())) <= 128 * 32 / 4


def scales_at(offset: np.ndarray, geometry: CacheGeometry) -> Finding:
    """The finding about a reader whose V scales are at `offset` [P, H, T, S]."""
    info = SubjectInfo("odd", "reader", "an odd reader", "reference")
    amap = AddressMap("V", "scale", geometry, PROBED_PAGES, offset)
    configuration = Configuration.of(geometry, "bf16")
    (finding,) = reader_findings(info, configuration, Read({("V", "scale"): amap}))
    return finding


def shuffled(tokens: int) -> Finding:
    """Every scale of a plane in its own plane, in no order at all."""
    geometry = probed(CacheGeometry(1, tokens, 1, 64))
    places = np.random.default_rng(7).permutation(tokens * 4).reshape(tokens, 4)
    pages = np.array(PROBED_PAGES)[:, None, None, None]
    return scales_at(geometry.scale_offset("V", pages, 0, *np.divmod(places, 4)), geometry)


def test_a_map_that_nothing_describes_is_spelled() -> None:
    finding = shuffled(16)
    assert (finding.layouts, finding.shape_stride) == ((), None)
    assert finding.table is not None
    assert (finding.table.page, finding.table.head) == (PROBED_PAGES[0], 0)
    expected = np.random.default_rng(7).permutation(64)
    assert offsets_of(finding.table.runs) == expected.tolist()


def test_a_table_that_is_too_long_is_left_out() -> None:
    assert shuffled(512).table is None
    assert 2 * MAX_RUNS < 512 * 4


def test_the_table_is_of_the_head_that_the_witness_is_of() -> None:
    found = {(f.subject, f.side): f for f in mutants().findings if f.table is not None}
    assert len(found) >= 8
    for finding in found.values():
        assert finding.table is not None
        assert finding.witness is not None
        assert finding.table.head == finding.witness.get("head", 0)
        assert finding.plane == "scale"
        assert not finding.layouts
        assert finding.shape_stride is None
        assert len(offsets_of(finding.table.runs)) == finding.positions / 2
    rotated = found["mutant:heads rotated", "K"]
    assert rotated.table is not None
    # Head 0's scales are in the plane of head 1, which is 16 * 4 bytes on.
    assert rotated.table.runs == ((64, 1, 64),)
    lost = found["mutant:scale never written", "K"]
    assert lost.table is not None
    assert None in offsets_of(lost.table.runs)
