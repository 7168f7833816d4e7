"""Judging writers: store kernels on three archs, models of the reciprocal, and what is wrong."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from subjects import TableWriter

from oracle.formats import DTYPES, FloatArray, e4m3_decode
from oracle.machine.primitives import RCP_MODELS
from oracle.numerics.capture import Capture
from oracle.numerics.conformance import (
    ADMISSIBLE,
    BIT_EXACT,
    INADMISSIBLE,
    NOT_RUN,
    Conformance,
    Tally,
    examine,
    exit_code,
    judge,
)
from oracle.numerics.conventions import CONVENTIONS, detect
from oracle.numerics.domain import (
    FRACTIONS,
    TIE_SCALES,
    drawn_batches,
    many_scales,
    tie_batches,
    tie_groups,
)
from oracle.numerics.misquantised import WRONG_QUANTISERS
from oracle.numerics.models import under_model
from oracle.numerics.mutants import DECLARED, MutantWriter
from oracle.quantize import RECIPROCALS, ScaleSearch, quantize
from oracle.subjects.base import Writer
from oracle.subjects.spec import writers_from_specs

MAX, FOUR = ScaleSearch.MAX_OVER_6, ScaleSearch.FOUR_OVER_SIX
ARCHS = ("sm_90", "sm_100a", "sm_120a")
FEW = 2_000
every_search = pytest.mark.parametrize("search", ScaleSearch, ids=lambda search: search.value)


@cache
def store(arch: str, dtype: str, search: ScaleSearch) -> Writer:
    spec = "store-sm100"
    spec += "" if search is MAX else f":search={search.value}"
    (writer,) = writers_from_specs([spec], (arch,), (dtype,))
    return writer


def reference(search: ScaleSearch = MAX) -> Writer:
    (writer,) = writers_from_specs(
        [f"reference:k=linear,v=linear,search={search.value}"], (), ("bf16",)
    )
    return writer


# The store kernel


@every_search
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arch", ARCHS)
def test_the_store_kernel_is_bit_exact(arch: str, dtype: str, search: ScaleSearch) -> None:
    """On all ties of some scales and on drawn groups; the whole domain is a longer run's."""
    scales = (1.0, 3 / 448, 0.0137, 1.5) if dtype == "bf16" else (1.0,)
    batches = [*tie_batches(dtype, search, scales), *drawn_batches(dtype, FEW)]
    found = judge(Capture(store(arch, dtype, search), dtype), search, (), batches, RCP_MODELS)
    assert (found.status, found.models) == (BIT_EXACT, ("exact",))
    assert found.total.groups > 2 * FEW
    assert found.total.free > 0
    assert (found.total.near_ties > 0) == (search is FOUR)


@every_search
@pytest.mark.parametrize("model", ["+1ulp", "-1ulp"])
def test_under_another_model_the_kernel_follows_it(search: ScaleSearch, model: str) -> None:
    writer = under_model(store("sm_100a", "bf16", search), model)
    found = examine(writer, "bf16", FEW)
    assert (found.status, found.models) == (BIT_EXACT, (model,))
    # The writer it was made from keeps its own.
    assert examine(store("sm_100a", "bf16", search), "bf16", FEW).models == ("exact",)


@pytest.mark.parametrize("model", RCP_MODELS)
def test_the_reference_follows_a_model_too(model: str) -> None:
    assert examine(under_model(reference(), model), "bf16", FEW).models == (model,)


def test_a_writer_with_a_reciprocal_of_its_own_keeps_it() -> None:
    writer = TableWriter("linear", "linear")
    assert under_model(writer, "+1ulp") is writer


@every_search
def test_the_search_is_told_from_the_bytes(search: ScaleSearch) -> None:
    """A binary is declared to use max/6, for want of knowledge."""
    writer = MutantWriter("binary", DECLARED, lambda x, scale: quantize(x, scale, search))
    assert writer.info.scale_search is MAX
    found = examine(writer, "bf16", FEW)
    assert (found.search, found.status) == (search, BIT_EXACT)


# What is wrong


def mixed(x: FloatArray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """A reciprocal an ulp high in one group and an ulp low in the next."""
    high = quantize(x, scale, MAX, RECIPROCALS["+1ulp"])
    low = quantize(x, scale, MAX, RECIPROCALS["-1ulp"])
    odd = np.arange(len(x)) % 2 == 1
    return np.where(odd[:, None], high[0], low[0]), np.where(odd, high[1], low[1])


def test_admissible_is_less_than_bit_exact() -> None:
    found = examine(MutantWriter("mixed", DECLARED, mixed), "bf16", FEW)
    assert (found.status, found.models) == (ADMISSIBLE, ())
    assert exit_code([found]) == 0


# Exchanged nibbles are right values in wrong places, which the address map shows.
OF_ANOTHER_KIND = {"ties away from zero", "nibbles exchanged"}


@pytest.mark.parametrize("name", sorted(set(WRONG_QUANTISERS) - OF_ANOTHER_KIND))
def test_a_wrong_quantiser_is_inadmissible(name: str) -> None:
    mutant = MutantWriter(name, DECLARED, WRONG_QUANTISERS[name])
    batches = [next(tie_batches("bf16", MAX)), *drawn_batches("bf16", 800)]
    found = judge(Capture(mutant, "bf16"), MAX, (), batches, {})
    assert found.status == INADMISSIBLE
    assert exit_code([found]) == 1
    assert 1 <= len(found.witnesses) <= 3


def test_ties_away_from_zero_cannot_be_told_from_a_reciprocal_that_is_high() -> None:
    mutant = MutantWriter("away", DECLARED, WRONG_QUANTISERS["ties away from zero"])
    assert examine(mutant, "bf16", FEW).status == ADMISSIBLE


def test_ties_to_odd_are_torn() -> None:
    """Each code alone could be, but no multiplier takes one tie up and the next one down."""
    mutant = MutantWriter("odd", DECLARED, WRONG_QUANTISERS["ties to odd"])
    batch = next(tie_batches("bf16", MAX))
    total = judge(Capture(mutant, "bf16"), MAX, (), [batch], {}).total
    assert (total.wrong_scales, total.wrong_codes) == (0, 0)
    assert total.torn > 1000


def test_a_witness_shows_what_was_stored_and_what_is_right() -> None:
    mutant = MutantWriter("signs", DECLARED, WRONG_QUANTISERS["signs lost"])
    (witness, *_) = examine(mutant, "bf16", FEW).witnesses
    x = np.array(witness["values"], np.float32)
    codes, scale_byte = quantize(x, witness["global_scale"])
    assert witness["reference_codes"] == codes.tolist()
    assert witness["stored_codes"] == (codes & 7).tolist()
    assert witness["stored_scale"] == witness["reference_scale"] == int(scale_byte)


def test_a_refusal_is_not_run() -> None:
    (writer,) = writers_from_specs(["reference:k=tile_128x4,v=linear"], (), ("bf16",))
    found = examine(writer, "bf16", FEW)
    assert found.status == NOT_RUN
    assert "128" in (found.reason or "")
    assert exit_code([found]) == 5
    assert exit_code([found, examine(reference(), "bf16", FEW)]) == 0


def test_exit_codes() -> None:
    def made(status: str) -> Conformance:
        return Conformance(reference().info, "bf16", status)

    assert exit_code([]) == 5
    assert exit_code([made(BIT_EXACT), made(ADMISSIBLE), made(NOT_RUN)]) == 0
    assert exit_code([made(BIT_EXACT), made(INADMISSIBLE)]) == 1


def test_tallies_add_up() -> None:
    total = Tally(1, 2, 3, 4, 5, 6, {"exact": 7})
    total.add(Tally(10, 20, 30, 40, 50, 60, {"exact": 70, "table": 1}))
    assert total == Tally(11, 22, 33, 44, 55, 66, {"exact": 77, "table": 1})
    assert total.wrong == 44 + 55 + 66


# The domain


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1.0, 2.0**-7, 0.0137])
def test_tie_groups_hold_every_amax_and_every_tie(dtype: str, scale: float) -> None:
    patterns = tie_groups(dtype, scale, 1 / 6)
    x = DTYPES[dtype].decode(patterns)
    largest = np.abs(x).max(axis=-1)
    assert (largest == x[:, 0]).all()
    _, scale_bytes = quantize(x, scale)
    assert set(range(1, 0x7F)) <= set(scale_bytes.tolist())
    values = np.unique(largest)
    every = DTYPES[dtype].decode(np.arange(1, DTYPES[dtype].format.max_code + 1, dtype=np.uint16))
    inside = every[(every >= values[0]) & (every <= values[-1])]
    assert np.array_equal(values, inside)
    if scale != 0.0137:
        ordinary = (scale_bytes > 0x08) & (scale_bytes < 0x7E)
        # Each of the seven ties, exactly, in both signs, over the two groups of an amax.
        step = np.exp2(np.floor(np.log2(scale)))
        scaled = x[ordinary] / (e4m3_decode(scale_bytes[ordinary])[:, None] * step)
        for tie in (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0):
            for sign in (1, -1):
                assert (scaled == sign * tie).any(axis=-1).sum() == ordinary.sum() / 2


def test_batches_are_the_same_every_time() -> None:
    for one, other in zip(drawn_batches("fp16", 300), drawn_batches("fp16", 300), strict=True):
        assert one.label == other.label
        assert np.array_equal(one.inputs.key, other.inputs.key)
        assert np.array_equal(one.inputs.value, other.inputs.value)


def test_there_are_as_many_scales_as_asked_for() -> None:
    scales = many_scales(900)
    assert len(scales) == len(set(scales)) == 900
    assert scales[: len(TIE_SCALES)] == [float(np.float32(scale)) for scale in TIE_SCALES]
    assert min(scales) > 0


def test_each_candidate_of_four_over_six_has_its_ties() -> None:
    assert FRACTIONS[FOUR] == (1 / 6, 1 / 4)


# Conventions


@every_search
@pytest.mark.parametrize("name", CONVENTIONS)
def test_a_convention_is_told_from_the_scale_bytes(name: str, search: ScaleSearch) -> None:
    x = np.random.default_rng(3).standard_normal((1000, 16)).astype(np.float32) * 3
    largest = float(np.abs(x).max())
    for scale in (11.3, 7.9):
        multiplier = CONVENTIONS[name].multiplier(scale, largest)
        _, scale_bytes = quantize(x, 1 / multiplier, search)
        assert detect(x, scale_bytes, scale) == (name,)


def test_what_inputs_do_not_tell_apart_is_all_named() -> None:
    x = np.random.default_rng(3).standard_normal((100, 16)).astype(np.float32)
    assert set(detect(x, quantize(x, 1.0)[1], 1.0)) == {"decode", "encode", "none"}


def test_bytes_of_no_convention() -> None:
    x = np.random.default_rng(3).standard_normal((100, 16)).astype(np.float32)
    assert detect(x, quantize(x, 1 / 17)[1], 2.0) == ()


@pytest.mark.parametrize(
    ("quantiser", "convention"),
    [
        ("encode scale for decode scale", "encode"),
        ("global scale 6 times too large", "decode*6"),
        ("global scale 6 times too small", "decode/6"),
        ("global scale ignored", "none"),
    ],
)
def test_a_writer_of_another_convention_is_told_so(quantiser: str, convention: str) -> None:
    found = examine(MutantWriter("other", DECLARED, WRONG_QUANTISERS[quantiser]), "bf16", FEW)
    assert found.status == INADMISSIBLE
    assert found.conventions == (convention,)
    assert convention in (found.reason or "")
