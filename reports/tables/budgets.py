"""Which budget to set, the best under a limit of cost or of points given up, what the next tokens buy and where they
hurt, accuracy at any budget, where thinking goes."""

from __future__ import annotations

import polars as pl

from elastic_core.statistics.budgets import Distribution
from elastic_core.statistics.estimates import FREE
from elastic_core.statistics.responses import SUFFICIENT, ResponseKind
from elastic_core.statistics.which_budget import Reason
from elastic_core.trajectory import CELL
from reports.content import ReportTable
from reports.tables import COUNTS, DIFFERENCE, PLACE, estimate, readable, table_of
from reports.wording import budget_text

_SHAPE = {"log-uniform": "uniform in log t", "uniform": "uniform in t"}
_LADDER = {
    "thinking budgets": pl.format("{} to {}", "smallest", "largest"),
    "solution": pl.col("solution_budget").cast(pl.String).fill_null("unlimited"),
}

PICKED = (
    "Accuracy and cost are as measured. The most accurate of many cells is partly luck: “as good, maybe” counts the "
    "other cells under the limit that are not shown to be less accurate. The cheapest budget is certified to be at "
    "most so many points below responses without a limit, and shown to save something. If no budget is certified to be "
    "so near, the nearest is named."
)
"""What to know of `side_by_side`."""

_RUN = pl.format("{} at {}", pl.col("strategy").str.replace_all("_", " "), budget_text())
_WITHIN = ((1000 * pl.col("within")).round(6).ceil() / 10).round(1)  # Rounded up, in points.
_MISSED = {
    Reason.CAPPED: "none, too many were cut",
    Reason.NO_SAVING: "none that saves anything",
    Reason.GUESSING: "none, no better than guessing",
    Reason.BEATEN: "none, another is better",
}
"""What the rule says of budgets that are near enough."""
_NEAR = pl.col("reason").replace_strict({str(reason): text for reason, text in _MISSED.items()}, default=None)
_COUNTED = pl.format("{} of {}", "num_close", "num_others")
_CLOSE = pl.when(pl.col("num_others") > 0).then(_COUNTED).otherwise(pl.lit("none"))


def marginal(gains: pl.DataFrame) -> ReportTable | None:
    """What the next tokens buy. None where no two budgets are neighbours."""
    name = "points per 100 tokens"
    steps = pl.col("think_budget").cast(pl.String), pl.col("next_budget").cast(pl.String).fill_null("unlimited")
    frame = gains.select(
        *PLACE,
        pl.format("{} → {}", *steps).alias("thinking budget"),
        pl.col("tokens").alias("tokens before"),
        pl.col("next_tokens").alias("tokens after"),
        **estimate(name, "gain", DIFFERENCE),
        problems="num_problems",
    )
    caption = (
        "Accuracy gained from one thinking budget to the next, divided by the tokens that this costs. 95 % intervals: "
        "bootstrap over problems."
    )
    return table_of("marginal_accuracy", "What the next tokens buy", caption, readable(frame), name)


def advice(budgets: pl.DataFrame, costs: pl.DataFrame, unit: str) -> ReportTable | None:
    """The budget to set, per benchmark and model, from `advised_budgets` and the costs of every cell in `unit`. None
    where none is advised, nor any near."""
    if budgets.is_empty():
        return None
    margin = f"{100 * budgets['margin'][0]:g} points"
    name, saved = "difference from unconstrained", "saved (%)"
    frame = budgets.join(costs, on=CELL, nulls_equal=True, how="left").select(
        *("benchmark", "model"),
        pl.col("verdict").alias(f"within {margin}"),
        pl.col("strategy").str.replace_all("_", " "),
        budget=budget_text(),
        **{
            unit: pl.col("cost"),
            f"{unit}, p95": pl.col("p95"),
            **estimate(saved, "saved", ("saved_low", "saved_high")),
            **estimate(name, "difference", DIFFERENCE),
            "certified, points": _WITHIN,
        },
        problems="num_problems",
        **{"problems that would decide": pl.col("problems_needed").cast(pl.Int64)},
    )
    caption = (
        f"The cheapest budget of separate budgeting whose accuracy is certified to be at most {margin} below "
        "unconstrained, that saves something, is better than guessing, and is not beaten by more than the margin. "
        "Certified: so many points below at most, by tests that bet on the problems' losses, from the largest budget "
        "down to the first that fails; all of them together, of every model and benchmark, are wrong with a chance of "
        "at most 5 %. Undecided: a cheaper budget that is within the margin as measured, and not certified to be; the "
        "last column says about how many problems like these would decide it. Saved is the share of an unconstrained "
        "response's cost."
    )
    return table_of("budget_advice", "Which budget to set", caption, frame, name, saved)


def falls(found: pl.DataFrame) -> ReportTable | None:
    """Where more tokens hurt. None where they do not."""
    name = "difference"
    frame = found.select(
        *PLACE,
        pl.format("{} → {}", "think_budget", "next_budget").alias("thinking budget"),
        **estimate(name, "difference", DIFFERENCE),
        **COUNTS,
    )
    caption = (
        "The deepest fall of accuracy (avg@k) from a smaller thinking budget to a larger one, in points, paired by "
        "problem. Intervals hold for all pairs of budgets of a line together; lines without a fall are left out."
    )
    return table_of("falls", "Where more tokens hurt", caption, readable(frame), name)


def anytime(found: pl.DataFrame, distribution: Distribution) -> ReportTable | None:
    """Accuracy at a budget drawn at random. None without two limited budgets on a line."""
    frame = found.select(*PLACE, **_LADDER, **estimate("anytime accuracy (%)", "anytime"), **COUNTS)
    caption = (
        f"The mean of accuracy over thinking budgets t, {_SHAPE[distribution]} between the smallest and the largest "
        "measured."
    )
    return table_of("anytime_accuracy", "Accuracy at any budget", caption, readable(frame))


def anytime_compared(found: pl.DataFrame, distribution: Distribution) -> ReportTable | None:
    """Accuracy at a budget drawn at random, of two models. None without a pair."""
    name = "difference (points)"
    frame = found.select(
        "benchmark",
        pl.format("{} − {}", "second", "first").alias("compared"),
        pl.col("strategy").str.replace_all("_", " "),
        **_LADDER,
        **estimate(name, "difference", DIFFERENCE),
        **COUNTS,
    )
    caption = (
        f"The mean over thinking budgets t, {_SHAPE[distribution]}, of one model's accuracy minus the other's, at the "
        "budgets that both were measured at; 95 % t-intervals of the problems' differences, over seeds of training too."
    )
    return table_of("anytime_differences", "Models at any budget", caption, frame, name)


def thinking(spent: pl.DataFrame) -> ReportTable | None:
    """What the thinking went into. None without a complete ladder of budgets."""
    frame = spent.select(
        *PLACE,
        budget=pl.when(responses=FREE).then(pl.lit("unlimited")).otherwise(budget_text()),
        **estimate("needed", "needed", scale=1),
        **estimate("overthinking", "overthinking", scale=1),
        **estimate("futile", "futile", scale=1),
        **estimate("starved (%)", "starved"),
        **estimate("solved within t (%)", "solved_within"),
        **COUNTS,
    )
    caption = (
        "Thinking tokens per trajectory. b* of a problem is the smallest thinking budget such that this and every "
        f"larger one suffice, that is, the problem's samples score {SUFFICIENT:g} or more on average. It is read off "
        "one half of the samples, and all else is measured on the other half; so bad luck at a larger budget makes b* "
        "too large more often than good luck makes it too small. Needed: tokens up to b*; overthinking: tokens past "
        "it; futile: tokens on problems without b*; starved: thoughts cut below b*; solved within t: b* is at most t, "
        "and t suffices for the other half too. Unlimited: unconstrained responses. 95 % intervals: Student's t for "
        "tokens, Clopper-Pearson for shares."
    )
    return table_of("thinking_spent", "Where the thinking goes", caption, readable(frame))


def responses(kinds: pl.DataFrame) -> ReportTable | None:
    """How the responses of each cell end, from `response_kinds`. None where all were answered."""
    if (kinds[ResponseKind.ANSWERED] == kinds["num_trajectories"]).all():
        return None
    frame = kinds.select(
        *PLACE,
        budget=budget_text(),
        **{kind: kind for kind in ResponseKind},
        trajectories="num_trajectories",
        problems="num_problems",
        **estimate("accuracy (%)", "avg_at_k"),
        **{"not cut": "uncut_trajectories", "of problems": "uncut_problems"},
        **estimate("accuracy of these (%)", "uncut_avg_at_k"),
    )
    caption = (
        "How many trajectories end in which way. Cut in the thought: by the limit of both phases together, or by the "
        "end of the context, so there is no solution. Went on thinking: after a forced think-end, as a thought's words "
        "and markers in the solution show, whether or not the solution was cut. Empty: the model stopped without a "
        "word of a solution. Answered: a solution that the model ended. The accuracy of those not cut leaves out what "
        "a limit ended in either phase. Most of these are harder problems, so it is not the accuracy that a larger "
        "budget would give."
    )
    return table_of("responses", "How responses end", caption, readable(frame))


def under_limit(under: pl.DataFrame, unit: str) -> ReportTable | None:
    """The most accurate cell under a limit of cost, in `unit`. None without cells that can be compared."""
    frame = under.select(
        *("benchmark", "model"),
        **{f"{unit}, at most": pl.col("limit")},
        run=_RUN,
        **{unit: pl.col("cost")},
        **estimate("accuracy (%)", "accuracy"),
        **{"as good, maybe": _CLOSE},
        problems="num_problems",
    )
    caption = (
        "The most accurate cell, as measured, whose responses cost at most so much on average. Limits that change "
        "nothing are left out. The best of many cells is partly luck, and its interval does not take that into "
        "account: “as good, maybe” says how many of the other cells under the limit are not shown to be less accurate, "
        "by intervals that hold for all pairs of a model's cells together."
    )
    return table_of("best_under_limit", "The most accurate under a limit", caption, frame)


def within_points(within: pl.DataFrame, unit: str) -> ReportTable | None:
    """The cheapest budget, in `unit`, that gives up at most so many points. None without unconstrained responses."""
    name = "difference from unlimited"
    nearest = pl.format("none; nearest: {}, at most {} points worse", _RUN, _WITHIN)
    frame = _by_pick(within).select(
        *("benchmark", "model"),
        **{"points given up, at most": "points"},
        run=pl.when(pl.col("reason").is_null()).then(_RUN).otherwise(_NEAR.fill_null(nearest)),
        **{unit: pl.col("cost")},
        **estimate(name, "difference", DIFFERENCE),
        problems="num_problems",
    )
    caption = (
        "The budget to set for each number of points: the cheapest that is certified to be at most so many below "
        "responses without a limit, as in “Which budget to set”. If none is so near, the budget that comes nearest, "
        "and how many points it is certified to be within."
    )
    return table_of("cheapest_within_points", "The cheapest within so many points", caption, frame, name)


def _by_pick(within: pl.DataFrame) -> pl.DataFrame:
    """A row for each pick, with the points of all margins that it was picked for: "1, 2 or 5"; without numbers where
    one is near enough and the rule says that it is not to be set."""
    points = (100 * pl.col("margin")).round().cast(pl.Int64).cast(pl.String).str.join(", ")
    numbers = pl.when(_NEAR.is_null()).then(pl.col("cost", "difference", "low", "high"))
    return (
        within.group_by(*CELL, "verdict", "reason", maintain_order=True)
        .agg(pl.exclude("margin").first(), points=points.str.replace(r", (\d+)$", " or $1"))
        .with_columns(numbers)
    )


def side_by_side(under: pl.DataFrame, within: pl.DataFrame, unit: str, benchmark: str, model: str) -> list[ReportTable]:
    """Both in short, of one benchmark and model, as far as there are any."""
    place = {"benchmark": benchmark, "model": model}
    best, cheapest = under_limit(under.filter(**place), unit), within_points(within.filter(**place), unit)
    titles = {
        f"Most accurate, by {unit}": (best, ["problems", unit]),
        "Cheapest, by points given up": (cheapest, ["problems"]),
    }
    return [
        ReportTable("", title, PICKED, table.frame.drop(*place, *left_out).rename(_short), frozenset({"difference"}))
        for title, (table, left_out) in titles.items()
        if table is not None
    ]


def _short(name: str) -> str:
    return "at most" if name.endswith("at most") else name.replace(" from unlimited", "")
