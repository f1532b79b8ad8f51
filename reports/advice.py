"""Which budget to set in production, and where more tokens hurt, in sentences."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.engines.endpoint import is_endpoint
from elastic_core.rewards.truth import LETTERS
from elastic_core.statistics.which_budget import SERVED, Choices, NonInferiority, Reason
from elastic_core.trajectory import CELL
from reports.content import Setting
from reports.summary import BASE, TRAINED
from reports.wording import MAX_NAMED, listed, ordered, plain, with_bounds


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
    worst, more = falls.row(0, named=True), falls.height - 1
    others = f"; {more} other line{' falls' if more == 1 else 's fall'} too" if more else ""
    fall = with_bounds(-worst["difference"], -worst["high"], -worst["low"])
    return [
        f"More tokens hurt: {worst['model']} on {worst['benchmark']} under {plain(worst['strategy'])} falls by {fall} "
        f"points from t = {worst['think_budget']} to t = {worst['next_budget']} (paired, {worst['num_problems']} "
        f"problems{others})."
    ]


def to_set(settings: Sequence[Setting]) -> str:
    """The second sentence of the first screen, in words without an interval."""
    measured = [each for each in settings if each.reason != Reason.UNMEASURED]
    if not measured:
        return "Which budget to set cannot be said: measure the strategies separate and unconstrained of one model."
    model, margin, known = measured[0].model, measured[0].margin, [each for each in measured if each.budget is not None]
    near = f"within {margin} of unlimited thinking"
    if not known:
        reasons = dict.fromkeys(each.reason for each in measured)
        if len(reasons) == 1:
            return f"No token budget of {model} is advised: {measured[0].reason}."
        places = {one: [each.benchmark for each in measured if each.reason == one] for one in reasons}
        why = "; ".join(f"on {listed(benchmarks)}, {one}" for one, benchmarks in places.items())
        return f"No token budget of {model} is advised: {why}."
    if len(known) > MAX_NAMED or len(settings) > MAX_NAMED:
        return f"On {len(known)} of {len(settings)} benchmarks a token budget keeps {model} {near}; they are below."
    named = " and ".join(f"{each.budget} for tasks like {each.benchmark}" for each in known)
    unknown = [each.benchmark for each in settings if each.budget is None]
    rest = f"; for {listed(unknown)} none is advised" if unknown else ""
    lost = f"at most {margin} below unlimited thinking"
    return f"Serve {model} with a token budget of {named}, which keeps it {lost}{rest}."


def settings(choices: Choices, summary: pl.DataFrame, model: str, margin: float, unit: str) -> list[Setting]:
    """What to give to `elastic serve --budget` for a model, by benchmark.

    Args:
        choices: of `choose_budgets`.
        summary: the cells.
        margin: of the advice, in [0, 1].
        unit: of costs.
    """
    found, points = [], f"{100 * margin:g} points"
    for benchmark in summary.filter(model=model)["benchmark"].unique().sort():
        row = choices[model, benchmark]
        if isinstance(row, Reason):
            reason = str(row).replace("the margin", points)
            found.append(Setting(benchmark, model, points, f"no budget is advised: {reason}", reason=reason))
            continue
        cell = summary.filter([pl.col(name).eq_missing(pl.lit(row[name])) for name in CELL]).row(0, named=True)
        budget = Budget(row["think_budget"], row["solution_budget"])
        found.append(Setting(benchmark, model, points, _told(row, cell, unit), budget))
    return found


def _told(row: Mapping[str, Any], cell: Mapping[str, Any], unit: str) -> str:
    accuracy = with_bounds(cell["avg_at_k"], cell["ci_low"], cell["ci_high"])
    lost = with_bounds(row["difference"], row["low"], row["high"], "+.1f")
    saved = with_bounds(row["saved"], row["saved_low"], row["saved_high"], "z.0f")
    return (
        f"{accuracy} % accurate, {lost} points from unlimited (one-sided bounds); {cell['tokens_mean']:,.0f} tokens "
        f"sampled a response; {unit} {row['cost']:,.0f}, {saved} % less than without a limit "
        f"({cell['num_problems']} problems × {cell['num_samples']} samples)"
    )


def guesses(problems: Iterable[Problem]) -> dict[str, float]:
    """Accuracy of guessing, in [0, 1], by benchmark: one of the options of a multiple choice, nothing elsewhere."""
    chances: dict[str, list[float]] = {}
    for problem in problems:
        chances.setdefault(problem.benchmark, []).append(1 / len(LETTERS) if problem.grader == "choice" else 0.0)
    return {name: sum(found) / len(found) for name, found in chances.items()}


def not_told(advice: pl.DataFrame, model: str) -> list[str]:
    """What the advice for a model cannot tell, as a sentence; none where no budget of it is measured.

    Args:
        advice: of `budget_advice`.
    """
    ours = advice.filter(model=model, strategy=SERVED)
    undecided = ours.filter(verdict=NonInferiority.UNDECIDED).height
    return [
        f"The advice covers neither budgets that were not measured nor other tasks than these benchmarks; {undecided} "
        f"of the {ours.height} budgets of {model} are undecided at this number of problems."
    ][: ours.height]


def command(setting: Setting, preset: str, places: Mapping[str, str | list[str]]) -> str:
    """What serves the model so; "" where there is no budget to set, or the model is behind a server already.

    Args:
        preset: that the model belongs to; "" where it is not known.
        places: as of `ReportSources`.
    """
    place = places.get(setting.model, setting.model)
    if setting.budget is None or isinstance(place, list) or is_endpoint(place):
        return ""
    of = ["--preset", preset] if preset else []
    return shlex.join(["elastic", "serve", *of, "--model", place, "--budget", str(setting.budget)])
