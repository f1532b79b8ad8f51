"""The tables of a report. Shares are in percent, differences in points, lengths in tokens per trajectory.

They are made of the cells, `summary`, and of what `elastic_core.statistics` computes of a whole table: `differences` by
`paired_differences`, `gains` by `marginal_accuracy`, `budgets` by `budget_advice`, `spent` by
`thinking_spent`, `costs` by `cell_costs`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import polars as pl
import polars.selectors as cs

from elastic_core.statistics.budgets import MARGIN, Distribution, cheapest_budgets
from elastic_core.statistics.cost import CostModel, on_frontier
from elastic_core.statistics.estimates import FREE
from elastic_core.statistics.responses import ResponseKind
from elastic_core.statistics.thinking import SUFFICIENT
from elastic_core.statistics.variance import variance_split
from elastic_core.strategies.reasonflux_zero import REASONFLUX_ZERO
from elastic_core.trajectory import BUDGET, CELL
from reports.claims import SWAP
from reports.content import HIGH, LOW, ReportTable, Training
from reports.summary import ACCURACY, partial, stated_budget
from reports.wording import budget_text, plain

_WORK = {"input": "input_tokens", "cached input": "cached_tokens", "output": "output_tokens", "turns": "turns"}
_WORK_MEANS = (
    "Input: tokens of the prompt, and those that the pipeline forced upon the model; cached input: what a later turn "
    "finds read already; output: sampled tokens; turns: how often decoding began, at first and after forced tokens."
)
_INTERVALS = "95 % intervals: Student's t of mean costs, a bootstrap over problems of the 95th percentile (p95)."
EQUAL_TOKENS = "At equal tokens"
SEPARATE = "separate"
_CI = ("ci_low", "ci_high")
_DIFFERENCE = ("low", "high")


def model_comparison(summary: pl.DataFrame, published: pl.DataFrame) -> ReportTable | None:
    """Models side by side under separate budgeting and without a budget (Table 1). None without such cells."""
    ours = _cells(summary.filter(pl.col("strategy").is_in(["separate", FREE])))
    if ours.is_empty():
        return None
    caption = (
        "Separate budgeting and unconstrained responses. 95 % intervals: Wilson's of accuracy and of forced, "
        "Student's t of tokens."
    )
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
    caption = "avg@k at equal budget, in points; 95 % t-intervals of the problems' differences."
    title = f"{'Models' if between == 'model' else 'Strategies'} against {plain(baseline)}"
    return ReportTable(f"{between}_differences", title, caption, _readable(frame), frozenset({name}))


def equal_tokens(by_strategy: pl.DataFrame, by_model: pl.DataFrame) -> ReportTable | None:
    """Strategies and models against their baselines at equal tokens. None without a pair.

    Args:
        by_strategy, by_model: of `elastic_core.statistics.curves.area_differences`.
    """
    pairs = pl.concat([by_strategy, by_model], how="diagonal")
    if pairs.is_empty():
        return None
    name = "difference (points)"
    words = (pl.col(side).str.replace_all("_", " ") for side in ("second", "first"))
    frame = pairs.select(
        "benchmark",
        pl.format("{} − {}", *words).alias("compared"),
        pl.coalesce("model", pl.col("strategy").str.replace_all("_", " ")).alias("of"),
        **_estimate(name, "difference", _DIFFERENCE),
        **{"tokens from": "from_tokens", "tokens to": "to_tokens"},
        problems="num_problems",
        trajectories="num_trajectories",
    )
    caption = (
        "Accuracy over log2 of sampled tokens (thinking + solution), all budgets of a strategy joined: the mean height "
        "of one curve above the other, in the range of tokens that both span. 95 % intervals: bootstrap over problems, "
        "paired. Where vanilla may think t + s tokens at an equal budget, this holds what was spent against each other."
    )
    frame = frame.sort("benchmark", maintain_order=True)
    return ReportTable("equal_tokens", EQUAL_TOKENS, caption, frame, frozenset({name}))


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


def advice(budgets: pl.DataFrame, costs: pl.DataFrame, unit: str) -> ReportTable | None:
    """The budget to set, per benchmark and model: the cheapest within the margin of unconstrained accuracy. None where
    there are no unconstrained responses to hold budgets against.

    Args:
        costs: of every cell, in `unit`.
    """
    if budgets.is_empty():
        return None
    margin = f"{100 * MARGIN:.0f} points"
    name, saved = "difference from unconstrained", "saved (%)"
    frame = (
        cheapest_budgets(budgets)
        .join(costs, on=CELL, nulls_equal=True, how="left")
        .select(
            "benchmark",
            "model",
            pl.col("verdict").alias(f"within {margin}"),
            pl.col("strategy").str.replace_all("_", " "),
            budget=budget_text(),
            **{
                unit: pl.col("cost"),
                f"{unit}, p95": pl.col("p95"),
                **_estimate(saved, "saved", ("saved_low", "saved_high")),
                **_estimate(name, "difference", _DIFFERENCE),
            },
            problems="num_problems",
            **{"problems that would decide": pl.col("problems_needed").cast(pl.Int64)},
        )
    )
    looked_at = sorted(set(budgets.group_by("model", "benchmark").len()["len"]))
    cells = " to ".join(str(count) for count in dict.fromkeys((looked_at[0], looked_at[-1])))
    caption = (
        f"The cheapest budget whose accuracy is at most {margin} below unconstrained: a test of non-inferiority. Its "
        f"intervals hold together for all {cells} cells of a model that were looked at, so that picking one takes "
        "nothing from them. Undecided: cheaper and within the margin as measured, but not surely; so many problems "
        "like these would decide it. Saved is the share of an unconstrained response's cost."
    )
    return ReportTable("budget_advice", "Which budget to set", caption, frame, frozenset({name, saved}))


def priced(summary: pl.DataFrame, costs: pl.DataFrame) -> pl.DataFrame:
    """The cells with their mean cost, columns cost, cost_low and cost_high, and whether they are on the frontier of
    accuracy and cost of their benchmark.

    Args:
        costs: of every cell.
    """
    means = costs.select(*CELL, cost="mean", cost_low="mean_low", cost_high="mean_high")
    # A single problem bounds nothing; its interval is drawn without width.
    bounds = [pl.col(name).fill_null(pl.col("cost")) for name in ("cost_low", "cost_high")]
    cells = summary.join(means, on=CELL, nulls_equal=True).with_columns(bounds)
    return cells.with_columns(frontier=on_frontier("cost", "avg_at_k").over("benchmark"))


def frontier(priced: pl.DataFrame, advised: pl.DataFrame, unit: str) -> ReportTable | None:
    """The cells on the frontier, from the cheapest to the most accurate. None of a single cell.

    Args:
        priced: of `priced`.
        advised: of `cheapest_budgets`.
        unit: of costs.
    """
    if priced.height < 2:
        return None
    mark = advised.filter(verdict="holds").select(*CELL, advised=pl.lit("yes"))
    cells = priced.filter("frontier").join(mark, on=CELL, nulls_equal=True, how="left")
    frame = cells.sort("benchmark", "cost").select(
        "benchmark",
        "model",
        pl.col("strategy").str.replace_all("_", " "),
        budget=budget_text(),
        **_estimate(unit, "cost", scale=1),
        **_estimate("accuracy (%)", "avg_at_k", _CI),
        advised=pl.col("advised").fill_null(""),
        trajectories="num_trajectories",
    )
    caption = (
        "Cells of any model and strategy that none beats in both accuracy and mean cost of a response, as measured: "
        "neighbours whose intervals overlap may change places in another sample."
    )
    return ReportTable("pareto_frontier", "Accuracy and cost: the frontier", caption, frame)


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
        **_estimate(name, "difference", _DIFFERENCE),
        problems="num_problems",
        trajectories="num_trajectories",
    )
    caption = (
        "The deepest fall of avg@k from a smaller thinking budget to a larger one, in points, paired by problem. The "
        "interval holds for all pairs of budgets of a line together; lines without a fall are left out."
    )
    return ReportTable("falls", "Where more tokens hurt", caption, _readable(frame), frozenset({name}))


def anytime(found: pl.DataFrame, distribution: Distribution) -> ReportTable | None:
    """Accuracy at a budget drawn at random. None without two limited budgets on a line."""
    if found.is_empty():
        return None
    frame = found.select(
        "benchmark",
        "model",
        "strategy",
        pl.format("{} to {}", "smallest", "largest").alias("thinking budgets"),
        solution=pl.col("solution_budget").cast(pl.String).fill_null("unlimited"),
        **_estimate("anytime accuracy (%)", "anytime"),
        problems="num_problems",
        trajectories="num_trajectories",
    )
    shape = "uniform in log t" if distribution == "log-uniform" else "uniform in t"
    caption = f"The mean of accuracy over thinking budgets t, {shape} between the smallest and the largest measured."
    return ReportTable("anytime_accuracy", "Accuracy at any budget", caption, _readable(frame))


def thinking(spent: pl.DataFrame) -> ReportTable | None:
    """What the thinking went into. None without a complete ladder of budgets."""
    if spent.is_empty():
        return None
    frame = spent.select(
        "benchmark",
        "model",
        "strategy",
        budget=pl.when(responses=FREE).then(pl.lit("unlimited")).otherwise(budget_text()),
        **_estimate("needed", "needed", scale=1),
        **_estimate("overthinking", "overthinking", scale=1),
        **_estimate("futile", "futile", scale=1),
        **_estimate("starved (%)", "starved"),
        **_estimate("solved within t (%)", "solved_within"),
        problems="num_problems",
        trajectories="num_trajectories",
    )
    caption = (
        "Thinking tokens per trajectory. b* of a problem is the smallest thinking budget from which on this and every "
        f"larger one suffice: its samples score {SUFFICIENT:g} or more on average. It is read off one half of the "
        "samples and all else is measured on the other; so bad luck at a larger budget makes "
        "it too large, more often than good luck makes it too small. "
        "Needed: tokens up to b*; overthinking: tokens past it; futile: tokens on problems without b*; starved: "
        "thoughts cut below b*; solved within t: b* is at most t, and t suffices for the other half too. Unlimited: "
        "unconstrained responses. 95 % intervals: Student's t of tokens, Wilson's of shares."
    )
    return ReportTable("thinking_spent", "Where the thinking goes", caption, _readable(frame))


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
        **_estimate("accuracy (%)", "avg_at_k"),
        **{"not cut": "uncut_trajectories", "of problems": "uncut_problems"},
        **_estimate("accuracy of these (%)", "uncut_avg_at_k"),
    )
    caption = (
        "Trajectories by how they end. Cut in the thought: by the limit of both phases together, or by the context's "
        "end, so that there is no solution. Went on thinking: after a forced think-end, told by a thought's words and "
        "markers in the solution, whether or not that was cut. Empty: the model stopped without a word of a solution. "
        "Answered: a solution that the model ended. Accuracy of those not cut leaves out what a limit ended, in either "
        "phase, and with it the harder problems: it is not what a larger budget would give."
    )
    return ReportTable("responses", "How responses end", caption, _readable(frame))


def costs(summary: pl.DataFrame, models: Mapping[str, CostModel], found: Mapping[str, pl.DataFrame]) -> ReportTable:
    """The work of a response in every cell, and what it costs: the mean, and the 95th percentile.

    Args:
        models: by the unit of their costs.
        found: `cell_costs` under each of them.
    """
    columns = {name: pl.col(f"{column}_mean") for name, column in _WORK.items()}
    columns |= _estimate("accuracy (%)", "avg_at_k", _CI)
    frame = summary
    for unit, cells in found.items():
        frame = frame.join(cells, on=CELL, nulls_equal=True, how="left", suffix=unit)
        named = {name: f"{name}{unit}" for name in cells.columns if name not in CELL}
        frame = frame.rename({old: new for old, new in named.items() if old in frame.columns})
        for name, shown in (("mean", unit), ("p95", f"{unit}, p95")):
            columns |= _estimate(shown, f"{name}{unit}", (f"{name}_low{unit}", f"{name}_high{unit}"), scale=1)
    frame = frame.select(
        "benchmark", "model", "strategy", budget=budget_text(), **columns, trajectories="num_trajectories"
    )
    rates = "".join(f" {unit.capitalize()}: {_rates(model)}." for unit, model in models.items())
    return ReportTable(
        "costs", "What a response costs", f"Per response. {_WORK_MEANS}{rates} {_INTERVALS}", _readable(frame)
    )


def _rates(model: CostModel) -> str:
    return (
        f"{model.input:g} per input, {model.cached_input:g} per cached input and {model.output:g} per output token"
        + (f", {model.turn:g} per turn" if model.turn else "")
    )


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
