"""The controls for looking at any plane of a verdict; the script shows them and draws."""

from __future__ import annotations

from oracle.geometry import SIDES
from oracle.report.html.markup import Markup, element


def explorer() -> Markup:
    """Choices of writer, reader, side, geometry and head, a place for two planes, and a readout."""
    sides = [
        element("label", element("input", type="radio", name="side", value=index), side)
        for index, side in enumerate(SIDES)
    ]
    choices = element(
        "form",
        _chosen("Stored by", element("select", id="stored-by")),
        _chosen("Looked for by", element("select", id="looked-for-by")),
        element("fieldset", element("legend", "Side"), *sides),
        _chosen("Geometry", element("select", id="geometry")),
        _chosen("Head", element("input", type="number", id="head", min=0, value=0)),
        id="choices",
        aria_label="Choose what is drawn",
    )
    stage = element(
        "div",
        element("p", id="state", role="status"),
        element(
            "div",
            element("p", "Point at a scale, or move with the arrow keys.", class_="quiet"),
            id="readout",
            role="status",
        ),
        element("div", id="bar"),
        element("div", class_="panels", id="panels"),
    )
    return element("div", choices, stage, id="explorer", hidden=True)


def _chosen(name: str, control: Markup) -> Markup:
    return element("label", element("span", name), control)
