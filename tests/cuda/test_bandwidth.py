"""The bandwidth benchmark on a GPU that is none: its arithmetic, its check, and its files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fakegpu import SM90, AfterLaunch, FakeDriver

from benchmarks.bandwidth import (
    PATTERN_TOKENS,
    BytesDiffer,
    main,
    measure,
    measure_all,
    moved_bytes,
    request_of,
    write_files,
)
from oracle.cuda.launcher import SMALLEST_ZONE
from oracle.errors import NothingRan
from oracle.quantize import ScaleSearch

TOKENS = 2 * PATTERN_TOKENS


class TimedFake(FakeDriver):
    """Its copies take 2 ms, its launches 2.5."""

    def __init__(self, tamper: AfterLaunch | None = None) -> None:
        super().__init__(tamper=tamper)
        self.copied = 0

    def copy(self, target: int, source: int, size: int) -> None:
        self.upload(target, self.download(source, size))
        self.copied += size

    def milliseconds(self, work: Callable[[], None]) -> float:
        before = self.launches
        work()
        return 2.5 if self.launches > before else 2.0


def test_a_store_moves_each_byte_once() -> None:
    request = request_of(TOKENS, "bf16")
    group = 16 * 2 + 8 + 1
    assert moved_bytes(request) == TOKENS * (2 * 8 * 8 * group + 8)


def test_rates_and_their_ratio() -> None:
    driver = TimedFake()
    dtype, search, store, rate, copied, percent = measure(
        driver, "bf16", ScaleSearch.FOUR_OVER_SIX, TOKENS, turns=1
    )
    moved = moved_bytes(request_of(TOKENS, "bf16"))
    assert (dtype, search, store) == ("bf16", "4over6", 2.5)
    assert rate == pytest.approx(moved / 2.5e-3 / 1e9)
    assert copied == pytest.approx(moved / 2e-3 / 1e9)
    assert percent == pytest.approx(80)
    # Once to warm up and once in the turn; half of what moves is read, half is written.
    assert driver.copied == 2 * (moved // 2)
    assert driver.allocations == 0


def test_a_wrong_byte_is_no_result() -> None:
    def tamper(allocation: bytearray) -> None:
        allocation[-(1 << 18)] ^= 1

    with pytest.raises(BytesDiffer, match="1 bytes of the cache are wrong"):
        measure(TimedFake(tamper), "bf16", ScaleSearch.MAX_OVER_6, TOKENS, turns=2)  # type: ignore[arg-type]


def test_a_stray_byte_is_no_result() -> None:
    def tamper(allocation: bytearray) -> None:
        allocation[-SMALLEST_ZONE + 7] = 1

    with pytest.raises(BytesDiffer, match="1 bytes stored at 7 bytes past the end of cache"):
        measure(TimedFake(tamper), "bf16", ScaleSearch.MAX_OVER_6, TOKENS, turns=2)  # type: ignore[arg-type]


def test_the_files_hold_the_table_the_goal_and_the_gpu(tmp_path: Path) -> None:
    table, goal = measure_all(TimedFake(), TOKENS, turns=1)
    write_files(tmp_path / "new", SM90, table, goal)
    text = (tmp_path / "new" / "bandwidth.md").read_text()
    assert "Nobody's GPU (compute capability 9.0, CUDA 13.0)" in text
    assert "NOT MET" in text
    document = json.loads((tmp_path / "new" / "bandwidth.json").read_text())
    assert document["environment"]["device"] == "Nobody's GPU"
    assert [row["%"] for row in document["tables"][0]["rows"]] == [pytest.approx(80)] * 4
    assert document["goals"][0]["met"] is False


def test_without_a_gpu_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing() -> FakeDriver:
        raise NothingRan("there is no CUDA driver")

    monkeypatch.setattr("benchmarks.bandwidth.CudaDriver", nothing)
    assert main([]) == 5
    assert capsys.readouterr().err == "error: there is no CUDA driver\n"
