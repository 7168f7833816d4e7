"""An HTML page as a tree, read strictly: every element is closed where it should be."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from xml.etree.ElementTree import Element

from oracle.report.document import TOOL
from oracle.report.html.page import as_html
from oracle.verdict import Verdict

_VOID = {"meta", "input"}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("document")
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"an attribute of {tag} is there twice"
        made = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].append(made)
        if tag not in _VOID:
            self.open.append(made)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag, f"{tag} closes another element"

    def handle_data(self, data: str) -> None:
        parent = self.open[-1]
        if len(parent):
            parent[-1].tail = (parent[-1].tail or "") + data
        else:
            parent.text = (parent.text or "") + data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"an instruction: {data}")


def read(text: str) -> Element:
    """The html element of a page."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == [reader.root]
    (html,) = reader.root
    return html


def page(made: Verdict) -> Element:
    """The page of a verdict."""
    return read(as_html(made, made.exit_code, TOOL))


def said(element: Element) -> str:
    """The texts in an element, with one space between them and in place of several."""
    return " ".join(" ".join(element.itertext()).split())


def by_id(root: Element, identity: str) -> Element:
    """The element with an id."""
    (found,) = (each for each in root.iter() if each.get("id") == identity)
    return found


def of_class(root: Element, name: str) -> Iterator[Element]:
    """The elements of a class."""
    return (each for each in root.iter() if name in (each.get("class") or "").split())
