"""What a broken promise says, and when a promise says nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from broken import (
    PlantedWriter,
    heads_rotated,
    padding_stored,
    planted,
    stored_before_the_cache,
    stores,
    t_mod_4_dropped,
    ties_away,
)
from subjects import LoggedWriter, TableReader, TableWriter

from oracle.errors import NothingRan, Refused, UsageError
from oracle.formats import DTYPES
from oracle.geometry import CacheGeometry
from oracle.machine.context import Unsupported
from oracle.machine.memory import MachineFault
from oracle.properties.case import StoreCase
from oracle.properties.promises import PROMISES
from oracle.properties.stored import inadmissible
from oracle.quantize import ScaleSearch, quantize, rcp_plus_ulp
from oracle.requests import ByteStores, Stored, StoreRequest
from oracle.subjects.base import Writer
from oracle.subjects.spec import readers_from_specs

CASE = StoreCase(2, 8, 2, 64, "HND", "bf16", (9, -1, 3, 9), "normal", 1, 0.5, 3.0)
TRTLLM = readers_from_specs(["trtllm-gen"])[0]
FA2 = readers_from_specs(["flashinfer-fa2"])[0]


def broken(promise: str, writer: Writer, case: StoreCase = CASE) -> tuple[str, dict[str, object]]:
    violation = PROMISES[promise].check(writer, TRTLLM, case)
    assert violation is not None
    assert violation.promise == promise
    assert violation.reason.isprintable()
    return violation.reason, dict(violation.witness)


def test_each_promise_is_called_what_it_is_filed_under_and_says_a_sentence() -> None:
    for name, promise in PROMISES.items():
        assert promise.name == name
        assert promise.text.endswith(".")
        assert "\n" not in promise.text


def test_a_wrong_code_is_named_by_its_group() -> None:
    reason, witness = broken("round-trip", planted(ties_away))
    # V's scales begin at (512 + 64) + 512; the swizzle puts token 3, column 1 at 3 + 4 * 1.
    assert reason.startswith("page 0, head 0, token 3, column 1 of the V scale (byte 1095) holds ")
    spot = {"side": "V", "plane": "scale", "page": 0, "head": 0, "token": 3, "column": 1}
    assert witness["byte"] == 576 + 512 + 7
    assert spot.items() <= witness.items()
    assert witness["stored_scale"] == witness["reference_scale"]
    assert witness["stored_codes"] != witness["reference_codes"]


def test_shared_bytes_are_named_by_both_coordinates() -> None:
    reason, witness = broken("bijective", planted(t_mod_4_dropped))
    assert reason == (
        "page 1 of the probe's 4, head 0, token 0, column 0 of the V scale, byte 0 of its region: "
        "shares its byte"
    )
    assert witness["with"] == {
        "page": 1, "head": 0, "token": 1, "column": 0, "note": "same byte",
    }  # fmt: skip


def test_a_byte_outside_is_named_by_its_place() -> None:
    reason, _ = broken("untouched-elsewhere", planted(stored_before_the_cache))
    assert reason == "a byte is stored before the allocation, at offset -4096"


def test_a_byte_of_no_token_is_named_with_what_was_there() -> None:
    reason, witness = broken("padding-ignored", planted(padding_stored))
    # Slot -1 became the last one: token 7 of page 1.
    assert (witness["page"], witness["head"], witness["token"]) == (1, 0, 7)
    assert "stored with padding tokens" in reason


def test_a_layout_is_named_beside_the_declared_one() -> None:
    reason, _ = broken("as-declared", planted(heads_rotated))
    assert reason.startswith("declared linear, but is a layout without a name: head 0, token 0, ")


def test_a_disagreement_names_both_places() -> None:
    violation = PROMISES["agrees-with-reader"].check(PlantedWriter("sound", stores), FA2, CASE)
    assert violation is not None
    assert violation.reason == (
        "head 0, token 0, column 1 of the V scale stored in V scale head 0 row 1 col 0, "
        "read from V scale head 0 row 0 col 1"
    )


@pytest.mark.parametrize("error", [MachineFault("it loops"), UsageError("it raised")])
def test_a_writer_that_fails_breaks_what_it_is_asked_for(error: Exception) -> None:
    assert broken("deterministic", _failing(error)) == (str(error), {})


@pytest.mark.parametrize("error", [
    NothingRan("no GPU"), Unsupported("no such opcode"), Refused("failing", "too large"),
])  # fmt: skip
def test_a_writer_that_cannot_be_executed_breaks_nothing(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        PROMISES["deterministic"].check(_failing(error), None, CASE)


def test_every_promise_hears_a_refusal() -> None:
    """Even of a store of one token, about which some have little to say."""
    writer = _failing(Refused("failing", "too large"))
    for promise in PROMISES.values():
        if promise.inapplicable(writer, TRTLLM) is None:
            with pytest.raises(Refused, match="failing refuses the geometry: too large"):
                promise.check(writer, TRTLLM, replace(CASE, slots=(3,)))


def _failing(error: Exception) -> PlantedWriter:
    def fail(request: StoreRequest) -> ByteStores:
        raise error

    return PlantedWriter("failing", fail)


def test_a_repeated_slot_may_be_refused_or_told_of_instead() -> None:
    def raising(request: StoreRequest) -> ByteStores:
        slots = request.slot_mapping[request.slot_mapping >= 0]
        if np.unique(slots).size < slots.size:
            raise MachineFault("a slot is stored twice")
        return stores(request)

    class Telling(PlantedWriter):
        def write(self, request: StoreRequest) -> Stored:
            stored = super().write(request)
            twice = np.unique(request.slot_mapping).size < request.slot_mapping.size
            return replace(stored, faults=("a slot is stored twice",) if twice else ())

    first = np.s_[::-1]

    def first_wins(request: StoreRequest) -> ByteStores:
        return stores(
            replace(
                request,
                key=request.key[first],
                value=request.value[first],
                slot_mapping=request.slot_mapping[first],
            )
        )

    check = PROMISES["last-wins"].check
    assert check(PlantedWriter("raising", raising), None, CASE) is None
    assert check(Telling("telling", first_wins), None, CASE) is None
    assert check(PlantedWriter("silent", first_wins), None, CASE) is not None


@pytest.mark.parametrize("writer", [
    TableWriter("linear", "swizzle_4x4"), TableWriter("inverse_4x4", "linear", "4over6"),
])  # fmt: skip
def test_what_declares_nothing_is_read_as_it_stores(writer: TableWriter) -> None:
    reader = TableReader(writer.k, writer.v)
    for name, promise in PROMISES.items():
        if name in ("as-declared", "equal-across-archs"):
            with pytest.raises(NothingRan):
                promise.check(writer, reader, CASE)
        else:
            assert promise.check(writer, reader, CASE) is None


@pytest.mark.parametrize("search", ScaleSearch)
@pytest.mark.parametrize("side", ["K", "V"])
def test_the_side_that_is_wrong_is_blamed_where_nothing_is_declared(
    side: str, search: ScaleSearch
) -> None:
    """Whatever the search, and although the other one would find fault with both sides."""

    class Squaring(TableWriter):
        """Uses the square of the global scale on one side; that of the address probe is 1."""

        def write(self, request: StoreRequest) -> Stored:
            name = f"{side.lower()}_scale"
            return super().write(replace(request, **{name: getattr(request, name) ** 2}))

    writer = Squaring("linear", "swizzle_4x4", search.value)
    named = set()
    for seed in range(20):
        reason, witness = broken("round-trip", writer, replace(CASE, seed=seed))
        assert witness["side"] == side
        named.add(reason.partition(" by the scale search ")[2])
    # Where both searches have the same, none is named.
    assert named == {"", search.value}


def test_without_a_layout_scales_are_called_by_row_and_column() -> None:
    table = np.zeros((8, 4), np.int64)
    reason, _ = broken("round-trip", LoggedWriter(table, "linear"))
    assert "the K scales have no layout to be read with" in reason


@pytest.mark.parametrize(("change", "why"), [
    ({"dtype": "fp16"}, "takes bf16, not fp16"),
    ({"block_size": 6}, "refuses the geometry"),
])  # fmt: skip
def test_a_case_that_is_refused_is_not_checked(change: dict[str, object], why: str) -> None:
    writer = PlantedWriter("sound", stores)
    writer.info = replace(writer.info, dtypes=("bf16",))
    with pytest.raises(NothingRan, match=why):
        PROMISES["round-trip"].check(writer, None, replace(CASE, **change))  # type: ignore[arg-type]


def test_promises_say_what_they_need() -> None:
    writer = PlantedWriter("sound", stores)
    reasons = {name: promise.inapplicable(writer, None) for name, promise in PROMISES.items()}
    assert {name for name, reason in reasons.items() if reason is not None} == {
        "equal-across-archs", "agrees-with-reader",
    }  # fmt: skip


@pytest.mark.parametrize("search", ScaleSearch)
def test_what_the_reciprocal_leaves_open_is_admitted_and_no_more(search: ScaleSearch) -> None:
    noise = np.random.default_rng(5).integers(0, 1 << 16, (20_000, 16), np.uint16)
    x, scale = DTYPES["bf16"].decode(noise), 2.0**-9
    codes, scales = quantize(x, scale, search, rcp_plus_ulp)
    exact = quantize(x, scale, search)
    open_ = (codes != exact[0]).any(axis=-1) | (scales != exact[1])
    assert open_.any()
    assert not inadmissible(x, scale, search, codes, scales).any()
    assert inadmissible(x, scale, search, codes ^ 8, scales).all()
    assert inadmissible(x, scale, search, codes, scales ^ 1).all()


def test_a_case_may_hold_padding_alone() -> None:
    case = StoreCase(1, 4, 1, 64, "HND", "bf16", (-1, -2))
    writer = PlantedWriter("sound", stores)
    assert case.geometry == CacheGeometry(1, 4, 1, 64)
    for promise in PROMISES.values():
        if promise.inapplicable(writer, TRTLLM) is None:
            assert promise.check(writer, TRTLLM, case) is None
