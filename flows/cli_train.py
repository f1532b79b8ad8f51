"""`elastic train --dry-run`: what verl would be told."""

from __future__ import annotations

import click

from elastic_core.errors import UserError
from flows.cli_options import changes_of, settings_options


@click.command()
@click.option(
    "--dry-run", is_flag=True, help="Print verl's whole configuration as YAML; nothing is started, nor fetched."
)
@settings_options("Settings of the training.")
def train(dry_run: bool, preset: str, overrides: tuple[str, ...]) -> None:
    """Look at a training. To run one: elastic run train."""
    from elastic_core.hub import is_local
    from flows import doctor, presets, train_settings

    if not dry_run:
        raise UserError(f"nothing to look at; give --dry-run, or to train: elastic run train --preset {preset}")
    settings = presets.resolve(preset, changes_of(overrides))
    here = [use for use in doctor.models_in_use(settings) if is_local(use.model)]
    composed = train_settings.composed(settings)
    doctor.require(*doctor.look(here))
    click.echo(composed, nl=False)
