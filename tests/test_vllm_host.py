"""What vLLM's host side makes of a cache tensor, and what comes of a wrong one."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from commandline import Call
from wheels import store_cubin

from oracle.geometry import CacheGeometry
from oracle.run import Domain, run_verdict
from oracle.subjects.store_abi import StoreAbi, StoreLaunch
from oracle.subjects.vllm import VllmWriter, idle_lanes, writers_from_artifact
from oracle.subjects.vllm_host import SideTensor, Taken, host_check, misreading
from oracle.verdict import Finding

GEOMETRIES = [
    CacheGeometry(6, tokens, heads, 64, layout)
    for tokens, heads, layout in product((4, 8, 16), (1, 2, 4, 6, 8, 16), ("HND", "NHD"))
]


def handed(geometry: CacheGeometry) -> Taken:
    """What is made of a side shaped [pages, heads, tokens, bytes]."""
    return Taken.of(SideTensor.of(geometry, "BHNF"), geometry.num_heads, geometry.head_size)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_right_tensor_gives_the_launch_of_its_geometry(geometry: CacheGeometry) -> None:
    taken = Taken.of(SideTensor.of(geometry), geometry.num_heads, geometry.head_size)
    assert taken.launch(5, StoreAbi(2)) == StoreLaunch.of(geometry, 5, StoreAbi(2))
    assert misreading(geometry, "BNHF") is None
    assert host_check(geometry, "bf16") is None


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_heads_in_the_second_place_become_the_tokens_of_a_page(geometry: CacheGeometry) -> None:
    taken = handed(geometry)
    assert taken.geometry.block_size == geometry.num_heads
    assert taken.geometry.num_heads == geometry.num_heads
    # The page itself lies where it lies; what is inside it is computed anew.
    launch = taken.launch(1)
    assert launch.data_strides[0] == launch.scale_strides[0] == geometry.page_bytes
    assert launch.scale_base == geometry.num_heads**2 * geometry.head_size // 2
    assert taken.geometry.cache_layout != geometry.cache_layout or geometry.num_heads == 1
    said = misreading(geometry, "BHNF")
    assert said is not None
    assert said.startswith("ambiguous") == (geometry.num_heads == geometry.block_size)
    reason = host_check(geometry, "bf16", "BHNF")
    assert (reason is None) == (geometry.num_heads % 4 == 0)
    if reason is not None:
        assert said in reason
        assert "multiple of 4 tokens" in reason


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> VllmWriter:
    path = tmp_path_factory.mktemp("vllm") / "x.cubin"
    path.write_bytes(store_cubin("sm_100f", "bf16"))
    (found,) = writers_from_artifact(str(path), (), ("bf16",))
    assert isinstance(found, VllmWriter)
    return found.handed("BHNF")


def findings(writer: VllmWriter, heads: int, tokens: int, layout: str) -> dict[str, Finding]:
    domain = Domain((64,), (heads,), (tokens,), (layout,), ("bf16",))
    return {f"{f.side} {f.plane}": f for f in run_verdict([writer], [], domain).findings}


def test_slots_are_divided_by_the_heads(writer: VllmWriter) -> None:
    """Page 1 of 16 tokens begins at slot 16: of 8 tokens each, that is page 2."""
    found = findings(writer, 8, 16, "HND")
    for side in "KV":
        for plane in ("data", "scale"):
            finding = found[f"{side} {plane}"]
            assert finding.status == "out_of_region"
            assert finding.witness is not None
            spot = [finding.witness[name] for name in ("page", "head", "token")]
            assert spot == [1, 0, 0]
            # Data begins a side; the scales follow 8 * 8 heads and tokens of data, amid the data.
            assert finding.witness["note"] == f"stored in page 2 {side} data"
            assert "8 heads become the tokens of a page" in str(finding.reason)
        assert found[f"{side} data"].strays == {
            f"page+1 {side} data": 2048, f"page+2 {side} data": 2048
        }  # fmt: skip


def test_few_heads_leave_the_allocation(writer: VllmWriter) -> None:
    """Of 4 tokens each, slot 16 is page 4, and there are four pages in all."""
    found = findings(writer, 4, 16, "HND")
    assert found["K data"].strays == {"past the allocation": 16 * 4 * 32}
    assert found["K data"].witness is not None
    assert found["K data"].witness["note"] == "stored past the allocation"


@pytest.mark.parametrize("layout", ["HND", "NHD"])
def test_as_many_heads_as_tokens_are_named_ambiguous(writer: VllmWriter, layout: str) -> None:
    """Every page is the right one, and every row is another head's but on the diagonal."""
    found = findings(writer, 8, 8, layout)
    for finding in found.values():
        assert finding.status == "mismatch"
        assert str(finding.reason).startswith("ambiguous: with 8 heads and as many tokens")
    assert found["K scale"].defects.other_head_rows == (8 * 8 - 8) * 4
    assert found["K scale"].strays == {}


def test_other_heads_are_refused(writer: VllmWriter) -> None:
    found = findings(writer, 6, 16, "HND")
    assert {finding.status for finding in found.values()} == {"refused"}


def test_the_command_hands_the_tensor_over(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "x.fatbin"
    path.write_bytes(store_cubin("sm_100f", "bf16"))
    size = ("--head-size", "64", "--num-heads", "8", "--block-size", "16", "--json")
    done = call("verdict", str(path), *size)
    assert done.code == 0
    done = call("verdict", str(path), *size, "--cache-tensor", "BHNF")
    assert done.code == 1
    made = json.loads(done.out)
    assert {f["status"] for f in made["findings"] if f["subject"].endswith("/BHNF")} == {
        "out_of_region"
    }
    done = call("verdict", "store", "--cache-tensor", "BHNF")
    assert done.code == 2
    assert "only vLLM's store kernels have a host side" in done.complaint


def test_idle_lanes_are_those_of_the_last_warp() -> None:
    assert idle_lanes(CacheGeometry(1, 4, 1, 16), StoreAbi(1)) == 0
    for heads, columns in product(range(1, 5), range(1, 37)):
        threads = 2 * heads * columns
        idle = idle_lanes(CacheGeometry(1, 4, heads, 16 * columns), StoreAbi(2))
        assert (threads + idle) % 32 == 0 <= idle < 32


ROOT = Path(__file__).parents[1]
STORES = [
    pytest.param(check, id=f"{path.stem}-{index}")
    for path in sorted((ROOT / "cases" / "corpus").glob("*.json"))
    for index, check in enumerate(json.loads(path.read_text(encoding="utf-8")).get("stores", ()))
]


def test_both_published_misreadings_are_cases() -> None:
    assert {str(param.id).rpartition("-")[0] for param in STORES} >= {"vllm-49012", "vllm-53681"}


@pytest.mark.parametrize("check", STORES)
def test_a_case_of_the_corpus_gets_its_right_value(
    check: dict[str, Any], writer: VllmWriter
) -> None:
    geometry = check["geometry"]
    domain = Domain(
        (geometry["head_size"],), (geometry["num_heads"],), (geometry["block_size"],),
        (geometry["cache_layout"],), ("bf16",),
    )  # fmt: skip
    found = run_verdict([writer.handed(check["handed"])], [], domain).findings
    for finding in found:
        wanted = check["expect"][f"{finding.side} {finding.plane}"]
        assert finding.status == wanted["status"]
        assert wanted.get("reason", "") in (finding.reason or "")
        if "strays" in wanted:
            assert finding.strays == wanted["strays"]
        if "witness" in wanted:
            assert finding.witness is not None
            assert wanted["witness"].items() <= finding.witness.items()
