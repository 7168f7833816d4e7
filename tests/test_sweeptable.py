"""The table of a sweep and the page made from it, from made-up rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oracle.addressmap import AddressMap, Read
from oracle.candidates import candidate
from oracle.commands.sweep import publish
from oracle.geometry import CacheGeometry
from oracle.report.markdown import as_markdown
from oracle.report.outline import Tone
from oracle.report.scalelayout import sections as page
from oracle.report.sweeptable import Line, family_of, lines_of, sections, side_in_words
from oracle.subjects.spec import writers_from_specs
from oracle.sweep import Row, layouts_by_tokens

PLAIN = Row(
    kernel="decode64", sha256="0", arch="sm_100a", family="SwapsAbForGen", schedule="Static",
    split="MultiCtasKv", head_size=64, page=16, mask="Dense", rows=8, block_size=16,
    k="linear = tile_8x4", v="swizzle_4x4 = inverse_4x4", k_declared="linear",
    v_declared="swizzle_4x4", k_form="(16,4):(4,1)",
    v_form="((4,4),4):((1,16),4)", k_one_to_one=True, v_one_to_one=True, elements=4096,
)  # fmt: skip
WIDE = replace(
    PLAIN, kernel="prefill256", family="Context", split="", head_size=256, k="linear", v="",
    v_form="((4,4),(8,2)):((1,64),(4,8))", v_one_to_one=False, v_unread=48,
)  # fmt: skip
AT_32 = replace(WIDE, kernel="prefill256p32", page=32, block_size=32,
                v_form="((4,8),(8,2)):((1,64),(4,8))")  # fmt: skip
LOST = replace(PLAIN, kernel="lost", problem="it is stuck")


def test_pages_and_masks_share_a_line_and_layouts_do_not() -> None:
    causal = replace(PLAIN, kernel="causal", mask="Causal", page=32, block_size=32)
    lines = lines_of([AT_32, PLAIN, WIDE, causal])
    assert [(line.head_size, line.kernels) for line in lines] == [(64, 2), (256, 2)]
    assert [line.as_declared for line in lines] == [True, False]


def test_a_form_is_the_same_for_every_page_size() -> None:
    (line,) = lines_of([WIDE, AT_32])
    assert line.v.startswith("no named layout, ((4,T/4),(8,2)):((1,64),(4,8)); not one-to-one")
    assert "37.5% of the bytes are never read" in line.v


@pytest.mark.parametrize(
    "change",
    [
        {"k": "swizzle_4x4"}, {"v": "linear"}, {"k_one_to_one": False}, {"v_one_to_one": False},
        {"k_unread": 1}, {"v_unread": 1}, {"problem": "stuck"}, {"v": ""}, {"v_declared": ""},
        {"v_declared": "linear"},
    ],
)  # fmt: skip
def test_every_departure_is_one(change: dict[str, object]) -> None:
    assert PLAIN.as_declared
    assert not replace(PLAIN, **change).as_declared  # type: ignore[arg-type]


def test_a_family_in_words() -> None:
    assert family_of(PLAIN) == "decode, static, MultiCtasKv"
    assert family_of(WIDE) == "prefill, static"


def test_what_was_not_executed_is_said_and_not_counted() -> None:
    text = as_markdown("t", sections([PLAIN, LOST], "w"))
    assert "2 attention kernels" in text
    assert "1 were executed whole, 1 of them" in text
    assert "not executed: it is stuck" in text


def test_the_page_explains_only_what_it_was_found_for() -> None:
    writers = writers_from_specs(["reference:k=linear,v=swizzle_4x4"], (), ("bf16",))
    declared = as_markdown("t", page([PLAIN], writers, "w", "c"))
    assert "two halves" not in declared
    assert "Where it is not as declared" not in declared
    explained = as_markdown("t", page([PLAIN, WIDE], writers, "w", "c"))
    assert "two halves of 128 elements" in explained
    other = as_markdown("t", page([WIDE, replace(WIDE, head_size=128)], writers, "w", "c"))
    assert "Where it is not as declared" in other
    assert "two halves of 128 elements" not in other


def test_the_page_does_not_claim_what_a_kernel_contradicts() -> None:
    writers = writers_from_specs(["reference:k=linear,v=linear"], (), ("bf16",))
    assert "All of them read K scales linearly" in as_markdown(
        "t", page([PLAIN], writers, "w", "c")
    )
    swizzled = replace(PLAIN, k="swizzle_4x4")
    text = as_markdown("t", page([swizzled], writers, "w", "c"))
    assert "All of them read K scales linearly" not in text
    (table,) = [s for s in sections([swizzled], "w") if getattr(s, "title", "") == "Families"]
    assert table.rows[0][5].tone is Tone.BAD  # type: ignore[union-attr]


def test_what_is_published_can_be_read_back(tmp_path: Path) -> None:
    publish([PLAIN, WIDE], "flashinfer-cubin==0.6.13", tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["flashinfer-cubin-0.6.13.readers.json", "flashinfer-cubin-0.6.13.readers.md"]
    assert "prefill256" in (tmp_path / names[0]).read_text()
    assert isinstance(lines_of([PLAIN])[0], Line)


def test_the_page_sums_up_a_timeline() -> None:
    writers = writers_from_specs(["reference:k=linear,v=linear"], (), ("bf16",))
    without = as_markdown("t", page([PLAIN], writers, "w", "c"))
    assert "Release by release" not in without
    text = as_markdown("t", page([PLAIN], writers, "w", "c", ["0.4.0: V scales linear."]))
    assert "## Release by release\n\n- 0\\.4.0: V scales linear." in text


TOKENS = "128 tokens linear, then 384 tokens swizzle_4x4"


def test_tokens_that_are_read_by_different_layouts_are_told_in_order() -> None:
    mixed = replace(PLAIN, v="", v_form=TOKENS)
    assert side_in_words(mixed, "V") == f"no named layout, {TOKENS}"
    assert not mixed.as_declared


def a_read(geometry: CacheGeometry, layouts: Sequence[str]) -> Read:
    """Maps of V's scales whose pages, in order, are read by these layouts."""
    tables = [
        candidate(name).table(geometry.block_size, geometry.scale_columns) for name in layouts
    ]
    heads = np.arange(geometry.num_heads)[:, None, None]
    offset = np.stack(
        [geometry.scale_offset("V", page, heads, 0, 0) + at for page, at in enumerate(tables)]
    )
    return Read(
        {("V", "scale"): AddressMap("V", "scale", geometry, tuple(range(len(layouts))), offset)}
    )


def test_a_sequence_in_two_layouts_is_told_by_its_tokens() -> None:
    geometry = CacheGeometry(4, 32, 2, 128)
    mixed = a_read(geometry, ["linear", "swizzle_4x4", "swizzle_4x4", "swizzle_4x4"])
    told = "32 tokens linear, then 96 tokens swizzle_4x4"
    assert layouts_by_tokens(mixed, "V") == told
    back = a_read(geometry, ["linear", "swizzle_4x4", "linear", "linear"])
    assert layouts_by_tokens(back, "V") == (
        "32 tokens linear, then 32 tokens swizzle_4x4, then 64 tokens linear"
    )
    assert layouts_by_tokens(a_read(geometry, ["linear"] * 4), "V") == ""
    lost = AddressMap("V", "scale", geometry, (0, 1), mixed.maps["V", "scale"].offset[:2] * 3)
    assert layouts_by_tokens(Read({("V", "scale"): lost}), "V") == ""
