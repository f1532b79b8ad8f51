"""Does training under a budget make stopping better? For each model and benchmark of a table a stop rule is chosen on
one half of the problems, and held against no budget, the mixture of fixed budgets, and base's rule on the other half
(docs/stop.md).

    python -m tests.bench.bench_stopping TABLE [--rho 0.05]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from elastic_core.seeds import problem_digest
from elastic_core.statistics.cost import TOKENS
from elastic_core.statistics.estimates import ratio_of_means, seeds_as_one
from elastic_core.statistics.intervals import mean_interval, seed_half_widths, simultaneous, with_seeds
from elastic_core.statistics.stop_frontier import RULED, fixed_costs, mixture, outcomes, rules_of
from elastic_core.statistics.stopping import COLUMNS, Thoughts, fold, read_thoughts
from elastic_core.stop_rule import StopRule
from elastic_core.trajectory import KEY
from reports.wording import with_bounds
from tasks.records.tables import open_table, sound_rows
from tests.bench import results

MARGIN = 0.03
"""How far below no budget a rule may be on the half that it is chosen on."""
BASE = "base"


class Reported(NamedTuple):
    """Of a rule on the half that it was not chosen on: by seed and problem, what it saves (linearised), loses and gains
    over the mixture; and the share saved."""

    rule: str
    saved: float
    linear: np.ndarray
    lost: np.ndarray
    gained: np.ndarray


def halves(rows: pl.DataFrame, benchmark: str) -> tuple[Thoughts, Thoughts]:
    """The thoughts of the problems that design, and of those that report."""
    even = [name for name in rows["problem"].unique() if int(problem_digest(benchmark, name), 16) % 2 == 0]
    designs = pl.col("problem").is_in(even)
    return read_thoughts(rows.filter(designs)), read_thoughts(rows.filter(~designs))


def reported(rows: pl.DataFrame, benchmark: str, rho: float) -> Reported | None:
    design, report = halves(rows, benchmark)
    found = outcomes(design, rules_of(design), TOKENS, rho).filter(pl.col("difference") >= -MARGIN, kind=RULED)
    if found.is_empty():
        return None
    rule = StopRule.parse(found.sort("cost").row(0, named=True)["rule"])
    folded = fold(report, rule, rho)
    costs = report.by_problem(folded.work @ np.array(TOKENS.prices))
    free = report.by_problem(fixed_costs(report, TOKENS)[:, -1])
    ratio, _, _ = ratio_of_means(costs, free)
    scores = report.by_problem(folded.scores)
    mixed = report.by_problem(mixture(report, TOKENS, float(costs.mean())))
    lost = scores - report.by_problem(report.free)
    return Reported(str(rule), 1 - ratio, (ratio * free - costs) / free.mean(), lost, scores - mixed)


def interval(mean: float, values: np.ndarray) -> tuple[float, float, float]:
    (added,) = seed_half_widths([values])
    low, high = with_seeds(0.0, mean_interval(values.mean(axis=0)), added)
    return mean, mean + low, mean + high


def main(options: argparse.Namespace) -> int:
    if options.table is None:
        print(f"{results.SKIPPED}give the trajectory table of several trainings")
        return 0
    columns = list(dict.fromkeys((*KEY, *COLUMNS)))
    rows = seeds_as_one(sound_rows(open_table(options.table), columns))
    shown = Table(
        "benchmark", "model", "rule", "saved (%)", "from no budget", "over the mixture", "saved more than base"
    )
    figures: dict[str, Any] = {}
    for (benchmark,), part in sorted(rows.partition_by("benchmark", as_dict=True).items()):
        models = sorted(part["model"].unique(), key=lambda name: (name != BASE, name))
        found = {name: reported(part.filter(model=name), str(benchmark), options.rho) for name in models}
        base = found.get(BASE)
        for name, one in found.items():
            if one is None:
                shown.add_row(str(benchmark), name, f"none is within {100 * MARGIN:g} points")
                continue
            saved = interval(one.saved, one.linear)
            ends = [simultaneous([values], [0])[0][:3] for values in (one.lost, one.gained)]
            more = None
            if base is not None and name != BASE:
                more = interval(one.saved - base.saved, one.linear - base.linear)
            texts = [with_bounds(*saved, "z.1f"), *(with_bounds(*end, "+.1f") for end in ends)]
            shown.add_row(str(benchmark), name, one.rule, *texts, with_bounds(*more, "+.1f") if more else "")
            names = ("saved", "from_no_budget", "over_the_mixture", "more_than_base")
            figures[f"{benchmark} {name}"] = {"rule": one.rule, **dict(zip(names, (saved, *ends, more), strict=True))}
            figures[f"{benchmark} {name}"]["num_problems"] = one.lost.shape[1]
    results.write("stopping", figures)
    Console(width=200).print(shown)
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, nargs="?")
    parser.add_argument("--rho", type=float, default=0.05, help="price of a probe in rungs")
    sys.exit(main(parser.parse_args()))
