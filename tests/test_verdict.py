"""The verdict on machine code: what it finds in the store kernel and in every broken copy of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from mutants import MUTANTS, mutant_writer
from subjects import TableReader, TableWriter

from oracle.candidates import CANDIDATES
from oracle.errors import NothingRan, OracleError
from oracle.geometry import CacheGeometry
from oracle.machine.context import Unsupported
from oracle.requests import Stored, StoreRequest
from oracle.run import DEFAULT_DOMAIN, Domain, recover_table, run_verdict
from oracle.subjects.spec import (
    default_readers,
    default_writers,
    readers_from_specs,
    writers_from_specs,
)
from oracle.verdict import Finding, Verdict

ONE = Domain((128,), (2,), (16,), ("HND",), ("bf16",))


def one(verdict: Verdict, side: str, plane: str = "scale") -> Finding:
    (finding,) = (f for f in verdict.findings if (f.side, f.plane) == (side, plane))
    return finding


@pytest.fixture(scope="module")
def default() -> Verdict:
    domain = replace(DEFAULT_DOMAIN, block_sizes=(16,))
    return run_verdict(default_writers((), domain.dtypes), default_readers(), domain)


def test_the_default_verdict_is_as_declared(default: Verdict) -> None:
    assert default.exit_code == 0
    assert {f.status for f in default.findings} == {"match"}
    machine = [s for s in default.subjects if s.executor == "machine"]
    assert {s.arch for s in machine} == {"sm_100a", "sm_120a"}
    for subject in machine:
        for finding in default.of_subject(subject.id):
            assert finding.recovered == finding.positions > 0
            expected = "linear" if finding.plane == "data" else subject.declared[finding.side]
            assert expected in finding.layouts


def test_at_head_64_both_names_of_the_swizzle_are_given(default: Verdict) -> None:
    names = {
        f.configuration.head_size: f.layouts
        for f in default.of_subject("store-sm100@sm_100a/bf16")
        if (f.side, f.plane) == ("V", "scale")
    }
    assert names[64] == ("swizzle_4x4", "inverse_4x4")
    assert names[128] == ("swizzle_4x4",)


def test_matching_readers_agree_everywhere(default: Verdict) -> None:
    pairs = {"store-sm100@sm_100a/bf16": "trtllm-gen", "store-sm12x@sm_120a/bf16": "flashinfer-fa2"}
    for writer, reader in pairs.items():
        both = [a for a in default.agreements if (a.writer, a.reader) == (writer, reader)]
        assert len(both) == 2 * 6 * 2
        assert {a.status for a in both} == {"agree"}
        assert all(a.disagreeing == 0 < a.positions for a in both)


def test_the_pinned_reference_disagrees_on_k_at_every_head_size(default: Verdict) -> None:
    found = {}
    for a in default.agreements:
        if (a.writer, a.reader) == ("store-sm100@sm_100a/bf16", "vllm-dequant-pin"):
            assert a.status == ("disagree" if a.side == "K" else "agree")
            if a.side == "K":
                found[a.configuration.head_size, a.configuration.cache_layout] = a
    assert len(found) == 12
    for (head_size, _), a in found.items():
        columns = head_size // 16
        swizzled = CANDIDATES["swizzle_4x4"].table(16, columns)
        linear = CANDIDATES["linear"].table(16, columns)
        # Two heads: the count is of one page, all heads.
        assert a.disagreeing == 2 * np.count_nonzero(swizzled != linear)
        assert a.positions == 2 * 16 * columns
        assert a.witness == {
            "head": 0,
            "token": 0,
            "column": 1,
            "writer": "K scale head 0 row 0 col 1",
            "reader": "K scale head 0 row 0 col 4" if columns > 4 else "K scale head 0 row 1 col 0",
        }
    assert found[64, "HND"].disagreeing == 96


def test_a_reader_asked_for_makes_its_disagreement_a_fault() -> None:
    writers = writers_from_specs(["reference:k=linear,v=linear"], (), ())
    readers = readers_from_specs(["trtllm-gen", "flashinfer-fa2"])
    assert run_verdict(writers, readers, ONE).exit_code == 0
    judged = run_verdict(writers, readers, ONE, judged_readers=frozenset({"flashinfer-fa2"}))
    assert judged.exit_code == 0
    judged = run_verdict(writers, readers, ONE, judged_readers=frozenset({"trtllm-gen"}))
    assert judged.exit_code == 1


def test_processes_give_the_same_verdict() -> None:
    domain = replace(ONE, head_sizes=(64, 128), cache_layouts=("HND", "NHD"))
    subjects = default_writers((), ("bf16",)), default_readers()
    assert run_verdict(*subjects, domain, jobs=2) == run_verdict(*subjects, domain)


def test_the_store_kernel_refuses_what_its_layout_is_undefined_for() -> None:
    writers = writers_from_specs(["store"], (), ("bf16",))
    verdict = run_verdict(writers, [], replace(ONE, head_sizes=(96,)))
    sm100, sm12x = ([f.status for f in verdict.of_subject(w.info.id)] for w in writers)
    assert set(sm100) == {"refused"}
    assert set(sm12x) == {"match"}
    assert "S to be a multiple of 4" in str(verdict.findings[0].reason)
    assert verdict.exit_code == 0
    alone = run_verdict(writers[:1], [], replace(ONE, head_sizes=(96,)))
    assert alone.exit_code == 5
    narrow = replace(ONE, head_sizes=(80,), num_heads=(1,), block_sizes=(4,))
    refused = run_verdict(writers[1:], [], narrow).findings[0]
    assert (refused.status, "multiple of the 8 bytes" in str(refused.reason)) == ("refused", True)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_103a", "sm_121a"])
def test_the_store_kernel_does_the_same_on_other_archs(arch: str) -> None:
    writers = writers_from_specs(["store", "store:k=inverse_4x4,v=linear"], (arch,), ("fp16",))
    verdict = run_verdict(writers, [], replace(ONE, dtypes=("fp16",)))
    assert len(verdict.findings) == 12
    assert {f.status for f in verdict.findings} == {"match"}
    assert {s.arch for s in verdict.subjects} == {arch}


# name -> (side, plane, status, what the defects are)
CAUGHT = {
    "t%4 dropped": (
        "V", "scale", "overlap", {"collisions": 192, "never_written": 192, "clashing_pairs": 12},
    ),
    "K and V exchanged": (
        "K", "scale", "out_of_region",
        {"never_written": 256, "above_region": 256, "other_plane": 256, "other_head_rows": 256},
    ),
    "NHD strides for HND": ("K", "scale", "mismatch", {"other_head_rows": 128}),
    "one head off": (
        "V", "scale", "out_of_region",
        {"never_written": 128, "above_region": 128, "other_plane": 128, "other_head_rows": 256},
    ),
    "heads rotated": ("K", "scale", "mismatch", {"other_head_rows": 256}),
    "scale written twice": ("K", "scale", "overlap", {"collisions": 256}),
    "scale written to two places": (
        "V", "scale", "out_of_region", {"collisions": 15, "below_region": 1, "other_plane": 1},
    ),
    "scale never written": ("K", "scale", "gap", {"never_written": 16}),
    "one byte past the page": (
        "V", "scale", "out_of_region",
        {"never_written": 1, "above_region": 1, "other_plane": 1, "other_head_rows": 2},
    ),
    "padding stored": ("K", "scale", "out_of_region", {"below_region": 72, "other_plane": 72}),
    "zero stored before the cache": ("K", "data", "out_of_region", {"below_region": 1}),
    "zero stored past the cache": ("V", "scale", "out_of_region", {"above_region": 1}),
    "another page cleared": ("V", "data", "out_of_region", {"above_region": 1, "other_plane": 1}),
    "zero groups go elsewhere": ("K", "scale", "unrecognised", {}),
    "nibbles exchanged": ("K", "data", "mismatch", {}),
    "K data where V data goes": ("K", "data", "gap", {"never_written": 2048}),
}  # fmt: skip
# Where bytes that leave their region land, for mutants that make any do so.
STRAYS = {
    "K and V exchanged": {"own page V scale": 256},
    "one head off": {"page+1 K data": 128},
    "scale written to two places": {"own page V data": 1},
    "one byte past the page": {"page+1 K data": 1},
}
WITNESSES = {
    "t%4 dropped": {"token": 0, "column": 0, "note": "shares its byte"},
    "K and V exchanged": {"token": 0, "column": 0, "note": "stored in page 1 V scale"},
    "NHD strides for HND": {"token": 1, "column": 0, "found": "K scale head 0 row 2 col 0"},
    "one head off": {"head": 1, "token": 0, "note": "stored in page 2 K data"},
    "heads rotated": {"head": 0, "found": "K scale head 1 row 0 col 0"},
    "scale written twice": {"token": 0, "note": "its byte is stored more than once"},
    "scale written to two places": {"column": 0, "stored": "page 1 V data"},
    "scale never written": {"token": 0, "column": 1, "note": "stored nowhere"},
    "one byte past the page": {"head": 1, "token": 15, "note": "stored in page 2 K data"},
    "padding stored": {"padding": True, "stored": "page 0 K scale"},
    "zero stored before the cache": {"stored": "before the allocation"},
    "zero stored past the cache": {"stored": "past the allocation"},
    "another page cleared": {"stored": "page 3 V data"},
    "zero groups go elsewhere": None,
    "nibbles exchanged": {"element": 0, "found": "K data head 0 row 0 col 0 high"},
    "K data where V data goes": {"element": 0, "note": "stored nowhere"},
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_kernel_is_caught(name: str) -> None:
    side, plane, status, counts = CAUGHT[name]
    # The last byte of a page shows only where V is linear as well.
    v = "linear" if name == "one byte past the page" else "swizzle_4x4"
    verdict = run_verdict([mutant_writer(name, v=v)], [], ONE)
    assert verdict.exit_code == 1
    finding = one(verdict, side, plane)
    assert finding.status == status
    assert {n: c for n, c in vars(finding.defects).items() if c} == counts
    assert finding.strays == STRAYS.get(name, {})
    # Four tokens of a band store to the first of them, in four bands; eight columns on two heads.
    bands = [(band, band + row) for band in range(0, 16, 4) for row in (1, 2, 3)]
    pairs = [(clash.first, clash.second) for clash in finding.clashes]
    assert pairs == (bands if name == "t%4 dropped" else [])
    assert {clash.bytes for clash in finding.clashes} <= {16}
    expected = WITNESSES[name]
    if expected is None:
        assert "depend on the values" in str(finding.reason)
        return
    assert finding.witness is not None
    assert expected.items() <= finding.witness.items()


def test_every_mutant_has_its_right_answer() -> None:
    assert set(CAUGHT) == set(WITNESSES) == set(MUTANTS)


def test_an_unknown_map_is_given_as_shape_stride_or_not_at_all() -> None:
    columns = np.arange(16 * 8).reshape(8, 16).T
    scrambled = np.random.default_rng(0).permutation(16 * 8).reshape(16, 8)
    verdict = run_verdict([TableWriter(columns, scrambled)], [], ONE)
    k, v = one(verdict, "K"), one(verdict, "V")
    assert (k.status, k.layouts, k.shape_stride) == ("unrecognised", (), "(16,8):(1,16)")
    assert (v.status, v.layouts, v.shape_stride) == ("unrecognised", (), None)
    assert v.recovered == v.positions
    assert verdict.exit_code == 1


class Raises(TableWriter):
    def write(self, request: StoreRequest) -> Stored:
        raise OracleError("the subject gave up")


def test_a_subject_that_fails_is_a_finding_with_its_reason() -> None:
    verdict = run_verdict([Raises("linear", "linear")], [], ONE)
    assert {f.reason for f in verdict.findings} == {"the subject gave up"}
    assert verdict.exit_code == 1


def test_nothing_to_run_is_said() -> None:
    with pytest.raises(NothingRan, match="no writer and no reader"):
        run_verdict([], [], ONE)


def test_a_reader_alone_has_findings() -> None:
    verdict = run_verdict([], [TableReader("linear", "swizzle_4x4")], ONE)
    assert [f.layouts for f in verdict.findings if f.plane == "scale"] == [
        ("linear",),
        ("swizzle_4x4",),
    ]
    assert verdict.agreements == ()


def test_a_recovered_table_can_be_had_on_its_own() -> None:
    (writer,) = writers_from_specs(["store-sm100"], (), ("bf16",))
    geometry = CacheGeometry(4, 16, 2, 128, "NHD")
    table, names = recover_table(writer, geometry, "V", "bf16")
    assert names == ("swizzle_4x4",)
    assert (table == CANDIDATES["swizzle_4x4"].table(16, 8)).all()
    with pytest.raises(NothingRan, match="S to be a multiple of 4"):
        recover_table(writer, CacheGeometry(4, 16, 2, 80, "NHD"), "V", "bf16")


def test_a_finding_names_the_contracts_it_keeps_and_who_would_misread_it(default: Verdict) -> None:
    claims = {
        (f.side, f.configuration.head_size): (f.keeps, f.misread_by)
        for f in default.of_subject("store-sm100@sm_100a/bf16")
        if f.plane == "scale"
    }
    keeps, misread = claims["V", 128]
    assert {"vllm-store", "store-sm100", "flashinfer-quantize"} <= set(keeps)
    assert not {"store-sm12x", "flashinfer-append"} & set(keeps)
    assert {"flashinfer-fa2", "flashinfer-xqa", "vllm-dequant-sm12x"} == set(misread)
    assert claims["K", 128][1] == ("vllm-dequant-pin",)
    assert "trtllm-gen" not in claims["V", 192][1]


class Unexecutable(TableWriter):
    def write(self, request: StoreRequest) -> Stored:
        raise Unsupported("opcode HMMA")


def test_a_writer_that_cannot_be_executed_is_never_a_pass() -> None:
    unexecutable = Unexecutable("linear", "linear")
    unexecutable.info = replace(unexecutable.info, id="unexecutable")
    readers = readers_from_specs(["flashinfer-fa2"])
    assert run_verdict([unexecutable], readers, ONE).exit_code == 5
    (sound,) = writers_from_specs(["reference:k=linear,v=linear"], (), ())
    verdict = run_verdict([unexecutable, sound], readers, ONE)
    assert {f.status for f in verdict.of_subject("unexecutable")} == {"unsupported"}
    assert verdict.exit_code == 5


def test_defects_of_data_are_counted_in_bytes() -> None:
    verdict = run_verdict([mutant_writer("padding stored")], [], ONE)
    # Padding of one slot before the first lands in the last row of page 0: of V data 64 bytes of
    # head 0, and one byte of the scales of head 0 that come before V's data of the last row.
    assert one(verdict, "V", "data").defects.below_region == 65
