"""Which budget to set: what the next tokens buy and where they hurt, accuracy at any budget, where thinking goes."""

from __future__ import annotations

import polars as pl

from elastic_core.statistics.budgets import Distribution
from elastic_core.statistics.estimates import FREE
from elastic_core.statistics.responses import ResponseKind
from elastic_core.statistics.thinking import SUFFICIENT
from elastic_core.trajectory import CELL
from reports.content import ReportTable
from reports.tables import DIFFERENCE, estimate, readable
from reports.wording import budget_text, margin_text

_SHAPE = {"log-uniform": "uniform in log t", "uniform": "uniform in t"}
_LADDER = {
    "thinking budgets": pl.format("{} to {}", "smallest", "largest"),
    "solution": pl.col("solution_budget").cast(pl.String).fill_null("unlimited"),
}


def marginal(gains: pl.DataFrame) -> ReportTable | None:
    """What the next tokens buy. None where no two budgets are neighbours."""
    if gains.is_empty():
        return None
    name = "points per 100 tokens"
    steps = pl.col("think_budget").cast(pl.String), pl.col("next_budget").cast(pl.String).fill_null("unlimited")
    frame = gains.select(
        "benchmark",
        "model",
        "strategy",
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
    return ReportTable("marginal_accuracy", "What the next tokens buy", caption, readable(frame), frozenset({name}))


def advice(budgets: pl.DataFrame, costs: pl.DataFrame, unit: str) -> ReportTable | None:
    """The budget to set, per benchmark and model. None where none is advised, nor any near.

    Args:
        budgets: of `advised_budgets`.
        costs: of every cell, in `unit`.
    """
    if budgets.is_empty():
        return None
    margin = margin_text(budgets)
    name, saved = "difference from unconstrained", "saved (%)"
    frame = budgets.join(costs, on=CELL, nulls_equal=True, how="left").select(
        "benchmark",
        "model",
        pl.col("verdict").alias(f"within {margin}"),
        pl.col("strategy").str.replace_all("_", " "),
        budget=budget_text(),
        **{
            unit: pl.col("cost"),
            f"{unit}, p95": pl.col("p95"),
            **estimate(saved, "saved", ("saved_low", "saved_high")),
            **estimate(name, "difference", DIFFERENCE),
        },
        problems="num_problems",
        **{"problems that would decide": pl.col("problems_needed").cast(pl.Int64)},
    )
    caption = (
        f"The cheapest budget of separate budgeting whose accuracy is shown to be at most {margin} below "
        "unconstrained, by tests of non-inferiority from the largest budget down to the first that fails; that saves "
        "something, is better than guessing, and is not beaten by more than the margin. The bounds of the difference "
        "are one-sided, 95 % each. Undecided: a cheaper budget that is within the margin as measured, but not shown to "
        "be; the last column says how many problems like these would decide it. Saved is the share of an "
        "unconstrained response's cost."
    )
    return ReportTable("budget_advice", "Which budget to set", caption, frame, frozenset({name, saved}))


def falls(found: pl.DataFrame) -> ReportTable | None:
    """Where more tokens hurt. None where they do not."""
    if found.is_empty():
        return None
    name = "difference"
    frame = found.select(
        "benchmark",
        "model",
        "strategy",
        pl.format("{} → {}", "think_budget", "next_budget").alias("thinking budget"),
        **estimate(name, "difference", DIFFERENCE),
        problems="num_problems",
        trajectories="num_trajectories",
    )
    caption = (
        "The deepest fall of accuracy (avg@k) from a smaller thinking budget to a larger one, in points, paired by "
        "problem. Intervals hold for all pairs of budgets of a line together; lines without a fall are left out."
    )
    return ReportTable("falls", "Where more tokens hurt", caption, readable(frame), frozenset({name}))


def anytime(found: pl.DataFrame, distribution: Distribution) -> ReportTable | None:
    """Accuracy at a budget drawn at random. None without two limited budgets on a line."""
    if found.is_empty():
        return None
    frame = found.select(
        "benchmark",
        "model",
        "strategy",
        **_LADDER,
        **estimate("anytime accuracy (%)", "anytime"),
        problems="num_problems",
        trajectories="num_trajectories",
    )
    caption = (
        f"The mean of accuracy over thinking budgets t, {_SHAPE[distribution]} between the smallest and the largest "
        "measured."
    )
    return ReportTable("anytime_accuracy", "Accuracy at any budget", caption, readable(frame))


def anytime_compared(found: pl.DataFrame, distribution: Distribution) -> ReportTable | None:
    """Accuracy at a budget drawn at random, of two models. None without a pair."""
    if found.is_empty():
        return None
    name = "difference (points)"
    frame = found.select(
        "benchmark",
        pl.format("{} − {}", "second", "first").alias("compared"),
        pl.col("strategy").str.replace_all("_", " "),
        **_LADDER,
        **estimate(name, "difference", DIFFERENCE),
        problems="num_problems",
        trajectories="num_trajectories",
    )
    caption = (
        f"The mean over thinking budgets t, {_SHAPE[distribution]}, of one model's accuracy minus the other's, at the "
        "budgets that both were measured at; 95 % t-intervals of the problems' differences, over seeds of training too."
    )
    return ReportTable("anytime_differences", "Models at any budget", caption, frame, frozenset({name}))


def thinking(spent: pl.DataFrame) -> ReportTable | None:
    """What the thinking went into. None without a complete ladder of budgets."""
    if spent.is_empty():
        return None
    frame = spent.select(
        "benchmark",
        "model",
        "strategy",
        budget=pl.when(responses=FREE).then(pl.lit("unlimited")).otherwise(budget_text()),
        **estimate("needed", "needed", scale=1),
        **estimate("overthinking", "overthinking", scale=1),
        **estimate("futile", "futile", scale=1),
        **estimate("starved (%)", "starved"),
        **estimate("solved within t (%)", "solved_within"),
        problems="num_problems",
        trajectories="num_trajectories",
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
    return ReportTable("thinking_spent", "Where the thinking goes", caption, readable(frame))


def responses(kinds: pl.DataFrame) -> ReportTable | None:
    """How the responses of each cell end, from `elastic_core.statistics.responses.response_kinds`. None where all were
    answered."""
    if (kinds[ResponseKind.ANSWERED] == kinds["num_trajectories"]).all():
        return None
    frame = kinds.select(
        "benchmark",
        "model",
        "strategy",
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
    return ReportTable("responses", "How responses end", caption, readable(frame))
