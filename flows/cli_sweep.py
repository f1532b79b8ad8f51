"""`elastic plan sweep` and `elastic sweep status`: what a sweep will cost, and how far it is."""

from __future__ import annotations

import click

from flows.cli_options import changes_of, settings_options

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
