"""`elastic report`: the report of a table, where the sweep's own flow is not asked."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--from",
    "table",
    type=click.Path(path_type=Path),
    metavar="TABLE",
    required=True,
    help="A trajectory table, runs/PRESET/sweep/KEY/table; its sweep may be half done.",
)
@click.option(
    "--to", "directory", type=click.Path(path_type=Path), metavar="DIR", help="Where to; beside TABLE by default."
)
@click.option("--price", type=click.FloatRange(min=0), help="Of a million output tokens, to say what responses cost.")
def report(table: Path, directory: Path | None, price: float | None) -> None:
    """Figures, tables and text of a trajectory table. To report a preset's sweep and record it: elastic run report."""
    from flows import environment

    environment.prepare()
    from reports.build import build_report
    from tasks.report import machine
    from tasks.report_sources import report_sources

    sources = report_sources(table, machine(), price)
    content = build_report(sources, directory or table.resolve().parent / "report")
    click.echo(content.verdict)
    if content.coverage is not None:
        click.echo(content.coverage)
    click.echo(content.directory / "report.md")
    click.echo((content.directory / "report.html").resolve().as_uri())
