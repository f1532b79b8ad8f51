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
from elastic_core.statistics.estimates import Estimate
from elastic_core.statistics.which_budget import Choices, Reason
from elastic_core.trajectory import CELL
from reports.claims import BASE
from reports.content import Setting
from reports.verdict import Pair, Readable, pairs_of
from reports.wording import with_bounds

_MAX_NAMED = 3
"""Of more benchmarks a sentence counts, and names none."""


def brief(problems: pl.DataFrame, settings: Sequence[Setting], responses: Sequence[Readable]) -> list[str]:
    """Two sentences.

    Args:
        problems: of `reports.summary.cell_problems`.
        settings: of `settings`.
        responses: how many of each model's can be read.
    """
    if responses and all(each.num_answered == 0 for each in responses):
        return [
            "Nothing can be read from this comparison: no response holds an answer that the grader can read.",
            "Read some of the responses below before anything else.",
        ]
    closed = not responses or any(each.num_closed for each in responses)
    return [_found(problems, closed), _to_set(settings)]


def _found(problems: pl.DataFrame, closed: bool) -> str:
    pairs = pairs_of(problems)
    if not pairs:
        models = problems["model"].unique().sort()
        if len(models) == 1:
            return f"Only {models[0]} was measured, so there is nothing to compare it with."
        return f"{', '.join(models)} were measured, and no two of them under the same budgets on the same problems."
    if not closed:
        return "No difference can be read, as no thought was closed by its model."
    return _one(pairs[0]) if len(pairs) == 1 else _many(pairs)


def _one(pair: Pair) -> str:
    subject = {
        "Training": "training makes the model",
        "Separate budgeting": "limiting thought and answer apart, instead of cutting the response off, makes the model",
    }.get(pair.subject, f"{pair.subject} is, compared with {BASE},")
    differences = {name: estimate for name, (estimate, _) in pair.found.items()}
    more = {name: each for name, each in differences.items() if each.low > 0}
    less = {name: each for name, each in differences.items() if each.high < 0}
    if not more and not less:
        return f"Under a token budget {subject} neither more nor less accurate, as far as these problems show."
    sides = (("more", more), ("less", less))
    parts = [f"{word} accurate {_where(found, len(differences))}" for word, found in sides if found]
    same = [name for name in differences if name not in more and name not in less]
    if same:
        parts.append(f"neither on {_listed(same)}, as far as these problems show")
    return f"Under a token budget {subject} {', '.join(parts)}."


def _where(found: dict[str, Estimate], num_benchmarks: int) -> str:
    """ "by 12 points on easy and by 15 points on hard"."""
    if num_benchmarks <= _MAX_NAMED:
        named = [f"by {100 * abs(each.mean):.0f} points on {name}" for name, each in found.items()]
        return " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))
    sizes = sorted(100 * abs(each.mean) for each in found.values())
    return f"on {len(found)} of {num_benchmarks} benchmarks, by {sizes[0]:.0f} to {sizes[-1]:.0f} points"


def _many(pairs: list[Pair]) -> str:
    """How many of the models, and none by name: to name only the best of many would flatter it."""
    estimates = [[estimate for estimate, _ in pair.found.values()] for pair in pairs]
    more = sum(any(each.low > 0 for each in found) for found in estimates)
    less = sum(any(each.high < 0 for each in found) for found in estimates)
    counts = [
        f"{count} {'is' if count == 1 else 'are'} {word} accurate on some benchmark"
        for word, count in (("more", more), ("less", less))
        if count
    ]
    shown = " and ".join(counts) or "none is shown to differ"
    return f"Of {len(pairs)} models compared with {BASE} under a token budget, {shown}."


def _listed(names: Sequence[str]) -> str:
    return f"{len(names)} others" if len(names) > _MAX_NAMED else " and ".join(names)


def _to_set(settings: Sequence[Setting]) -> str:
    measured = [each for each in settings if each.reason != Reason.UNMEASURED]
    if not measured:
        return "Which budget to set cannot be said: measure the strategies separate and unconstrained of one model."
    model, margin, known = measured[0].model, measured[0].margin, [each for each in measured if each.budget is not None]
    near = f"within {margin} of unlimited thinking"
    if not known:
        reasons = dict.fromkeys(each.reason for each in measured)
        if len(reasons) == 1:
            return f"No token budget of {model} is advised: {measured[0].reason}."
        listed = "; ".join(
            f"on {_listed([each.benchmark for each in measured if each.reason == one])}, {one}" for one in reasons
        )
        return f"No token budget of {model} is advised: {listed}."
    if len(known) > _MAX_NAMED or len(settings) > _MAX_NAMED:
        return f"On {len(known)} of {len(settings)} benchmarks a token budget keeps {model} {near}; they are below."
    named = " and ".join(f"{each.budget} for tasks like {each.benchmark}" for each in known)
    unknown = [each.benchmark for each in settings if each.budget is None]
    rest = f"; for {_listed(unknown)} none is advised" if unknown else ""
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
