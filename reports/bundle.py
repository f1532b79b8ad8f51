"""A static site of several reports: a directory for each, with its results as records of Every Eval Ever, and an index.

Each report leaves a card, and the index is made of the cards that are there: a site grows report by report.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from elastic_core.errors import UserError
from elastic_core.system.files import write_text
from reports.build import build_report
from reports.content import ReportContent, ReportSources
from reports.exchange import file_name, write_records
from reports.markdown import template
from reports.page import policy, styles

CARD = "card.json"
_PATHS = ("table", "command")
"""Of the provenance, what has them."""
_KEYS = {"name", "brief", "date", "models", "benchmarks", "num_trajectories", "records"}


def add_report(sources: ReportSources, name: str, site: Path) -> ReportContent:
    """Build a report as `name` of a site; one of the same name is replaced. Its index is left to `write_index`."""
    when = datetime.now(UTC)
    directory = site / file_name(name)
    # A site is for others to read, who need no paths of this machine.
    provenance = {key: value for key, value in sources.provenance.items() if key not in _PATHS}
    content = build_report(replace(sources, provenance=provenance), directory)
    records = write_records(content.summary, sources, when, directory / "every_eval_ever")
    card = {
        "name": name,
        "brief": content.brief,
        "date": when.date().isoformat(),
        "models": sorted(content.summary["model"].unique()),
        "benchmarks": sorted(content.summary["benchmark"].unique()),
        "num_trajectories": content.summary["num_trajectories"].sum(),
        "records": [file.relative_to(directory).as_posix() for file in records],
    }
    write_text(directory / CARD, json.dumps(card, indent=1, ensure_ascii=False) + "\n")
    return content


def write_index(site: Path) -> Path:
    """Write index.html of the reports that lie in a site, the newest first.

    Raises:
        UserError: when a card is none.
    """
    cards = [(file.parent.name, _read(file)) for file in sorted(site.glob(f"*/{CARD}"))]
    cards.sort(key=lambda each: each[1]["date"], reverse=True)
    style = styles("base.css", "brief.css", "bundle.css")
    page = template("bundle.html.j2", autoescape=True, trim_blocks=True, lstrip_blocks=True)
    write_text(site / "index.html", page.render(style=style, policy=policy(style, []), cards=cards))
    return site / "index.html"


def _read(file: Path) -> dict[str, Any]:
    try:
        card = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        card = None
    if not isinstance(card, dict) or not card.keys() >= _KEYS:
        raise UserError(
            f"{file}: found no card of a report; expected JSON with {', '.join(sorted(_KEYS))}: remove the directory, "
            "or build its report again with elastic report --bundle"
        )
    return card
