"""The report as one HTML file with everything in it, a reader of the trajectories included; and as Markdown, with its
figures and longer tables in files.

The page holds all trajectories of a small table, and a part of the problems of a large one. Its policy forbids it any
network.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from elastic_core.budget import Budget
from elastic_core.system.files import Markdown, escaped, write_text
from elastic_core.trajectory import BUDGET
from reports.content import ReportFigure, Verdict
from reports.page.chart import DRAWING, main_chart
from reports.page.payload import build_payload, draw_problems
from reports.summary import is_partial, partial
from reports.tables import grid
from reports.tables.comparisons import every_cell
from reports.verdict import counted
from reports.wording import one_line, plain, sampled, texts, with_bounds

if TYPE_CHECKING:
    from jinja2 import Template

    from reports.build import Report

MAX_LINES = 40  # A longer table is left to its CSV file.

_STYLES = (
    "base.css", "brief.css", "chart.css", "tables.css", "figures.css", "reader.css", "detail.css", "print.css",
)  # fmt: skip
_SCRIPTS = (
    "elements.js", "tables.js", "chart.js", "payload.js", "trajectories.js", "search.js", "text.js", "list.js",
    "detail.js", "address.js", "map.js", "reader.js", "start.js",
)  # fmt: skip
"""Each may use what those before it define."""
_VERDICTS = {Verdict.HOLDS: "right", Verdict.FAILS: "wrong"}  # Of verdicts, on the page; the others are unknown.


def write_page(content: Report, path: Path) -> None:
    """Write the report as one HTML file; an earlier one is replaced. Rows are read twice, never wholly in memory."""
    from markdown_it import MarkdownIt

    rows, to_html = content.sources.rows, MarkdownIt("commonmark", {"html": False}).enable("table").render
    page_of = template("report.html.j2", autoescape=True, trim_blocks=True, lstrip_blocks=True)
    drawing = draw_problems(rows)
    payload = build_payload(rows, drawing.problems, content.sources.problems)
    style, scripts = styles(*_STYLES), [_asset(name) for name in _SCRIPTS]
    counts = {
        ("trajectory", "trajectories"): content.summary["num_trajectories"].sum(),
        ("benchmark", "benchmarks"): content.summary.n_unique("benchmark"),
        ("model", "models"): content.summary.n_unique("model"),
        ("strategy", "strategies"): content.summary.n_unique("strategy"),
        ("budget", "budgets"): content.summary.n_unique(BUDGET),
    }
    page = page_of.render(
        title="Accuracy under a token budget",
        texts=texts("shared"),
        chart=main_chart(content.priced, content.settings, content.unit),
        drawing=DRAWING,
        settings={each.benchmark: each for each in content.settings},
        commands=content.next_commands,
        begin=min(content.settings, key=lambda each: (each.budget is None, each.nearest is None)),
        policy=policy(style, scripts),
        style=style,
        scripts=scripts,
        content=content,
        verdicts=_VERDICTS,
        totals=[(one if count == 1 else many, f"{count:,}") for (one, many), count in counts.items()],
        figures=[(each, as_address(each), each.data.relative_to(content.directory)) for each in content.figures],
        tables=[*content.tables, every_cell(content.summary)],
        partial=is_partial(content.summary),
        remarks=[(name, to_html(remark)) for name, remark in content.sources.remarks.items()],
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
    """Allow the page's style, scripts and pictures alone: markup that slipped through escaping still could not run."""
    return (
        f"default-src 'none'; img-src data:; style-src {_digest(style)}; "
        f"script-src {' '.join(map(_digest, scripts))}; base-uri 'none'; form-action 'none'"
    )


def _digest(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def render_markdown(content: Report) -> str:
    """The report's text, to lie in `content.directory`."""
    figures = [
        (figure.title, figure.caption, figure.png.relative_to(content.directory).as_posix())
        for figure in content.figures
    ]
    return _markdown(content, figures)


def render_artifact(content: Report) -> str:
    """The report's text to be shown by itself, with the main figure in it and no other."""
    return _markdown(content, [(each.title, each.caption, Markdown(as_address(each))) for each in content.figures[:1]])


def as_address(figure: ReportFigure) -> str:
    """The smaller of a figure's pictures, as an address that holds it."""
    file = min(figure.svg, figure.png, key=lambda file: file.stat().st_size)
    kind = {".svg": "image/svg+xml", ".png": "image/png"}[file.suffix]
    return f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode()}"


def _markdown(content: Report, figures: list[tuple[str, str, str]]) -> str:
    text = template("report.md.j2", keep_trailing_newline=True, autoescape=False, finalize=escaped)
    summary = content.summary.with_columns(partial=partial())
    return text.render(
        texts=texts("shared"),
        content=content,
        code=lambda text: text if {"`", "\n"} & {*text} else Markdown(f"`{text}`"),
        provenance=[(name, one_line(value)) for name, value in content.sources.provenance.items()],
        figures=figures,
        counted=counted(content.claims),
        shown=lambda verdict: Markdown(f"**{verdict}**" if verdict is Verdict.FAILS else verdict),
        partial=is_partial(content.summary),
        benchmarks=[
            {
                "name": name,
                "sampled": sampled(cells),
                "num_trajectories": cells["num_trajectories"].sum(),
                "accuracy": _table(cells, _accuracy),
                "tokens": _table(cells, _tokens),
                "remark": Markdown(content.sources.remarks.get(name, "")),
            }
            for (name,), cells in summary.sort("benchmark").partition_by("benchmark", as_dict=True).items()
        ],
        tables=[
            (each, grid(each.header, [[place.text for place in line] for line in each.lines]))
            if each.frame.height <= MAX_LINES
            else (each, None)
            for each in content.tables
        ],
    )


def _accuracy(cell: dict[str, Any]) -> str:
    return with_bounds(cell["avg_at_k"], cell["ci_low"], cell["ci_high"]) + (" †" if cell["partial"] else "")


def _tokens(cell: dict[str, Any]) -> str:
    phases = f"{cell['think_tokens_mean']:.1f} + {cell['solution_tokens_mean']:.1f}"
    return f"{phases} ({100 * cell['forced_fraction']:.0f} %)" if cell["forced_fraction"] else phases


def _table(cells: pl.DataFrame, show: Callable[[dict[str, Any]], str]) -> Markdown:
    """Budgets down, (model, strategy) across; an empty place where the table has no such cell."""
    columns = cells.select("model", "strategy").unique().sort("model", "strategy").rows()
    shown: dict[str, dict[tuple[Any, ...], str]] = {}
    for cell in cells.sort(*BUDGET, nulls_last=True).iter_rows(named=True):
        budget = str(Budget(cell["think_budget"], cell["solution_budget"]))
        shown.setdefault(budget, {})[cell["model"], cell["strategy"]] = show(cell)
    header = ["budget", *(f"{model}, {plain(strategy)}" for model, strategy in columns)]
    return grid(header, [[budget, *(values.get(column, "") for column in columns)] for budget, values in shown.items()])


def template(name: str, **options: Any) -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(loader=PackageLoader("reports"), undefined=StrictUndefined, **options).get_template(name)
