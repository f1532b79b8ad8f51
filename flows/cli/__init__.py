"""The `elastic` command. Only click is imported here, so that --help answers at once.

In this file is what runs, and what can be known before it costs anything: of this machine, of a preset, of a GPU.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click

from elastic_core.errors import UserError
from flows.cli.data import data
from flows.cli.models import ask, export, model, playground, serve, train
from flows.cli.options import PORT, changes_of, settings_options
from flows.cli.sweeps import budgets, compare, plan, regrade, report, sweep
from flows.cli.templates import templates

FLOWS = ("prepare-data", "warm-start", "train", "sweep", "report", "pipeline", "ablation", "nightly")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Train and measure reasoning models under a token budget."""


@cli.command()
@click.argument("flow", type=click.Choice(FLOWS), metavar="FLOW")
@settings_options("Settings to run with.")
@click.option("--mirror", metavar="DIR", help="Local tree of source files; the same as --set data.mirror=DIR.")
@click.option(
    "--until", metavar="ci=POINTS", help="Add samples until every cell's 95 % interval is within ±POINTS percent."
)
def run(flow: str, preset: str, overrides: tuple[str, ...], mirror: str | None, until: str | None) -> None:
    """Run FLOW here and now: prepare-data, warm-start, train, sweep, report, pipeline (all of them), ablation or
    nightly.

    The same command after a crash finishes what is missing; after success it does nothing and says so.
    """
    from flows import doctor, environment, presets

    changes = changes_of(overrides)
    if mirror is not None:
        changes["data.mirror"] = mirror
    if until is not None:
        changes["sweep.until_ci"] = _points(until)
    settings = presets.resolve(preset, changes)  # Bad input is refused before anything starts.
    environment.prepare()
    environment.end_orphaned_servers()
    # On a cluster the GPUs are elsewhere.
    gpus = 1 if settings.ray.running is None else 0
    doctor.require(*doctor.check_machine(environment.runs_directory(), gpus=gpus))
    started = time.perf_counter()
    if flow == "prepare-data":
        from flows.data import finished

        if built := finished(preset, changes):
            click.echo(f"data: done before, nothing to do\n{built}")
            return
    result = _load(flow)(preset=preset, overrides=changes)
    _mute_farewell()
    click.echo(f"{flow} finished in {time.perf_counter() - started:.0f} s")
    click.echo(result)


@cli.command()
@settings_options("Whose model, GPUs and cluster to check.")
def doctor(preset: str, overrides: tuple[str, ...]) -> None:
    """Check that this machine can run the pipeline."""
    from flows import doctor, environment

    environment.prepare()
    sys.exit(doctor.main(preset, changes_of(overrides)))


@cli.command()
def presets() -> None:
    """List the presets, and which of them may be used: those that have passed their rehearsal as they are."""
    from flows import environment, presets, rehearsal

    rehearsals = environment.runs_directory() / rehearsal.REHEARSALS
    usable = {name: rehearsal.is_usable(presets.resolve(name), rehearsals) for name in presets.names()}
    for name, passed in usable.items():
        click.echo(f"{name:{max(map(len, usable))}}  {'rehearsed' if passed else 'not rehearsed'}")
    if not all(usable.values()):
        click.echo("\nBefore one that is not is used, or after a change: elastic rehearse --preset NAME")


@cli.command()
@settings_options("What to rehearse.")
@click.option("--ship", is_flag=True, help="Record it in flows/presets/rehearsed.json, for everyone.")
def rehearse(preset: str, overrides: tuple[str, ...], ship: bool) -> None:
    """Run a whole preset on this machine's CPU before it costs a GPU: every model is replaced by a small twin with
    random weights, everything else stays. Minutes; the same command after a crash goes on.
    """
    from rich.console import Console
    from rich.table import Table

    from flows import environment, rehearsal
    from flows.presets import resolve

    environment.prepare()
    changes = changes_of(overrides)
    steps, missing = rehearsal.rehearse(preset, changes, lambda line: click.echo(line, err=True))
    table = Table("stage", "seconds", "exercised")
    for step in steps:
        table.add_row(step.stage, f"{step.seconds:.0f}" if step.seconds else "", step.exercised)
    Console().print(table)
    if missing:
        click.echo(f"Not to be seen on a CPU: {'; '.join(missing)}.")
    settings = resolve(preset, changes)
    if ship:
        rehearsal.ship(settings)
    click.echo(f"{settings.preset} passes its rehearsal")


@cli.command("gpu-check")
def gpu_check() -> None:
    """Show on this machine's GPUs what a CPU cannot: gradients, speed, five steps of GRPO that are killed and go on, a
    sweep, the report. It leaves runs/gpu-evidence; the same command after a crash goes on. `make gpu` installs first.
    """
    from flows import environment
    from flows.gpu_check import gpu_check as run

    environment.prepare()
    told, sound = run(click.echo)
    click.echo(told)
    sys.exit(0 if sound else 1)


@cli.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--prefect-port", type=PORT, default=4200, show_default=True)
@click.option("--mlflow-port", type=PORT, default=5000, show_default=True)
@click.option(
    "--database",
    metavar="URL",
    envvar="ELASTIC_DATABASE",
    show_envvar=True,
    help="PostgreSQL server, postgresql://USER:PASSWORD@HOST:PORT, with a database for each: prefect and mlflow. "
    "SQLite files without it. Every user of the machine can read a command line: with a password, use the variable.",
)
def up(host: str, prefect_port: int, mlflow_port: int, database: str | None) -> None:
    """Start a Prefect server, an MLflow server and a worker for the deployments; Ctrl-C stops them."""
    from flows import services

    services.up(services.ServicesParameters(host, prefect_port, mlflow_port, database))


_COMMANDS = (
    *(data, templates, model, train, export, ask, playground),
    *(serve, plan, sweep, report, compare, budgets, regrade),
)
for _command in _COMMANDS:
    cli.add_command(_command)


def _points(until: str) -> float:
    """2.0 of "ci=2.0"."""
    name, _, points = until.partition("=")
    with suppress(ValueError):
        if name.strip() == "ci":
            return float(points)
    raise UserError(f'--until {until}: expected ci=POINTS, like "ci=2.0"')


def _load(flow: str) -> Callable[..., Any]:
    """The flow function; importing Prefect takes most of a second, so only when it runs."""
    import importlib

    module = {"prepare-data": "data", "warm-start": "train"}.get(flow, flow)
    return getattr(importlib.import_module(f"flows.{module}"), flow.replace("-", "_"))


def _mute_farewell() -> None:
    """Without PREFECT_API_URL a flow's temporary server says goodbye at exit, after what must be our last line."""
    import logging

    logging.getLogger("prefect").setLevel(logging.WARNING)


def main() -> None:
    """Entry point: errors of the user's making are one sentence and exit status 2."""
    try:
        cli()
    except UserError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
