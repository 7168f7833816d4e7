"""Coded memory: every nibble is known by what it is in the replicas."""

from __future__ import annotations

import numpy as np
import pytest

from oracle.errors import UsageError
from oracle.machine.replicas import NOWHERE, images, spelled


def test_every_nibble_spells_its_own_number() -> None:
    coded = images(70_000)
    nibbles = np.stack([coded & 15, coded >> 4], axis=-1).reshape(coded.shape[0], -1)
    assert np.array_equal(spelled(nibbles), np.arange(140_000))


def test_no_nibble_is_the_same_in_all_replicas() -> None:
    coded = images(4096)
    for half in (coded & 15, coded >> 4):
        assert (half != half[0]).any(axis=0).all()


@pytest.mark.parametrize("value", range(16))
def test_what_is_the_same_everywhere_is_from_nowhere(value: int) -> None:
    constant = np.full((images(1).shape[0], 1), value, np.uint8)
    assert spelled(constant).tolist() == [NOWHERE]


def test_a_region_too_large_to_spell_is_refused() -> None:
    with pytest.raises(UsageError, match="more than provenance can be spelled for"):
        images(1 << 24)
