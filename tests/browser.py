"""Pages in a real browser: Debian's Chromium, headless, driven by playwright.

`page` is what most tests need. It reaches files and loopback only, and its test fails at the end if the page wrote an
error to the console, threw, or asked for anything elsewhere. tests/e2e/conftest.py offers both fixtures to every test
there.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, WebSocketRoute, expect, sync_playwright

_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PAGE_MS = 600_000
"""How long a page may take to show what a test expects. Playwright's 5 s are too few where the machine is busy."""
expect.set_options(timeout=PAGE_MS)
_INSIDE_SCHEMES = ("file", "data", "blob", "about")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Of one module and no longer: as long as it lives its event loop runs here, where others may call asyncio.run."""
    executable = shutil.which("chromium")
    if executable is None:
        pytest.fail(
            "no chromium on the PATH, which browser tests run in; "
            "install it, for example: sudo apt-get install --no-install-recommends chromium"
        )
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=_FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with watched(browser) as page:
        yield page


@contextmanager
def watched(browser: Browser, **context: Any) -> Iterator[Page]:
    """A page of its own.

    Args:
        context: what `Browser.new_context` takes, such as viewport or color_scheme.

    Raises:
        AssertionError: when the block succeeds, but the page reported errors or asked for something outside.
    """
    errors: list[str] = []
    outside: list[str] = []

    def keep_inside(route: Route) -> None:
        if _is_inside(route.request.url):
            route.continue_()
        else:
            outside.append(route.request.url)
            route.abort()

    def keep_socket_inside(socket: WebSocketRoute) -> None:
        if _is_inside(socket.url):
            socket.connect_to_server()
        else:
            outside.append(socket.url)
            socket.close()

    with browser.new_context(**context) as tabs:
        tabs.route("**/*", keep_inside)
        tabs.route_web_socket("**/*", keep_socket_inside)
        tabs.set_default_timeout(PAGE_MS)
        page = tabs.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        try:
            yield page
            # Events arrive in order: after an answer of the page, all that it did before is known.
            if not page.is_closed():
                page.evaluate("0")
        except Exception as error:
            error.add_note(f"the page reported {errors} and asked for {outside}")
            raise
    assert not outside, f"the page asked for {outside}"
    assert not errors, f"the page reported {errors}"


def _is_inside(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in _INSIDE_SCHEMES or parts.hostname in _LOOPBACK
