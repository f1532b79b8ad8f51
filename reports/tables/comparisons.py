"""Models, strategies and trainings side by side, at equal budget and at equal tokens; and every cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import polars.selectors as cs

from elastic_core.statistics.accuracy import variance_split
from elastic_core.statistics.estimates import FREE
from elastic_core.strategies.reasonflux_zero import REASONFLUX_ZERO
from elastic_core.trajectory import BUDGET, CELL
from reports.content import HIGH, LOW, ReportTable, Training
from reports.summary import SEPARATE, SWAP, partial
from reports.tables import (
    ACCURACY,
    CI,
    COUNTS,
    DIFFERENCE,
    ITERATIVE,
    PLACE,
    SWAPS,
    estimate,
    readable,
    shown_cells,
    sources,
    stated_budget,
    table_of,
)
from reports.wording import budget_text, plain, sampled

EQUAL_TOKENS = "At equal tokens"


def model_comparison(summary: pl.DataFrame, ratings: pl.DataFrame, published: pl.DataFrame) -> ReportTable | None:
    """Models and budgets down, benchmarks across, under separate budgeting and without a budget (Table 1), from cells,
    ratings of the Codeforces cells (`RATINGS`) and `PUBLISHED` numbers. None without such cells. Pairs of models have a
    table of their own."""
    single = ~pl.col("model").str.contains(SWAP, literal=True)
    cells = summary.filter(single, pl.col("strategy").is_in([SEPARATE, FREE]))
    if cells.is_empty():
        return None
    frame, names = _across(cells, ratings)
    by_name = cells.partition_by("benchmark", as_dict=True)
    counted = "; ".join(f"{name}: {sampled(of)}" for (name,), of in sorted(by_name.items()))
    caption = (
        "Accuracy in percent of separate budgeting and of unconstrained responses. 95 % intervals: Clopper-Pearson"
        f"{'' if ratings.is_empty() else '; for ratings and percentiles a bootstrap over contests'}. {counted}."
    )
    # A line per model, budget and source, the columns named as those of `_across`.
    what = pl.when(pl.col("metric").is_in(ACCURACY)).then(pl.lit("(%)")).otherwise("metric")
    numbers = published.filter(single).select(
        "model",
        "value",
        budget=stated_budget(),
        source=pl.format("published: {}", "source"),
        of=pl.format("{} {}", "benchmark", what),
    )
    theirs = numbers.pivot("of", index=["model", "budget", "source"], values="value", maintain_order=True)
    if not theirs.is_empty():
        order = [name + end for name in dict.fromkeys([*names, *theirs.columns[3:]]) for end in ("", LOW, HIGH)]
        both = pl.concat([frame, theirs], how="diagonal")
        frame = both.select(cs.by_name("model", "budget", "source", *order, require_all=False))
        caption += f" Published numbers are others', and none was measured here: {sources(published)}."
    return table_of("model_comparison", "Models side by side", caption, frame)


def _across(cells: pl.DataFrame, ratings: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """A line per model and budget, and the names of its estimates: accuracy on each benchmark, and what `ratings` has
    of the cell. A line is marked where one of its cells is partial."""
    key = ["model", "strategy", *BUDGET]
    cells = cells.with_columns(partial=partial())
    frame = cells.group_by(key).agg(pl.col("partial").any())
    found = {}
    for name in sorted(cells["benchmark"].unique()):
        shown = f"{name} (%)"
        found[shown] = cells.filter(benchmark=name).select(*key, **estimate(shown, "avg_at_k", CI))
        rated = ratings.filter(pl.col("strategy").is_in([SEPARATE, FREE]), benchmark=name)
        for quantity in ("rating", "percentile") if rated.height else ():
            shown = f"{name} {quantity}"
            found[shown] = rated.select(*key, **estimate(shown, quantity, scale=1))
    for of in found.values():
        frame = frame.join(of, on=key, how="left", nulls_equal=True)
    source = pl.when("partial").then(pl.lit("measured †")).otherwise(pl.lit("measured"))
    estimates = [name + end for name in found for end in ("", LOW, HIGH)]
    lines = frame.sort(*BUDGET, "model", "strategy", nulls_last=True).select(
        "model", budget_text().alias("budget"), source.alias("source"), *estimates
    )
    return lines, list(found)


def swap_ablation(summary: pl.DataFrame, published: pl.DataFrame) -> ReportTable | None:
    """Who thinks and who solves (Table 2): pairs of models, and each of their models alone. None without a pair."""
    pairs = [model for model in summary["model"].unique() if SWAP in model]
    if not pairs:
        return None
    involved = {name for pair in pairs for name in (pair, *pair.split(SWAP))}
    cells = shown_cells(summary.filter(pl.col("model").is_in(involved), strategy=SEPARATE))
    caption = "Separate budgeting: one model thinks, the other goes on from its thought and solves."
    frame, caption = _beside(cells, published.filter(place=SWAPS), caption)
    roles = pl.col("model").str.split(SWAP)
    thinks, solves = roles.list.first().alias("thinks"), roles.list.last().alias("solves")
    frame = frame.select("benchmark", "budget", thinks, solves, pl.exclude("benchmark", "budget", "model"))
    return table_of("swap_ablation", "Who thinks, who solves", caption, frame.sort("benchmark", maintain_order=True))


def _beside(cells: pl.DataFrame, published: pl.DataFrame, caption: str) -> tuple[pl.DataFrame, str]:
    """The lines of `shown_cells` and then those of others, which are told by a column `source`, and the caption."""
    if published.is_empty():
        return cells, caption
    theirs = published.select(
        *("benchmark", "model"),
        budget=stated_budget(),
        **{"accuracy (%)": pl.col("value")},
        source=pl.format("published: {}, {}", "source", "place"),
    )
    both = pl.concat([cells.with_columns(source=pl.lit("measured")), theirs], how="diagonal")
    return both, f"{caption} Published numbers are others', and none was measured here."


def trainings_side_by_side(
    summary: pl.DataFrame, trainings: Mapping[str, Training], published: pl.DataFrame
) -> ReportTable | None:
    """What each training led to, under separate budgeting: other budgets (Figure 6), iterative training (Table 3). None
    without a measured training."""
    cells = shown_cells(summary.filter(pl.col("model").is_in(list(trainings)), strategy=SEPARATE))
    if cells.is_empty():
        return None
    caption = "Separate budgeting. A training that begins with the model of another one is iterative training."
    lines, caption = _beside(cells, published.filter(place=ITERATIVE), caption)
    known = [(model, training.shown, training.base) for model, training in trainings.items()]
    schema = dict.fromkeys(("model", "trained under", "from"), pl.String)
    frame = lines.join(pl.DataFrame(known, schema, orient="row"), on="model", how="left", maintain_order="left")
    frame = frame.select("benchmark", *schema, pl.exclude("benchmark", *schema))
    return table_of("trainings", "What each training led to", caption, frame)


def variance(rows: pl.DataFrame, base: str) -> ReportTable | None:
    """What the interval of each model's gain over `base` consists of, under separate budgeting; of its accuracy where
    there is no such model. None without cells that can be told apart so."""
    cells = rows.filter(pl.col("think_budget").is_not_null(), strategy=SEPARATE)
    of_base = cells.filter(model=base)
    name, place = "accuracy (%)" if of_base.is_empty() else f"gain over {base}", ["benchmark", "model"]
    lines = []
    for (benchmark, model), ours in cells.sort(place).partition_by(place, as_dict=True).items():
        theirs = None if of_base.is_empty() else of_base.filter(benchmark=benchmark)
        found = None if theirs is not None and model == base else variance_split(ours, theirs)
        if found is None:
            continue
        narrowed = {kind: value for kind, value in found.twice.items() if value is not None}
        counts = found.estimate.num_problems, found.num_samples, found.num_seeds
        lines.append(
            {
                "benchmark": benchmark,
                "model": model,
                **dict(zip((name, name + LOW, name + HIGH), found.estimate[:3], strict=True)),
                "±": found.half_width,
                **{f"of {kind} (%)": share for kind, share in found.shares.items()},
                **{f"± with twice the {kind}": value for kind, value in found.twice.items()},
                "narrows most": f"more {min(narrowed, key=lambda kind: narrowed[kind])}",
                "problems × samples × seeds": " × ".join(map(str, counts)),
            }
        )
    if not lines:
        return None
    caption = (
        "Separate budgeting, averaged over budgets, in points. ± is half of the 95 % interval; the shares of seeds, "
        "problems and samples are shares of its square. With a single seed the columns of seeds are empty: their "
        "part is unknown. Another training might differ by more than all the rest, and no interval of one seed "
        "includes that."
    )
    signed = [] if of_base.is_empty() else [name]
    frame = pl.DataFrame(lines, infer_schema_length=None).with_columns(cs.float() * 100)
    return table_of("variance", "What would make it surer", caption, frame, *signed)


def paired(differences: pl.DataFrame, between: str, baseline: str) -> ReportTable | None:
    """Models or strategies against `baseline`. None without a pair."""
    pairs = differences.filter(first=baseline)
    other = "strategy" if between == "model" else "model"
    name = f"difference from {plain(baseline)}"
    frame = pairs.select(
        "benchmark",
        pl.col("second").alias(between),
        other,
        budget=budget_text(),
        **estimate(name, "difference", DIFFERENCE),
        **COUNTS,
    )
    caption = "avg@k at equal budget, in points; 95 % t-intervals of the problems' differences."
    title = f"{'Models' if between == 'model' else 'Strategies'} against {plain(baseline)}"
    return table_of(f"{between}_differences", title, caption, readable(frame), name)


def as_published(differences: pl.DataFrame, summary: pl.DataFrame) -> ReportTable | None:
    """Both gradings of the same responses, from `published_differences`. None where none is graded as published."""
    name, place = "difference", [*CELL]
    counted = differences.select(*place, "difference", *DIFFERENCE)
    frame = counted.join(summary, on=place, nulls_equal=True, maintain_order="left").select(
        *PLACE,
        budget=budget_text(),
        **estimate("accuracy (%)", "avg_at_k", CI),
        **estimate("as published (%)", "published_avg_at_k"),
        **estimate(name, "difference", DIFFERENCE),
        **COUNTS,
    )
    caption = (
        "The same responses by our grades and by the rules of the programs of Elastic Reasoning, and how many points "
        "the latter give more, with 95 % intervals paired by problem. Cells with responses that are not graded so are "
        "left out (elastic data regrade --as-published grades all but multiple choice). Everything else in this "
        "report rests on our grades."
    )
    return table_of("as_published", "Graded as published", caption, readable(frame), name)


def parallel(cells: pl.DataFrame, names: Sequence[str]) -> ReportTable | None:
    """Thinking in parallel (`names`) beside separate budgeting, by sampled tokens. None without such cells."""
    if cells.filter(pl.col("strategy").is_in(names)).is_empty():
        return None
    shown = cells.filter(pl.col("strategy").is_in([SEPARATE, *names]), pl.col("think_budget").is_not_null())
    frame = shown.sort("tokens_mean").select(
        *PLACE,
        budget=budget_text(),
        **estimate("accuracy (%)", "avg_at_k", CI),
        **estimate("sampled tokens", "tokens_mean", scale=1),
        problems="num_problems",
    )
    caption = (
        "A vote of n short thoughts compared with one long thought. Majority n: n samples of separate budgeting at (t, "
        "s), and the answer that most of them give. Short m at n: the answer that most of the m shortest give, the "
        "others being stopped when the m-th ends. The budget is n times (t, s), and tokens are those of all n. Nothing "
        "was drawn for it: each number is the expectation over all choices of n samples. 95 % intervals: "
        "Clopper-Pearson."
    )
    return table_of("parallel", "Thinking in parallel", caption, readable(frame))


def equal_tokens(by_strategy: pl.DataFrame, by_model: pl.DataFrame) -> ReportTable | None:
    """Strategies and models against their baselines at equal tokens, both from `area_differences`, if any."""
    pairs = pl.concat([by_strategy, by_model], how="diagonal")
    name = "difference (points)"
    words = (pl.col(side).str.replace_all("_", " ") for side in ("second", "first"))
    frame = pairs.select(
        "benchmark",
        pl.format("{} − {}", *words).alias("compared"),
        pl.coalesce("model", pl.col("strategy").str.replace_all("_", " ")).alias("of"),
        **estimate(name, "difference", DIFFERENCE),
        **{"tokens from": "from_tokens", "tokens to": "to_tokens"},
        **COUNTS,
    )
    caption = (
        "A curve is accuracy over log2 of sampled tokens (thinking + solution), through all budgets of a strategy. The "
        "difference is the mean height of one curve above the other, in the range of tokens that both span. 95 % "
        "intervals: bootstrap over problems, paired. At an equal budget vanilla may think t + s tokens; here "
        "strategies are compared at what they spent."
    )
    return table_of("equal_tokens", EQUAL_TOKENS, caption, frame.sort("benchmark", maintain_order=True), name)


def templates(differences: pl.DataFrame, summary: pl.DataFrame) -> ReportTable | None:
    """Thought templates against separate budgeting, both held to the same t + s. None without a pair."""
    pairs = differences.filter(first=REASONFLUX_ZERO, second=SEPARATE)
    cell = ["benchmark", "model", *BUDGET]
    thrifty, guided = (summary.filter(strategy=name) for name in (SEPARATE, REASONFLUX_ZERO))
    spent = thrifty.select(*cell, separate_tokens="tokens_mean")
    joined = pairs.join(guided, on=cell, nulls_equal=True).join(spent, on=cell, nulls_equal=True)
    name = "difference from separate"
    frame = joined.sort(cell, nulls_last=True).select(
        *("benchmark", "model"),
        budget=budget_text(),
        **estimate("accuracy (%)", "avg_at_k", CI),
        # The pair is kept the other way round.
        **{name: -100 * pl.col("difference"), name + LOW: -100 * pl.col("high"), name + HIGH: -100 * pl.col("low")},
        **{
            "tokens": "tokens_mean",
            "of the navigator": "navigator_tokens_mean",
            "written by us": "forced_tokens_mean",
            "tokens of separate": "separate_tokens",
        },
        **COUNTS,
    )
    caption = (
        "ReasonFlux-Zero at equal budget; differences of accuracy (avg@k) in points, paired by problem. Tokens are "
        "those that navigator and solver sampled together; what the pipeline wrote between them is counted separately."
    )
    return table_of("templates", "Thought templates against separate budgeting", caption, frame, name)


def every_cell(summary: pl.DataFrame) -> ReportTable:
    """What `summary.json` says, for a reader who sorts."""
    columns = {
        **estimate("accuracy (%)", "avg_at_k", CI),
        **estimate("pass@k (%)", "pass_at_k"),
        **estimate("maj@k (%)", "maj_at_k"),
        **estimate("forced (%)", "forced_fraction"),
        **estimate("tokens in all", "tokens_mean", scale=1),
        **estimate("thinking tokens", "think_tokens_mean", scale=1),
        **estimate("solution tokens", "solution_tokens_mean", scale=1),
    }
    frame = summary.select(*PLACE, budget=budget_text(), **columns, problems="num_problems", k="num_samples")
    caption = "Accuracy is avg@k. Forced: the share of thoughts whose think-end the pipeline wrote."
    return ReportTable("cells", "Every cell", caption, readable(frame))
