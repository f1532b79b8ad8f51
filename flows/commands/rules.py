"""`elastic plan rules`: stop rules held against the fixed budgets of a sweep's trajectory table; nothing is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import polars as pl

from elastic_core.errors import UserError
from elastic_core.statistics.cost import TOKENS, CostModel
from elastic_core.statistics.stop_frontier import RULED, outcomes, probe_price, rules_of
from elastic_core.statistics.stopping import CHEAP, COLUMNS, Thoughts, read_thoughts
from elastic_core.stop_rule import StopRule
from elastic_core.strategies import FREE, SERVED
from flows.commands.budgets import rows_of_model
from flows.commands.options import PATH, Three, cost_options, table_of_last_run, table_options
from flows.commands.report import report_parameters
from flows.runtime.environment import prepare
from reports.comparison import render, terminal_table
from reports.tables import COUNTS
from reports.tables.costs import stop_rules
from reports.wording import texts, with_bounds


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
    for place, rows in parts.items():
        try:
            thoughts = read_thoughts(rows)
            tried = [StopRule.parse(text) for text in rules] or rules_of(thoughts)
            result = outcomes(thoughts, tried, costs, rho, parameters.latency).select(
                *(pl.lit(each).alias(column) for column, each in (("benchmark", place), ("model", name))), pl.all()
            )
        except ValueError as error:
            raise UserError(f"{directory}: {name} on {place}: {error}") from None
        shown = stop_rules(result, "cost")
        assert shown is not None, "budgets are there"
        lines = terminal_table(shown.frame.drop("benchmark", "model", *COUNTS), set(shown.signed))
        click.echo(render(place, lines, *_remarks(thoughts, result, costs, rho)))
        written.append(result)
    if output is not None:
        pl.concat(written).write_csv(output)
        click.echo(f"{output}: every rule that was tried")


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
        "other one beats; differences and gains hold for all of them together (95 %). *: the interval excludes 0."
    )
    charged = "charged as drawn" if rho is None else f"charged {rho:g} instead"
    yield f"{texts('shared')['rules']} Strategies have the full names, as --output writes them."
    yield f"A probe costs, in rungs: {', '.join(measured)}; {charged}."
    best = rules.sort("gain_low", descending=True).row(0, named=True)
    if best["gain_low"] > 0:
        gain = with_bounds(best["gain"], best["gain_low"], best["gain_high"], "+.1f")
        yield f"{best['rule']} is worth {gain} points at equal cost."
    else:
        yield "No rule is shown to be better than the mixture of fixed budgets at equal cost."
