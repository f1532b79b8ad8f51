"""What to run under a limit: of cost, and of points given up. Their frames are those of
`elastic_core.statistics.choices`: `under` of `best_under`, `within` of `cheapest_within`."""

from __future__ import annotations

import polars as pl

from elastic_core.statistics.simultaneous import NonInferiority
from elastic_core.trajectory import CELL
from reports.content import ReportTable
from reports.tables import DIFFERENCE, estimate
from reports.wording import budget_text

PICKED = (
    "Accuracy and cost are as measured. The most accurate of many cells is partly luck: “as good, maybe” counts the "
    "other cells under the limit that are not shown to be less accurate. The cheapest budget is shown to be at most so "
    "many points below responses without a limit, by tests from the largest budget down; its bounds are one-sided. If "
    "no budget is shown to be so near, the nearest is named."
)
"""What to know of `side_by_side`."""

_RUN = pl.format("{} at {}", pl.col("strategy").str.replace_all("_", " "), budget_text())
_HOLDS = pl.col("verdict") == NonInferiority.HOLDS
_CLOSE = (
    pl.when(pl.col("num_others") > 0).then(pl.format("{} of {}", "num_close", "num_others")).otherwise(pl.lit("none"))
)


def under_limit(under: pl.DataFrame, unit: str) -> ReportTable | None:
    """The most accurate cell under a limit of cost, in `unit`. None without cells that can be compared."""
    if under.is_empty():
        return None
    frame = under.select(
        "benchmark",
        "model",
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
    return ReportTable("best_under_limit", "The most accurate under a limit", caption, frame)


def within_points(within: pl.DataFrame, unit: str) -> ReportTable | None:
    """The cheapest budget, in `unit`, that gives up at most so many points. None without unconstrained responses."""
    if within.is_empty():
        return None
    name = "difference from unlimited"
    # Rounded up: it is shown to be within so many.
    nearest = pl.format("none; nearest: {} (within {})", _RUN, (-1000 * pl.col("low")).ceil() / 10)
    frame = _by_pick(within).select(
        "benchmark",
        "model",
        **{"points given up, at most": "points"},
        run=pl.when(_HOLDS).then(_RUN).otherwise(nearest),
        **{unit: pl.col("cost")},
        **estimate(name, "difference", DIFFERENCE),
        problems="num_problems",
    )
    caption = (
        "The cheapest budget that is shown to be at most so many points below responses without a limit. If there is "
        "none, the budget that comes nearest, and how many points it is shown to be within. Budgets are tested from "
        "the largest down to the first that fails; the bounds are one-sided, 95 % each."
    )
    title = "The cheapest within so many points"
    return ReportTable("cheapest_within_points", title, caption, frame, frozenset({name}))


def _by_pick(within: pl.DataFrame) -> pl.DataFrame:
    """A row for each pick, with the points of all margins that it was picked for: "1, 2 or 5"."""
    points = (100 * pl.col("margin")).round().cast(pl.Int64).cast(pl.String).str.join(", ")
    return within.group_by(*CELL, "verdict", maintain_order=True).agg(
        pl.exclude("margin").first(), points=points.str.replace(r", (\d+)$", " or $1")
    )


def side_by_side(under: pl.DataFrame, within: pl.DataFrame, unit: str, benchmark: str, model: str) -> list[ReportTable]:
    """Both in short, of one benchmark and model, as far as there are any."""
    place = {"benchmark": benchmark, "model": model}
    under, within = under.filter(**place), _by_pick(within.filter(**place))
    best = under.select(
        at_most=pl.col("limit").map_elements(lambda limit: f"{limit:,g}", pl.String),
        run=_RUN,
        **estimate("accuracy (%)", "accuracy"),
        **{"as good, maybe": _CLOSE},
    )
    cheapest = within.select(
        at_most=pl.format("{} point{}", "points", pl.when(points="1").then(pl.lit("")).otherwise(pl.lit("s"))),
        run=pl.when(_HOLDS).then(_RUN).otherwise(pl.format("none; nearest {}", _RUN)),
        **estimate("difference", "difference", DIFFERENCE),
        **{unit: pl.col("cost")},
    )
    titles = {f"Most accurate, by {unit}": best, "Cheapest, by points given up": cheapest}
    return [
        ReportTable("", title, PICKED, frame.rename({"at_most": "at most"}), frozenset({"difference"}))
        for title, frame in titles.items()
        if frame.height
    ]
