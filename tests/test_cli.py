"""The command line: exit codes, one line for each mistake, and nothing but results on stdout."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commandline import HARNESS, ROOT, Call, cubin, start
from test_schema import VALIDATOR
from verdicts import VERDICTS, settled

from oracle import __version__, cli
from oracle.arguments import values
from oracle.commands.verdict import exit_code
from oracle.errors import CallFailed
from oracle.geometry import CacheGeometry
from oracle.machine.tiers import TIER_VARIABLE
from oracle.requests import StoreRequest
from oracle.run import DEFAULT_DOMAIN, Domain
from oracle.subjects.callable import CallableWriter

SMALL = ("--head-size", "64", "--block-size", "16", "--cache-layout", "HND", "--jobs", "1")
SWIZZLED = "reference:k=linear,v=swizzle_4x4"
LINEAR = "reference:k=linear,v=linear"


# ---- Starting ------------------------------------------------------------------------------------


def test_help_needs_none_of_the_heavy_imports() -> None:
    code = (
        "import sys\nfrom oracle import cli\ncli._parser().format_help()\n"
        "heavy = {'numpy', 'rich', 'elftools', 'json', 'oracle.run'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("command", ["", "verdict", "layouts", "map", "inspect", "doctor"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        cli.main([*command.split(), "--help"])
    assert leaving.value.code == 0
    assert capsys.readouterr().out.startswith("usage: layout-oracle")


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        cli.main(["--version"])
    assert leaving.value.code == 0
    assert capsys.readouterr().out == f"layout-oracle {__version__}\n"


def test_the_harness_runs_from_any_directory(tmp_path: Path) -> None:
    """Also where a package called kernels is installed, as vLLM and transformers want it."""
    stranger = tmp_path / "site" / "kernels"
    stranger.mkdir(parents=True)
    (stranger / "__init__.py").write_text("raise RuntimeError('not ours')")
    arguments = ("verdict", "store-sm100", "--reader", SWIZZLED, *SMALL)
    done = start(arguments, tmp_path, PYTHONPATH=str(stranger.parent))
    assert (done.code, done.err) == (0, "")
    assert "K scales linear" in done.out


# ---- Bad usage -----------------------------------------------------------------------------------

MISTAKES = {
    "": "the following arguments are required: COMMAND",
    "verdikt": "'verdikt'",
    "verdict --bogus": "--bogus (see layout-oracle verdict --help)",
    "verdict --head 64": "--head",
    "verdict --head-size 0": "--head-size: '0'",
    "verdict --head-size -64": "--head-size: '-64'",
    "verdict --head-size 40": "--head-size: '40'",
    "verdict --head-size 64,40": "--head-size: '40'",
    "verdict --head-size 64,": "--head-size: ''",
    "verdict --head-size 6_4": "--head-size: '6_4'",
    "verdict --head-size ٦٤": "--head-size: '٦٤'",
    "verdict --head-size 99999999999999999999999999": "--head-size: '99999",
    "verdict --head-size 1048576": "--head-size: '1048576'",
    "verdict --num-heads 0": "--num-heads: '0'",
    "verdict --num-heads 1e3": "--num-heads: '1e3'",
    "verdict --num-heads 1000000": "--num-heads: '1000000'",
    "verdict --block-size -16": "--block-size: '-16'",
    "verdict --block-size 1000000": "--block-size: '1000000'",
    "verdict --cache-layout NHD,NDH": "--cache-layout: 'NDH'",
    "verdict --dtype fp8": "--dtype: 'fp8'",
    "verdict --arch ,": "--arch: ",
    "verdict --arch sm_1": "'sm_1'",
    "verdict --jobs 0": "--jobs: '0'",
    "verdict --require gpu": "--require: invalid choice: 'gpu'",
    "verdict nobody": "'nobody'",
    "verdict --reader nobody": "'nobody'",
    "verdict store:k=linear": "store:k=linear: give both layouts",
    "verdict store:k=liner": "no layout is called 'liner'",
    "verdict my_store.py": "not its file: my_store:store",
    "verdict ./my_store.py:put@cuda": "not its file: my_store:put@cuda",
    "verdict sub/my_store.py:put": "not its file: sub.my_store:put",
    "verdict ../my_store.py:put": "not its file: my_store:put, with .. on PYTHONPATH",
    "verdict --reader my_store.py": "not its file: my_store:dequantise",
    "verdict --reader trtllm-gen,flashinfer-fa2": "repeat --reader for each",
    "verdict reference:k=lineal,v=linear": "'lineal'",
    "verdict no.such.module:function": "no.such.module",
    "verdict missing.cubin": "missing.cubin",
    "verdict --head-size 16384 --num-heads 1024 --block-size 65536": "smaller sizes",
    "verdict --output harness.py/out": "--output harness.py/out",
    "layouts --head-size 24": "--head-size: '24'",
    "layouts --block-size 0": "--block-size: '0'",
    "map": "LAYOUT|SPEC",
    "map nobody": "'nobody'",
    "map swizle_4x4": "no layout is called 'swizle_4x4': did you mean swizzle_4x4?",
    "map swizzle_4x4 --head-size 80": "swizzle_4x4 needs S to be a multiple of 4",
    "map linear --side Q": "--side",
    "map store": "store names several writers",
    "inspect missing.cubin": "missing.cubin: No such file",
    "inspect harness.py": "harness.py",
    "doctor here": "here",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(
    line: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    done = call(*line.split(" ") if line else [])
    assert done.code == 2
    assert MISTAKES[line] in done.complaint


def test_a_report_of_a_directory_names_the_verdict_in_it(call: Call, tmp_path: Path) -> None:
    assert "Is a directory" in call("report", str(tmp_path)).complaint
    inside = tmp_path / "verdict.json"
    inside.write_text("{}", encoding="utf-8")
    assert f"give {inside}" in call("report", str(tmp_path)).complaint


def test_control_sequences_in_a_complaint_are_spelled_out(call: Call) -> None:
    assert r"\x1b[31mred" in call("verdict", "\x1b[31mred").complaint


# ---- Errors that are not the user's --------------------------------------------------------------


def raising(error: BaseException) -> Any:
    def run(arguments: argparse.Namespace) -> int:
        raise error

    return run


def test_an_internal_error_is_one_line_with_a_hint(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(cli.DEBUG_VARIABLE, raising=False)
    monkeypatch.setattr("oracle.commands.layouts.run", raising(ValueError("two\nlines")))
    done = call("layouts")
    assert (done.code, done.out) == (3, "")
    assert done.err == (
        "layout-oracle: internal error: ValueError: two lines "
        "(set LAYOUT_ORACLE_DEBUG=1 for the traceback)\n"
    )
    monkeypatch.setenv(cli.DEBUG_VARIABLE, "1")
    done = call("layouts")
    assert done.code == 3
    assert done.err.startswith("Traceback")


def test_an_interrupt_is_no_traceback(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oracle.commands.layouts.run", raising(KeyboardInterrupt()))
    done = call("layouts")
    assert (done.code, done.err) == (130, "layout-oracle: interrupted\n")


def test_a_closed_pipe_is_quiet() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with subprocess.Popen(
        [sys.executable, HARNESS, "layouts"], stdout=writing, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(writing)
        _, err = process.communicate()
    assert (process.returncode, err) == (141, "")


def test_an_encoding_without_the_characters_costs_no_report(tmp_path: Path) -> None:
    arguments = ["verdict", SWIZZLED, "--head-size", "64,128", "--block-size", "16"]
    done = start(arguments, tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.code, done.err) == (0, "")
    assert re.search(r"V disagrees 75\?9[0-9.]+ %", done.out)


# ---- verdict -------------------------------------------------------------------------------------


def test_json_is_valid_and_alone_on_standard_output(call: Call) -> None:
    done = call("verdict", "--json", *SMALL)
    assert (done.code, done.err) == (0, "")
    made = json.loads(done.out)
    assert not [error.message for error in VALIDATOR.iter_errors(made)]
    assert made["exit_code"] == 0
    ids = [subject["id"] for subject in made["subjects"]]
    assert len(set(ids)) == len(ids)
    assert {f["subject"] for f in made["findings"]} == set(ids)
    assert {a[role] for a in made["agreements"] for role in ("writer", "reader")} == set(ids)
    (v,) = (
        f for f in made["findings"]
        if f["side"] == "V" and f["plane"] == "scale" and f["subject"].startswith("store-sm100")
    )  # fmt: skip
    assert v["layouts"] == ["swizzle_4x4", "inverse_4x4"]


def test_two_runs_leave_the_same_files(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Which tier is the best depends on how busy the computer is.
    monkeypatch.setenv(TIER_VARIABLE, "numpy")
    arguments = ("verdict", SWIZZLED, "store-sm100", "--head-size", "64,80",
                 "--block-size", "8", "--block-size", "16")  # fmt: skip
    outcomes = [
        call(*arguments, "--jobs", jobs, "--output", str(tmp_path / jobs)) for jobs in ("1", "2")
    ]
    assert [done.code for done in outcomes] == [0, 0]
    assert outcomes[0].out == outcomes[1].out
    for name in ("verdict.json", "verdict.md"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
    again = call(*arguments, "--json")
    assert again.out == (tmp_path / "1" / "verdict.json").read_text()
    assert outcomes[0].err.splitlines() == [
        f"wrote {tmp_path / '1' / name}" for name in ("verdict.json", "verdict.md")
    ]


def test_what_is_asked_for_is_what_is_run(call: Call) -> None:
    done = call(
        "verdict", SWIZZLED, LINEAR, "--json", "--head-size", "64,128,64", "--num-heads", "1,3",
        "--block-size", "16,32", "--cache-layout", "NHD", "--dtype", "fp16,bf16",
    )  # fmt: skip
    domain = json.loads(done.out)["domain"]
    assert {name: domain[name] for name in Domain.__dataclass_fields__} == {
        "head_sizes": [64, 128], "num_heads": [1, 3], "block_sizes": [16, 32],
        "cache_layouts": ["NHD"], "dtypes": ["fp16", "bf16"],
    }  # fmt: skip
    assert domain["geometries"] == 16


def test_the_arch_is_handed_to_the_compiler(call: Call) -> None:
    done = call("verdict", "store", "--arch", "sm_90,sm_80", "--json", *SMALL)
    subjects = json.loads(done.out)["subjects"]
    assert {s["arch"] for s in subjects if s["role"] == "writer"} == {"sm_90", "sm_80"}


def test_a_reader_that_is_named_is_held_to_it(call: Call) -> None:
    unswizzling = "reference:k=swizzle_4x4,v=swizzle_4x4"
    done = call("verdict", SWIZZLED, "--reader", unswizzling, "--reader", SWIZZLED, *SMALL)
    assert done.code == 1
    faults = done.out.partition("\nFaults\n")[2].partition("\n\n")[0]
    assert faults.startswith(f"- {unswizzling} disagrees with")
    assert f"- {SWIZZLED}" not in faults
    assert call("verdict", SWIZZLED, "--reader", SWIZZLED, *SMALL).code == 0


def test_what_a_subject_prints_is_no_result(tmp_path: Path) -> None:
    """Neither from Python nor through the descriptor."""
    (tmp_path / "chatty.py").write_text(
        "import os\n"
        "def store(key, value, key_cache, value_cache, slots, *rest):\n"
        "    print('from Python')\n"
        "    os.write(1, b'from C\\n')\n"
        "    key_cache[:] = 1\n"
    )
    done = start(["verdict", "chatty:store", "--json", *SMALL], tmp_path)
    assert done.code == 1
    assert json.loads(done.out)["exit_code"] == 1
    assert {"from Python", "from C"} <= set(done.err.splitlines())


@pytest.mark.parametrize(
    ("body", "told"),
    [("raise ValueError('no luck')", "raised ValueError: no luck"), ("pass", "stored nothing")],
)
def test_a_function_that_fails_leaves_no_file(body: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(f"def store(*arguments):\n    {body}\n")
    done = start(["verdict", "failing:store", "--output", "out", *SMALL], tmp_path)
    assert done.code == 2
    assert told in done.complaint
    assert not (tmp_path / "out").exists()


def test_a_launch_of_padding_alone_may_store_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "idle.py").write_text("def store(*arguments):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    geometry = CacheGeometry(1, 4, 1, 64, "HND")
    words = np.zeros((2, 1, 64), np.uint16)
    image = np.zeros(geometry.cache_bytes, np.uint8)
    slots = np.array([-1, -7], np.int64)
    request = StoreRequest(geometry, "bf16", words, words, slots, 1.0, 1.0, image)
    writer = CallableWriter("idle:store")
    assert writer.write(request).cache.tobytes() == image.tobytes()
    with pytest.raises(CallFailed, match="stored nothing"):
        writer.write(replace(request, slot_mapping=slots + 1))


def test_a_truncated_cubin_leaves_no_file(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "short.cubin"
    path.write_bytes(cubin()[:700])
    done = call("verdict", str(path), "--output", str(tmp_path / "out"))
    assert done.code == 2
    assert "short.cubin" in done.complaint
    assert not (tmp_path / "out").exists()


def test_requiring_what_was_run_changes_nothing(call: Call) -> None:
    assert call("verdict", "store", "--require", "machine", *SMALL).code == 0


@pytest.mark.parametrize("executor", ["machine", "cuda"])
def test_requiring_what_was_not_run_is_5(executor: str, call: Call) -> None:
    done = call("verdict", SWIZZLED, "--json", "--require", executor, *SMALL)
    assert done.code == 5
    assert json.loads(done.out)["exit_code"] == 5


def test_a_skip_of_what_is_required_is_5_unless_there_is_a_fault() -> None:
    made = settled()
    assert (exit_code(made, None), exit_code(made, "machine")) == (0, 0)
    skipped = replace(
        made.findings[0], status="unsupported", layouts=(), positions=0, recovered=0, reason="HMMA"
    )
    refused = replace(skipped, status="refused")
    assert exit_code(replace(made, findings=(skipped, *made.findings[1:])), "machine") == 5
    assert exit_code(replace(made, findings=(refused, *made.findings[1:])), "machine") == 0
    assert exit_code(VERDICTS["faulty"], "cuda") == 1


# ---- Colour --------------------------------------------------------------------------------------

COLOUR = re.compile(r"\x1b\[[0-9;]*(?:3|4|9|10)[0-9]")


def test_no_color_is_honoured(tmp_path: Path) -> None:
    arguments = ["map", "linear", "--head-size", "64"]
    forced = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    assert COLOUR.search(start(arguments, tmp_path, **forced).out)
    assert not COLOUR.search(start(arguments, tmp_path, NO_COLOR="1", **forced).out)
    assert "\x1b" not in start(arguments, tmp_path).out


def test_the_default_domain_is_within_the_limits_of_the_options() -> None:
    limits = (
        (DEFAULT_DOMAIN.head_sizes, values.MAX_HEAD_SIZE),
        (DEFAULT_DOMAIN.num_heads, values.MAX_NUM_HEADS),
        (DEFAULT_DOMAIN.block_sizes, values.MAX_BLOCK_SIZE),
    )
    assert all(max(sizes) <= most for sizes, most in limits)


@pytest.mark.parametrize("ending", ["raise SystemExit(0)", "import os; os._exit(0)"])
def test_a_function_that_ends_its_process_is_no_pass(
    ending: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ending_store.py").write_text(f"def store(*arguments):\n    {ending}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "ending_store", raising=False)
    done = call("verdict", "ending_store:store", *SMALL)
    assert done.code == 2
    assert "ending_store:store" in done.err
    assert done.out == ""
