"""The paths of docs/architecture.md, as the page says them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.traced import PROJECT

PAGE = PROJECT / "docs" / "architecture.md"
_LEFT_OUT = "Left out below:"


def listed(path: str) -> list[str]:
    """Files of the path whose heading is this, in the page's order."""
    (section,) = re.findall(rf"^## {re.escape(path)}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return re.findall(r"^\d+\. \[`([^`]+)`\]", section, re.MULTILINE)


def shown(traced: Iterable[str]) -> list[str]:
    """Files of a trace that a path lists: the page says which ones none does."""
    (paragraph,) = re.findall(rf"^{_LEFT_OUT}(.*?)\n\n", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    left_out = tuple(re.findall(r"`([^`]+)`", paragraph))
    return [file for file in traced if file.endswith(".py") and not file.startswith(left_out)]
