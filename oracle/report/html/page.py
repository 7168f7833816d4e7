"""One HTML file that holds a whole verdict: the answer first, then what it rests on.

The file asks for nothing beside it: style, script and data are inside, and a content security
policy lets nothing else be loaded or run. Without a script it has everything but the choice of
planes. page.css and page.js are files of their own so that they can be read and checked as such.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Mapping
from importlib import resources

from oracle.geometry import SIDES
from oracle.report.cases import faults_told
from oracle.report.digest import configuration_in_words
from oracle.report.document import TITLE
from oracle.report.html.atlas import atlas
from oracle.report.html.body import paragraph, section, slug, table
from oracle.report.html.explorer import explorer
from oracle.report.html.gallery import MAX_FIGURES, drawn_disagreements, drawn_faults
from oracle.report.html.markup import Markup, data, element
from oracle.report.html.pagemap import bar, regions, stray_figure
from oracle.report.html.pictures import LEGEND, Pictures
from oracle.report.outline import Cell, Drawing, Paragraph, Table
from oracle.report.parties import Names
from oracle.report.sections import outline
from oracle.report.tables import MATRIX, PROVENANCE, executed_by
from oracle.text import printable
from oracle.verdict import Configuration, Verdict

FAULTS_PER_SUBJECT = 50
_PLANES, _FAULTS = "Where each scale lives", "Planes with faults"
_PAGE, _ARTEFACTS = "The page, byte by byte", "Provenance"


def as_html(verdict: Verdict, exit_code: int, tool: Mapping[str, str]) -> str:
    """The page of a verdict; `exit_code` is that of the run, `tool` what wrote the verdict."""
    names, pictures = Names(verdict.subjects), Pictures()
    disagreements = drawn_disagreements(verdict, names, pictures)
    faults = drawn_faults(verdict, names, pictures)
    parts = outline(verdict, exit_code, FAULTS_PER_SUBJECT)
    # The answer and what the run comes to; a verdict about readers alone has only the latter.
    opening = [part for part in (parts[0], parts[-1]) if isinstance(part, Paragraph)]
    places = {info.id: place for place, info in enumerate(verdict.subjects)}
    told = [
        (part.title, section(part, disagreements.anchors, places))
        for part in parts
        # The page draws every plane by itself.
        if not isinstance(part, Paragraph | Drawing) and part.title != PROVENANCE
    ]
    _insert(told, MATRIX, _PLANES, _planes(disagreements.figures))
    if faults:
        _insert(told, "Faults", _FAULTS, _section(_FAULTS, _figures(faults)))
    told += [
        (_PAGE, _page(verdict, names)),
        (_ARTEFACTS, _provenance(verdict, tool)),
    ]
    header = element("header", element("h1", TITLE), *map(paragraph, opening))
    return _document(
        _navigation(title for title, _ in told),
        header,
        element("main", *(body for _, body in told)),
        pictures.definitions(),
        data(atlas(verdict, names), "atlas"),
    )


def _insert(told: list[tuple[str, Markup]], behind: str, title: str, body: Markup) -> None:
    """Put a section behind another, or behind the first where that is not there."""
    titles = [each for each, _ in told]
    told.insert(titles.index(behind) + 1 if behind in titles else 1, (title, body))


def _figures(figures: Iterable[Markup], identity: str | None = None) -> Markup:
    return element("div", *figures, class_="figures", id=identity)


def _planes(figures: Iterable[Markup]) -> Markup:
    return _section(_PLANES, LEGEND, explorer(), _figures(figures, "gallery"))


def _section(title: str, *inside: Markup) -> Markup:
    return element("section", element("h2", title), *inside, id=slug(title))


def _page(verdict: Verdict, names: Names) -> Markup:
    """The regions of the smallest page, and where bytes land that leave theirs."""
    known = [finding.configuration for finding in verdict.findings]
    if not known:
        return _section(_PAGE, element("div", bar(), id="page-bar"))
    part = regions(min(known, key=_bytes))
    astray = [(who, finding) for who, finding in faults_told(verdict, names) if finding.strays]
    figures = [
        stray_figure(
            f"{who}: {finding.side} {finding.plane} bytes outside their region, "
            f"{configuration_in_words(finding.configuration)}",
            finding.strays,
        )
        for who, finding in astray[:MAX_FIGURES]
    ]
    return _section(
        _PAGE,
        element("h3", part.title),
        element("div", bar(), id="page-bar"),
        table(part),
        *figures,
    )


def _bytes(configuration: Configuration) -> int:
    return configuration.geometry().page_bytes


def _provenance(verdict: Verdict, tool: Mapping[str, str]) -> Markup:
    """Who each subject is, in full, and what the verdict was made with."""
    cards = []
    for info in verdict.subjects:
        declared = [f"{side} {info.declared[side]}" for side in SIDES if side in info.declared]
        facts = {
            "role": info.role,
            "what it is": info.name,
            "executor": info.executor,
            "arch": info.arch,
            "kernel": info.kernel,
            "sha256": info.artifact_sha256,
            "declared": ", ".join(declared) or "nothing",
            "scale search": info.scale_search.value,
            "dtypes": ", ".join(info.dtypes),
        }
        rows = [
            element("div", element("dt", name), element("dd", printable(fact)))
            for name, fact in facts.items()
            if fact is not None
        ]
        cards.append(element("article", element("h3", printable(info.id)), element("dl", *rows)))
    made_with = Table(
        "Made with",
        ("what", "version"),
        tuple(
            (Cell(name), Cell(printable(version or "not there")))
            for name, version in (
                (tool["name"], tool["version"]),
                *verdict.environment.items(),
            )
        ),
        executed_by(verdict.launches),
    )
    return _section(
        _ARTEFACTS,
        element("div", *cards, class_="cards"),
        element("h3", made_with.title),
        table(made_with),
    )


def _navigation(titles: Iterable[str]) -> Markup:
    links = (
        element("li", element("a", title.partition(",")[0], href=f"#{slug(title)}"))
        for title in titles
    )
    return element("nav", element("ul", *links), aria_label="Sections")


def _document(*body: Markup) -> str:
    style, script = (
        resources.files("oracle.report.html").joinpath(name).read_text(encoding="utf-8")
        for name in ("page.css", "page.js")
    )
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", TITLE),
        element("style", Markup(style)),
    )
    whole = element("body", *body, element("script", Markup(script)))
    return f"<!DOCTYPE html>\n{element('html', head, whole, lang='en')}\n"


def _digest(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
