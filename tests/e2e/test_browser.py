"""What tests of pages rest on: a page that reaches outside or reports an error fails its test."""

import pytest
from playwright.sync_api import Browser

from tests.browser import watched


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("<img src='http://192.0.2.1/pixel.png'>", r"asked for \['http://192.0.2.1/pixel.png'\]"),
        ("<script>new WebSocket('ws://192.0.2.1/')</script>", "asked for"),
        ("<script>console.error('no good')</script>", "reported .*no good"),
        ("<script>throw new Error('worse')</script>", "reported .*worse"),
    ],
)
def test_a_page_that_misbehaves_fails_its_test(browser: Browser, content: str, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint), watched(browser) as page:
        page.set_content(content)
