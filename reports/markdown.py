"""The report as Markdown: provenance, figures, claims, and a table per benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from elastic_core.budget import Budget
from reports.claims import Claim
from reports.drawing import sampled


def render_markdown(
    summary: pl.DataFrame,
    claims: list[Claim],
    figures: dict[str, Path],
    provenance: dict[str, Any],
    remarks: Mapping[str, str],
) -> str:
    """The report's text.

    Args:
        figures: caption → file, which must lie beside the report.
        provenance: what the numbers come from, name → value; a mapping is shown as a list of its pairs.
        remarks: Markdown for the part of a benchmark, by its name.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("reports"), undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    return environment.get_template("report.md.j2").render(
        provenance=[(_cell(name), _cell(value)) for name, value in provenance.items()],
        figures=[(caption, file.name) for caption, file in figures.items()],
        verdicts=_verdicts(claims),
        verdict=_verdict,
        claims=claims,
        benchmarks=[
            _benchmark(name, summary.filter(benchmark=name), remarks.get(name, ""))
            for name in sorted(summary["benchmark"].unique())
        ],
    )


def _benchmark(name: str, cells: pl.DataFrame, remark: str) -> dict[str, Any]:
    return {
        "name": name,
        "sampled": sampled(cells["num_problems"].to_list(), cells["num_samples"].to_list()),
        "num_trajectories": cells["num_trajectories"].sum(),
        "accuracy": _table(cells, _accuracy),
        "tokens": _table(cells, _tokens),
        "remark": remark,
    }


def _accuracy(cell: dict[str, Any]) -> str:
    return f"{100 * cell['avg_at_k']:.1f} [{100 * cell['ci_low']:.1f}, {100 * cell['ci_high']:.1f}]"


def _tokens(cell: dict[str, Any]) -> str:
    phases = f"{cell['think_tokens_mean']:.1f} + {cell['solution_tokens_mean']:.1f}"
    return f"{phases} ({100 * cell['forced_fraction']:.0f} %)" if cell["forced_fraction"] else phases


def _table(cells: pl.DataFrame, show: Callable[[dict[str, Any]], str]) -> str:
    """Budgets down, (model, strategy) across; an empty place where the table has no such cell."""
    columns = cells.select("model", "strategy").unique().sort("model", "strategy").rows()
    shown: dict[str, dict[tuple[Any, ...], str]] = {}
    for cell in cells.sort("think_budget", "solution_budget", nulls_last=True).iter_rows(named=True):
        budget = str(Budget(cell["think_budget"], cell["solution_budget"]))
        shown.setdefault(budget, {})[cell["model"], cell["strategy"]] = show(cell)
    lines = [["budget", *(f"{_cell(model)}, {strategy.replace('_', ' ')}" for model, strategy in columns)]]
    lines.append(["---"] * len(lines[0]))
    lines += [[budget, *(values.get(column, "") for column in columns)] for budget, values in shown.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _verdicts(claims: list[Claim]) -> str:
    counts = {holds: sum(claim.holds is holds for claim in claims) for holds in (True, False, None)}
    return f"{counts[True]} hold, {counts[False]} do not, {counts[None]} could not be measured."


def _verdict(holds: bool | None) -> str:
    return {True: "holds", False: "**does not hold**", None: "not measured"}[holds]


def _cell(value: Any) -> str:
    """A value that cannot break a Markdown table."""
    if isinstance(value, dict):
        return "; ".join(f"{_cell(name)} {_cell(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    return " ".join(str(value).split()).replace("|", r"\|")
