"""layouts, map, inspect and doctor: what they print, as text and as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from commandline import Call, cubin
from rich.console import Console

from oracle import toolchain
from oracle.candidates import CANDIDATES
from oracle.commands import doctor
from oracle.commands.results import write_results
from oracle.cuda.archs import Device
from oracle.errors import NothingRan, UsageError
from oracle.report import terminal
from oracle.report.drawing import whole
from oracle.report.planes import Plane

# ---- layouts and map -----------------------------------------------------------------------------


def test_layouts_lists_every_candidate(call: Call) -> None:
    done = call("layouts", "--json", "--head-size", "96", "--block-size", "32")
    listed = {entry["name"]: entry for entry in json.loads(done.out)["candidates"]}
    assert list(listed) == list(CANDIDATES)
    for name, each in CANDIDATES.items():
        reason = each.undefined_reason(32, 6)
        assert listed[name]["undefined"] == reason
        assert (listed[name]["shape_stride"] is None) == (reason is not None)
    text = call("layouts", "--head-size", "96", "--block-size", "32").out
    assert all(name in text for name in CANDIDATES)


def test_layouts_tells_which_names_are_one_map(call: Call) -> None:
    done = call("layouts", "--json", "--head-size", "1024")
    groups = json.loads(done.out)["coincidences"]
    assert {"head_size": 64, "names": ["swizzle_4x4", "inverse_4x4"]} in groups
    assert {"head_size": 256, "names": ["inverse_4x4", "double_swizzle_4x4"]} in groups
    for group in groups:
        first, *others = (CANDIDATES[n].table(16, group["head_size"] // 16) for n in group["names"])
        assert others
        assert all(np.array_equal(first, other) for other in others)
    assert "swizzle_4x4 = inverse_4x4" in call("layouts").out


def drawn(text: str) -> dict[tuple[int, int], int]:
    """(token, column) -> offset, read back from a drawing."""
    cells: dict[tuple[int, int], int] = {}
    columns: list[int] = []
    for words in map(str.split, text.splitlines()):
        if words and all(re.fullmatch(r"s\d+", word) for word in words):
            columns = [int(word[1:]) for word in words]
        elif words and re.fullmatch(r"t\d+", words[0]):
            for column, offset in zip(columns, words[1:], strict=True):
                assert (int(words[0][1:]), column) not in cells
                cells[int(words[0][1:]), column] = int(offset)
    return cells


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("colour", [False, True])
def test_a_drawn_plane_holds_every_offset(
    columns: int, colour: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    table = CANDIDATES["swizzle_4x4"].table(16, 36)
    console = terminal.console(width=columns)
    console.no_color = not colour
    terminal.show([whole("", Plane(table))], console)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= columns
    assert drawn(text) == {spot: int(offset) for spot, offset in np.ndenumerate(table)}


@pytest.mark.parametrize(("side", "layout"), [("K", "linear"), ("V", "swizzle_4x4")])
def test_the_map_of_a_writer_is_what_it_stores(side: str, layout: str, call: Call) -> None:
    spec = "store-sm100"
    done = call("map", spec, "--side", side, "--json", "--block-size", "8")
    made = json.loads(done.out)
    assert made["table"] == CANDIDATES[layout].table(8, 8).tolist()
    assert layout in made["title"]
    assert f"{side} scales" in call("map", spec, "--side", side).out


# ---- inspect and doctor --------------------------------------------------------------------------


def test_inspect_shows_a_store_kernel(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "store.cubin"
    path.write_bytes(cubin())
    made = json.loads(call("inspect", "--json", str(path)).out)
    assert made["arch"] == "sm_100a"
    (kernel,) = made["kernels"]
    assert kernel["name"] == "nvfp4_kv_store"
    assert [param["size"] for param in kernel["parameters"]] == [8] * 11 + [4] * 3 + [8] * 6
    assert kernel["registers"] > 0
    assert (kernel["launch_refusal"], kernel["machine_refusals"]) == (None, [])
    text = call("inspect", str(path)).out
    for words in ("launched as a store kernel", "the machine can execute it", "slot_mapping"):
        assert words in text


def test_inspect_knows_the_trailing_switch(call: Call, tmp_path: Path) -> None:
    source = toolchain.kernel_source("nvfp4_kv_store")
    last = "scale_block_offset_stride) {"
    assert source.count(last) == 1
    path = tmp_path / "switch.cubin"
    switched = source.replace(last, "scale_block_offset_stride, bool swizzle) {")
    path.write_bytes(toolchain.compile_cuda(switched, "sm_100a"))
    assert re.search(r"\n20 +\S+ +1 +swizzle V", call("inspect", str(path)).out)


def test_inspect_names_what_cannot_be_run(call: Call, tmp_path: Path) -> None:
    source = """
    extern "C" __global__ void product(unsigned* d, const unsigned* a) {
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1},{%2,%3,%4,%5},"
                   "{%6,%7},{%8,%9};" : "=r"(d[0]), "=r"(d[1])
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "r"(0),
                     "r"(0));
    }"""
    path = tmp_path / "product.cubin"
    path.write_bytes(toolchain.compile_cuda(source, "sm_90"))
    (kernel,) = json.loads(call("inspect", "--json", str(path)).out)["kernels"]
    assert "2 parameters of [8, 8] bytes" in kernel["launch_refusal"]
    assert any("HMMA" in refusal for refusal in kernel["machine_refusals"])
    text = call("inspect", str(path)).out
    assert "not launched" in text
    assert "not executed: opcode HMMA" in text


def test_doctor_says_what_is_here(call: Call) -> None:
    done = call("doctor", "--json")
    assert done.code == 0
    made = json.loads(done.out)
    checks = {check["name"]: check for check in made["checks"]}
    assert made["able"] is True
    assert all(check["ok"] for check in checks.values() if check["needed"])
    assert "sm_100a" in checks["NVRTC"]["detail"]
    assert checks["machine"]["detail"].startswith("executes the store kernel")
    assert checks["GPU"]["needed"] is False
    assert "The default verdict can run here." in call("doctor").out


def test_doctor_exits_with_5_where_the_verdict_cannot_run(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Path:
        raise toolchain.ToolchainError("it is not installed")

    monkeypatch.setattr(toolchain, "nvdisasm_path", missing)
    done = call("doctor")
    assert done.code == 5
    assert re.search(r"nvdisasm +missing", done.out)
    assert "The default verdict cannot run here." in done.out


def test_doctor_shows_the_gpu_or_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def gpu() -> doctor.Check:
        return next(check for check in doctor.examine() if check.name == "GPU")

    def nothing() -> Device:
        raise NothingRan("there is no CUDA driver")

    monkeypatch.setattr(doctor, "_machine", lambda: "")
    monkeypatch.setattr(doctor, "_nvrtc", lambda: "")
    monkeypatch.setattr(doctor, "find_device", lambda: Device("NVIDIA X", (10, 3), 13010))
    said = "NVIDIA X (compute capability 10.3, CUDA 13.1)"
    assert (gpu().ok, gpu().detail, gpu().needed) == (True, said, False)
    monkeypatch.setattr(doctor, "find_device", nothing)
    assert (gpu().ok, gpu().detail, gpu().needed) == (False, "there is no CUDA driver", False)


def test_the_rows_of_a_band_have_colours_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Also on a terminal of sixteen colours: eight rows, eight backgrounds."""
    console = Console(force_terminal=True, color_system="standard", width=80, no_color=False)
    terminal.show([whole("", Plane(CANDIDATES["swizzle_4x4"].table(8, 4)))], console)
    colour_of: dict[int, set[str]] = {}
    for codes, cell in re.findall(r"\x1b\[([0-9;]+)m *(\d+) \x1b\[0m", capsys.readouterr().out):
        colour_of.setdefault(int(cell) // 4, set()).add(codes)
    assert sorted(colour_of) == list(range(8))
    assert all(len(codes) == 1 for codes in colour_of.values())
    assert len(set.union(*colour_of.values())) == 8


@pytest.mark.parametrize("directory", [None, "made/below"])
def test_results_are_written_whole_or_refused(
    directory: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / (directory or "")
    contents = {made / "first": "1", made / "second": "2"}
    write_results(contents, made if directory else None)
    assert [path.read_text() for path in contents] == ["1", "2"]
    assert capsys.readouterr().err == "".join(f"wrote {path}\n" for path in contents)
    for path in (tmp_path / "missing" / "file", made, made / "first" / "file"):
        with pytest.raises(UsageError, match="cannot be written to"):
            write_results({path: ""})
