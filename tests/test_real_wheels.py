"""What the published wheels of vLLM hold and do. Needs them: set LAYOUT_ORACLE_WHEELS to where."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_fatbin import CUBIN, FAMILY, ZSTD, container, entry
from test_hostile_artefacts import everything, search_in, survive
from wheels import HOME, real_wheel, release_name, shared_object, write_wheel

from oracle.addressmap import AddressMap
from oracle.errors import NothingRan
from oracle.findings import writer_findings
from oracle.formats import DTYPES
from oracle.geometry import PLANES, SIDES, CacheGeometry
from oracle.machine.archs import arch_number
from oracle.machine.cubin import Cubin
from oracle.machine.elf import Elf
from oracle.machine.fatbin import SECTION, FatbinEntry, walk
from oracle.probe import map_writer, probed
from oracle.quantize import RECIPROCALS
from oracle.reference import reference_write
from oracle.requests import StoreRequest
from oracle.run import Domain, run_verdict
from oracle.storetimeline import timeline
from oracle.subjects.archive import open_artefact
from oracle.subjects.extraction import extract
from oracle.subjects.release import ArtifactOptions
from oracle.subjects.vllm import STORE_KERNEL, VllmWriter, kernels_of, writers_from_artifact
from oracle.survey import survey
from oracle.verdict import Configuration, Defects, Finding

pytestmark = pytest.mark.wheels

OLD, NEW = "0.25.1", "0.33.0"
BOTH = ("bf16", "fp16")
SEARCHES = {OLD: ("max6",), NEW: ("max6", "4over6")}
VARIANTS = [
    (version, f"{arch}/{dtype}/{search}")
    for version in (OLD, NEW)
    for arch in ("sm_100f", "sm_120f")
    for dtype in BOTH
    for search in SEARCHES[version]
]


def options(version: str) -> ArtifactOptions:
    return ArtifactOptions(real_wheel(version).parent, offline=True)


@cache
def writers_of(version: str) -> dict[str, VllmWriter]:
    """Arch, dtype and search -> writer."""
    found = writers_from_artifact(f"vllm=={version}", (), BOTH, options(version))
    assert all(isinstance(writer, VllmWriter) for writer in found)
    return {w.info.id.partition(":")[2]: w for w in found if isinstance(w, VllmWriter)}


# ---- What is there ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [OLD, NEW])
def test_the_variants_of_a_release(version: str) -> None:
    assert list(writers_of(version)) == [label for each, label in VARIANTS if each == version]


# Release -> the member with the kernel, the threads that share a group, the size of its bf16 code
# for sm_100, which tells builds apart.
RELEASES = {
    "0.20.0": ("vllm/_C.abi3.so", 2, 9600),
    "0.23.0": (HOME, 2, 9600),
    "0.24.0": (HOME, 1, 9984),
    OLD: (HOME, 1, 9984),
    NEW: (HOME, 1, 9984),
}


@pytest.mark.parametrize("version", RELEASES)
def test_where_the_kernel_is_and_how_it_is_launched(version: str) -> None:
    member, threads, size = RELEASES[version]
    rows = kernels_of(f"vllm=={version}", options(version))
    assert {row.member for row in rows} == {member}
    assert {row.arch for row in rows} == {"sm_100f", "sm_120f"}
    assert {len(row.kernel.params) for row in rows} == {20}
    assert {row.refusal for row in rows} == {None}
    sizes = [
        len(row.kernel.code)
        for row in rows
        if row.arch == "sm_100f" and "BFloat16" in row.title and "search 1" not in row.title
    ]
    assert sizes == [size]
    found = writers_of(version).values()
    assert {writer.abi.threads_per_group for writer in found} == {threads}


def test_a_release_from_before_the_kernel_says_what_it_holds() -> None:
    with pytest.raises(
        NothingRan, match="reshape_and_cache_flash_kernel, reshape_and_cache_kernel"
    ):
        writers_of("0.19.0")


@pytest.mark.parametrize("version", ["0.20.0", "0.23.0"])
def test_a_group_on_two_threads_is_stored_alike(version: str) -> None:
    writer = writers_of(version)["sm_100f/bf16/max6"]
    assert writer.launch(CacheGeometry(1, 4, 1, 512), 1).block == (64, 1, 1)
    assert writer.launch(CacheGeometry(1, 4, 16, 512), 1).block == (512, 1, 1)
    found = findings(writer, 128, 8, "HND")
    assert {finding.status for finding in found.values()} == {"match"}
    for request in requests("bf16", "tied", CacheGeometry(6, 16, 8, 1280)):
        expected = reference_write(request, "linear", "swizzle_4x4")
        assert np.array_equal(writer.write(request).cache, expected)


@pytest.mark.parametrize("version", ["0.20.0", "0.23.0"])
def test_lanes_that_sit_out_a_shuffle_are_named(version: str) -> None:
    """Two threads a group, and a number of groups that fills no whole warps."""
    writer = writers_of(version)["sm_100f/bf16/max6"]
    for finding in findings(writer, 80, 1, "HND").values():
        assert finding.status == "undefined"
        assert "while 22 of its lanes have no group of the token" in str(finding.reason)


def test_the_timeline_of_the_releases() -> None:
    for version in RELEASES:
        real_wheel(version)
    rows = timeline(list(RELEASES), options(NEW))
    assert [row.same_code for row in rows] == [None, True, False, True, True]
    assert [row.threads_per_group for row in rows] == [(2,), (2,), (1,), (1,), (1,)]
    assert [row.searches for row in rows] == [("max6",)] * 4 + [("max6", "4over6")]
    assert {(row.k, row.v, row.faults) for row in rows} == {("linear", "swizzle_4x4", 0)}
    assert len(rows[-1].added) == 4


@pytest.mark.parametrize(("version", "label"), VARIANTS)
def test_the_survey_finds_what_the_probe_finds(version: str, label: str) -> None:
    writer = writers_of(version)[label]
    dtype = writer.info.dtypes[0]
    for head_size, heads, block_size, layout in (
        (16, 1, 4, "HND"), (48, 3, 8, "NHD"), (96, 2, 16, "HND"), (128, 4, 16, "NHD"),
        (176, 1, 20, "HND"), (576, 2, 4, "NHD"),
    ):  # fmt: skip
        geometry = probed(CacheGeometry(1, block_size, heads, head_size, layout))
        configuration = Configuration.of(geometry, dtype)
        mapped = map_writer(writer, geometry, dtype)
        surveyed, _ = survey(writer, geometry, configuration)
        assert surveyed == writer_findings(writer.info, configuration, mapped)


def fatbin_of(version: str) -> list[FatbinEntry]:
    with open_artefact(real_wheel(version)) as artefact:
        (member,) = (member for member in artefact.members if member.name == HOME)
        data = artefact.contents(member, lambda chunk: None)
    section = Elf(data, HOME).section(SECTION)  # type: ignore[arg-type]
    assert section is not None
    return list(walk(section.data))


def cuobjdump() -> Path:
    try:
        files = metadata.files("nvidia-cuda-cuobjdump") or []
    except metadata.PackageNotFoundError:
        pytest.skip("nvidia-cuda-cuobjdump is not installed")
    return Path(str(next(f.locate() for f in files if f.name == "cuobjdump")))


@pytest.mark.parametrize("version", [OLD, NEW])
def test_cuobjdump_extracts_the_same_store_cubins(version: str, tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    with open_artefact(real_wheel(version)) as artefact:
        (member,) = (member for member in artefact.members if member.name == HOME)
        path.write_bytes(artefact.contents(member, lambda chunk: None))
    command = [str(cuobjdump()), "-xelf", "all", path.name]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    theirs = {
        p.read_bytes() for p in tmp_path.glob("*.cubin") if STORE_KERNEL.encode() in p.read_bytes()
    }
    assert {f.cubin.data for f in extract(real_wheel(version), STORE_KERNEL)} == theirs
    assert len(theirs) == 2


# ---- Where every byte goes ----------------------------------------------------------------------

# (head size, heads, cache layout) -> layouts of V's scales; K's are linear everywhere.
LEGAL = {
    (64, 8, "HND"): ("swizzle_4x4", "inverse_4x4"),
    (64, 8, "NHD"): ("swizzle_4x4", "inverse_4x4"),
    (128, 8, "HND"): ("swizzle_4x4",),
    (128, 8, "NHD"): ("swizzle_4x4",),
    (256, 8, "HND"): ("swizzle_4x4",),
    (256, 8, "NHD"): ("swizzle_4x4",),
}


def findings(writer: VllmWriter, head_size: int, heads: int, layout: str) -> dict[str, Finding]:
    domain = Domain((head_size,), (heads,), (16,), (layout,), writer.info.dtypes)
    verdict = run_verdict([writer], [], domain)
    assert verdict.exit_code == any(f.status != "match" for f in verdict.findings)
    return {f"{f.side} {f.plane}": f for f in verdict.findings}


@pytest.mark.parametrize("geometry", LEGAL)
@pytest.mark.parametrize(("version", "label"), VARIANTS)
def test_legal_head_sizes(version: str, label: str, geometry: tuple[int, int, str]) -> None:
    found = findings(writers_of(version)[label], *geometry)
    assert list(found) == [f"{side} {plane}" for plane in PLANES for side in SIDES]
    for finding in found.values():
        assert (finding.status, finding.defects) == ("match", Defects())
        assert finding.recovered == finding.positions
    assert "linear" in found["K scale"].layouts
    assert found["V scale"].layouts == LEGAL[geometry]


@pytest.mark.parametrize(("version", "label"), VARIANTS)
def test_an_illegal_head_size(version: str, label: str) -> None:
    writer = writers_of(version)[label]
    found = findings(writer, 96, 2, "HND")
    statuses = {plane: finding.status for plane, finding in found.items()}
    # What strays into the next page is a second store to bytes of its K data.
    assert statuses == {
        "K data": "overlap", "V data": "match", "K scale": "match", "V scale": "out_of_region",
    }  # fmt: skip
    finding = found["V scale"]
    assert finding.defects == Defects(
        collisions=56, never_written=64, below_region=0, above_region=8, other_plane=8,
        other_head_rows=16, clashing_pairs=16,
    )  # fmt: skip
    assert finding.strays == {"page+1 K data": 8}
    assert finding.witness is not None
    expected = {"head": 1, "token": 12, "column": 4, "region_offset": 192}
    assert expected.items() <= finding.witness.items()
    strays, foreign = elsewhere(map_writer(writer, geometry_96(), writer.info.dtypes[0]).maps)
    assert strays == {"page 2 K data": 8}
    assert foreign == 16


def geometry_96() -> CacheGeometry:
    return CacheGeometry(4, 16, 2, 96, "HND")


def elsewhere(maps: Any) -> tuple[dict[str, int], int]:
    """Page 1's V scales that leave V's scale region, by where; how many leave their head's rows."""
    amap: AddressMap = maps["V", "scale"]
    geometry = amap.geometry
    offset = amap.offset[0]
    where = geometry.locate(offset)
    inside = (where.page == 1) & (where.side == 1) & (where.plane == 1)
    places = [geometry.plane_name(int(stray)) for stray in offset[~inside]]
    head = np.arange(geometry.num_heads)[:, None, None]
    return {p: places.count(p) for p in places}, int((~inside | (where.head != head)).sum())


# ---- What every byte is -------------------------------------------------------------------------

Values = NDArray[np.float32]


def random_values(shape: tuple[int, ...], chance: np.random.Generator) -> Values:
    spread = np.exp2(chance.integers(-12, 6, (*shape[:-1], 1)))
    return (chance.standard_normal(shape) * spread).astype(np.float32)


def tied_values(shape: tuple[int, ...], chance: np.random.Generator) -> Values:
    """Multiples of 1/4 up to 6, so that many lie on the boundaries of E2M1, and powers of two."""
    values = chance.integers(-24, 25, shape) / 4 * np.exp2(chance.integers(-3, 4, (*shape[:-1], 1)))
    return values.astype(np.float32)


EDGES = (0.0, -0.0, 1e-45, 6e-8, 1.2e-38, 448.0, 2688.0, 65504.0, 3e38, np.inf, -np.inf, np.nan)


def edge_values(shape: tuple[int, ...], chance: np.random.Generator) -> Values:
    """Ordinary groups with a few special values in them, and groups of nothing but zeros."""
    values = random_values(shape, chance)
    special = chance.choice(np.array(EDGES, np.float32), shape)
    values = np.where(chance.random(shape) < 0.05, special, values)
    quiet = chance.random((*shape[:-1], shape[-1] // 16)) < 0.2
    return np.where(np.repeat(quiet, 16, axis=-1), np.float32(0), values).astype(np.float32)


INPUTS = {"random": random_values, "tied": tied_values, "edges": edge_values}
SCALES = (1.0, 0.0137, 2.0**-6)


MANY_GROUPS = CacheGeometry(6, 16, 9, 960, "NHD")
"""More than 512 groups a token, so that threads do a second one."""


def requests(
    dtype: str, kind: str, geometry: CacheGeometry = MANY_GROUPS
) -> Iterator[StoreRequest]:
    """Stores of some tokens, others skipped, at several global scales."""
    chance = np.random.default_rng(sum(map(ord, dtype + kind)))
    tokens = 8
    shape = (tokens, geometry.num_heads, geometry.head_size)
    for scale in SCALES:
        with np.errstate(over="ignore"):
            key, value = (DTYPES[dtype].encode(INPUTS[kind](shape, chance)) for _ in range(2))
        slots = chance.permutation(geometry.num_slots)[:tokens].astype(np.int64)
        slots[chance.integers(0, tokens, 3)] = -1
        image = chance.integers(0, 256, geometry.cache_bytes, np.uint8)
        yield StoreRequest(geometry, dtype, key, value, slots, scale, 3 * scale, image)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize(("version", "label"), VARIANTS)
def test_every_byte_is_the_quantiser_s(version: str, label: str, kind: str) -> None:
    """Under each model of the reciprocal; bytes that depend on the model are told apart."""
    writer = writers_of(version)[label]
    undecided = 0
    for request in requests(writer.info.dtypes[0], kind):
        written = {}
        for model, rcp in RECIPROCALS.items():
            stored = writer.under(model).write(request)
            search = writer.info.scale_search
            expected = reference_write(request, "linear", "swizzle_4x4", search, rcp)
            assert np.array_equal(stored.cache, expected), f"{model}, scale {request.k_scale}"
            assert not stored.faults
            written[model] = stored
        images = np.stack([stored.cache for stored in written.values()])
        undecided += int((images != images[0]).any(axis=0).sum())
        offsets = [stored.stores.offset for stored in written.values() if stored.stores]
        assert len(offsets) == len(RECIPROCALS)
        assert all(np.array_equal(offsets[0], other) for other in offsets)
    if kind == "tied":
        assert undecided


# ---- Speed, and damage --------------------------------------------------------------------------


def test_a_warm_run_reads_no_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(tmp_path))
    path = real_wheel(NEW)
    extract(path, STORE_KERNEL)
    start = time.process_time()
    assert len(extract(path, STORE_KERNEL)) == 2
    assert time.process_time() - start < 0.5


def test_mutations_of_the_real_thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands each of cubins, fat binaries, shared objects and wheels with real code in them."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr("test_hostile_artefacts.MUTATIONS", 5000)
    found = extract(real_wheel(OLD), STORE_KERNEL)
    for each in found:
        survive(f"real cubin {each.arch}", each.cubin.data, Cubin.parse)
    entries = (e for e in fatbin_of(OLD) if e.arch in ("sm_100f", "sm_120f"))
    having = [e for e in entries if STORE_KERNEL.encode() in e.payload()]
    run = container(*(again(e) for e in having))
    survive("real fat binary", run, everything)
    names = b"\0".join(name.encode() for name in found[0].cubin.kernels)
    code = shared_object(run, names)
    survive("real shared object", code, search_in(tmp_path / "x.so"))
    path = write_wheel(tmp_path / release_name("1.0"), {HOME: code})
    survive("real wheel", path.read_bytes(), search_in(path))


def again(found: FatbinEntry) -> bytes:
    """An entry as it stands in the file, with a new header."""
    number = arch_number(found.arch)
    stored = bytes(found.stored)
    return entry(CUBIN, number, found.payload(), flags=FAMILY | ZSTD, compressed=stored)
