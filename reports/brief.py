"""The first screen of a report: what it found and what to set in production, in two sentences without an interval. They
say what `reports.verdict` and `reports.advice` say with every number, and nothing that these do not show."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.engines.endpoint import is_endpoint
from elastic_core.rewards.extraction import LETTERS
from elastic_core.statistics.which_budget import Choices, Reason
from elastic_core.trajectory import CELL
from reports.content import Setting
from reports.verdict import MAX_NAMED, Readable, in_words, unanswered
from reports.wording import listed, with_bounds


def brief(problems: pl.DataFrame, settings: Sequence[Setting], responses: Sequence[Readable]) -> list[str]:
    """What was found and what to set, in two sentences without an interval.

    Args:
        problems: of `reports.summary.cell_problems`.
        settings: of `settings`.
        responses: how many of each model's can be read.
    """
    read = "Read some of the responses below before anything else."
    return [in_words(problems, responses), read if unanswered(responses) else to_set(settings)]


def to_set(settings: Sequence[Setting]) -> str:
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
        why = "; ".join(f"on {listed(benchmarks, MAX_NAMED)}, {one}" for one, benchmarks in places.items())
        return f"No token budget of {model} is advised: {why}."
    if len(known) > MAX_NAMED or len(settings) > MAX_NAMED:
        return f"On {len(known)} of {len(settings)} benchmarks a token budget keeps {model} {near}; they are below."
    named = " and ".join(f"{each.budget} for tasks like {each.benchmark}" for each in known)
    unknown = [each.benchmark for each in settings if each.budget is None]
    rest = f"; for {listed(unknown, MAX_NAMED)} none is advised" if unknown else ""
    lost = f"at most {margin} below unlimited thinking"
    return f"Serve {model} with a token budget of {named}, which keeps it {lost}{rest}."


def settings(choices: Choices, summary: pl.DataFrame, model: str, margin: float) -> list[Setting]:
    """What to give to `elastic serve --budget` for a model, by benchmark.

    Args:
        choices: of `choose_budgets`.
        summary: the cells.
        margin: of the advice, in [0, 1].
    """
    found = []
    points = f"{100 * margin:g} points"
    for benchmark in summary.filter(model=model)["benchmark"].unique().sort():
        row = choices[model, benchmark]
        if isinstance(row, Reason):
            found.append(Setting(benchmark, model, points, reason=str(row).replace("the margin", points)))
            continue
        place = [pl.col(name).eq_missing(pl.lit(row[name])) for name in CELL]
        found.append(
            Setting(
                benchmark,
                model,
                points,
                Budget(row["think_budget"], row["solution_budget"]),
                row | summary.filter(place).row(0, named=True),
            )
        )
    return found


def guesses(problems: Iterable[Problem]) -> dict[str, float]:
    """Accuracy of guessing, in [0, 1], by benchmark: one of the options of a multiple choice, nothing elsewhere."""
    chances: dict[str, list[float]] = {}
    for problem in problems:
        chances.setdefault(problem.benchmark, []).append(1 / len(LETTERS) if problem.grader == "choice" else 0.0)
    return {name: sum(found) / len(found) for name, found in chances.items()}


def told(setting: Setting, unit: str) -> str:
    """The numbers behind what to set, or that there is nothing to set.

    Args:
        unit: of costs.
    """
    cell = setting.cell
    if setting.budget is None:
        return f"no budget is advised: {setting.reason}"
    accuracy = with_bounds(cell["avg_at_k"], cell["ci_low"], cell["ci_high"])
    saved = with_bounds(cell["saved"], cell["saved_low"], cell["saved_high"], "z.0f")
    return (
        f"{accuracy} % accurate, {cell['tokens_mean']:,.0f} tokens sampled a response; {unit} {cell['cost']:,.0f}, "
        f"{saved} % less than without a limit ({cell['num_problems']} problems × {cell['num_samples']} samples)"
    )


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
