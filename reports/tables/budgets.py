"""Which budget to set, the best under a limit of cost or of points given up, gains and falls between budgets, accuracy
at any budget, use of the thinking."""

from __future__ import annotations

import polars as pl

from elastic_core.statistics.budgets import Distribution
from elastic_core.statistics.responses import SUFFICIENT, ResponseKind
from elastic_core.statistics.which_budget import Reason
from elastic_core.strategies import FREE
from elastic_core.trajectory import CELL
from reports.content import ReportTable
from reports.tables import COUNTS, DIFFERENCE, PLACE, estimate, readable, table_of
from reports.wording import budget_text, texts

_SHAPE = {"log-uniform": "uniform in log t", "uniform": "uniform in t"}
_LADDER = {
    "thinking budgets": pl.format("{} to {}", "smallest", "largest"),
    "solution": pl.col("solution_budget").cast(pl.String).fill_null("unlimited"),
}

_RUN = pl.format("{} at {}", pl.col("strategy").str.replace_all("_", " "), budget_text())
_WITHIN = ((1000 * pl.col("within")).round(6).ceil() / 10).round(1)  # Rounded up, in points.
_MISSED = {
    Reason.CAPPED: "None: too many were cut",
    Reason.NO_SAVING: "None saves anything",
    Reason.GUESSING: "None: no better than guessing",
    Reason.BEATEN: "None: another is better",
}
"""What the rule says of budgets that are near enough."""
_NEAR = pl.col("reason").replace_strict({str(reason): text for reason, text in _MISSED.items()}, default=None)
_COUNTED = pl.format("{} of {}", "num_close", "num_others")
_CLOSE = pl.when(pl.col("num_others") > 0).then(_COUNTED).otherwise(pl.lit("none"))


def marginal(gains: pl.DataFrame) -> ReportTable | None:
    """Gains per 100 tokens. None where no two budgets are neighbours."""
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
    return table_of("marginal_accuracy", readable(frame), name)


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
            **estimate(saved, "saved"),
            **estimate(name, "difference", DIFFERENCE),
            "certified, points": _WITHIN,
        },
        problems="num_problems",
        **{"problems that would decide": pl.col("problems_needed").cast(pl.Int64)},
    )
    return table_of("budget_advice", frame, name, saved, margin=margin)


def falls(found: pl.DataFrame) -> ReportTable | None:
    """Falls of accuracy with more tokens. None where there are none."""
    name = "difference"
    frame = found.select(
        *PLACE,
        pl.format("{} → {}", "think_budget", "next_budget").alias("thinking budget"),
        **estimate(name, "difference", DIFFERENCE),
        **COUNTS,
    )
    return table_of("falls", readable(frame), name)


def anytime(found: pl.DataFrame, distribution: Distribution) -> ReportTable | None:
    """Accuracy at a budget drawn at random. None without two limited budgets on a line."""
    frame = found.select(*PLACE, **_LADDER, **estimate("anytime accuracy (%)", "anytime"), **COUNTS)
    return table_of("anytime_accuracy", readable(frame), shape=_SHAPE[distribution])


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
    return table_of("anytime_differences", frame, name, shape=_SHAPE[distribution])


def thinking(spent: pl.DataFrame) -> ReportTable | None:
    """The use of thinking tokens. None without a complete ladder of budgets."""
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
    return table_of("thinking_spent", readable(frame), sufficient=f"{SUFFICIENT:g}")


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
    return table_of("responses", readable(frame))


def leaks(found: pl.DataFrame) -> ReportTable | None:
    """Solutions after forced think-ends, from `leaked`. None where no budget forced any."""
    frame = found.select(
        *PLACE,
        budget=budget_text(),
        **estimate("leak (%)", "leak"),
        **estimate("with a marker (%)", "marked"),
        **estimate("empty (%)", "empty"),
        **estimate("solution tokens, forced end", "after_forced", scale=1),
        **estimate("solution tokens, own end", "after_own", scale=1),
        **COUNTS,
    )
    return table_of("leaks", readable(frame))


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
    return table_of("best_under_limit", frame)


def within_points(within: pl.DataFrame, unit: str) -> ReportTable | None:
    """The cheapest budget, in `unit`, that gives up at most a number of points. None without unconstrained
    responses."""
    name = "difference from unlimited"
    nearest = pl.format("None. Nearest: {}, at most {} points worse", budget_text(), _WITHIN)
    frame = _by_pick(within).select(
        *("benchmark", "model"),
        **{"points given up, at most": "points"},
        run=pl.when(pl.col("reason").is_null()).then(_RUN).otherwise(_NEAR.fill_null(nearest)),
        **{unit: pl.col("cost")},
        **estimate(name, "difference", DIFFERENCE),
        problems="num_problems",
    )
    return table_of("cheapest_within_points", frame, name)


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
        f"Most accurate of {model}, by {unit}": (best, ["problems", unit]),
        f"Cheapest of {model}, by points given up": (cheapest, ["problems"]),
    }
    picked, signed = texts("shared")["picked"], frozenset({"difference"})
    return [
        ReportTable("", title, picked, table.frame.drop(*place, *left_out).rename(_short), signed)
        for title, (table, left_out) in titles.items()
        if table is not None
    ]


def _short(name: str) -> str:
    return "at most" if name.endswith("at most") else name.replace(" from unlimited", "")
