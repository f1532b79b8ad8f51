"""Sweeps and their tables: what they will cost, how far they are, how they compare, their report, their grades."""

from __future__ import annotations

from pathlib import Path

import click

from flows.cli.options import PATH, built_data, changes_of, settings_options

_OPTIONS = settings_options("Settings of the sweep.")


@click.group()
def plan() -> None:
    """Say what a run would cost before it runs."""


@plan.command("sweep")
@_OPTIONS
def plan_sweep(preset: str, overrides: tuple[str, ...]) -> None:
    """Cells, tokens, time and disk space of a sweep; nothing is started."""
    from flows import environment, sweep_status

    environment.prepare()
    click.echo(sweep_status.costs(preset, changes_of(overrides)))


@click.group()
def sweep() -> None:
    """Look at sweeps. To run one: elastic run sweep."""


@sweep.command()
@_OPTIONS
def status(preset: str, overrides: tuple[str, ...]) -> None:
    """How far the grid is filled, also while the sweep runs."""
    from flows import environment, sweep_status

    environment.prepare()
    click.echo(sweep_status.status(preset, changes_of(overrides)))


@click.command()
@click.option(
    "--from",
    "table",
    type=PATH,
    metavar="TABLE",
    required=True,
    help="A trajectory table, runs/PRESET/sweep/KEY/table; its sweep may be half done.",
)
@click.option("--to", "directory", type=PATH, metavar="DIR", help="Where to; beside TABLE by default.")
@click.option(
    "--price",
    type=click.FloatRange(min=0),
    nargs=3,
    metavar="INPUT CACHED OUTPUT",
    help="Of a million input, cached input and output tokens: what responses cost, by which budgets are compared.",
)
@click.option(
    "--latency",
    type=click.FloatRange(min=0),
    nargs=3,
    metavar="TURN INPUT OUTPUT",
    help="Milliseconds of a turn, an input token and an output token: how long responses take.",
)
def report(
    table: Path,
    directory: Path | None,
    price: tuple[float, float, float] | None,
    latency: tuple[float, float, float] | None,
) -> None:
    """Figures, tables and text of a trajectory table. To report a preset's sweep and record it: elastic run report.

    It is made as the section `report` of the preset that TABLE is of says, where there is a preset of that name.
    """
    from flows import environment, presets

    environment.prepare()
    from dataclasses import replace

    from elastic_core.statistics.cost import CostModel
    from reports.build import build_report
    from reports.parameters import ReportParameters
    from tasks.report import machine, report_sources
    from tasks.stage import open_table, preset_directory

    preset = preset_directory(open_table(table)).name
    parameters = presets.resolve(preset).report if preset in presets.names() else ReportParameters()
    if price is not None:
        parameters = parameters.model_copy(update={"prices": CostModel(*price)})
    if latency is not None:
        turn, read, written = (milliseconds / 1000 for milliseconds in latency)
        parameters = parameters.model_copy(update={"latency": CostModel(read, 0, written, turn)})
    sources = replace(report_sources(table, machine()), parameters=parameters)
    content = build_report(sources, directory or table.resolve().parent / "report")
    click.echo("\n".join([content.verdict, *content.advice]))
    if content.coverage is not None:
        click.echo(content.coverage)
    click.echo(content.directory / "report.md")
    click.echo((content.directory / "report.html").resolve().as_uri())


@click.command()
@click.argument("run_a")
@click.argument("run_b")
def compare(run_a: str, run_b: str) -> None:
    """Compare two sweeps, cell by cell and paired by problem; the table is printed, and logged to MLflow.

    RUN_A and RUN_B are MLflow runs (of a pipeline, a sweep or a single cell; by id or name), or directories of sweeps
    (runs/PRESET/sweep/KEY).
    """
    from flows import environment
    from flows.compare import compare as compare_runs

    environment.prepare()
    click.echo(compare_runs(run_a, run_b, environment.runs_directory()))


@click.command()
@click.argument("table", type=PATH)
@built_data
def regrade(table: Path, data: Path | None) -> None:
    """Grade TABLE (runs/PRESET/sweep/KEY/table) once more; answers, scores and statuses are rewritten."""
    from flows import environment, tables

    environment.prepare()
    click.echo(tables.regrade_table(table, data))
