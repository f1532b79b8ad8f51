"""What can be known before it costs anything: of this machine, of a preset, of a GPU."""

from __future__ import annotations

import sys

import click

from flows.cli.options import changes_of, settings_options


@click.command()
@settings_options("Whose model, GPUs and cluster to check.")
def doctor(preset: str, overrides: tuple[str, ...]) -> None:
    """Check that this machine can run the pipeline."""
    from flows import doctor, environment

    environment.prepare()
    sys.exit(doctor.main(preset, changes_of(overrides)))


@click.command()
def presets() -> None:
    """List the presets, and which of them may be used: those that have passed their rehearsal as they are."""
    from flows import environment, presets, rehearsed

    rehearsals = environment.runs_directory() / rehearsed.REHEARSALS
    usable = {name: rehearsed.is_usable(presets.resolve(name), rehearsals) for name in presets.names()}
    for name, passed in usable.items():
        click.echo(f"{name:{max(map(len, usable))}}  {'rehearsed' if passed else 'not rehearsed'}")
    if not all(usable.values()):
        click.echo("\nBefore one that is not is used, or after a change: elastic rehearse --preset NAME")


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


@click.command("gpu-check")
def gpu_check() -> None:
    """Show on this machine's GPUs what a CPU cannot: gradients, speed, five steps of GRPO that are killed and go on, a
    sweep, the report. It leaves runs/gpu-evidence; the same command after a crash goes on. `make gpu` installs first.
    """
    from flows import environment
    from flows.gpu_check.check import gpu_check as run

    environment.prepare()
    told, sound = run(click.echo)
    click.echo(told)
    sys.exit(0 if sound else 1)
