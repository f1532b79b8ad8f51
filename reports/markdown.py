"""The report as Markdown, with its figures and longer tables in files beside it."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl

from elastic_core.budget import Budget
from elastic_core.system.files import Markdown, escaped
from elastic_core.trajectory import BUDGET
from reports.content import Claim, ReportContent, ReportFigure, ReportTable, Verdict
from reports.summary import is_partial, partial
from reports.wording import METHOD, one_line, plain, sampled, with_bounds

if TYPE_CHECKING:
    from jinja2 import Template

MAX_LINES = 40
"""A longer table is left to its CSV file."""

TITLE = "Accuracy under a token budget"


def render_markdown(content: ReportContent) -> str:
    """The report's text, to lie in `content.directory`."""
    figures = [
        (figure.title, figure.caption, figure.png.relative_to(content.directory).as_posix())
        for figure in content.figures
    ]
    return _markdown(content, figures)


def render_artifact(content: ReportContent) -> str:
    """The report's text to be shown by itself, with the main figure in it and no other."""
    return _markdown(content, [(each.title, each.caption, Markdown(as_address(each))) for each in content.figures[:1]])


def as_address(figure: ReportFigure) -> str:
    """The smaller of a figure's pictures, as an address that holds it."""
    file = min(figure.svg, figure.png, key=lambda file: file.stat().st_size)
    kind = {".svg": "image/svg+xml", ".png": "image/png"}[file.suffix]
    return f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode()}"


def _markdown(content: ReportContent, figures: list[tuple[str, str, str]]) -> str:
    text = template("report.md.j2", keep_trailing_newline=True, autoescape=False, finalize=escaped)
    summary = content.summary.with_columns(partial=partial())
    return text.render(
        method=METHOD,
        brief=" ".join(content.brief),
        settings=content.settings,
        verdict=content.verdict,
        advice=content.advice,
        coverage=content.coverage,
        provenance=[(name, one_line(value)) for name, value in content.sources.provenance.items()],
        figures=figures,
        counted=_counted(content.claims),
        shown=_shown,
        claims=content.claims,
        partial=is_partial(content.summary),
        benchmarks=[
            _benchmark(name, summary.filter(benchmark=name), content.sources.remarks.get(name, ""))
            for name in sorted(summary["benchmark"].unique())
        ],
        tables=[(table, _lines(table) if table.frame.height <= MAX_LINES else None) for table in content.tables],
    )


def _benchmark(name: str, cells: pl.DataFrame, remark: str) -> dict[str, Any]:
    return {
        "name": name,
        "sampled": sampled(cells),
        "num_trajectories": cells["num_trajectories"].sum(),
        "accuracy": _table(cells, _accuracy),
        "tokens": _table(cells, _tokens),
        "remark": Markdown(remark),
    }


def _accuracy(cell: dict[str, Any]) -> str:
    mark = " †" if cell["partial"] else ""
    return with_bounds(cell["avg_at_k"], cell["ci_low"], cell["ci_high"]) + mark


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


def _lines(table: ReportTable) -> Markdown:
    return grid(table.header, [[place.text for place in line] for line in table.lines])


def grid(header: list[str], lines: list[list[str]]) -> Markdown:
    """A table of these names and lines; plain text is escaped."""
    places = [header, ["---"] * len(header), *lines]
    return Markdown("\n".join(f"| {' | '.join(map(escaped, line))} |" for line in places))


def _counted(claims: list[Claim]) -> str:
    counts = Counter(claim.verdict for claim in claims)
    return (
        f"{counts[Verdict.HOLDS]} hold, {counts[Verdict.FAILS]} do not, {counts[Verdict.UNDECIDED]} are undecided, "
        f"{counts[Verdict.NOT_MEASURED]} could not be measured."
    )


def _shown(verdict: Verdict) -> Markdown:
    return Markdown(f"**{verdict}**" if verdict is Verdict.FAILS else verdict)


def template(name: str, **options: Any) -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(loader=PackageLoader("reports"), undefined=StrictUndefined, **options).get_template(name)
