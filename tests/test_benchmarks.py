"""What the benchmarks compare is the same work: the C store leaves the bytes of the machine.

Durations are not tested: they belong to the computer, not to the program.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.executors import EXECUTORS, TRITON, launches, missing, stores
from benchmarks.native import (
    SOURCE,
    BytesDiffer,
    NativeStore,
    NoCompiler,
    check_equal,
    find_compiler,
)
from benchmarks.output import Goal, Table
from benchmarks.page import HEADINGS, INTRODUCTION, as_page, outline
from benchmarks.sampling import Duration, Samples
from benchmarks.workload import FEW_TOKENS, Workload
from oracle.formats import DTYPES
from oracle.quantize import ScaleSearch

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> NativeStore:
    return NativeStore.build(tmp_path_factory.mktemp("native"))


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("search", ScaleSearch)
def test_c_leaves_the_bytes_of_the_machine(
    native: NativeStore, dtype: str, search: ScaleSearch
) -> None:
    workload = Workload(FEW_TOKENS, dtype, search)
    assert check_equal(native, workload) == workload.request().geometry.cache_bytes


@needs_compiler
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("magnitude < 0.75f", "magnitude <= 0.75f"),
        ("bits >= 0x3f400000", "bits > 0x3f400000"),
        ("+ s % quarter * 4", "+ s % quarter"),
        ("if (slot < 0) continue;", "if (slot < 0) return;"),
        ("counted = bits > INFINITE ? -1 : bits", "counted = bits"),
        ("sum += pair[i]", "sum += pair[7 - i]"),
    ],
)
def test_a_fault_in_the_c_store_is_caught(tmp_path: Path, right: str, wrong: str) -> None:
    text = SOURCE.read_text(encoding="utf-8")
    assert text.count(right) == 1
    source = tmp_path / "faulty.c"
    source.write_text(text.replace(right, wrong), encoding="utf-8")
    faulty = NativeStore.build(tmp_path, source)
    with pytest.raises(BytesDiffer, match="C and the machine differ in"):
        _check_searches(faulty)


def _check_searches(native: NativeStore) -> None:
    for search in ScaleSearch:
        check_equal(native, Workload(16 * FEW_TOKENS, "bf16", search))


def test_without_a_compiler_there_is_no_c_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(NoCompiler, match="there is no C compiler"):
        NativeStore.build(tmp_path)


def test_a_ratio_is_taken_within_turns() -> None:
    slow = [Duration(9.0, seconds) for seconds in (2.0, 4.0, 600.0)]
    fast = [Duration(9.0, seconds) for seconds in (1.0, 2.0, 300.0)]
    samples = Samples({"slow": slow, "fast": fast})
    assert samples.ratio("slow", "fast") == 2
    assert samples.cpu("slow") == 4
    assert samples.wall("slow") == 9


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (Goal("time", 20, "ms", 20.0), True),
        (Goal("time", 20, "ms", 20.1), False),
        (Goal("rate", 200, "M/s", 200.0, at_least=True), True),
        (Goal("rate", 200, "M/s", 199.0, at_least=True), False),
        (Goal("time", 20, "ms", None), None),
    ],
)
def test_a_goal_is_met_or_not_or_unknown(goal: Goal, met: bool | None) -> None:
    assert goal.met is met


PAGE = Path(__file__).parents[1] / "docs" / "performance.md"


def test_the_page_is_of_the_tables_there_are() -> None:
    """Written anew with `python benchmarks/run.py --docs docs/performance.md`."""
    page = PAGE.read_text(encoding="utf-8")
    assert page.startswith(INTRODUCTION)
    assert outline(page) == list(HEADINGS)


def test_a_page_has_the_outline_of_its_tables() -> None:
    tables = [
        heading.table([["word"] + [1.5] * (len(heading.columns) - 1)]) for heading in HEADINGS
    ]
    page = as_page({"python": "3", "c_compiler": None}, [*tables, HEADINGS[0].table([], ("none",))])
    assert outline(page) == [*HEADINGS, HEADINGS[0]]
    assert "- python: 3\n" in page
    assert "c_compiler" not in page
    assert "\n| :-- | --: | --: | --: | --: |\n| word | 1.50 | 1.50 | 1.50 | 1.50 |\n" in page
    assert page.endswith("| :-- | :-- | :-- | :-- | :-- |\n\n- none\n")


def test_the_executors_compared_leave_what_the_writer_leaves() -> None:
    """The launches that are timed are those of a write, on each tier and with tags."""
    workload = Workload(FEW_TOKENS, "bf16", ScaleSearch.MAX_OVER_6)
    request = workload.request()
    expected = workload.writer().write(request).cache
    cases = launches(workload, request)
    assert [case.name for case in cases] == [
        name for name in EXECUTORS[:4] if name not in missing(None)
    ]
    for case in cases:
        case()
        assert np.array_equal(case.memory.region("cache").bytes, expected)
        assert case.lane_instructions > 0


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.executors.installed", lambda: False)
    monkeypatch.setattr("benchmarks.executors.find_spec", lambda name: None)
    table = stores(1, ScaleSearch.MAX_OVER_6, None, 2)
    assert [row[0] for row in table.rows] == list(EXECUTORS)
    assert {row[0] for row in table.rows if row[1] is not None} == {"NumPy", "quantiser"}
    assert "not here: Triton, since triton and torch not installed" in table.notes
    assert "not here: compiled, since llvmlite is not installed" in table.notes
    assert "not here: C, vector, since there is no C compiler" in table.notes


def test_a_table_shows_words_to_the_left_and_numbers_to_the_right() -> None:
    table = Table("Title", ("who", "ms"), [("a", 1.234), ("long name", None)], ("a note",))
    assert table.lines() == [
        "Title",
        "",
        "who          ms",
        "---------  ----",
        "a          1.23",
        "long name     -",
        "(a note)",
        "",
    ]


@pytest.mark.skipif(TRITON in missing(None), reason="needs triton and torch")
def test_triton_leaves_the_bytes_of_the_machine() -> None:
    from benchmarks.triton_kernel import store

    workload = Workload(5, "bf16", ScaleSearch.MAX_OVER_6)
    request = workload.request()
    cache = request.cache.copy()
    store(request, cache)
    assert np.array_equal(cache, workload.writer().write(request).cache)
