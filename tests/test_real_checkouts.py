"""The view splits of published vLLM releases, executed. Needs their wheels, and torch."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from checkouts import PYTHON, SPLIT, needs_torch
from wheels import real_wheel

from oracle.run import DEFAULT_DOMAIN, run_verdict
from oracle.subjects.checkout import checkout_readers
from oracle.subjects.checkout_tree import open_checkout
from oracle.subjects.checkout_views import CheckoutSplit
from oracle.subjects.spec import writers_from_specs
from oracle.views.owners import Owners
from oracle.views.planes import carve, view_split
from oracle.views.tensor import LAYOUTS, cache_tensor, dense_strides

pytestmark = [pytest.mark.wheels, needs_torch]

SPLITS = {
    "0.20.0": ["_nvfp4_split_data_scale", "nvfp4_kv_cache_split_views"],
    "0.25.1": ["_nvfp4_split_data_scale", "nvfp4_kv_cache_split_views"],
    "0.33.0": ["nvfp4_split_data_scale"],
}


@pytest.fixture(scope="module", params=SPLITS)
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release as if it were installed: the one file that splits views, and what marks a vLLM."""
    root = tmp_path_factory.mktemp(request.param)
    with zipfile.ZipFile(real_wheel(request.param)) as archive:
        for name in ("vllm/__init__.py", SPLIT):
            archive.extract(name, root)
    return root


def test_a_release_has_the_splits_it_is_known_to_have(release: Path) -> None:
    found = open_checkout(str(release), PYTHON).splits
    assert [each.function for each in found] in SPLITS.values()


def test_its_splits_are_the_formula_on_every_order_of_bytes(release: Path) -> None:
    checkout = open_checkout(str(release), PYTHON)
    for layout, found in product(LAYOUTS, checkout.splits):
        shape = (1000, 2, 64, 8, 72)
        tensor = cache_tensor(shape, dense_strides(shape, layout, layers=2))
        assert CheckoutSplit(checkout, found).planes(tensor) == view_split("vllm").planes(tensor)


def test_store_kernel_and_splits_agree(release: Path) -> None:
    verdict = run_verdict(
        writers_from_specs(["store-sm100", "reference:k=linear,v=swizzle_4x4"], (), ("bf16",)),
        checkout_readers(str(release), PYTHON),
        replace(DEFAULT_DOMAIN, head_sizes=(64, 128), block_sizes=(16,)),
    )
    assert {each.status for each in verdict.agreements} == {"agree"}


def test_a_token_major_page_makes_data_and_scales_share_bytes(release: Path) -> None:
    shape = (1000, 2, 64, 8, 72)
    tensor = cache_tensor(shape, dense_strides(shape, "LBNHC"))
    checkout = open_checkout(str(release), PYTHON)
    for found in checkout.splits:
        shared = Owners(carve(tensor, CheckoutSplit(checkout, found))).answers["planes"]
        assert shared is not None
        assert {shared.first.kind, shared.second.kind} == {"data", "scale"}
        assert shared.byte == 32768
