"""A browser without a window, for tests that look at pages as a reader does.

It is the system's Chromium, driven by Playwright. Where one of the two is missing the tests skip;
with LAYOUT_ORACLE_REQUIRE_BROWSER=1 they fail, so that a CI run cannot pass them over.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

REQUIRED = "LAYOUT_ORACLE_REQUIRE_BROWSER"
EXECUTABLES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def missing() -> str | None:
    """Why there is no browser here, or None where there is one."""
    if find_spec("playwright") is None:
        return "playwright is not installed: pip install playwright"
    if executable() is None:
        return f"none of {', '.join(EXECUTABLES)} is installed: apt-get install chromium"
    return None


def executable() -> str | None:
    return next(filter(None, map(shutil.which, EXECUTABLES)), None)


def require() -> None:
    """Skip, or fail where a browser is required."""
    reason = missing()
    if reason is not None and os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{REQUIRED}=1, but {reason}")
    if reason is not None:
        pytest.skip(reason)


@contextmanager
def started() -> Iterator[Any]:
    """A browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable())
        try:
            yield browser
        finally:
            browser.close()


class Watch:
    """What a page did that it should not: messages, errors, dialogs and requests for anything."""

    def __init__(self, page: Any) -> None:
        self.seen: list[str] = []
        page.on("console", lambda message: self.seen.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.seen.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.seen.append("dialog"), dialog.dismiss()))
        page.on("request", self._request)

    def _request(self, request: Any) -> None:
        # The page itself is asked for once, as a file.
        if not request.is_navigation_request() or not request.url.startswith("file:"):
            self.seen.append(f"request: {request.url}")


@contextmanager
def opened(browser: Any, path: Path, **options: Any) -> Iterator[Any]:
    """A page of a file; fails at the end where it asked for anything or had an error."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    try:
        page = context.new_page()
        watch = Watch(page)
        page.goto(path.as_uri())
        yield page
        if watch.seen:
            pytest.fail(f"the page did what it should not: {'; '.join(watch.seen)}")
    finally:
        context.close()
