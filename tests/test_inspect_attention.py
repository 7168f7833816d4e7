"""`inspect` on attention kernels: groups by name, and patterns that select exactly these."""

from __future__ import annotations

import json
import zipfile
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

import pytest
from attention import name_of
from commandline import Call

FAMILIES = {
    "Context": ("Q128Kv128PersistentContext", "Q128Kv128StaticContext"),
    "SwapsAbForGen": ("MultiCtasKvCgaVarSeqQ8Kv128StaticSwapsAbForGen",
                      "Q16Kv128PersistentSwapsAbForGen"),
    "KeepsAbForGen": ("MultiCtasKvVarSeqQ128Kv128StaticKeepsAbForGen",),
}  # fmt: skip
GROUPS = tuple(product((100, 103), FAMILIES, (64, 128, 256), (None, 16, 32, 64)))
MASKS = ("Dense", "SlidingOrChunkedCausal")
ODD = "fmhaSm100aKernel_QE4m3KvE2m1Else"


def names_in(arch: int, family: str, head: int, page: int | None) -> list[str]:
    where = "Paged" if page is None else f"P{page}"
    rests = product(MASKS, FAMILIES[family])
    return sorted(name_of(arch, head, f"{mask}{where}{rest}") for mask, rest in rests)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel whose members are no cubins: only their names may be read."""
    path = tmp_path / "flashinfer_cubin-9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in (ODD, *(name for group in GROUPS for name in names_in(*group))):
            archive.writestr(f"flashinfer_cubin/cubins/{name}.cubin", "")
    return path


@pytest.fixture
def release(wheel: Path) -> tuple[str, ...]:
    """The same as a release."""
    return ("flashinfer-cubin==9.9.9", "--wheel-dir", str(wheel.parent), "--offline")


@pytest.mark.parametrize("form", ["wheel", "release"])
def test_every_group_has_a_pattern_that_selects_it(
    form: str, wheel: Path, release: tuple[str, ...], call: Call
) -> None:
    done = call("inspect", "--json", *(release if form == "release" else (str(wheel),)))
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert found["others"] == [ODD]
    listed = {(g["arch"], g["family"], g["head_size"], g["page"]): g for g in found["groups"]}
    assert len(listed) == len(found["groups"]) == len(GROUPS)
    everything = [name for group in found["groups"] for name in group["names"]] + [ODD]
    for arch, *rest in GROUPS:
        group = listed[f"sm_{arch}a", *rest]  # type: ignore[index]
        wanted = names_in(arch, *rest)  # type: ignore[arg-type]
        assert group["names"] == wanted
        selected = sorted(name for name in everything if fnmatchcase(name, group["pattern"]))
        assert selected == wanted
    assert listed["sm_103a", "Context", 128, 16]["pattern"] == "*Sm103a*H128*P16*Context"


def test_the_table_teaches_the_pattern_and_a_pattern_lists_names(
    release: tuple[str, ...], call: Call
) -> None:
    told = " ".join(call("inspect", *release).out.split())
    assert "241 attention kernels with an NVFP4 KV cache" in told
    assert "sm_103a prefill 128 16 4 *Sm103a*H128*P16*Context" in told
    assert "verdict --reader 'flashinfer-cubin==9.9.9:*Sm100a*H64*PagedKv*Paged*Context'" in told
    assert ODD in told
    spec, *options = release
    chosen = call("inspect", f"{spec}:*Sm103a*H128*P16*Context", *options).out
    found = "".join(chosen.split())
    assert all(name in found for name in names_in(103, "Context", 128, 16))
    assert found.count("fmha") == 4


def test_what_it_refuses(release: tuple[str, ...], wheel: Path, call: Call) -> None:
    spec, *options = release
    for what in (f"{spec}:nothing", f"{wheel}:nothing"):
        done = call("inspect", what, *options)
        assert done.code == 5
        assert "holds no attention kernel with an NVFP4 KV cache" in done.complaint
    done = call("inspect", spec, *options, "--matching", "H128")
    assert done.code == 2
    assert done.complaint.endswith("choose as in flashinfer-cubin==9.9.9:*H128*")
