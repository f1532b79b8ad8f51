"""The report as Markdown: verdict, figures, claims, a table per benchmark, and the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from elastic_core.budget import Budget
from elastic_core.escaping import Markdown, escaped
from elastic_core.trajectory import BUDGET
from reports.claims import Claim
from reports.content import ReportContent, ReportTable
from reports.drawing import plain, sampled
from reports.summary import is_partial, partial

MAX_LINES = 40
"""A longer table is left to its CSV file."""


def render_markdown(content: ReportContent) -> str:
    """The report's text, to lie in `content.directory`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("reports"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
        finalize=escaped,
    )
    summary = content.summary.with_columns(partial=partial())
    return environment.get_template("report.md.j2").render(
        verdict=content.verdict,
        coverage=content.coverage,
        provenance=[(_value(name), _value(value)) for name, value in content.provenance.items()],
        figures=[
            (figure.title, figure.caption, figure.png.relative_to(content.directory).as_posix())
            for figure in content.figures
        ],
        counted=_counted(content.claims),
        shown=_shown,
        claims=content.claims,
        partial=is_partial(content.summary),
        benchmarks=[
            _benchmark(name, summary.filter(benchmark=name), content.remarks.get(name, ""))
            for name in sorted(summary["benchmark"].unique())
        ],
        tables=[(table, _lines(table) if table.frame.height <= MAX_LINES else None) for table in content.tables],
    )


def _benchmark(name: str, cells: pl.DataFrame, remark: str) -> dict[str, Any]:
    return {
        "name": name,
        "sampled": sampled(cells["num_problems"].to_list(), cells["num_samples"].to_list()),
        "num_trajectories": cells["num_trajectories"].sum(),
        "accuracy": _table(cells, _accuracy),
        "tokens": _table(cells, _tokens),
        "remark": Markdown(remark),
    }


def _accuracy(cell: dict[str, Any]) -> str:
    mark = " †" if cell["partial"] else ""
    return f"{100 * cell['avg_at_k']:.1f} [{100 * cell['ci_low']:.1f}, {100 * cell['ci_high']:.1f}]{mark}"


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
    return _grid(
        header, [[budget, *(values.get(column, "") for column in columns)] for budget, values in shown.items()]
    )


def _lines(table: ReportTable) -> Markdown:
    return _grid(table.header, [[place.text for place in line] for line in table.lines])


def _grid(header: list[str], lines: list[list[str]]) -> Markdown:
    places = [header, ["---"] * len(header), *lines]
    return Markdown("\n".join(f"| {' | '.join(map(escaped, line))} |" for line in places))


def _counted(claims: list[Claim]) -> str:
    counts = {holds: sum(claim.holds is holds for claim in claims) for holds in (True, False, None)}
    return f"{counts[True]} hold, {counts[False]} do not, {counts[None]} could not be measured."


def _shown(holds: bool | None) -> Markdown:
    return Markdown({True: "holds", False: "**does not hold**", None: "not measured"}[holds])


def _value(value: Any) -> str:
    """A value of the provenance on one line."""
    if isinstance(value, dict):
        return "; ".join(f"{_value(name)} {_value(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    return str(value)
