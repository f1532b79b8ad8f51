"""The cost of a response, and the frontier of accuracy and cost, of budgets and of stop rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from elastic_core.statistics.cost import TOKENS, CostModel, cell_costs, on_frontier
from elastic_core.statistics.estimates import without_seed
from elastic_core.statistics.stop_frontier import BUDGETED, ORACLE, best_rules
from elastic_core.statistics.which_budget import NonInferiority
from elastic_core.stop_rule import ADAPTIVE
from elastic_core.trajectory import CELL
from reports.content import ReportParameters, ReportTable
from reports.tables import CI, COUNTS, PLACE, estimate, readable, table_of
from reports.wording import budget_text, captioned

TOKENS_PROCESSED, MONEY = "tokens processed", "cost per million responses"
MILLISECONDS = "milliseconds alone on its engine"
_WORK = {"input": "input_tokens", "cached input": "cached_tokens", "output": "output_tokens", "turns": "turns"}


def cost_models(
    parameters: ReportParameters, measured: Mapping[str, CostModel], models: Iterable[str]
) -> dict[str, dict[str, CostModel]]:
    """Costs of a response of each model, by unit: always tokens, money where there are prices, and time where it is
    given or was `measured`, in seconds by model; seeds of one training count as the first of them."""
    found = {TOKENS_PROCESSED: dict.fromkeys(models, TOKENS)}
    if parameters.prices is not None:
        found[MONEY] = dict.fromkeys(models, parameters.prices)
    seconds = {without_seed(name)[0]: latency for name, latency in reversed(list(measured.items()))}
    if parameters.latency is not None:
        seconds = dict.fromkeys(models, parameters.latency)
    if known := {name: seconds[name].times(1000) for name in models if name in seconds}:
        found[MILLISECONDS] = known
    return found


def costs_by_unit(rows: pl.DataFrame, models: Mapping[str, Mapping[str, CostModel]]) -> dict[str, pl.DataFrame]:
    """`cell_costs` under the models of `cost_models`, by unit."""
    return {
        unit: pl.concat([cell_costs(rows.filter(model=name), model) for name, model in by_model.items()])
        for unit, by_model in models.items()
    }


def costs(
    summary: pl.DataFrame, models: Mapping[str, Mapping[str, CostModel]], found: Mapping[str, pl.DataFrame]
) -> ReportTable:
    """The work of a response in every cell, and its costs (`costs_by_unit`): the mean, and the 95th percentile."""
    columns = {name: pl.col(f"{column}_mean") for name, column in _WORK.items()}
    columns |= estimate("accuracy (%)", "avg_at_k", CI)
    frame = summary
    for unit, cells in found.items():
        named = {name: f"{name} {unit}" for name in cells.columns if name not in CELL}
        frame = frame.join(cells.rename(named), on=CELL, nulls_equal=True, how="left")
        for name, shown in (("mean", unit), ("p95", f"{unit}, p95")):
            columns |= estimate(shown, f"{name} {unit}", (f"{name}_low {unit}", f"{name}_high {unit}"), scale=1)
    frame = frame.select(*PLACE, budget=budget_text(), **columns, trajectories="num_trajectories")
    rates = "".join(f" {unit}: {_rates(by_model)}." for unit, by_model in models.items())
    return ReportTable("costs", *captioned("tables", "costs", rates=rates), readable(frame))


def _rates(by_model: Mapping[str, CostModel]) -> str:
    texts = {}
    for name, model in by_model.items():
        text = f"{model.input:.4g} per input, {model.cached_input:.4g} per cached input and {model.output:.4g} per"
        texts[name] = f"{text} output token" + (f", {model.turn:.4g} per turn" if model.turn else "")
    same = dict.fromkeys(texts.values())
    return next(iter(same)) if len(same) == 1 else "; ".join(f"{name} {text}" for name, text in texts.items())


def priced(summary: pl.DataFrame, costs: pl.DataFrame) -> pl.DataFrame:
    """The cells with their mean cost, columns cost, cost_low and cost_high, and whether they are on the frontier of
    accuracy and cost of their benchmark."""
    means = costs.select(*CELL, cost="mean", cost_low="mean_low", cost_high="mean_high")
    # A single problem bounds nothing; its interval is drawn without width.
    bounds = [pl.col(name).fill_null(pl.col("cost")) for name in ("cost_low", "cost_high")]
    cells = summary.join(means, on=CELL, nulls_equal=True).with_columns(bounds)
    return cells.with_columns(frontier=on_frontier("cost", "avg_at_k").over("benchmark"))


def frontier(priced: pl.DataFrame, advised: pl.DataFrame, unit: str) -> ReportTable | None:
    """The cells on the frontier (`priced`), cheapest first, and which of them are `advised`. None of a single cell."""
    if priced.height < 2:
        return None
    mark = advised.filter(verdict=NonInferiority.CERTIFIED).select(*CELL, advised=pl.lit("yes"))
    cells = priced.filter("frontier").join(mark, on=CELL, nulls_equal=True, how="left")
    frame = cells.sort("benchmark", "cost").select(
        *("benchmark", "model"),
        pl.col("strategy").str.replace_all("_", " "),
        budget=budget_text(),
        **estimate(unit, "cost", scale=1),
        **estimate("accuracy (%)", "avg_at_k", CI),
        advised=pl.col("advised").fill_null(""),
        trajectories="num_trajectories",
    )
    return table_of("pareto_frontier", frame)


def stop_rules(found: pl.DataFrame, unit: str) -> ReportTable | None:
    """`outcomes` with benchmark and model: fixed budgets, the best rules, and the oracle, with the seconds that were
    computed. None without a rule."""
    if found.is_empty():
        return None
    shown = [
        pl.concat([part.filter(pl.col("kind").is_in([BUDGETED, ORACLE])), best_rules(part)]).sort("cost")
        for part in found.partition_by("benchmark", "model", maintain_order=True)
    ]
    rule = pl.col("rule").str.strip_prefix(f"{ADAPTIVE}_").str.replace(r"(at\d+-\d+-)[\d-]+-(\d+)", "${1}…-$2")
    shown_as = pl.coalesce(rule.str.replace_all("_", " "), pl.col("budget").cast(pl.String), pl.lit("no budget"))
    names = pl.when(kind=ORACLE).then(pl.lit("best of each sample")).otherwise(shown_as)
    times = {"ms": 1000 * pl.col("seconds"), "ms, probes alongside": 1000 * pl.col("seconds_beside")}
    times |= {"wasted": pl.col("wasted")}
    saved, difference, gain = "saved (%)", "difference from no budget", "gain over the mixture"
    frame = pl.concat(shown).select(
        *("benchmark", "model"),
        names.alias("budget or rule"),
        (100 * pl.col("accuracy")).alias("accuracy (%)"),
        **{unit: pl.col("cost")},
        **estimate(saved, "saved"),
        **estimate(difference, "difference"),
        **estimate(gain, "gain"),
        probes=pl.col("probes"),
        **{"stopped (%)": 100 * pl.col("stopped")},
        **(times if found["seconds"].is_not_null().any() else {}),
        **COUNTS,
    )
    return table_of("stop_rules", frame, saved, difference, gain)
