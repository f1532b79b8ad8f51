"""Sweeps and their tables: costs, progress, comparison, report, grades, and the budgets that they advise."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows import presets
from flows.commands.options import (
    PATH,
    POSITIVE,
    asked,
    benchmarks_option,
    built_data,
    changes_of,
    last_run_options,
    settings_options,
    table_of_last_run,
)
from flows.runtime import environment

if TYPE_CHECKING:
    from reports.content import ReportParameters
_TABLE = "A trajectory table, runs/PRESET/sweep/KEY/table, also of a half-done sweep."


@click.group()
def plan() -> None:
    """Say what a run would cost before it runs."""


@plan.command("sweep")
@settings_options("Settings of the sweep.")
def plan_sweep(preset: str, overrides: tuple[str, ...]) -> None:
    """Say how many cells, tokens, hours and bytes a sweep takes.

    Nothing is started. The data must be built: elastic run prepare-data.
    """
    from flows.commands import tables
    from flows.runtime.run import FlowRun

    for part in tables.costs(FlowRun.begin(preset, changes_of(overrides))):
        click.echo(part)


@plan.command("serve")
@click.option("--from", "table", type=PATH, metavar="TABLE", help=f"{_TABLE} Without it the last run's.")
@click.option("--model", metavar="NAME", help="The model's name in the table; by default trained, or the only one.")
@benchmarks_option("Only this; may be given again.")
@click.option("--rate", type=POSITIVE, required=True, metavar="REQUESTS", help="Requests a second.")
@click.option(
    "--latency", type=POSITIVE, required=True, metavar="SECONDS", help="Within which 95 of 100 responses are to end."
)
@click.option(
    "--accuracy",
    type=click.FloatRange(min=0, max=100),
    metavar="PERCENT",
    help="Say how many servers answer so many requests rightly in time.",
)
@click.option(
    "--burstiness",
    type=POSITIVE,
    default=1.0,
    help="Shape of the gamma distribution of the gaps between requests, as in `vllm bench serve`; less is burstier.",
)
@click.option("--server", metavar="ADDRESS", help="Time this idle server now, http://host:8000/v1#MODEL.")
@click.option(
    "--step",
    type=click.FloatRange(min=0),
    nargs=2,
    metavar="ALONE EACH",
    help="Milliseconds from a token to the next of a response that is alone, and by how much each further one that is "
    "drawn at once makes it longer. Without it or --server what the sweep measured.",
)
@click.option(
    "--concurrent",
    type=click.IntRange(1, 16384),
    default=256,
    help="Responses that a server draws at once, its max_num_seqs.",
)
def plan_serve(
    table: Path | None,
    model: str | None,
    benchmarks: tuple[str, ...],
    accuracy: float | None,
    server: str | None,
    step: tuple[float, float] | None,
    concurrent: int,
    **load: float,
) -> None:
    """Say how many servers a load takes, and what comes of it on fewer.

    Requests are simulated; their lengths and scores are those of the table, with fixed budgets and with
    `elastic serve --latency`. Nothing is started.
    """
    environment.prepare()
    from flows.commands import plan_serve as planning

    table = table or table_of_last_run()
    name, replay = planning.read_replay(table, model, benchmarks)
    if server is not None:
        machine = planning.machine_of_server(server, replay, concurrent, environment.runs_directory())
    elif step is not None:
        machine = planning.machine_by_hand(*step, concurrent)
    else:
        machine = planning.machine_of_sweep(table, name, concurrent)
    planning.show_plan(replay, machine, planning.Load(**load), accuracy, name)


@click.group()
def sweep() -> None:
    """Look at sweeps. To run one: elastic run sweep."""


@sweep.command()
@last_run_options
def status(preset: str | None, overrides: tuple[str, ...]) -> None:
    """Say how full the sweep's grid is, also while it runs."""
    from flows.commands import tables
    from flows.runtime.run import FlowRun

    click.echo(tables.status(FlowRun.begin(*asked(preset, overrides))))


_three = partial(click.option, type=click.FloatRange(min=0), nargs=3)  # Three numbers at once.
_price = _three(
    "--price",
    metavar="INPUT CACHED OUTPUT",
    help="Prices of a million input, cached input and output tokens, to compare budgets by cost.",
)
_latency = _three(
    "--latency",
    metavar="TURN INPUT OUTPUT",
    help="Milliseconds of a turn, an input token and an output token, to show how long a response takes.",
)
_Three = tuple[float, float, float] | None


@click.command()
@click.option(
    "--from",
    "tables",
    type=PATH,
    metavar="TABLE",
    multiple=True,
    help=f"{_TABLE} Several with --bundle. Without it the last run's.",
)
@click.option("--to", "directory", type=PATH, metavar="DIR", help="Where to write it; by default beside TABLE.")
@click.option(
    "--bundle",
    type=PATH,
    metavar="DIR",
    help="Add the reports to a static site: DIR/index.html, and for each report a directory, which also has its "
    "results as records of Every Eval Ever.",
)
@_price
@_latency
def report(
    tables: tuple[Path, ...], directory: Path | None, bundle: Path | None, price: _Three, latency: _Three
) -> None:
    """Write the report of a trajectory table.

    It has figures, tables and text; its settings are the section `report` of TABLE's preset, if there is a preset of
    that name. To record it in MLflow as well: elastic run report.
    """
    environment.prepare()
    from reports.build import build_report
    from reports.bundle import add_report, write_index
    from tasks.records.stage_directory import PAGE, REPORT
    from tasks.records.tables import open_table
    from tasks.report import machine, report_sources

    if bundle is None and len(tables) > 1:
        raise click.UsageError("several --from need --bundle DIR, which holds a report of each")
    if bundle is not None and directory is not None:
        raise click.UsageError("--to and --bundle exclude each other: a bundle's reports lie below it")
    for table in tables or (table_of_last_run(),):
        parameters = _report_parameters(table, price, latency)
        sources = replace(report_sources(table, machine()), parameters=parameters)
        if bundle is not None:
            key = open_table(table).directory.parent.name
            content = add_report(sources, f"{sources.preset}-{key}", bundle)
        else:
            content = build_report(sources, directory or table.resolve().parent / "report")
        told = [f"{each.benchmark}: {each.told}" for each in content.settings]
        click.echo("\n".join([*content.brief, *told, content.verdict, *content.advice, content.coverage]))
        click.echo(content.directory / REPORT)
        click.echo((content.directory / PAGE).resolve().as_uri())
    if bundle is not None:
        click.echo(write_index(bundle).resolve().as_uri())


@click.command()
@click.option("--from", "table", type=PATH, metavar="TABLE", help=f"{_TABLE} Without it the last run's.")
@click.option("--model", metavar="NAME", help="The model's name in the table; by default trained, or the only one.")
@benchmarks_option("Choose by this benchmark; may be given again. Without it by all that the model was measured on.")
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
    "--calibrate",
    type=PATH,
    metavar="TABLE",
    help="Certify on this table of the same model, where the rungs were chosen by looking at the first.",
)
@click.option("--output", type=PATH, default=Path("budgets.json"), metavar="FILE", help="Where to write them.")
def budgets(table: Path | None, risk: float | None, confidence: float, **options: Any) -> None:
    """Choose the effort levels that a server offers.

    They are minimal, low, medium and high, and come from what a sweep measured: docs/serve.md.
    """
    environment.prepare()
    from flows.commands.budgets import write_levels
    from tasks.cards import Promise

    table = table or table_of_last_run()
    points = _report_parameters(table).margin if risk is None else risk
    promise = Promise(points / 100, round(1 - confidence / 100, 12), risk is not None)
    write_levels(table, promise=promise, **options)


@click.command()
@click.option("--from", "table", type=PATH, metavar="TABLE", help=f"{_TABLE} Without it the last run's.")
@click.option("--model", metavar="NAME", help="The model's name in the table; by default trained, or the only one.")
@benchmarks_option("Only this; may be given again.")
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
@_price
@_latency
@click.option("--output", type=PATH, metavar="FILE", help="Write every rule that was tried, as CSV.")
def rules(table: Path | None, price: _Three, latency: _Three, **options: Any) -> None:
    """Hold stop rules against the fixed budgets of a table.

    A rule ends a thought when its answers agree. All rows are there already, so nothing is drawn. Costs are tokens
    processed, or money where there is a price: --price 1 1 1 is an engine without a prefix cache.
    """
    environment.prepare()
    from elastic_core.statistics.cost import TOKENS
    from flows.commands.rules import show_rules

    table = table or table_of_last_run()
    parameters = _report_parameters(table, price, latency)
    show_rules(table, costs=parameters.prices or TOKENS, latency=parameters.latency, **options)


@click.command()
@click.argument("run_a")
@click.argument("run_b", required=False)
def compare(run_a: str, run_b: str | None) -> None:
    """Compare two sweeps, cell by cell and paired by problem.

    The table is printed, and logged to MLflow. RUN_A and RUN_B are MLflow runs of a pipeline, a sweep or a single cell,
    by id or name; or directories of sweeps, runs/PRESET/sweep/KEY. Without RUN_B it is the sweep of the last run.
    """
    from flows.commands.compare import compare as compare_runs

    environment.prepare()
    click.echo(compare_runs(run_a, run_b or str(table_of_last_run()), environment.runs_directory()))


@click.command()
@click.argument("table", type=PATH)
@built_data
@click.option(
    "--as-published",
    is_flag=True,
    help="By the rules of the programs of Elastic Reasoning, in the column published_score; our grades stay.",
)
def regrade(table: Path, data: Path | None, as_published: bool) -> None:
    """Grade the responses of TABLE again.

    TABLE is runs/PRESET/sweep/KEY/table; its answers, scores and statuses are rewritten.
    """
    from flows.commands import tables

    environment.prepare()
    click.echo(tables.regrade_table(table, data, as_published))


def _report_parameters(table: Path, price: _Three = None, latency: _Three = None) -> ReportParameters:
    """The section `report` of the preset that a table is of, what it is by default where there is no such preset; with
    what `_price` and `_latency` give."""
    from elastic_core.statistics.cost import CostModel
    from reports.content import ReportParameters
    from tasks.records.tables import open_table, preset_directory

    preset = preset_directory(open_table(table)).name
    parameters = presets.resolve(preset).report if preset in presets.names() else ReportParameters()
    changes = {} if price is None else {"prices": CostModel(*price)}
    if latency is not None:
        turn, read, written = (milliseconds / 1000 for milliseconds in latency)
        changes["latency"] = CostModel(read, 0, written, turn)
    return parameters.model_copy(update=changes)
