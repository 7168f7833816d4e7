"""The option --tier: what it asks for, what the documents say, and that nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commandline import Call

from oracle.machine import tiers
from oracle.report.parse import parse
from oracle.report.tables import executed_by
from oracle.verdict import Launches, as_document

SMALL = ("verdict", "store-sm100", "--head-size", "64", "--block-size", "16", "--jobs", "1")
LAUNCHES = 2 * 3
"""Two cache layouts; two launches that spell coordinates, and one of special values."""


def document(call: Call, *arguments: str) -> dict[str, Any]:
    done = call(*SMALL, *arguments, "--json")
    assert done.code == 0, done.err
    made = json.loads(done.out)
    assert isinstance(made, dict)
    return made


def launches(tier: str, reason: str | None = None, count: int = LAUNCHES) -> list[dict[str, Any]]:
    subject = "store-sm100@sm_100a/bf16"
    return [{"subject": subject, "tier": tier, "count": count, "reason": reason}]


def test_the_document_says_who_executed_what(call: Call) -> None:
    made = document(call, "--tier", "numpy")
    assert made["launches"] == launches("numpy")
    assert as_document(parse(made).verdict, made["tool"])["launches"] == made["launches"]


def test_another_tier_changes_nothing_else(call: Call) -> None:
    pytest.importorskip("llvmlite", reason="needs llvmlite: pip install -e .[fast]")
    plain, natively = (document(call, "--tier", tier) for tier in ("numpy", "compiled"))
    assert natively.pop("launches") == launches("compiled")
    plain.pop("launches")
    assert natively == plain


def test_the_environment_asks_where_the_option_does_not(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(tiers.TIER_VARIABLE, "numpy")
    assert document(call)["launches"] == launches("numpy")
    assert document(call, "--tier", "auto")["launches"] == launches(
        "numpy", "little work" if tiers.installed() else "llvmlite is not installed"
    )
    monkeypatch.setenv(tiers.TIER_VARIABLE, "fast")
    done = call(*SMALL)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        "layout-oracle: error: there is no tier 'fast': choose auto, numpy, compiled"
    ]  # fmt: skip


def test_without_the_extra_native_code_cannot_be_asked_for(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "installed", lambda: False)
    done = call(*SMALL, "--tier", "compiled")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        "layout-oracle: error: --tier compiled needs llvmlite: pip install 'layout-oracle[fast]'"
    ]
    assert document(call)["launches"] == launches("numpy", "llvmlite is not installed")


def test_reports_say_it(call: Call, tmp_path: Path) -> None:
    done = call(*SMALL, "--tier", "numpy", "--output", str(tmp_path))
    said = f"executed by: numpy {LAUNCHES} launches"
    assert done.err.splitlines()[0] == said
    assert said in (tmp_path / "verdict.md").read_text()


def test_launches_of_all_subjects_are_summed_up() -> None:
    assert executed_by(()) == ""
    counts = (
        Launches("a", "numpy", 4, "compiling meanwhile"),
        Launches("a", "compiled", 20),
        Launches("b", "compiled", 1000),
        Launches("b", "numpy", 1, "a fault"),
    )
    assert executed_by(counts) == (
        "executed by: compiled 1,020 launches, numpy 4 launches (compiling meanwhile), "
        "numpy 1 launch (a fault)"
    )


@pytest.mark.parametrize("command", [("fuzz", "store-sm100"), ("numerics", "store-sm100")])
def test_other_commands_refuse_what_the_environment_asks_in_vain(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv(tiers.TIER_VARIABLE, "fast")
    state = ("--state", str(tmp_path)) if command[0] == "fuzz" else ()
    done = call(*command, *state)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        "layout-oracle: error: there is no tier 'fast': choose auto, numpy, compiled"
    ]
