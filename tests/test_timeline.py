"""`timeline`: one row a release, out of wheels that are made up here."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commandline import Call
from wheels import (
    release_name,
    shared_object,
    store_cubin,
    store_object,
    write_wheel,
)

from oracle.errors import NothingRan, UsageError
from oracle.storetimeline import timeline
from oracle.subjects import release
from oracle.subjects.release import ArtifactOptions, published_versions, version_key
from oracle.timeline import versions_between

HOME = "vllm/_C.abi3.so"
FIRST = store_object(("sm_100f", store_cubin("sm_100f", "bf16")))
OTHER = store_object(("sm_100f", store_cubin("sm_100f", "bf16", 0)))
MORE = store_object(
    ("sm_100f", store_cubin("sm_100f", "bf16", 0)),
    ("sm_100f", store_cubin("sm_100f", "bf16", 1)),
    ("sm_120f", store_cubin("sm_120f", "bf16", 0)),
)
SWITCHED = store_object(("sm_100f", store_cubin("sm_100f", "bf16", 0, switch=True)))


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with five releases, and an empty disk cache."""
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(tmp_path / "cache"))
    directory = tmp_path / "wheels"
    directory.mkdir()
    old = b"\0_ZN4vllm24reshape_and_cache_kernelIfEEvv\0"
    for version, code in (
        ("0.9.0", shared_object(b"", old)),
        ("0.10.0", FIRST),
        ("0.10.1", OTHER),
        ("0.11.0", MORE),
        ("0.12.0", SWITCHED),
    ):
        write_wheel(directory / release_name(version), {HOME: code})
    return directory


def options(wheels: Path) -> ArtifactOptions:
    return ArtifactOptions(wheels, offline=True)


def test_a_row_for_each_release(wheels: Path) -> None:
    versions = versions_between("", "", options(wheels))
    assert versions == ["0.9.0", "0.10.0", "0.10.1", "0.11.0", "0.12.0"]
    seen: list[tuple[int, int, str]] = []
    none, first, same, more, switched = timeline(
        versions, options(wheels), lambda *step: seen.append(step)
    )
    assert seen == [(i, 5, f"vllm {version}") for i, version in enumerate(versions)]
    assert none.holds is False
    assert "reshape_and_cache_kernel" in str(none.note)
    for row in (first, same, more):
        assert (row.holds, row.member, row.k, row.v) == (True, HOME, "linear", "swizzle_4x4")
        assert (row.parameters, row.threads_per_group, row.faults) == ((20,), (1,), 0)
        assert row.checks == ("head size % 16", "page % 4")
    assert (first.archs, first.dtypes, first.searches) == (("sm_100f",), ("bf16",), ("max6",))
    # The two have the same code under another name.
    assert [first.same_code, same.same_code, more.same_code] == [None, True, True]
    assert (same.added, same.gone) == ((), ())
    assert more.archs == ("sm_100f", "sm_120f")
    assert more.searches == ("max6", "4over6")
    assert more.added == ("sm_100f/bf16/4over6", "sm_120f/bf16/max6")
    assert (switched.same_code, switched.parameters) == (False, (21,))
    assert switched.v == "swizzle_4x4 or linear"
    assert switched.gone == more.added


def test_a_range_picks_and_orders_by_number(wheels: Path) -> None:
    assert versions_between("0.10.0", "0.11", options(wheels))[:2] == ["0.10.0", "0.10.1"]
    assert versions_between("0.11.0", "", options(wheels)) == ["0.11.0", "0.12.0"]
    with pytest.raises(NothingRan, match=r"no release from 0\.13\.0 to the latest is at hand"):
        versions_between("0.13.0", "", options(wheels))
    assert sorted(["0.10.0", "0.9.0", "0.9.10"], key=version_key) == ["0.9.0", "0.9.10", "0.10.0"]


def test_a_wheel_that_is_damaged_is_a_row_that_says_so(wheels: Path) -> None:
    (wheels / release_name("0.10.1")).write_bytes(b"PK\3\4 no wheel")
    _, first, broken, after, _ = timeline(
        versions_between("", "", options(wheels)), options(wheels)
    )
    assert (broken.holds, first.holds) == (None, True)
    assert "damaged" in str(broken.note)
    assert after.same_code is True
    with pytest.raises(NothingRan, match=r"no release could be had; 0\.10\.1: .*damaged"):
        timeline(["0.10.1"], options(wheels))


def test_the_command(wheels: Path, call: Call, tmp_path: Path) -> None:
    where = ("--wheel-dir", str(wheels), "--offline")
    done = call("timeline", "vllm", "0.9.0..0.11.0", *where, "--json")
    assert done.code == 0
    rows: list[dict[str, Any]] = json.loads(done.out)["releases"]
    assert [row["holds"] for row in rows] == [False, True, True, True]
    table = tmp_path / "table.md"
    assert "is no range" in call("timeline", "vllm", "..", *where).complaint
    done = call("timeline", "vllm", "0.9.0..", *where, "--markdown", str(table))
    assert done.code == 0
    for words in (
        "0.11.0: added",
        "4 of them with the kernel",
        "0.12.0: other instructions; gone",
    ):
        assert words in " ".join(done.out.split())
    text = table.read_text(encoding="utf-8")
    assert text.startswith("# The store kernel of vLLM, release by release")
    assert "| sm_100f and sm_120f | bf16 |" in text
    assert call("timeline", "torch", "1..2", *where).code == 2
    assert call("timeline", "vllm", "x..y", *where).code == 2
    assert call("timeline", "vllm", "1.0..", *where).code == 5


def test_published_releases_come_from_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command[1:] == [
            "-m", "pip", "index", "versions", "vllm", "--no-input", "--disable-pip-version-check"
        ]  # fmt: skip
        out = "vllm (0.20.0)\nAvailable versions: 0.20.0, 0.9.2, 0.19.1\n"
        return subprocess.CompletedProcess(command, 0, out, "")

    monkeypatch.setattr(release.subprocess, "run", listed)
    assert published_versions() == ["0.9.2", "0.19.1", "0.20.0"]
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: no network\n")
    monkeypatch.setattr(release.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(UsageError, match="cannot be listed: no network; with --offline"):
        published_versions()
