"""Every promise notices a fault that was planted, and every fault is noticed by these promises."""

from __future__ import annotations

import pytest
from broken import PLANTED, PlantedWriter, built_otherwise, planted, stores
from killtable import CASES, TRTLLM, in_words, kills
from mutants import mutant_writer

from oracle.properties.builds import writers_of
from oracle.properties.promises import PROMISES
from oracle.subjects.base import Writer

COMPILED = ("t%4 dropped", "scale written twice", "padding stored", "zero stored past the cache")
"""The store kernel itself, broken in its source."""


def test_kill_table() -> None:
    table = {fault.__name__: kills(planted(fault)) for fault in PLANTED}
    table["built_otherwise"] = kills(built_otherwise())
    table |= {name: kills(mutant_writer(name)) for name in COMPILED}
    found = in_words(table)
    print(found)
    assert found.splitlines() == TABLE.strip("\n").splitlines()
    assert set(PROMISES) == set().union(*table.values())
    assert all(table.values())


def test_without_a_log_of_its_stores_a_writer_is_judged_by_its_image() -> None:
    unseen = {"scales_stored_twice", "stored_before_the_cache"}
    for fault in PLANTED:
        killers = kills(planted(fault, logged=False), cases=CASES[2:3])
        assert bool(killers) == (fault.__name__ not in unseen), fault.__name__


@pytest.mark.parametrize("logged", [True, False])
def test_a_sound_writer_keeps_every_promise(logged: bool) -> None:
    assert kills(PlantedWriter("sound", stores, logged)) == set()


@pytest.mark.parametrize("spec", [
    "store-sm100", "store-sm100:search=4over6", "store-sm12x",
    "reference:k=linear,v=swizzle_4x4", "reference:k=inverse_4x4,v=linear,search=4over6",
])  # fmt: skip
def test_the_store_kernel_and_the_specification_keep_every_promise(spec: str) -> None:
    writer = writers_of(spec)[0]
    assert kills(writer) - ({"agrees-with-reader"} if not _fits(writer) else set()) == set()


def _fits(writer: Writer) -> bool:
    return writer.info.declared == TRTLLM.info.declared


TABLE = """
 1 round-trip
 2 bijective
 3 in-region
 4 untouched-elsewhere
 5 padding-ignored
 6 last-wins
 7 token-independent
 8 order-independent
 9 page-independent
10 deterministic
11 as-declared
12 equal-across-archs
13 agrees-with-reader
                            1  2  3  4  5  6  7  8  9 10 11 12 13
t_mod_4_dropped             x  x  .  x  .  .  .  .  .  .  x  .  x
layouts_exchanged           x  .  .  x  .  .  .  .  .  .  x  .  x
v_linear                    x  .  .  x  .  .  .  .  .  .  x  .  x
heads_rotated               x  .  .  .  .  .  .  .  .  .  x  .  x
one_head_off                x  x  x  x  .  .  .  .  x  .  x  .  x
page_off_by_one             x  x  x  x  .  .  .  .  .  .  x  .  x
page_0_linear               x  .  .  x  .  .  .  .  x  .  .  .  .
scales_stored_twice         .  x  .  .  .  .  .  .  .  .  x  .  .
last_column_never_written   x  x  .  .  .  .  .  .  .  .  x  .  x
next_page_cleared           x  .  x  x  .  .  x  .  x  .  x  .  .
stored_before_the_cache     .  .  x  x  .  .  .  .  .  .  x  .  .
padding_stored              .  .  x  x  x  .  .  .  .  .  x  .  .
slots_of_32_bits            .  .  .  x  x  .  .  .  .  .  .  .  .
first_wins                  .  .  .  .  .  x  .  .  .  .  .  .  .
signs_by_position           x  x  .  .  x  x  x  x  .  .  x  .  .
tokens_share_a_maximum      x  x  x  .  .  .  x  .  .  .  x  .  x
keys_for_values             x  .  x  .  .  .  .  .  .  .  x  .  x
ties_away                   x  x  x  .  .  .  .  .  .  .  x  .  .
EveryOtherTime              x  x  .  .  x  x  x  x  x  x  x  .  .
built_otherwise             .  .  .  .  .  .  .  .  .  .  .  x  .
t%4 dropped                 x  x  .  x  .  .  .  .  .  .  x  .  x
scale written twice         .  x  .  .  .  .  .  .  .  .  x  .  .
padding stored              .  .  x  x  x  .  .  .  .  .  x  .  .
zero stored past the cache  .  .  x  x  .  .  .  .  .  .  x  .  .
"""
