"""`elastic plan budgets`: effort levels chosen from a sweep's trajectory table, for `elastic serve`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import polars as pl
from rich.console import Console
from rich.table import Table

from elastic_core.errors import UserError, nearest, printable
from elastic_core.serving.choice import Choice
from elastic_core.serving.levels import EFFORTS, Gain, Levels
from elastic_core.statistics.responses import LEAK
from elastic_core.statistics.which_budget import Reason
from elastic_core.strategies import FREE, SERVED
from elastic_core.sweep.table import SweepTable
from elastic_core.trajectory import KEY
from flows.commands.options import PATH, table_of_last_run, table_options
from flows.commands.report import report_parameters
from flows.runtime.environment import prepare
from reports.summary import TRAINED
from reports.wording import with_bounds
from tasks.cards import Promise, measured_levels, measured_models
from tasks.records.tables import open_table, sound_rows


@click.command()
@table_options("Choose by this benchmark; may be given again. Without it by all that the model was measured on.")
@click.option(
    "--risk",
    type=click.FloatRange(min=0, max=100, min_open=True),
    metavar="POINTS",
    help="How many points of accuracy the highest level may be below responses without a limit: certified, or refused. "
    "Without it the preset's report.margin, and where nothing is certified the most accurate budget.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(min=50, max=100, max_open=True),
    default=95,
    metavar="PERCENT",
    help="Of the certificate.",
)
@click.option(
    "--leak",
    type=click.FloatRange(min=0, max=100),
    default=100 * LEAK,
    metavar="PERCENT",
    help="No level goes on thinking in more of its solutions, as far as --confidence shows.",
)
@click.option(
    "--calibrate",
    type=PATH,
    metavar="TABLE",
    help="Certify on this table of the same model, where the rungs were chosen by looking at the first.",
)
@click.option("--output", type=PATH, default=Path("budgets.json"), metavar="FILE", help="Where to write them.")
def budgets(
    table: Path | None,
    model: str | None,
    benchmarks: Sequence[str],
    risk: float | None,
    confidence: float,
    leak: float,
    calibrate: Path | None,
    output: Path,
) -> None:
    """Choose the effort levels of a server.

    They are minimal, low, medium and high, chosen by the measurements of a sweep: docs/serve.md.
    """
    prepare()
    directory = table or table_of_last_run()
    points = report_parameters(directory).margin if risk is None else risk
    promise = Promise(points / 100, round(1 - confidence / 100, 12), risk is not None, leak / 100)
    measured = open_table(directory)
    other = None if calibrate is None else open_table(calibrate)
    levels, choice = measured_levels(measured, one_model(measured, model), benchmarks, promise, calibration=other)
    levels.write(output)
    console = Console(markup=False, emoji=False)  # Names of models are anyone's.
    shown = Table("level", "t + s", "accuracy (%)", "gain (points)", "tokens", "p95", box=None, pad_edge=False)
    for name, level in levels.levels.items():
        shown.add_row(
            name,
            level.shown,
            with_bounds(level.accuracy, level.accuracy_low, level.accuracy_high),
            _shown(level.gain) if level.gain else "",
            f"{level.tokens_mean:.0f}",
            f"{level.tokens_p95:.0f}",
        )
    console.print(shown)
    for sentence in remarks(levels, choice):
        console.print(printable(sentence), soft_wrap=True, highlight=False)
    console.print(f"{output}: put it beside the model's weights, for elastic serve to offer", soft_wrap=True)


def remarks(levels: Levels, choice: Choice) -> list[str]:
    """Sentences: the budgets and rules considered, the reason for `high`, and the differences that are not certain."""
    high, margin = levels.levels["high"], f"{100 * levels.margin:g} points"
    rules = f", and {choice.num_rules} stop rule{'s' * (choice.num_rules > 1)}" if choice.num_rules else ""
    found = [
        f"{levels.model} on {', '.join(levels.benchmarks)}: {high.num_problems} problems × {high.num_samples} samples "
        f"under {choice.num_budgets} budgets of {levels.strategy}, {choice.num_frontier} of them on the frontier of "
        f"accuracy and tokens{rules}."
    ]
    if choice.left_out:
        found.append(f"{choice.left_out} budgets have not all problems yet and were left out: finish the sweep.")
    if choice.num_leaky:
        found.append(f"{choice.num_leaky} budgets were left out, as their solutions go on thinking too often (--leak).")
    if isinstance(choice.rule, Reason):
        why = str(choice.rule).replace("the margin", margin)
        more = f": sweep the strategy {FREE} too" if choice.rule == Reason.UNMEASURED else ""
        found.append(f"high is the most accurate budget, as no budget is advised: {why}{more}.")
    else:
        what = "the stop rule" if high.rule else "the budget"
        on = " on each benchmark" if len(levels.benchmarks) > 1 else ""
        cap = f", some of which were cut at {choice.cap:,} tokens" if choice.cap else ""
        found += [
            "The certificate is for problems like these and for these weights; for harder problems, another task, or "
            "another training of the same recipe, it promises nothing.",
            f"high is {what} to set: the cheapest that is certified, with {100 * (levels.confidence or 0):g} % "
            f"confidence, to be at most {margin} below responses without a limit{on}{cap}; as measured "
            f"{_shown(choice.rule)} points.",
        ]
    if missing := [name for name in EFFORTS if name not in levels.levels]:
        found.append(f"No budget of its own for {', '.join(missing)}: measure more budgets for more levels.")
    if unsure := [name for name, level in levels.levels.items() if level.gain and level.gain.low <= 0]:
        found.append(
            f"Not shown to be more accurate than the level below: {', '.join(unsure)}; more problems would tell."
        )
    return found


def _shown(gain: Gain) -> str:
    return with_bounds(gain.mean, gain.low, gain.high, "+.1f")


def one_model(table: SweepTable, model: str | None) -> str:
    """Return the name of a table's model: the given one, else the trained one, as in a report, or the only one. Raises
    UserError without such a model."""
    rows = table.scan()
    known = measured_models(rows)
    if not known:
        strategies = rows.select("strategy").unique().collect()["strategy"].sort().to_list()
        raise UserError(
            f"{table.directory}: no model that can be served has rows of {SERVED} with limited budgets, by which "
            f"levels are chosen (its strategies: {', '.join(strategies) or 'none, it is empty'}); sweep with "
            f"--set sweep.strategies='[\"{SERVED}\"]'"
        )
    if model is None and TRAINED in known:
        return TRAINED
    if model is None and len(known) > 1:
        raise UserError(f"{table.directory} has several models; give --model with one of: {', '.join(known)}")
    if model is not None and model not in known:
        raise UserError(
            f"--model {model}: no single model of that name has rows of {SERVED} with limited budgets"
            f"{nearest(model, known)}; there are: {', '.join(known)}"
        )
    return model or known[0]


def rows_of_model(
    directory: Path, model: str | None, benchmarks: Sequence[str], columns: Sequence[str], *wanted: pl.Expr
) -> tuple[str, list[str], pl.DataFrame]:
    """Return the name of `one_model`, the benchmarks (without any, all that it was measured on), and its rows of these.
    Raises UserError where there are none."""
    table = open_table(directory)
    name = one_model(table, model)
    found = sound_rows(table, list(dict.fromkeys((*KEY, *columns))), pl.col("model") == name, *wanted)
    known = found["benchmark"].unique().sort().to_list()
    if wrong := [each for each in benchmarks if each not in known]:
        raise UserError(f"--benchmark {wrong[0]}: {name} was not measured on it; there are: {', '.join(known)}")
    chosen = list(dict.fromkeys(benchmarks)) or known
    return name, chosen, found.filter(pl.col("benchmark").is_in(chosen))
