"""Tests of who may use a carving: every contract has a row, and every demand is made."""

from __future__ import annotations

import pytest

from oracle.contracts import contracts
from oracle.errors import UsageError
from oracle.geometry import PLANES, SIDES
from oracle.views.density import MOST_ALIGNED, density
from oracle.views.examine import Asked, Examination
from oracle.views.parties import DEMANDS, Party
from oracle.views.planes import SPLITS, Carving, Plane, Strides, view_split
from oracle.views.tensor import CacheTensor, cache_tensor, dense_strides

SHAPE = (100, 2, 64, 8, 72)


def parties(split: str, layout: str = "HND", **options: object) -> dict[str, Party]:
    shape = options.get("shape", SHAPE)
    assert isinstance(shape, tuple)
    tensor = cache_tensor(shape, dense_strides(shape, layout), int(str(options.get("offset", 0))))
    return {party.name: party for party in Examination(tensor, view_split(split)).parties}


def test_every_contract_has_a_row_and_every_row_a_contract() -> None:
    assert set(DEMANDS) == set(contracts())
    assert set(parties("vllm")) == set(contracts())


def test_a_contract_without_a_row_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(DEMANDS, "trtllm-gen")  # type: ignore[arg-type]
    party = parties("vllm")["trtllm-gen"]
    assert party.usable is None
    assert party.reasons == ("which strides it takes is not known here",)


def test_all_that_take_views_may_use_a_dense_head_major_page() -> None:
    found = parties("vllm")
    usable = {name for name, party in found.items() if party.usable}
    own = {name for name, demand in DEMANDS.items() if demand.own_tensors}
    assert usable == set(DEMANDS) - own
    assert {found[name].reasons for name in own} == {
        ("keeps data and scales in tensors of its own: it is never given this one",)
    }


def test_token_major_scales_are_not_dense_for_the_sm100_reader() -> None:
    party = parties("vllm", "NHD")["trtllm-gen"]
    assert not party.usable
    assert party.reasons[0] == (
        "K scale steps 64 bytes from row to row and 1 in it, and its last two dimensions [64, 8] "
        "must be dense"
    )
    assert "TMA" in party.reasons[2]
    assert parties("vllm", "NHD")["flashinfer-fa2"].usable


def test_tma_wants_sixteen_bytes() -> None:
    assert parties("vllm", offset=16)["trtllm-gen"].usable
    party = parties("vllm", offset=8)["trtllm-gen"]
    assert party.reasons[0] == "K data starts at 8, no multiple of 16 as TMA asks"
    # A page of 16 tokens with 3 scales a head: heads of scales are 48 bytes apart, tokens 24.
    assert parties("vllm", shape=(4, 2, 20, 2, 72))["trtllm-gen"].usable
    odd = parties("vllm", shape=(4, 2, 12, 2, 36))["trtllm-gen"]
    assert odd.usable
    odd = parties("vllm", shape=(4, 2, 2, 2, 36))["trtllm-gen"]
    assert any("from head to head" in reason for reason in odd.reasons)


def test_tma_wants_it_of_data_rows_too() -> None:
    assert "K data steps 72 bytes from row to row, no multiple of 16 as TMA asks" in (
        parties("inline")["trtllm-gen"].reasons
    )


def test_who_carves_by_itself_needs_its_own_planes() -> None:
    assert parties("page")["vllm-store"].usable
    party = parties("inline")["vllm-store"]
    assert party.reasons == (
        "carves a page by itself (contiguous): the head stride of K data is 4096 there and 4608 "
        "here",
    )
    party = parties("head_slots")["store-sm100"]
    assert party.reasons == (
        "carves a page by itself (contiguous): the head stride of K data is 4096 there and 4608 "
        "here",
    )


def test_contracts_exclude_geometries_they_say_nothing_about() -> None:
    reasons = parties("vllm", shape=(100, 2, 64, 8, 45))["trtllm-gen"].reasons
    assert reasons[0] == "trtllm-gen takes head sizes 64, 128, 256"


def test_a_head_major_shape_is_transposed_for_the_op() -> None:
    packed = parties("vllm", shape=(100, 16, 64, 72))["vllm-store"]
    assert packed.usable
    assert packed.note is not None
    assert "it takes 8 heads for the tokens of a page" in packed.note
    assert parties("vllm")["vllm-store"].note is None


class UnevenSplit:
    """Scales of V that step otherwise than those of K."""

    name = "uneven"

    def planes(self, tensor: CacheTensor) -> tuple[Plane, ...]:
        planes = list(SPLITS["vllm"].planes(tensor))
        last = planes[-1]
        # Heads and tokens of V's scales change places: the same bytes, other strides.
        steps = Strides(last.strides.page, tensor.scale_columns, 8 * tensor.scale_columns, 1)
        planes[-1] = Plane(last.side, last.kind, last.shape, steps, last.base)
        return tuple(planes)


def test_readers_that_index_v_by_k_want_equal_strides() -> None:
    examination = Examination(cache_tensor(SHAPE, dense_strides(SHAPE, "HND")), UnevenSplit())
    assert examination.faults == ()
    found = {party.name: party for party in examination.parties}
    assert found["flashinfer-fa2"].usable
    assert found["flashinfer-xqa"].reasons == (
        "indexes V's scales by the strides of K's, but the head stride of K's is 512 and that of "
        "V's 8",
    )
    assert not found["trtllm-gen"].usable


def test_nobody_may_use_what_aliases() -> None:
    found = parties("vllm", "LBNHC")
    assert not any(party.usable for party in found.values())
    assert found["flashinfer-fa2"].reasons == ("the views share bytes or leave the storage",)


def test_judged_parties_are_faults() -> None:
    tensor = cache_tensor(SHAPE, dense_strides(SHAPE, "NHD"))
    faults = Examination(tensor, view_split("vllm"), Asked(judged=["trtllm-gen"])).faults
    assert [fault.split(":")[0] for fault in faults] == ["trtllm-gen may not be used"]
    assert Examination(tensor, view_split("vllm"), Asked(judged=["vllm-store"])).faults == ()
    with pytest.raises(UsageError, match="no contract is called 'nobody'"):
        Asked(judged=["nobody"])


def test_alignment_is_that_of_every_row() -> None:
    carving: Carving = Examination(
        cache_tensor(SHAPE, dense_strides(SHAPE, "HND"), 4096), view_split("vllm")
    ).carving
    found = {plane.name: density(plane).alignment for plane in carving.planes}
    assert found == {"K data": 64, "K scale": 8, "V data": 64, "V scale": 8}
    shape = (1, 2, 1, 1, 9 * 32)
    single = Examination(cache_tensor(shape, dense_strides(shape, "HND")), view_split("vllm"))
    assert density(single.carving.plane("K", "data")).alignment == MOST_ALIGNED
    assert [p.name for p in carving.planes] == [f"{s} {k}" for s in SIDES for k in PLANES]
