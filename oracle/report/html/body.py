"""The sections of an outline as HTML."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oracle.report.html.markup import Markup, element
from oracle.report.outline import Cell, Listing, Paragraph, Table, Tone

Anchors = Mapping[tuple[str, str], str]
"""Ids of the figures that show what a writer and a reader disagree about."""

_MARKS = {Tone.GOOD: "✓", Tone.BAD: "✗", Tone.DIFFERENT: "≠"}


def told(cell: Cell) -> tuple[Markup, Markup]:
    """A cell's mark, for those who do not see colours, and its text."""
    mark = _MARKS.get(cell.tone)
    shown = element("span", mark, class_="mark", aria_hidden="true") if mark else Markup()
    return shown, element("span", cell.text)


def paragraph(part: Paragraph) -> Markup:
    """One paragraph for each sentence."""
    return element(
        "div",
        *(element("p", *told(cell), class_=cell.tone.value) for cell in part.sentences),
        class_="sentences",
    )


def section(
    part: Paragraph | Listing | Table, anchors: Anchors, places: Mapping[str, int]
) -> Markup:
    """A section under its heading, or folded under its title.

    `places` are the numbers by which the script knows subjects; a cell about two of them carries
    theirs, and a link to the figure that shows it.
    """
    if isinstance(part, Paragraph):
        return paragraph(part)
    inside = _listing(part) if isinstance(part, Listing) else _table(part, anchors, places)
    identity = slug(part.title)
    if part.folded:
        title = element("summary", element("h2", part.title))
        return element("details", title, inside, id=identity)
    return element("section", element("h2", part.title), inside, id=identity)


def slug(title: str) -> str:
    """The id of a section: the title's letters, in small ones, with hyphens between words."""
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in title.lower())
    return "-".join(words.split())


def _listing(part: Listing) -> Markup:
    items = (element("li", *told(cell), class_=cell.tone.value) for cell in part.items)
    return element("ul", *items, class_="listing")


def _table(part: Table, anchors: Anchors, places: Mapping[str, int]) -> Markup:
    return table(part, lambda cell: _cell(cell, anchors, places))


def table(part: Table, cell: Callable[[Cell], Markup] | None = None) -> Markup:
    """A table that scrolls by itself where the window is too narrow; its first column are names."""
    show = cell or (lambda each: element("td", *told(each), class_=each.tone.value))
    head = element("tr", *(element("th", name, scope="col") for name in part.columns))
    rows = (
        element("tr", element("th", row[0].text, scope="row"), *map(show, row[1:]))
        for row in part.rows
    )
    made = element("table", element("thead", head), element("tbody", *rows))
    note = element("p", part.note, class_="note") if part.note else ""
    scrolled = element(
        "div", made, class_="scroll", role="region", tabindex=0, aria_label=part.title
    )
    return element("div", scrolled, note)


def _cell(cell: Cell, anchors: Anchors, places: Mapping[str, int]) -> Markup:
    if cell.pair is None:
        return element("td", *told(cell), class_=cell.tone.value)
    writer, reader = (places[identity] for identity in cell.pair)
    mark, text = told(cell)
    anchor = anchors.get(cell.pair)
    return element(
        "td",
        mark,
        element("a", text, href=f"#{anchor}") if anchor else text,
        class_=cell.tone.value,
        data_writer=writer,
        data_reader=reader,
    )
