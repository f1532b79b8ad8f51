"""The tables of a report. Shares are in percent, differences in points, lengths in tokens per trajectory.

They are made of the cells, `summary`, and of what `elastic_core.statistics` computes of a whole table: `differences` by
`paired_differences`, `gains` by `marginal_accuracy`, `budgets` by `budget_advice`, `spent` by `thinking_spent`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import polars as pl
import polars.selectors as cs

from elastic_core.statistics.budgets import MARGIN, SUFFICIENT, cheapest_budgets
from elastic_core.statistics.estimates import FREE
from elastic_core.statistics.variance import variance_split
from elastic_core.strategies.reasonflux_zero import REASONFLUX_ZERO
from elastic_core.trajectory import BUDGET
from reports.content import HIGH, LOW, ReportTable, Training
from reports.summary import ACCURACY, partial, stated_budget
from reports.wording import budget_text, plain

SWAP = ">"
SEPARATE = "separate"
_CI = ("ci_low", "ci_high")
_DIFFERENCE = ("low", "high")


def model_comparison(summary: pl.DataFrame, published: pl.DataFrame) -> ReportTable | None:
    """Models side by side under separate budgeting and without a budget (Table 1). None without such cells."""
    ours = _cells(summary.filter(pl.col("strategy").is_in(["separate", FREE])))
    if ours.is_empty():
        return None
    caption = "Separate budgeting and unconstrained responses."
    theirs = published.filter(pl.col("metric").is_in(ACCURACY))
    if not theirs.is_empty():
        beside = theirs.select(
            "benchmark",
            "model",
            budget=stated_budget(),
            **{"accuracy (%)": pl.col("value"), "tokens": pl.col("tokens").cast(pl.Float64)},
            source=pl.format("published ({}): {}", "metric", "source"),
        )
        ours = pl.concat([ours.with_columns(source=pl.lit("measured")), beside], how="diagonal")
        caption += " Published numbers are others', and none was measured here."
    return ReportTable("model_comparison", "Models side by side", caption, ours)


def swap_ablation(summary: pl.DataFrame) -> ReportTable | None:
    """Who thinks and who solves (Table 2): pairs of models, and each of their models alone. None without a pair."""
    pairs = [model for model in summary["model"].unique() if SWAP in model]
    if not pairs:
        return None
    involved = {name for pair in pairs for name in (pair, *pair.split(SWAP))}
    roles = pl.col("model").str.split(SWAP)
    frame = _cells(summary.filter(pl.col("model").is_in(involved), strategy="separate"))
    frame = frame.select(
        "benchmark",
        "budget",
        roles.list.first().alias("thinks"),
        roles.list.last().alias("solves"),
        pl.exclude("benchmark", "budget", "model"),
    )
    caption = "Separate budgeting: one model thinks, the other goes on from its thought and solves."
    return ReportTable("swap_ablation", "Who thinks, who solves", caption, frame.sort("benchmark", maintain_order=True))


def trainings_side_by_side(summary: pl.DataFrame, trainings: Mapping[str, Training]) -> ReportTable | None:
    """What each training led to, under separate budgeting: other budgets (Figure 6), iterative training (Table 3). None
    without a measured training."""
    under = {model: training.shown for model, training in trainings.items()}
    base = {model: training.base for model, training in trainings.items() if training.base is not None}
    cells = _cells(summary.filter(pl.col("model").is_in(list(trainings)), strategy="separate"))
    if cells.is_empty():
        return None
    frame = cells.select(
        "benchmark",
        "model",
        pl.col("model").replace_strict(under, default=None).alias("trained under"),
        pl.col("model").replace_strict(base, default=None, return_dtype=pl.String).alias("from"),
        pl.exclude("benchmark", "model"),
    )
    caption = "Separate budgeting. A training that begins with another's model is iterative training."
    return ReportTable("trainings", "What each training led to", caption, frame)


def variance(rows: pl.DataFrame, base: str) -> ReportTable | None:
    """What the interval of each model's gain over `base` consists of, under separate budgeting; of its accuracy where
    there is no such model. None without cells that can be told apart so."""
    cells = rows.filter(pl.col("think_budget").is_not_null(), strategy=SEPARATE)
    of_base = cells.filter(model=base)
    name = "accuracy (%)" if of_base.is_empty() else f"gain over {base}"
    lines = []
    for (benchmark, model), ours in (
        cells.sort("benchmark", "model").partition_by(["benchmark", "model"], as_dict=True).items()
    ):
        theirs = None if of_base.is_empty() else of_base.filter(benchmark=benchmark)
        found = None if theirs is not None and model == base else variance_split(ours, theirs)
        if found is None:
            continue
        twice = {"seeds": found.twice_seeds, "problems": found.twice_problems, "samples": found.twice_samples}
        narrowed = {kind: value for kind, value in twice.items() if value is not None}
        lines.append(
            {
                "benchmark": benchmark,
                "model": model,
                name: found.estimate.mean,
                name + LOW: found.estimate.low,
                name + HIGH: found.estimate.high,
                "±": found.half_width,
                "of seeds (%)": found.seeds,
                "of problems (%)": found.problems,
                "of samples (%)": found.samples,
                **{f"± with twice the {kind}": value for kind, value in twice.items()},
                "narrows most": f"more {min(narrowed, key=lambda kind: narrowed[kind])}",
                "problems × samples × seeds": " × ".join(
                    map(str, (found.estimate.num_problems, found.num_samples, found.num_seeds))
                ),
            }
        )
    if not lines:
        return None
    caption = (
        "Separate budgeting, averaged over budgets; in points. ± is half of the 95 % interval, and shares are of its "
        "square. What one seed of training leaves unknown is left empty: another training might differ by more than "
        "all the rest, and no interval of one seed holds that."
    )
    signed = frozenset() if of_base.is_empty() else frozenset({name})
    frame = pl.DataFrame(lines, infer_schema_length=None).with_columns(cs.float() * 100)
    return ReportTable("variance", "What would make it surer", caption, frame, signed)


def paired(differences: pl.DataFrame, between: str, baseline: str) -> ReportTable | None:
    """Models or strategies against `baseline`. None without a pair."""
    pairs = differences.filter(first=baseline)
    if pairs.is_empty():
        return None
    other = "strategy" if between == "model" else "model"
    name = f"difference from {plain(baseline)}"
    frame = pairs.select(
        "benchmark",
        pl.col("second").alias(between),
        other,
        budget=budget_text(),
        **_estimate(name, "difference", _DIFFERENCE),
        problems="num_problems",
        trajectories="num_trajectories",
    )
    caption = "avg@k, paired by problem, at equal budget; in points."
    title = f"{'Models' if between == 'model' else 'Strategies'} against {plain(baseline)}"
    return ReportTable(f"{between}_differences", title, caption, _readable(frame), frozenset({name}))


def templates(differences: pl.DataFrame, summary: pl.DataFrame) -> ReportTable | None:
    """Thought templates against separate budgeting, both held to the same t + s. None without a pair."""
    pairs = differences.filter(first=REASONFLUX_ZERO, second=SEPARATE)
    if pairs.is_empty():
        return None
    cell = ["benchmark", "model", *BUDGET]
    thrifty, guided = (summary.filter(strategy=name) for name in (SEPARATE, REASONFLUX_ZERO))
    spent = thrifty.select(*cell, separate_tokens="tokens_mean")
    joined = pairs.join(guided, on=cell, nulls_equal=True).join(spent, on=cell, nulls_equal=True)
    name = "difference from separate"
    frame = joined.sort(cell, nulls_last=True).select(
        "benchmark",
        "model",
        budget=budget_text(),
        **_estimate("accuracy (%)", "avg_at_k", _CI),
        # The pair is kept the other way round.
        **{name: -100 * pl.col("difference"), name + LOW: -100 * pl.col("high"), name + HIGH: -100 * pl.col("low")},
        **{
            "tokens": "tokens_mean",
            "of the navigator": "navigator_tokens_mean",
            "written by us": "forced_tokens_mean",
            "tokens of separate": "separate_tokens",
        },
        problems="num_problems",
        trajectories="num_trajectories",
    )
    caption = (
        "ReasonFlux-Zero at equal budget; differences of avg@k in points, paired by problem. Tokens are sampled ones, "
        "of navigator and solver together; what we wrote between them is counted apart."
    )
    return ReportTable("templates", "Thought templates against separate budgeting", caption, frame, frozenset({name}))


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
        **_estimate(name, "gain", _DIFFERENCE),
        problems="num_problems",
    )
    caption = "Accuracy gained from one thinking budget to the next, over the tokens that it costs; problems resampled."
    return ReportTable("marginal_accuracy", "What the next tokens buy", caption, _readable(frame), frozenset({name}))


def advice(budgets: pl.DataFrame) -> ReportTable | None:
    """The cheapest budget within the margin of unconstrained accuracy, per benchmark and model. None where there are no
    unconstrained responses to hold budgets against.
    """
    if budgets.is_empty():
        return None
    margin = f"{100 * MARGIN:.0f} points"
    name = "difference from unconstrained"
    frame = cheapest_budgets(budgets).select(
        "benchmark",
        "model",
        pl.col("meaning").alias(f"within {margin}"),
        cheapest=pl.when(pl.col("strategy").is_null())
        .then(pl.lit("no measured budget"))
        .otherwise(pl.format("{} {}", pl.col("strategy").str.replace_all("_", " "), budget_text())),
        tokens="tokens",
        **{
            "unconstrained tokens": pl.col("free_tokens"),
            "tokens saved (%)": 100 * (1 - pl.col("tokens") / pl.col("free_tokens")),
            **_estimate(name, "difference", _DIFFERENCE),
        },
        problems="num_problems",
    )
    caption = (
        f"The budget of fewest mean tokens whose accuracy is at most {margin} below unconstrained, paired by problem: "
        "once by the measured difference, once by the lower end of its 95 % interval. The first was picked among many "
        "with the luck of its samples; the second is the safer choice."
    )
    return ReportTable("budget_advice", "Which budget to set", caption, frame, frozenset({name}))


def thinking(spent: pl.DataFrame) -> ReportTable | None:
    """What the thinking went into. None without a complete ladder of budgets."""
    if spent.is_empty():
        return None
    frame = spent.select(
        "benchmark",
        "model",
        "strategy",
        budget=budget_text(),
        **_estimate("needed", "needed", scale=1),
        **_estimate("overthinking", "overthinking", scale=1),
        **_estimate("futile", "futile", scale=1),
        **_estimate("starved (%)", "starved"),
        **_estimate("solved within t (%)", "solved_within"),
        problems="num_problems",
        trajectories="num_trajectories",
    )
    caption = (
        "Thinking tokens per trajectory. b* of a problem is its smallest thinking budget at which its samples score "
        f"{SUFFICIENT:g} or more on average. Needed: tokens up to b*; overthinking: tokens past it; futile: tokens on "
        "problems that no budget solves; starved: thoughts cut below b*. Unlimited: unconstrained responses."
    )
    return ReportTable("thinking_spent", "Where the thinking goes", caption, _readable(frame))


def costs(summary: pl.DataFrame, price: float | None) -> ReportTable:
    """Sampled tokens of every cell, and what they cost.

    Args:
        price: per million output tokens, in any currency; None leaves money out.
    """
    caption = "Tokens are those sampled, thinking and solution; prompts and forced tokens are not in them."
    columns = _estimate("tokens per response", "tokens_mean", scale=1) | _estimate("accuracy (%)", "avg_at_k", _CI)
    if price is not None:
        columns |= _estimate("cost of a million responses", "tokens_mean", scale=price)
        caption += f" Cost at {price:g} per million output tokens."
    frame = summary.select(
        "benchmark", "model", "strategy", budget=budget_text(), **columns, trajectories="num_trajectories"
    )
    return ReportTable("costs", "What a response costs", caption, _readable(frame))


def every_cell(summary: pl.DataFrame) -> ReportTable:
    """What `summary.json` says, for a reader who sorts."""
    columns = {
        **_estimate("accuracy (%)", "avg_at_k", _CI),
        **_estimate("pass@k (%)", "pass_at_k"),
        **_estimate("maj@k (%)", "maj_at_k"),
        **_estimate("forced (%)", "forced_fraction"),
        **_estimate("thinking tokens", "think_tokens_mean", scale=1),
        **_estimate("solution tokens", "solution_tokens_mean", scale=1),
    }
    frame = summary.select(
        "benchmark", "model", "strategy", budget=budget_text(), **columns, problems="num_problems", k="num_samples"
    )
    caption = "Accuracy is avg@k. Forced: thoughts whose think-end the pipeline wrote."
    return ReportTable("cells", "Every cell", caption, _readable(frame))


def _cells(summary: pl.DataFrame) -> pl.DataFrame:
    """Cells in display units, from the smallest budget up within a benchmark."""
    mark = pl.when(partial()).then(pl.lit(" †")).otherwise(pl.lit(""))
    seeds = pl.when(pl.col("num_seeds") > 1).then(pl.format(" × {} seeds", "num_seeds")).otherwise(pl.lit(""))
    counts = pl.format("{} × {}{}{}", "num_problems", "num_samples", seeds, mark)
    return (
        summary.with_columns(counts=counts)
        .sort("benchmark", *BUDGET, "model", nulls_last=True)
        .select(
            "benchmark",
            "model",
            budget=budget_text(),
            **_estimate("accuracy (%)", "avg_at_k", _CI),
            **_estimate("tokens", "tokens_mean", scale=1),
            **_estimate("forced (%)", "forced_fraction"),
            **{"problems × samples": "counts"},
        )
    )


def _estimate(name: str, mean: str, bounds: tuple[str, str] | None = None, scale: float = 100) -> dict[str, pl.Expr]:
    """The three columns of an estimate, see `ReportTable.frame`. A bound that is null is infinite.

    Args:
        mean: its column.
        bounds: the columns of its interval; MEAN_low and MEAN_high unless given.
    """
    low, high = bounds or (f"{mean}_low", f"{mean}_high")
    known = pl.when(pl.col(mean).is_not_null())
    return {
        name: scale * pl.col(mean),
        name + LOW: known.then(scale * pl.col(low).fill_null(-math.inf)),
        name + HIGH: known.then(scale * pl.col(high).fill_null(math.inf)),
    }


def _readable(frame: pl.DataFrame) -> pl.DataFrame:
    """By benchmark, then model, and strategies as words."""
    return frame.sort("benchmark", "model", maintain_order=True).with_columns(
        pl.col("strategy").str.replace_all("_", " ")
    )
