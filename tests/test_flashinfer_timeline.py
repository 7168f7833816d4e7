"""`timeline flashinfer-cubin`: rows by release and family, out of wheels that are made up here."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attention import DECODE, PREFILL, name_of
from commandline import Call

from oracle import readertimeline
from oracle.errors import NothingRan
from oracle.readertimeline import ReleaseRow, chosen, timeline
from oracle.report.readertimeline import sections, summary
from oracle.subjects.attention import KernelName
from oracle.subjects.binary import artifact_digest
from oracle.subjects.flashinfer import PACKAGE
from oracle.subjects.release import ArtifactOptions, Release
from oracle.sweep import Row
from oracle.timeline import versions_between

CAUSAL = "CausalP16VarSeqQ128Kv128StaticContext"
SPLIT = "DenseP16MultiCtasKvVarSeqQ8Kv128StaticSwapsAbForGen"
STRANGE = "fmhaSm100aKernel_QE4m3KvE2m1OE4m3H64Strange"
# What stands for a cubin says what is read of V; a real one holds its kernel's name as well.
OLD = {name: f"linear {name}" for name in (name_of(100, 64, r) for r in (PREFILL, CAUSAL, DECODE))}
NEW = {name: f"swizzle_4x4 {name}" for name in (*OLD, name_of(103, 64, DECODE))} | {
    name_of(100, 256, PREFILL): "nothing",
    name_of(100, 64, SPLIT): "broken",
}
RELEASES: dict[str, dict[str, str]] = {
    "0.1.0": OLD,
    "0.1.1": OLD,
    "0.2.0": {},
    "0.10.0": NEW,
    "0.10.0.post1": {n: d for n, d in NEW.items() if SPLIT not in n} | {STRANGE: "?"},
}


def made_up(name: str, data: bytes) -> list[Row]:
    """A row that says what the bytes of the cubin say, instead of executing them."""
    kernel = KernelName.parse(name)
    said = data.decode().split()[0]
    problem = "opcode HCF at 0x10" if said == "broken" else ""
    v = "" if said in ("broken", "nothing") else said
    return [
        Row(
            name, artifact_digest(data), kernel.arch, kernel.family, kernel.schedule, kernel.split,
            kernel.head_size, kernel.page, kernel.mask, kernel.rows, kernel.page,
            k="" if problem else "linear", v=v, k_declared="linear",
            v_declared="linear" if v == "linear" else "swizzle_4x4", v_form="(4,4):(1,9)",
            k_one_to_one=True, v_one_to_one=bool(v), v_unread=0 if v else 24, elements=4096,
            problem=problem,
        )
    ]  # fmt: skip


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The kernels that were executed so far, with an empty disk cache."""
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(tmp_path / "cache"))
    names: list[str] = []

    def rows_of(name: str, data: bytes) -> list[Row]:
        names.append(name)
        return made_up(name, data)

    monkeypatch.setattr("oracle.sweep.rows_of", rows_of)
    return names


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A directory with five releases."""
    directory = tmp_path / "wheels"
    directory.mkdir()
    for version, kernels in RELEASES.items():
        write(directory / f"flashinfer_cubin-{version}-py3-none-any.whl", kernels)
    return directory


def write(path: Path, kernels: dict[str, str]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flashinfer_cubin/fmhaSm100aKernel_QE4m3KvE4m3H64.cubin", b"FP8")
        for name, data in kernels.items():
            archive.writestr(f"flashinfer_cubin/cubins/{name}.cubin", data)


def options(wheels: Path) -> ArtifactOptions:
    return ArtifactOptions(wheels, offline=True)


def rows_from(wheels: Path, first: str = "", last: str = "") -> list[ReleaseRow]:
    versions = versions_between(first, last, options(wheels), PACKAGE)
    return timeline(versions, options(wheels))


def test_a_row_for_each_release_and_family(wheels: Path, ran: list[str]) -> None:
    old, same, none, new, last = rows_from(wheels)
    assert [row.version for row in (old, same, none, new, last)] == list(RELEASES)
    assert [row.holds for row in (old, same, none, new, last)] == [True, True, False, True, True]
    assert "no attention kernel" in str(none.note)
    prefill, decode = old.families
    assert (prefill.arch, prefill.decodes, prefill.head_sizes) == ("sm_100a", False, (64,))
    # One of the two prefill kernels is executed: the first by name.
    assert (len(prefill.digests), prefill.executed) == (2, (name_of(100, 64, CAUSAL),))
    assert prefill.before is None
    assert (decode.decodes, decode.executed) == (True, (name_of(100, 64, DECODE),))
    for family in same.families:
        assert (family.same, family.changed, family.added, family.gone) == (
            len(family.digests), 0, 0, 0
        )  # fmt: skip
    prefill, decode, other = new.families
    assert (prefill.same, prefill.changed, prefill.added, prefill.gone) == (0, 2, 1, 0)
    assert (decode.same, decode.changed, decode.added, decode.gone) == (0, 1, 1, 0)
    assert (other.arch, other.added, other.executed) == ("sm_103a", 1, (name_of(103, 64, DECODE),))
    assert decode.executed == (name_of(100, 64, DECODE),)
    assert last.families[1].gone == 1
    assert list(last.refused) == [STRANGE]


def test_machine_code_is_executed_once(wheels: Path, ran: list[str]) -> None:
    rows_from(wheels)
    assert ran == [*chosen(OLD), *chosen(NEW)]
    ran.clear()
    rows_from(wheels)
    assert ran == []


def test_a_second_run_reads_no_wheel(
    wheels: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = rows_from(wheels)

    def refuse(*arguments: object) -> None:
        raise AssertionError("a wheel was read")

    monkeypatch.setattr(readertimeline, "cubin_files", refuse)
    monkeypatch.setattr(readertimeline, "release_wheel", refuse)
    assert rows_from(wheels) == first


def test_another_wheel_of_the_same_release_is_read(wheels: Path, ran: list[str]) -> None:
    (first,) = rows_from(wheels, "0.1.0", "0.1.0")
    (path,) = wheels.glob("flashinfer_cubin-0.1.0-*")
    write(path, NEW)
    (again,) = rows_from(wheels, "0.1.0", "0.1.0")
    assert again.families != first.families


def test_a_wheel_is_fetched_once_and_not_kept(
    wheels: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []

    @contextmanager
    def fetch(release: Release, options: ArtifactOptions) -> Iterator[Path]:
        assert not options.keep
        fetched.append(release.version)
        (path,) = wheels.glob(f"flashinfer_cubin-{release.version}-*")
        yield path

    monkeypatch.setattr(readertimeline, "release_wheel", fetch)
    rows = timeline(["0.1.0", "0.10.0"], ArtifactOptions())
    assert fetched == ["0.1.0", "0.10.0"]
    assert timeline(["0.1.0", "0.10.0"], ArtifactOptions()) == rows
    # Rows of another version of the tool are made anew, from the cubins that are kept.
    monkeypatch.setattr("oracle.sweep.__version__", "0")
    ran.clear()
    assert timeline(["0.1.0", "0.10.0"], ArtifactOptions()) == rows
    assert ran == [*chosen(OLD), *chosen(NEW)]
    assert fetched == ["0.1.0", "0.10.0"]


def test_a_wheel_that_cannot_be_had_is_a_row_that_says_so(wheels: Path, ran: list[str]) -> None:
    (path,) = wheels.glob("flashinfer_cubin-0.1.1-*")
    path.write_bytes(b"PK\3\4 no wheel")
    first, broken, *_ = rows_from(wheels)
    assert (first.holds, broken.holds) == (True, None)
    assert broken.note
    with pytest.raises(NothingRan, match=r"no release could be had; 0\.1\.1"):
        timeline(["0.1.1"], options(wheels))


def test_what_is_chosen_covers_every_arch_family_and_head_size() -> None:
    names = list(NEW)
    found = chosen(names)
    groups = [
        (kernel.arch, kernel.group, kernel.head_size) for kernel in map(KernelName.parse, found)
    ]
    assert len(groups) == len(set(groups))
    every = map(KernelName.parse, names)
    assert set(groups) == {(k.arch, k.group, k.head_size) for k in every}
    assert chosen(reversed(names)) == found


def test_releases_that_read_alike_are_summed_up(wheels: Path, ran: list[str]) -> None:
    said = [sentence.text for sentence in summary(rows_from(wheels))]
    assert said[0] == (
        "5 releases, 4 of them with such kernels. Their code changes in 0.10.0 and 0.10.0.post1."
    )
    assert said[1] == "0.1.0 and 0.1.1: K scales linear; V scales linear."
    assert said[2].startswith("0.10.0 and 0.10.0.post1: K scales linear; V scales swizzle_4x4; ")
    assert "prefill of head size 256 on sm_100a: no named layout, (4,T/4):(1,9);" in said[2]
    assert len(said) == 3


def test_the_command(wheels: Path, ran: list[str], call: Call, tmp_path: Path) -> None:
    where = ("--wheel-dir", str(wheels), "--offline", "--jobs", "1")
    done = call("timeline", PACKAGE, "0.1.0..0.1.1", *where, "--json")
    assert done.code == 0
    assert [row["holds"] for row in json.loads(done.out)["releases"]] == [True, True]
    out = tmp_path / "out"
    done = call("timeline", PACKAGE, "0.1.0..", *where, "--output", str(out))
    # V is not read as declared at head size 256, and one kernel could not be executed.
    assert done.code == 1
    document: dict[str, Any] = json.loads((out / f"timeline-{PACKAGE}.json").read_text())
    assert document["package"] == PACKAGE
    assert len(document["summary"]) == 3
    new = document["releases"][3]["families"]
    assert [f["family"] for f in new] == ["prefill", "decode", "decode"]
    assert new[1]["not_executed"] == {name_of(100, 64, SPLIT): "opcode HCF at 0x10"}
    assert (new[1]["kernels"], new[1]["executed"]) == (2, [name_of(100, 64, DECODE)])
    assert [family["as_declared"] for family in new] == [False, True, True]
    assert new[0]["code"] == "2 changed, 1 added"
    text = (out / f"timeline-{PACKAGE}.md").read_text()
    assert f"Generated by layout-oracle timeline {PACKAGE} 0.1.0.." in text
    for words in (
        "| 0\\.10.0 | sm_100a | prefill | 64, 256 | ✓ linear | ✗ swizzle_4x4; head size 256: "
        "no named layout | 2 of 3 | ≠ 2 changed, 1 added |",
        # What could not be executed is no fault of what could.
        "| 0\\.10.0 | sm_100a | decode | 64 | ✓ linear | ✓ swizzle_4x4 | 1 of 2 |",
        f"0\\.10.0: {name_of(100, 64, SPLIT)}: opcode HCF at 0x10",
        f"{STRANGE}: ",
        "0\\.2.0: there is no attention kernel with an NVFP4 KV cache in it",
    ):
        assert words in text, text
    assert "0.1.0 and 0.1.1: K scales linear; V scales linear." in " ".join(done.out.split())


def test_what_the_command_refuses(wheels: Path, ran: list[str], call: Call, tmp_path: Path) -> None:
    where = ("--wheel-dir", str(wheels), "--offline")
    assert (
        "timeline of vllm and flashinfer-cubin" in call("timeline", "x", "1..2", *where).complaint
    )
    assert "such as flashinfer-cubin==0.6.13" in call("timeline", PACKAGE, "x..y", *where).complaint
    assert call("timeline", PACKAGE, "9..", *where).code == 5
    taken = tmp_path / "file"
    taken.touch()
    assert call("timeline", PACKAGE, "0.1.0..", *where, "--output", str(taken)).code == 2


def test_escapes_stay_in_their_cells(wheels: Path, ran: list[str]) -> None:
    (path,) = wheels.glob("flashinfer_cubin-0.1.0-*")
    write(path, OLD | {f"{STRANGE}\x1b[31m": "?"})
    (row,) = rows_from(wheels, "0.1.0", "0.1.0")
    every = repr(sections([row]))
    assert "\\\\x1b[31m" in every
    assert "\\x1b[31m" not in every.replace("\\\\x1b", "")


def test_a_sweep_and_a_timeline_share_what_was_executed(
    wheels: Path, ran: list[str], call: Call, tmp_path: Path
) -> None:
    where = ("--wheel-dir", str(wheels), "--offline", "--jobs", "1")
    call("timeline", PACKAGE, "0.10.0", *where, "--output", str(tmp_path))
    ran.clear()
    page = tmp_path / "page.md"
    summed = tmp_path / f"timeline-{PACKAGE}.json"
    every = (f"{PACKAGE}==0.10.0", *where, "--docs", str(page), "--timeline", str(summed))
    # Not all are read as declared: a finding.
    assert call("sweep", *every).code == 1
    assert ran == sorted(NEW.keys() - set(chosen(NEW)))
    text = page.read_text()
    assert f"--docs {page} --timeline {summed}" in text.replace("\\", "")
    assert "Their code changes" not in text
    assert "1 release, 1 of them with such kernels." in text
    declared = (f"{PACKAGE}==0.1.0:*64*", *where)
    assert call("sweep", *declared).code == 0


def test_a_wheel_that_is_gone_is_a_row_that_says_so(wheels: Path, ran: list[str]) -> None:
    (wheels / "flashinfer_cubin-0.0.1-py3-none-any.whl").symlink_to(wheels / "nowhere")
    gone, old = rows_from(wheels, last="0.1.0")
    assert (gone.holds, old.holds) == (None, True)
    assert "No such file" in str(gone.note)


def test_machine_code_under_a_name_it_did_not_have_is_executed_again(
    wheels: Path, ran: list[str]
) -> None:
    known, other = name_of(100, 64, PREFILL), name_of(100, 128, PREFILL)
    write(wheels / "flashinfer_cubin-0.1.2-py3-none-any.whl", {other: OLD[known]})
    write(wheels / "flashinfer_cubin-0.1.3-py3-none-any.whl", {known: OLD[known]})
    renamed, plain = rows_from(wheels, "0.1.2", "0.1.3")
    assert ran == [other, known]
    assert [row.kernel for row in (*renamed.rows, *plain.rows)] == ran


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"summary": 1}', "\x00"])
def test_what_is_no_timeline_is_refused(
    wheels: Path, ran: list[str], call: Call, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "some.json"
    path.write_text(text)
    where = ("--wheel-dir", str(wheels), "--offline", "--jobs", "1")
    docs = ("--docs", str(tmp_path / "page.md"), "--timeline", str(path))
    done = call("sweep", f"{PACKAGE}==0.1.0", *where, *docs)
    assert done.code == 2
    assert "this is no timeline's JSON" in done.complaint
    assert ran == []
