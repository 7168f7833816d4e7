"""The colours of the page, in both schemes: text can be read, and rows can be told apart.

Contrast is that of WCAG 2.2 (relative luminance). How colours look to those who lack one kind of
cone is computed with the matrices of Machado, Oliveira and Fernandes (2009) for full severity, and
how far colours are apart in CIELAB.
"""

from __future__ import annotations

import re
from importlib import resources
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from oracle.report.html.pictures import COLOURS

STYLE = resources.files("oracle.report.html").joinpath("page.css").read_text(encoding="utf-8")
ROWS = tuple(f"row-{row}" for row in range(COLOURS))
TEXT = (
    *((ink, ground) for ink in ("ink", "quiet", "good", "bad", "different", "link")
      for ground in ("paper", "panel")),
    *(("cell-ink", row) for row in ROWS),
    ("bad", "outside"), ("ink", "data"), ("ink", "scale"),
)  # fmt: skip
SHAPES = (
    *(("cell-ink", row) for row in ROWS),
    ("cell-ink", "outside"), ("cell-ink", "paper"), ("link", "panel"), ("quiet", "panel"),
)  # fmt: skip
SIGHT = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "no long waves": [
        [0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no middle waves": [
        [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no short waves": [
        [1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}  # fmt: skip
Colour = NDArray[np.float64]


def palettes() -> dict[str, dict[str, Colour]]:
    """Linear RGB of each named colour in each scheme."""
    light, dark = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    found = {}
    for scheme, block in (("light", light), ("dark", dark)):
        named = re.findall(r"--([\w-]+): #([0-9a-f]{6});", block)
        found[scheme] = {name: linear(digits) for name, digits in named}
    return found


def linear(digits: str) -> Colour:
    encoded = np.array([int(digits[i : i + 2], 16) for i in (0, 2, 4)]) / 255
    return np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)


def contrast(one: Colour, other: Colour) -> float:
    low, high = sorted(float(c @ [0.2126, 0.7152, 0.0722]) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(colour: Colour) -> Colour:
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    ratio = (np.array(to_xyz) @ colour.clip(0, 1)) / [0.9505, 1.0, 1.089]
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


SCHEMES = palettes()
each_scheme = pytest.mark.parametrize("scheme", SCHEMES)


def test_black_on_white_is_21_to_1() -> None:
    assert contrast(linear("000000"), linear("ffffff")) == pytest.approx(21)
    assert lab(linear("ffffff")) == pytest.approx([100, 0, 0], abs=0.05)


def test_both_schemes_name_the_same_colours_and_no_other_is_used() -> None:
    assert set(SCHEMES["light"]) == set(SCHEMES["dark"])
    assert set(re.findall(r"var\(--([\w-]+)\)", STYLE)) == set(SCHEMES["light"])
    rules = re.sub(r":root \{.*?\}", "", STYLE, flags=re.DOTALL)
    assert not re.search(r"#[0-9a-f]{3,8}\b|rgb|hsl", rules)


@each_scheme
@pytest.mark.parametrize(("ink", "ground"), TEXT)
def test_text_can_be_read(scheme: str, ink: str, ground: str) -> None:
    colours = SCHEMES[scheme]
    assert contrast(colours[ink], colours[ground]) >= 4.5


@each_scheme
@pytest.mark.parametrize(("shape", "ground"), SHAPES)
def test_shapes_stand_out(scheme: str, shape: str, ground: str) -> None:
    colours = SCHEMES[scheme]
    assert contrast(colours[shape], colours[ground]) >= 3


@each_scheme
@pytest.mark.parametrize("sight", SIGHT)
def test_rows_can_be_told_apart(scheme: str, sight: str) -> None:
    seen = {row: lab(np.array(SIGHT[sight]) @ SCHEMES[scheme][row]) for row in ROWS}
    apart = {(a, b): float(np.linalg.norm(seen[a] - seen[b])) for a, b in combinations(ROWS, 2)}
    assert min(apart.values()) >= 10, min(apart, key=apart.__getitem__)
