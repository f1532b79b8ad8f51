"""`elastic report`: figures, tables and text of a trajectory table, or of a preset's finished sweep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from elastic_core.errors import printable
from elastic_core.statistics.cost import CostModel
from flows import presets
from flows.commands.options import (
    PATH,
    TABLE_FORMS,
    Three,
    cost_options,
    settings_options,
    table_of_last_run,
    verbose_option,
)
from flows.commands.run import REPORT_FLOW, start
from flows.runtime.environment import prepare
from reports.content import ReportParameters
from tasks.records.stage_directory import PAGE, REPORT, RESOLVED
from tasks.records.tables import open_table, preset_directory


@click.command()
@click.argument("named", type=PATH, metavar="[TABLE]...", nargs=-1)
@click.option(
    "--from",
    "tables",
    type=PATH,
    metavar="TABLE",
    multiple=True,
    help=f"{TABLE_FORMS} Several with --bundle. Without it the last run's.",
)
@click.option("--to", "directory", type=PATH, metavar="DIR", help="Where to write it; by default beside TABLE.")
@click.option(
    "--bundle",
    type=PATH,
    metavar="DIR",
    help="Add the reports to a static site: DIR/index.html, and for each report a directory, which also has its "
    "results as records of Every Eval Ever.",
)
@click.option("--latex", is_flag=True, help="Write each table as LaTeX too, for a paper with the package booktabs.")
@settings_options("Write the report of its finished sweep, and record it in MLflow.", None)
@verbose_option
@cost_options
def report(
    named: tuple[Path, ...],
    tables: tuple[Path, ...],
    directory: Path | None,
    bundle: Path | None,
    preset: str | None,
    overrides: dict[str, Any],
    verbose: bool,
    price: Three,
    latency: Three,
    latex: bool,
) -> None:
    """Write the report of a sweep, whose TABLE may be named with or without --from.

    It has figures, tables and text. Its settings are the section `report` of the preset that TABLE is of, if there is
    one of that name. With --preset or --set it is a stage, recorded in MLflow, and the sweep must be finished.
    """
    tables = (*named, *tables)
    if preset or overrides:
        if tables or directory or bundle or price or latency or latex:
            raise click.UsageError(
                "--preset and --set take none of TABLE, --to, --bundle, --price, --latency and --latex (they have "
                "--set report.latex=true)"
            )
        start(REPORT_FLOW, *presets.given_or_last(preset, overrides), verbose=verbose)
        return
    prepare()
    from reports.build import build_report
    from reports.bundle import add_report, write_index
    from tasks.report import machine, report_sources

    if bundle is None and len(tables) > 1:
        raise click.UsageError("several tables need --bundle DIR, which holds a report of each")
    if bundle is not None and directory is not None:
        raise click.UsageError("--to and --bundle exclude each other: a bundle's reports lie below it")
    for table in tables or (table_of_last_run(),):
        parameters = report_parameters(table, price, latency, latex)
        opened = open_table(table)
        own = preset_directory(opened) / RESOLVED
        made_by = {"preset": str(own)} if own.parent.name not in presets.names() and own.exists() else {}
        sources = replace(report_sources(table, {**made_by, **machine()}), parameters=parameters)
        if bundle is not None:
            key = opened.directory.parent.name
            content = add_report(sources, f"{sources.preset}-{key}", bundle)
        else:
            content = build_report(sources, directory or table.resolve().parent / "report")
        lines = [
            f"{each.benchmark}: {each.told}" + (f". Next: {each.command}" if each.command else "")
            for each in content.settings
        ]
        told = [*content.brief, *lines, content.verdict, *content.advice, content.coverage]
        click.echo(printable("\n".join(told)))
        click.echo(content.directory / REPORT)
        click.echo((content.directory / PAGE).resolve().as_uri())
    if bundle is not None:
        click.echo(write_index(bundle).resolve().as_uri())


def report_parameters(table: Path, price: Three = None, latency: Three = None, latex: bool = False) -> ReportParameters:
    """Return the section `report` of the preset that a table is of, or the default one without such a preset,
    with the values of `cost_options`."""
    preset = preset_directory(open_table(table)).name
    parameters = presets.resolve(preset).report if preset in presets.names() else ReportParameters()
    changes: dict[str, Any] = {"latex": True} if latex else {}
    if price is not None:
        changes["prices"] = CostModel(*price)
    if latency is not None:
        turn, read, written = (milliseconds / 1000 for milliseconds in latency)
        changes["latency"] = CostModel(read, 0, written, turn)
    return parameters.model_copy(update=changes)
