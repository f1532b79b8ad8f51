"""`elastic plan sweep` and `elastic sweep status`: what a sweep will cost, and how far it is."""

from __future__ import annotations

import click

_PRESET = click.option("--preset", default="embedded", show_default=True, help="Settings of the sweep.")
_SET = click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Replace one setting.")


@click.group()
def plan() -> None:
    """Say what a run would cost before it runs."""


@plan.command("sweep")
@_PRESET
@_SET
def plan_sweep(preset: str, overrides: tuple[str, ...]) -> None:
    """Cells, tokens, time and disk space of a sweep; nothing is started."""
    from flows import environment, presets, sweep_status

    environment.prepare()
    click.echo(sweep_status.costs(preset, dict(presets.parse_override(text) for text in overrides)))


@click.group()
def sweep() -> None:
    """Look at sweeps. To run one: elastic run sweep."""


@sweep.command()
@_PRESET
@_SET
def status(preset: str, overrides: tuple[str, ...]) -> None:
    """How far the grid is filled, also while the sweep runs."""
    from flows import environment, presets, sweep_status

    environment.prepare()
    click.echo(sweep_status.status(preset, dict(presets.parse_override(text) for text in overrides)))
