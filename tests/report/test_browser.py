"""The page in a browser: what a reader sees, points at and types, on a screen and on paper."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import browsers
import pytest
from browsers import Watch, opened
from documents import mutants, references, spelled
from outlines import sections, texts
from verdicts import HOSTILE, reader, settled

from oracle.candidates import candidate
from oracle.geometry import SIDES
from oracle.report.digest import configuration_in_words
from oracle.report.document import TOOL
from oracle.report.html.atlas import configurations
from oracle.report.html.page import as_html
from oracle.report.planes import plane_of
from oracle.report.tables import MATRIX
from oracle.verdict import Verdict

PANELS = "#panels .plane"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    browsers.require()
    with browsers.started() as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


def written(folder: Path, name: str, made: Verdict) -> Path:
    path = folder / f"{name}.html"
    if not path.exists():
        path.write_text(as_html(made, made.exit_code, TOOL), encoding="utf-8")
    return path


@pytest.fixture
def usual(browser: Any, folder: Path) -> Iterator[Any]:
    """The page of two writers and three readers."""
    with opened(browser, written(folder, "usual", references())) as page:
        yield page


@pytest.fixture
def faulty(browser: Any, folder: Path) -> Iterator[Any]:
    """The page of every broken kernel."""
    with opened(browser, written(folder, "faulty", mutants())) as page:
        yield page


def chosen(page: Any, selector: str) -> str:
    """The name that a choice shows."""
    text: str = page.eval_on_selector(selector, "choice => choice.selectedOptions[0].textContent")
    return text


def cell(page: Any, panel: int, token: int, column: int) -> Any:
    return (
        page.locator(PANELS).nth(panel).locator(f'[data-token="{token}"][data-column="{column}"]')
    )


def readout(page: Any) -> list[str]:
    lines: list[str] = page.locator("#readout p").all_text_contents()
    return lines


# ---- Reading -------------------------------------------------------------------------------------


def test_the_matrix_says_what_the_report_says(usual: Any) -> None:
    rows = usual.locator("#who-reads-where-whom-stored tbody tr")
    shown = [
        [" ".join(cell.split()).lstrip("✓✗≠ ") for cell in row.locator("th, td").all_inner_texts()]
        for row in rows.all()
    ]
    assert shown == texts(sections(references())[MATRIX])


def test_a_comparison_opens_where_it_disagrees(usual: Any) -> None:
    usual.get_by_role("button", name="K and V disagree").click()
    assert chosen(usual, "#stored-by") == "reference:k=linear,v=linear"
    assert chosen(usual, "#looked-for-by") == "vllm-dequant-pin"
    assert usual.locator('input[name="side"]').nth(0).is_checked()
    assert usual.inner_text("#state") == "≠ They disagree about 96 of 128 scales of a page."
    assert usual.locator('td button[aria-pressed="true"]').count() == 1
    usual.get_by_role("button", name="agree", exact=True).first.click()
    assert usual.inner_text("#state") == "They agree about all 128 scales of a page."


def test_pointing_at_a_scale_says_where_both_have_it(usual: Any) -> None:
    """Against the specification: the writer swizzles V, the reader takes it for linear."""
    usual.get_by_role("button", name="V disagrees").first.click()
    assert chosen(usual, "#looked-for-by") == "flashinfer-fa2"
    geometry = configurations(references())[0].geometry()
    swizzled = candidate("swizzle_4x4").table(16, 4)
    for token, column in ((0, 0), (2, 3), (15, 1)):
        cell(usual, 0, token, column).hover()
        put, sought = int(swizzled[token, column]), 4 * token + column
        bytes_of = [geometry.scale_offset("V", 0, 0, *divmod(at, 4)) for at in (put, sought)]
        there = divmod(int((swizzled.ravel() == sought).argmax()), 4)
        assert readout(usual) == [
            f"head 0, token {token}, column {column}",
            f"reference:k=linear,v=swizzle_4x4 stores it at offset {put}, row {put // 4}, "
            f"col {put % 4}: byte {bytes_of[0]:,} of the page",
            f"flashinfer-fa2 looks at offset {sought}, row {sought // 4}, col {sought % 4}: "
            f"byte {bytes_of[1]:,} of the page",
            "= Both are the same byte." if put == sought
            else f"≠ What is there is the scale of token {there[0]}, column {there[1]}.",
        ]  # fmt: skip


def test_another_head_is_other_bytes(usual: Any) -> None:
    usual.fill("#head", "1")
    usual.press("#head", "Enter")
    cell(usual, 0, 0, 1).hover()
    assert readout(usual)[0] == "head 1, token 0, column 1"
    place = configurations(references())[0].geometry().scale_offset("V", 0, 1, 1, 0)
    assert readout(usual)[1].endswith(f": byte {place:,} of the page")
    usual.fill("#head", "7")
    usual.press("#head", "Enter")
    assert usual.input_value("#head") == "1"


LABELS = """panel => [...panel.querySelectorAll('[role=gridcell]')].map(
    cell => cell.getAttribute('aria-label').replace(', differs', ''))"""


def test_every_plane_is_drawn_as_it_was_found(usual: Any) -> None:
    """Every cell of every geometry and side, of the writer and the reader that are chosen."""
    made = references()
    found = {(f.subject, f.side, f.configuration): f for f in made.findings if f.plane == "scale"}
    who = ("reference:k=linear,v=swizzle_4x4", "flashinfer-fa2")
    for side_at, side in enumerate(SIDES):
        usual.locator('input[name="side"]').nth(side_at).check()
        for configuration in configurations(made):
            usual.select_option("#geometry", label=configuration_in_words(configuration))
            for panel, subject in enumerate(who):
                plane = plane_of(found[subject, side, configuration])
                assert plane is not None
                tokens, columns = plane.place.shape
                assert usual.locator(PANELS).nth(panel).evaluate(LABELS) == [
                    f"token {t}, column {s}: {plane.in_words(t, s)}"
                    for t in range(tokens)
                    for s in range(columns)
                ]


DRAWN = """panel => [...panel.querySelectorAll('.cell')].map(cell => [
    cell.getAttribute('class'), cell.querySelector('rect').getAttribute('x'),
    cell.querySelector('rect').getAttribute('y'), cell.querySelector('text').textContent])"""


def test_the_script_draws_what_is_drawn_without_it(usual: Any) -> None:
    usual.get_by_role("button", name="V disagrees").first.click()
    figure = usual.locator("#gallery figure").filter(has_text="flashinfer-fa2 disagrees")
    for panel in (0, 1):
        picture = figure.locator("svg.plane").nth(panel)
        name = picture.locator("use").get_attribute("href")
        assert usual.locator(PANELS).nth(panel).evaluate(DRAWN) == usual.locator(name).evaluate(
            DRAWN
        )
        corners = (
            usual.locator(PANELS)
            .nth(panel)
            .locator(".corner")
            .evaluate_all("all => all.map(corner => corner.getAttribute('d')).join('')")
        )
        assert corners == picture.locator(".corner").get_attribute("d")


def test_what_is_declared_and_named_layouts_can_be_compared(usual: Any) -> None:
    usual.select_option("#looked-for-by", label="what is declared")
    assert usual.inner_text("#state") == "All 64 scales of a head are in the same place."
    usual.select_option("#looked-for-by", label="layout linear")
    assert usual.inner_text("#state") == "≠ 48 of 64 scales of a head differ."


def test_a_verdict_with_faults_opens_at_one(faulty: Any) -> None:
    assert chosen(faulty, "#stored-by") == "mutant:t%4 dropped"
    assert chosen(faulty, "#looked-for-by") == "what is declared"
    assert faulty.inner_text("#state") == "≠ 48 of 64 scales of a head differ."


def test_what_lands_elsewhere_is_told(faulty: Any) -> None:
    faulty.select_option("#stored-by", label="mutant:one head off")
    faulty.select_option("#looked-for-by", label="what is declared")
    faulty.locator('input[name="side"]').nth(1).check()
    cell(faulty, 0, 1, 2).hover()
    # The table is of the head of the witness, and so the head is given.
    assert readout(faulty)[0] == "head 1, token 1, column 2"
    assert (
        readout(faulty)[1] == "mutant:one head off stores it at page+1 K data, head 0, row 0, col 9"
    )
    assert readout(faulty)[3] == "≠ What is there is no scale of this head."
    faulty.select_option("#stored-by", label="mutant:t%4 dropped")
    cell(faulty, 0, 1, 0).hover()
    assert readout(faulty)[1].endswith(", shared with token 0, column 0")
    assert faulty.locator(PANELS).nth(0).locator(".shared").count() == 64


# ---- Keyboard ------------------------------------------------------------------------------------


def test_tables_of_different_heads_are_not_compared(browser: Any, folder: Path) -> None:
    """One is drawn, and nothing is said about the two together."""
    made = spelled()
    odd = next(found for found in made.findings if found.table is not None)
    assert odd.table is not None
    looks = reader("looks")
    other = replace(
        odd, subject=looks.id, declared=None, table=replace(odd.table, head=0, runs=((1, 2, 96),))
    )
    both = replace(made, subjects=(*made.subjects, looks), findings=(*made.findings, other))
    with opened(browser, written(folder, "apart", both)) as page:
        page.select_option("#looked-for-by", label="looks")
        page.select_option("#geometry", label=configuration_in_words(odd.configuration))
        assert page.locator(PANELS).count() == 1
        assert "of another head" in page.inner_text("#state")
        assert page.locator("#panels .corner").count() == 0
        cell(page, 0, 0, 0).hover()
        assert not [line for line in readout(page) if line.startswith(("≠", "="))]


def test_a_plane_is_walked_with_the_keyboard(usual: Any) -> None:
    usual.get_by_role("button", name="V disagrees").first.click()
    usual.focus("#head")
    usual.keyboard.press("Tab")
    walk = {
        "": (0, 0), "ArrowRight": (0, 1), "ArrowDown": (1, 1), "End": (1, 3), "ArrowLeft": (1, 2),
        "PageDown": (5, 2), "PageUp": (1, 2), "ArrowUp": (0, 2), "Home": (0, 0),
    }  # fmt: skip
    for key, (token, column) in walk.items():
        if key:
            usual.keyboard.press(key)
        assert readout(usual)[0] == f"head 0, token {token}, column {column}"
        assert usual.locator(PANELS).nth(0).locator('[tabindex="0"]').count() == 1
        focused = usual.evaluate("document.activeElement.getAttribute('aria-label')")
        assert focused.startswith(f"token {token}, column {column}: offset")
    for key in ("ArrowUp", "ArrowLeft", "PageUp"):
        usual.keyboard.press(key)
        assert readout(usual)[0] == "head 0, token 0, column 0"
    usual.keyboard.press("Tab")
    second = "document.activeElement.closest('.panel').previousSibling !== null"
    assert usual.evaluate(second)


def test_everything_can_be_reached_with_the_keyboard(usual: Any) -> None:
    reached = set()
    for _ in range(60):
        usual.keyboard.press("Tab")
        reached.add(usual.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {
        "A",
        "BUTTON",
        "stored-by",
        "looked-for-by",
        "geometry",
        "head",
        "g",
        "SUMMARY",
    } <= reached


# ---- Light, dark, narrow, on paper, without a script ---------------------------------------------


def colours(page: Any) -> tuple[str, ...]:
    return tuple(
        page.eval_on_selector(selector, f"e => getComputedStyle(e).{name}")
        for selector, name in (
            ("body", "backgroundColor"), ("body", "color"), ("#panels .r0 rect", "fill"),
            ("#panels .r0 text", "fill"),
        )
    )  # fmt: skip


def test_it_is_light_or_dark_as_the_reader_likes(browser: Any, folder: Path) -> None:
    seen = {}
    for scheme in ("light", "dark"):
        with opened(browser, written(folder, "usual", references()), color_scheme=scheme) as page:
            seen[scheme] = colours(page)
    assert all(a != b for a, b in zip(seen["light"], seen["dark"], strict=True))
    assert seen["light"][0] == "rgb(253, 253, 251)"
    assert seen["dark"][0] == "rgb(20, 22, 26)"


def test_paper_is_light_and_has_the_planes(browser: Any, folder: Path) -> None:
    with opened(browser, written(folder, "usual", references()), color_scheme="dark") as page:
        assert page.locator("#gallery").is_hidden()
        page.emulate_media(media="print", color_scheme="dark")
        assert page.locator("#gallery figure").nth(3).is_visible()
        assert page.locator("#explorer").is_hidden()
        assert page.locator("nav").is_hidden()
        assert page.eval_on_selector("body", "e => getComputedStyle(e).backgroundColor") == (
            "rgb(253, 253, 251)"
        )
        assert len(page.pdf(format="A4")) > 20_000


def test_what_is_folded_is_unfolded_for_paper(usual: Any) -> None:
    folded = "document.querySelectorAll('details:not([open])').length"
    before = usual.evaluate(folded)
    assert before > 0
    usual.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert usual.evaluate(folded) == 0
    usual.evaluate("dispatchEvent(new Event('afterprint'))")
    assert usual.evaluate(folded) == before


@pytest.mark.parametrize("name", ["usual", "faulty"])
def test_a_narrow_window_needs_no_sideways_scrolling(name: str, browser: Any, folder: Path) -> None:
    made = references() if name == "usual" else mutants()
    narrow = {"width": 360, "height": 740}
    with opened(browser, written(folder, name, made), viewport=narrow) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_without_a_script_the_answer_and_the_planes_are_there(browser: Any, folder: Path) -> None:
    path = written(folder, "usual", references())
    with opened(browser, path, java_script_enabled=False) as page:
        assert "vllm-dequant-pin disagrees on K" in page.inner_text("header")
        assert page.locator("#explorer").is_hidden()
        assert page.locator("#gallery figure svg.plane").count() == 8
        page.get_by_role("link", name="V disagrees").first.click()
        assert page.url.endswith("#disagreement-2") or page.url.endswith("#disagreement-3")
        assert page.locator("figure:target").is_visible()


# ---- Nothing gets in -----------------------------------------------------------------------------


def test_a_name_does_nothing(browser: Any, folder: Path) -> None:
    made = settled(f"{HOSTILE}</script><img src=x onerror=alert(1)>")
    with opened(browser, written(folder, "hostile", made)) as page:
        assert page.locator("img").count() == 0
        assert page.locator("#stored-by option").count() == 1
        cell(page, 0, 0, 0).hover()
        assert "onerror=alert(1)" in readout(page)[1]


def test_the_policy_stops_what_would_get_in(browser: Any, folder: Path) -> None:
    path = written(folder, "usual", references())
    text = path.read_text(encoding="utf-8")
    for extra in (
        "<script>document.title = 'in'</script>",
        "<img src='https://example.org/x.png' onerror=\"document.title = 'in'\">",
        "<style>body { display: none }</style>",
    ):
        broken = folder / "broken.html"
        broken.write_text(text.replace("</body>", f"{extra}</body>"), encoding="utf-8")
        page = browser.new_page()
        watch = Watch(page)
        page.goto(broken.as_uri())
        assert page.title() == "Layout verdict"
        assert page.locator("h1").is_visible()
        assert any("Content Security Policy" in told for told in watch.seen)
        page.close()


def test_what_a_page_does_wrong_is_seen(browser: Any) -> None:
    page = browser.new_page()
    watch = Watch(page)
    page.set_content("<script>console.log('told'); alert(1); missing()</script>")
    assert [each.split(":")[0] for each in watch.seen] == ["console", "dialog", "error"]
    page.close()


# ---- Where there is no browser -------------------------------------------------------------------


def test_a_missing_browser_is_a_skip_unless_it_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(browsers, "EXECUTABLES", ("no-such-browser",))
    monkeypatch.setattr(browsers, "find_spec", lambda name: name)
    monkeypatch.delenv(browsers.REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-browser"):
        browsers.require()
    monkeypatch.setenv(browsers.REQUIRED, "1")
    with pytest.raises(pytest.fail.Exception, match="no-such-browser"):
        browsers.require()
    monkeypatch.setattr(browsers, "find_spec", lambda name: None)
    with pytest.raises(pytest.fail.Exception, match="playwright"):
        browsers.require()
