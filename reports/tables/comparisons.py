"""Models, strategies and trainings side by side, at equal budget and at equal tokens; and every cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import polars.selectors as cs

from elastic_core.statistics.accuracy import paired_differences, variance_split
from elastic_core.strategies import FREE, SERVED
from elastic_core.strategies.reasonflux_zero import REASONFLUX_ZERO
from elastic_core.strategies.variants import is_variant
from elastic_core.trajectory import BUDGET, CELL
from reports.content import HIGH, LOW, ReportTable, Training
from reports.summary import SWAP, partial
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
from reports.wording import budget_text, captioned, plain, sampled


def model_comparison(summary: pl.DataFrame, ratings: pl.DataFrame, published: pl.DataFrame) -> ReportTable | None:
    """Models and budgets down, benchmarks across, under separate budgeting and without a budget (Table 1), from cells,
    ratings of the Codeforces cells (`RATINGS`) and `PUBLISHED` numbers. None without such cells. Pairs of models have
    another table."""
    single = ~pl.col("model").str.contains(SWAP, literal=True)
    cells = summary.filter(single, pl.col("strategy").is_in([SERVED, FREE]))
    if cells.is_empty():
        return None
    frame, names = _across(cells, ratings)
    by_name = cells.partition_by("benchmark", as_dict=True)
    counted = "; ".join(f"{name}: {sampled(of)}" for (name,), of in sorted(by_name.items()))
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
    by = "" if theirs.is_empty() else sources(published)
    return table_of("model_comparison", frame, rated=not ratings.is_empty(), counted=counted, sources=by)


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
        rated = ratings.filter(pl.col("strategy").is_in([SERVED, FREE]), benchmark=name)
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
    cells = shown_cells(summary.filter(pl.col("model").is_in(involved), strategy=SERVED))
    theirs = published.filter(place=SWAPS)
    roles = pl.col("model").str.split(SWAP)
    thinks, solves = roles.list.first().alias("thinks"), roles.list.last().alias("solves")
    frame = _with_published(cells, theirs).select(
        "benchmark", "budget", thinks, solves, pl.exclude("benchmark", "budget", "model")
    )
    return table_of("swap_ablation", frame.sort("benchmark", maintain_order=True), published=not theirs.is_empty())


def _with_published(cells: pl.DataFrame, published: pl.DataFrame) -> pl.DataFrame:
    """Lines of `shown_cells`, then published ones, with a column `source` where there are any."""
    if published.is_empty():
        return cells
    theirs = published.select(
        *("benchmark", "model"),
        budget=stated_budget(),
        **{"accuracy (%)": pl.col("value")},
        source=pl.format("published: {}, {}", "source", "place"),
    )
    return pl.concat([cells.with_columns(source=pl.lit("measured")), theirs], how="diagonal")


def trainings_side_by_side(
    summary: pl.DataFrame, trainings: Mapping[str, Training], published: pl.DataFrame
) -> ReportTable | None:
    """What each training led to, under separate budgeting: other budgets (Figure 6), iterative training (Table 3). None
    without a measured training."""
    cells = shown_cells(summary.filter(pl.col("model").is_in(list(trainings)), strategy=SERVED))
    if cells.is_empty():
        return None
    theirs = published.filter(place=ITERATIVE)
    lines = _with_published(cells, theirs)
    known = [(model, training.shown, training.base) for model, training in trainings.items()]
    schema = dict.fromkeys(("model", "trained under", "from"), pl.String)
    frame = lines.join(pl.DataFrame(known, schema, orient="row"), on="model", how="left", maintain_order="left")
    frame = frame.select("benchmark", *schema, pl.exclude("benchmark", *schema))
    return table_of("trainings", frame, published=not theirs.is_empty())


def variance(rows: pl.DataFrame, base: str) -> ReportTable | None:
    """The parts of the interval of each model's gain over `base`, under separate budgeting; of its accuracy without
    such a model. None without cells that have such parts."""
    cells = rows.filter(pl.col("think_budget").is_not_null(), strategy=SERVED)
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
    signed = [] if of_base.is_empty() else [name]
    frame = pl.DataFrame(lines, infer_schema_length=None).with_columns(cs.float() * 100)
    return table_of("variance", frame, *signed)


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
    return table_of(f"{between}_differences", readable(frame), name, baseline=plain(baseline))


def variants(rows: pl.DataFrame, summary: pl.DataFrame) -> ReportTable | None:
    """Closings and efforts of separate budgeting against think-end alone and the template's own effort, paired by
    problem at equal budgets; of closings the thoughts are the same. None without any."""
    served = rows.filter(is_variant(SERVED))
    if served["strategy"].n_unique() < 2:
        return None
    found = paired_differences(served, "strategy", SERVED).filter(first=SERVED).rename({"second": "strategy"})
    kept = summary.select(*CELL, "tokens_mean", "forced_tokens_mean", *(f"leak{end}" for end in ("", "_low", "_high")))
    name = "difference from separate"
    frame = found.join(kept, on=CELL, nulls_equal=True, maintain_order="left").select(
        *("benchmark", "model", "strategy"),
        budget=budget_text(),
        **estimate(name, "difference", DIFFERENCE),
        **estimate("leak (%)", "leak"),
        **{"sampled tokens": "tokens_mean", "written by us": "forced_tokens_mean"},
        **COUNTS,
    )
    return table_of("variants", readable(frame), name)


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
    return table_of("as_published", readable(frame), name)


def parallel(cells: pl.DataFrame, names: Sequence[str]) -> ReportTable | None:
    """Thinking in parallel (`names`) and separate budgeting, by sampled tokens. None without such cells."""
    if cells.filter(pl.col("strategy").is_in(names)).is_empty():
        return None
    shown = cells.filter(pl.col("strategy").is_in([SERVED, *names]), pl.col("think_budget").is_not_null())
    frame = shown.sort("tokens_mean").select(
        *PLACE,
        budget=budget_text(),
        **estimate("accuracy (%)", "avg_at_k", CI),
        **estimate("sampled tokens", "tokens_mean", scale=1),
        problems="num_problems",
    )
    return table_of("parallel", readable(frame))


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
    return table_of("equal_tokens", frame.sort("benchmark", maintain_order=True), name)


def templates(differences: pl.DataFrame, summary: pl.DataFrame) -> ReportTable | None:
    """Thought templates against separate budgeting, both held to the same t + s. None without a pair."""
    pairs = differences.filter(first=REASONFLUX_ZERO, second=SERVED)
    cell = ["benchmark", "model", *BUDGET]
    thrifty, guided = (summary.filter(strategy=name) for name in (SERVED, REASONFLUX_ZERO))
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
    return table_of("templates", frame, name)


def every_cell(summary: pl.DataFrame) -> ReportTable:
    """What `summary.json` says, for a reader who sorts."""
    columns = {
        **estimate("accuracy (%)", "avg_at_k", CI),
        **estimate("pass@k (%)", "pass_at_k"),
        **estimate("maj@k (%)", "maj_at_k"),
        **estimate("forced (%)", "forced_fraction"),
        **estimate("leak (%)", "leak"),
        **estimate("tokens in all", "tokens_mean", scale=1),
        **estimate("thinking tokens", "think_tokens_mean", scale=1),
        **estimate("solution tokens", "solution_tokens_mean", scale=1),
    }
    frame = summary.select(*PLACE, budget=budget_text(), **columns, problems="num_problems", k="num_samples")
    return ReportTable("cells", *captioned("tables", "cells"), readable(frame))
