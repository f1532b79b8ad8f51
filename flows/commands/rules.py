"""`elastic plan rules`: stop rules held against the fixed budgets of a sweep's trajectory table; nothing is drawn."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import polars as pl
from rich.console import Console
from rich.table import Table

from elastic_core.errors import UserError
from elastic_core.statistics.cost import TOKENS, CostModel
from elastic_core.statistics.stop_frontier import BUDGETED, ORACLE, RULED, best_rules, outcomes, probe_price, rules_of
from elastic_core.statistics.stopping import CHEAP, COLUMNS, Thoughts, read_thoughts
from elastic_core.stop_rule import StopRule
from elastic_core.strategies import FREE, SERVED
from flows.commands.budgets import rows_of_model
from flows.commands.options import PATH, Three, cost_options, table_of_last_run, table_options
from flows.commands.report import report_parameters
from flows.runtime.environment import prepare
from reports.wording import with_bounds


@click.command()
@table_options("Only this; may be given again.")
@click.option(
    "--rule",
    "rules",
    multiple=True,
    metavar="RULE",
    help="Try this rule, like adaptive_agree2_every16 (docs/stop.md); may be given again. Without it families of them.",
)
@click.option(
    "--rho",
    type=click.FloatRange(min=0),
    metavar="RUNGS",
    help="What a probe costs, as a share of the tokens from one rung to the next. Without it what it took.",
)
@cost_options
@click.option("--output", type=PATH, metavar="FILE", help="Write every rule that was tried, as CSV.")
def rules(
    table: Path | None,
    model: str | None,
    benchmarks: Sequence[str],
    rules: Sequence[str],
    rho: float | None,
    price: Three,
    latency: Three,
    output: Path | None,
) -> None:
    """Compare stop rules with the fixed budgets of a table.

    A rule ends a thought when its answers agree. All rows are there already, so nothing is drawn. Costs are tokens
    processed, or money where there is a price: --price 1 1 1 is an engine without a prefix cache.
    """
    prepare()
    directory = table or table_of_last_run()
    parameters = report_parameters(directory, price, latency)
    costs = parameters.prices or TOKENS
    strategies = pl.col("strategy").is_in([SERVED, FREE, CHEAP])
    name, chosen, found = rows_of_model(directory, model, benchmarks, COLUMNS, strategies)
    parts = {each: found.filter(benchmark=each) for each in chosen}
    if len(chosen) > 1:
        parts["all benchmarks"] = found
    written = []
    console = Console(width=None if sys.stdout.isatty() else 250)  # A file gets every line uncut.
    for place, rows in parts.items():
        try:
            thoughts = read_thoughts(rows)
            tried = [StopRule.parse(text) for text in rules] or rules_of(thoughts)
            result = outcomes(thoughts, tried, costs, rho, parameters.latency)
        except ValueError as error:
            raise UserError(f"{directory}: {name} on {place}: {error}") from None
        console.print(_table(place, result, parameters.latency is not None))
        for sentence in _remarks(thoughts, result, costs, rho):
            console.print(sentence, soft_wrap=True, highlight=False)
        console.print()
        written.append(result.select(pl.lit(place).alias("benchmark"), pl.lit(name).alias("model"), pl.all()))
    if output is not None:
        pl.concat(written).write_csv(output)
        console.print(f"{output}: every rule that was tried", soft_wrap=True)


def _table(place: str, found: pl.DataFrame, timed: bool) -> Table:
    columns = ["accuracy (%)", "cost", "saved (%)", "difference (points)", "gain over mixture", "probes", "stopped (%)"]
    columns += ["seconds", "beside", "wasted"] if timed else []
    table = Table(box=None, pad_edge=False, title=place, title_justify="left")
    for column in ("budget or rule", *columns):
        table.add_column(column, no_wrap=True)
    shown = pl.concat([found.filter(pl.col("kind") != RULED), best_rules(found)]).sort("cost")
    for row in shown.iter_rows(named=True):
        budget = "no budget" if row["budget"] is None else f"t = {row['budget']}"
        names = {BUDGETED: budget, RULED: row["rule"], ORACLE: "best of each sample"}
        table.add_row(
            names[row["kind"]],
            f"{100 * row['accuracy']:.1f}",
            f"{row['cost']:,.1f}",
            _bounds(row, "saved", "z.1f"),
            _bounds(row, "difference", "+.1f"),
            _bounds(row, "gain", "+.1f"),
            *(_number(row[each], factor) for each, factor in (("probes", 1), ("stopped", 100))),
            *((_number(row[each], 1) for each in ("seconds", "seconds_beside", "wasted")) if timed else ()),
        )
    return table


def _bounds(row: dict[str, Any], name: str, form: str) -> str:
    if row[name] is None:
        return ""
    return with_bounds(row[name], row[f"{name}_low"], row[f"{name}_high"], form)


def _number(value: float | None, factor: int) -> str:
    return "" if value is None else f"{factor * value:.2f}".rstrip("0").rstrip(".")


def _remarks(thoughts: Thoughts, found: pl.DataFrame, costs: CostModel, rho: float | None) -> Iterator[str]:
    rules = found.filter(kind=RULED)
    measured = [f"{probe_price(thoughts, thoughts.own, costs):.2f} for an answer of {SERVED}"]
    measured += [
        f'{probe_price(thoughts, probes, costs):.2f} for "Final Answer:" with {cap} tokens'
        for cap, probes in thoughts.cheap.items()
    ]
    samples = thoughts.num_samples // len(thoughts.names)
    yield (
        f"{len(thoughts.names)} problems × {samples} samples, {rules.height} rules, of which those are shown that no "
        "other one beats; differences and gains hold for all of them together (95 %)."
    )
    charged = "charged as drawn" if rho is None else f"charged {rho:g} instead"
    yield f"A probe costs, in rungs: {', '.join(measured)}; {charged}."
    best = rules.sort("gain_low", descending=True).row(0, named=True)
    if best["gain_low"] > 0:
        yield f"{best['rule']} is worth {_bounds(best, 'gain', '+.1f')} points at equal cost."
    else:
        yield "No rule is shown to be better than the mixture of fixed budgets at equal cost."
