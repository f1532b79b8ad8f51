"""What to run in production, and where more tokens hurt, in sentences with every interval and count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl

from elastic_core.budget import Budget
from elastic_core.statistics.which_budget import SERVED, Choices, NonInferiority, Reason
from reports.claims import BASE, TRAINED
from reports.wording import margin_text, ordered, plain, with_bounds


def main_model(models: Iterable[str]) -> str:
    """The model that a report advises on: the trained one; else the only one beside base that is not a pair of models;
    else base, or where there is none the first by name."""
    names = ordered(models, BASE)
    single = [name for name in names if name != BASE and ">" not in name]
    if TRAINED in names:
        return TRAINED
    return single[0] if len(single) == 1 else names[0]


def more_tokens_hurt(falls: pl.DataFrame) -> list[str]:
    """A sentence on the deepest of `falls`, if there is any: what people decide by may be the wrong way round."""
    if falls.is_empty():
        return []
    worst = falls.row(0, named=True)
    more = falls.height - 1
    others = f"; {more} other line{' falls' if more == 1 else 's fall'} too" if more else ""
    return [
        f"More tokens hurt: {worst['model']} on {worst['benchmark']} under {plain(worst['strategy'])} falls by "
        f"{-100 * worst['difference']:.1f} points [{-100 * worst['high']:.1f}, {-100 * worst['low']:.1f}] from t = "
        f"{worst['think_budget']} "
        f"to t = {worst['next_budget']} (paired, {worst['num_problems']} problems{others})."
    ]


def production(advice: pl.DataFrame, advised: pl.DataFrame, choices: Choices, model: str, unit: str) -> list[str]:
    """What to run, on each benchmark, of a model. Its cost in `unit`, how sure it is, and what it rests on; last, what
    cannot be told from this.

    Args:
        advice, advised, choices: of `elastic_core.statistics.which_budget`.
    """
    ours = advice.filter(model=model, strategy=SERVED)
    if ours.is_empty():
        return []
    best = advised.filter(model=model)
    sentences = []
    for benchmark in ours["benchmark"].unique().sort():
        found, choice = best.filter(benchmark=benchmark).to_dicts(), choices[model, benchmark]
        sentences.append(_advised(benchmark, model, found, choice, margin_text(advice), unit))
    undecided = ours.filter(verdict=NonInferiority.UNDECIDED).height
    return [
        *sentences,
        f"What this cannot tell: budgets that were not measured, other tasks than these benchmarks; {undecided} of the "
        f"{ours.height} budgets of {model} are undecided at this number of problems.",
    ]


def _advised(
    benchmark: str, model: str, found: list[dict[str, Any]], choice: dict[str, Any] | Reason, margin: str, unit: str
) -> str:
    nearest = [row for row in found if row["verdict"] == NonInferiority.UNDECIDED]
    if isinstance(choice, dict):
        row = choice
        saved = with_bounds(row["saved"], row["saved_low"], row["saved_high"], ".0f")
        text = (
            f"On {benchmark} {_cell(row)} keeps {model} at most {margin} less accurate than unconstrained: {unit} "
            f"{row['cost']:,.0f}, {saved} % less (difference {_interval(row)} points, one-sided bounds, "
            f"{row['num_problems']} problems)."
        )
    else:
        text = f"On {benchmark} no budget of {model} is advised: {str(choice).replace('the margin', margin)}."
    if nearest:
        row = nearest[0]
        if row["low"] >= -row["margin"]:
            why = "a larger budget, which is tested before it, is not shown to be within the margin"
        elif row["problems_needed"]:
            why = f"about {row['problems_needed']:,.0f} problems like these would decide it"
        else:
            why = "no number of problems decides it"
        text += (
            f" Cheaper, within the margin as measured and undecided: {_cell(row)} ({unit} {row['cost']:,.0f}, "
            f"difference {_interval(row)}); {why}."
        )
    return text


def _cell(row: dict[str, Any]) -> str:
    return f"{plain(row['strategy'])} at {Budget(row['think_budget'], row['solution_budget'])}"


def _interval(row: dict[str, Any]) -> str:
    return with_bounds(row["difference"], row["low"], row["high"], "+.1f")
