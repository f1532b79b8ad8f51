"""The report as one HTML file with everything in it, a reader of the trajectories included.

The page holds all trajectories of a small table, and whole problems of a large one. It asks the network for nothing,
and its policy forbids it to.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

import polars as pl

from elastic_core.system.files import write_text
from elastic_core.trajectory import BUDGET
from reports.advice import command
from reports.content import ReportContent, ReportFigure, Verdict
from reports.markdown import TITLE, as_address, template
from reports.page.chart import CAPTION, DRAWING, main_chart
from reports.page.payload import build_payload, draw_problems
from reports.summary import is_partial
from reports.tables.budgets import PICKED
from reports.tables.comparisons import every_cell
from reports.wording import METHOD, one_line

_STYLES = ("base.css", "brief.css", "chart.css", "tables.css", "figures.css", "reader.css", "detail.css")
_SCRIPTS = (
    "elements.js", "tables.js", "chart.js", "payload.js", "trajectories.js", "search.js", "text.js", "list.js",
    "detail.js", "address.js", "map.js", "reader.js", "start.js",
)  # fmt: skip
"""Each may use what those before it define."""
_VERDICTS = {Verdict.HOLDS: "right", Verdict.FAILS: "wrong"}
"""Of verdicts, on the page; the others are unknown."""


def write_page(content: ReportContent, path: Path) -> None:
    """Write the report as one HTML file; an earlier one is replaced. Rows are read twice, never wholly in memory."""
    rows = content.sources.rows
    page_of = template("report.html.j2", autoescape=True, trim_blocks=True, lstrip_blocks=True)
    drawing = draw_problems(rows)
    payload = build_payload(rows, drawing.problems, content.sources.problems)
    style, scripts = styles(*_STYLES), [_asset(name) for name in _SCRIPTS]
    page = page_of.render(
        title=TITLE,
        method=METHOD,
        picked=PICKED,
        chart=main_chart(content.priced, content.settings, content.unit),
        drawing=DRAWING,
        caption=CAPTION,
        settings={each.benchmark: each for each in content.settings},
        commands=_commands(content),
        policy=policy(style, scripts),
        style=style,
        scripts=scripts,
        content=content,
        verdicts=_VERDICTS,
        totals=_totals(content.summary),
        figures=[_figure(figure, content.directory) for figure in content.figures],
        tables=[*content.tables, every_cell(content.summary)],
        partial=is_partial(content.summary),
        remarks=[(name, _html(remark)) for name, remark in content.sources.remarks.items()],
        provenance=[(name, one_line(value)) for name, value in content.sources.provenance.items()],
        documents=[
            (name, json.dumps(value, indent=2, ensure_ascii=False)) for name, value in content.sources.documents.items()
        ],
        held=drawing.note(len(payload.chunks), payload.num_trajectories),
        payload=payload,
    )
    write_text(path, page)


def styles(*names: str) -> str:
    """The style sheets of these names, as one."""
    return "".join(map(_asset, names))


def _asset(name: str) -> str:
    return (files("reports") / "assets" / name).read_text(encoding="utf-8")


def policy(style: str, scripts: Iterable[str]) -> str:
    """Nothing but the page's own style, scripts and pictures: what slipped through escaping could still not run."""
    return (
        f"default-src 'none'; img-src data:; style-src {_digest(style)}; "
        f"script-src {' '.join(map(_digest, scripts))}; base-uri 'none'; form-action 'none'"
    )


def _digest(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def _totals(summary: pl.DataFrame) -> list[tuple[str, str]]:
    counts = {
        ("trajectory", "trajectories"): summary["num_trajectories"].sum(),
        ("benchmark", "benchmarks"): summary.n_unique("benchmark"),
        ("model", "models"): summary.n_unique("model"),
        ("strategy", "strategies"): summary.n_unique("strategy"),
        ("budget", "budgets"): summary.n_unique(BUDGET),
    }
    return [(one if count == 1 else many, f"{count:,}") for (one, many), count in counts.items()]


def _figure(figure: ReportFigure, directory: Path) -> dict[str, str]:
    return {
        "title": figure.title,
        "caption": figure.caption,
        "source": as_address(figure),
        "file": str(figure.data.relative_to(directory)),
    }


def _html(markdown: str) -> str:
    from markdown_it import MarkdownIt

    return str(MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown))


def _commands(content: ReportContent) -> dict[str, list[str]]:
    """What serves the model as advised, and for which benchmarks."""
    found: dict[str, list[str]] = {}
    for setting in content.settings:
        text = command(setting, content.sources.preset, content.sources.places)
        if text:
            found.setdefault(text, []).append(setting.benchmark)
    return found
