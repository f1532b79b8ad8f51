"""`elastic rehearse`."""

from __future__ import annotations

import click

from flows.cli_options import changes_of, settings_options


@click.command()
@settings_options("What to rehearse.")
@click.option("--ship", is_flag=True, help="Record it in flows/presets/rehearsed.json, for everyone.")
def rehearse(preset: str, overrides: tuple[str, ...], ship: bool) -> None:
    """Run a whole preset on this machine's CPU before it costs a GPU: every model is replaced by a small twin with
    random weights, everything else stays. Minutes; the same command after a crash goes on.
    """
    from rich.console import Console
    from rich.table import Table

    from flows import environment, rehearsed
    from flows.presets import resolve
    from flows.rehearse import rehearse as run

    environment.prepare()
    changes = changes_of(overrides)
    steps, missing = run(preset, changes, lambda line: click.echo(line, err=True))
    table = Table("stage", "seconds", "exercised")
    for step in steps:
        table.add_row(step.stage, f"{step.seconds:.0f}" if step.seconds else "", step.exercised)
    Console().print(table)
    if missing:
        click.echo(f"Not to be seen on a CPU: {'; '.join(missing)}.")
    settings = resolve(preset, changes)
    if ship:
        rehearsed.ship(settings)
    click.echo(f"{settings.preset} passes its rehearsal")
