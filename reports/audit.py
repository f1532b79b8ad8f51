"""An audit of a server (elastic_core.audit) as text for the terminal, as Markdown and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elastic_core.audit.run import TABLE, Audit
from elastic_core.system.files import escaped, write_text
from reports.page import policy, styles, template

PAGE = "audit.html"
_MARKS = {"kept": "✓", "broken": "✗", "unseen": "?"}


def audit_text(found: Audit, changes: Sequence[str] | None, markdown: bool) -> str:
    """The audit for a terminal, or as Markdown; `changes` since an earlier one, None without one."""
    name, finalize = (
        ("audit.md.j2", lambda value: escaped(_printable(value))) if markdown else ("audit.txt.j2", _printable)
    )
    shape = template(name, autoescape=False, trim_blocks=True, lstrip_blocks=True, finalize=finalize)
    return shape.render(_content(found, changes))


def write_audit_page(found: Audit, changes: Sequence[str] | None, path: Path) -> None:
    """Write the audit as one HTML file that needs no network and runs no script."""
    style = styles("base.css", "brief.css", "tables.css")
    page = template("audit.html.j2", autoescape=True, trim_blocks=True, lstrip_blocks=True)
    write_text(path, page.render(_content(found, changes), style=style, policy=policy(style, [])))


def _printable(value: Any) -> str:
    """Text of the server's without what would move a terminal's cursor."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in str(value))


def _content(found: Audit, changes: Sequence[str] | None) -> dict[str, Any]:
    """What the templates show: fields by what they ask for, and by what the server did."""
    verdicts = dict(TABLE["verdicts"])
    by_text = verdicts.pop("exact_by_text")
    verdicts["exact"] = by_text if found.counted_by == "text" else verdicts["exact"]
    ways = {
        title: {
            words: group
            for verdict, words in verdicts.items()
            if (group := [each for each in found.ways if each.verdict == verdict and each.says == says])
        }
        for says, title in (("number", "a number of thinking tokens"), ("none", "no thought"))
    }
    return {"audit": found, "ways": ways, "changes": changes, "marks": _MARKS}
