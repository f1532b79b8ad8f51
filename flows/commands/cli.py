"""The `elastic` command. Only click is imported here, so that --help answers at once.

In this file is what runs, and what can be known before it costs anything: of this machine, of a preset, of a GPU.
"""

from __future__ import annotations

import shlex
import signal
import sys
from contextlib import nullcontext, suppress
from importlib.util import find_spec
from typing import Any

import click

from elastic_core.errors import UserError, no_memory, no_space
from elastic_core.system.network import bypass_proxies
from elastic_core.system.private_stores import use_private_directory
from elastic_core.system.processes import attended
from flows.commands.data import data
from flows.commands.models import ask, export, model, playground, serve, vllm_flags
from flows.commands.options import (
    PORT,
    OneOf,
    benchmarks_option,
    changes_of,
    family_option,
    sentence,
    settings_options,
)
from flows.commands.sweeps import budgets, compare, plan, regrade, report, rules, sweep
from flows.commands.templates import templates
from flows.presets import resolve
from flows.runtime import environment

_ATTENDED = ("run", "evaluate", "rehearse", "up")
"""Commands that start servers, clusters and processes, which Ctrl-C is to end in seconds."""
FLOWS = ("prepare-data", "warm-start", "train", "sweep", "report", "pipeline", "ablation", "nightly")
_mirror = click.option("--mirror", metavar="DIR", help="Local tree of source files; the same as --set data.mirror=DIR.")
_verbose = click.option(
    "-v", "--verbose", is_flag=True, help="Show what Prefect, Ray, vLLM and MLflow say, not only log it."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
def cli() -> None:
    """Train and measure reasoning models under a token budget."""
    use_private_directory(new_if_taken=True)
    bypass_proxies()


@cli.command()
@click.argument("flow", type=OneOf(FLOWS), metavar="FLOW")
@settings_options("Settings to run with.")
@_mirror
@click.option(
    "--until", metavar="ci=POINTS", help="Add samples until every cell's 95 % interval is within ±POINTS points."
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the resolved settings as a preset; of train and warm-start verl's configuration. Nothing is started.",
)
@_verbose
def run(
    flow: str, preset: str, overrides: tuple[str, ...], mirror: str | None, until: str | None, **options: bool
) -> None:
    """Run FLOW on this machine, now.

    FLOW is prepare-data, warm-start, train, sweep, report, pipeline (all of these), ablation or nightly. The same
    command after a crash finishes what is missing; after success it does nothing and says so.
    """
    from flows.commands.run import start

    changes = changes_of(overrides)
    if mirror is not None:
        changes["data.mirror"] = mirror
    if until is not None:
        changes["sweep.until_ci"] = _points(until)
    start(flow, preset, changes, **options)


@cli.command()
@click.argument("model")
@benchmarks_option("One of `elastic data list`; may be given again. Without it math500.")
@click.option(
    "--gpus",
    type=click.IntRange(0, 1024),
    help="How many GPUs, with an engine on each; 0 takes the CPU. Without it all of this machine.",
)
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    metavar="T+S",
    help='Thinking + solution tokens, like "1k+512"; may be given again.',
)
@click.option("--samples", type=click.IntRange(1), help="Responses to each problem under each budget.")
@click.option("--problems", type=click.IntRange(1), help="How many problems of each benchmark.")
@click.option("--tokenizer", metavar="DIR", help="If MODEL is a server's address: its tokenizer, DIR or OWNER/NAME.")
@family_option
@_mirror
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Replace a setting of preset evaluate.")
@_verbose
def evaluate(
    model: str, gpus: int | None, mirror: str | None, overrides: tuple[str, ...], verbose: bool, **given: Any
) -> None:
    """Measure MODEL under a grid of budgets and write its report.

    The benchmark is fetched on the way. MODEL is a checkpoint directory, OWNER/NAME on the hub, or a server's address:
    http://host:8000/v1#MODEL, or openai+https://HOST/v1#MODEL for a chat API. The same command after a crash finishes
    what is missing.
    """
    from elastic_core.system.accelerators import count_gpus
    from flows.commands.run import EVALUATE, settings_of, start

    changes = settings_of(model, gpus=count_gpus() if gpus is None else gpus, **given)
    if mirror is not None:
        changes["data.mirror"] = mirror
    start("pipeline", EVALUATE, changes | changes_of(overrides), verbose=verbose)


@cli.command()
@settings_options("Preset whose model, GPUs and cluster are checked.")
def doctor(preset: str, overrides: tuple[str, ...]) -> None:
    """Check that this machine can run the pipeline."""
    from flows.commands import doctor

    environment.prepare()
    sys.exit(doctor.main(preset, changes_of(overrides)))


@cli.command()
def presets() -> None:
    """List the presets, and whether each has passed its rehearsal.

    For each: what it is for, its first model, its GPUs, and whether it has passed a rehearsal since it was changed. For
    a model of Elastic Reasoning also the settings that its authors' programs have otherwise.
    """
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from flows import presets
    from flows.commands.checks import rehearsal
    from flows.commands.doctor.resources import gpu_demands

    rehearsals = environment.runs_directory() / rehearsal.REHEARSALS
    console = Console(highlight=False)
    resolved = {name: presets.resolve(name) for name in presets.names()}
    usable = {name: rehearsal.is_usable(settings, rehearsals) for name, settings in resolved.items()}
    for name, settings in resolved.items():
        gpus = max((demand.total for demand in gpu_demands(settings)), default=0)
        nodes = settings.train.nodes if settings.train else 1
        needed = f"{nodes} × {gpus}" if nodes > 1 else str(gpus or "no")
        model = settings.warm_start.initial if settings.base == "warm-start" else settings.base
        rest = f"{model}, {needed} GPU{'' if gpus == 1 else 's'}, {'' if usable[name] else 'not '}rehearsed"
        console.print(f"[bold]{name}[/bold]: {rest}", soft_wrap=True)
        about = [presets.purpose(name)]
        if (otherwise := presets.unpublished(settings)) is not None:
            about.append(
                f"Not as published: {', '.join(otherwise)}." if otherwise else "As published, by its settings."
            )
        console.print(Padding.indent(Text("\n".join(about)), 4))
    click.echo("What published programs do otherwise, and what restores it: docs/seeds.md")
    if not all(usable.values()):
        click.echo("Rehearse a preset before its first use, and after a change: elastic rehearse --preset NAME")


@cli.command()
@settings_options("Preset to rehearse.")
@click.option("--ship", is_flag=True, help="Record in flows/presets/rehearsed.json that it passed.")
def rehearse(preset: str, overrides: tuple[str, ...], ship: bool) -> None:
    """Run a whole preset on a CPU before it costs a GPU.

    Every model is replaced by a small twin with random weights, everything else stays. It takes minutes; the same
    command after a crash goes on.
    """
    from rich.console import Console
    from rich.table import Table

    from flows.commands.checks import rehearsal

    environment.prepare()
    settings = resolve(preset, changes_of(overrides))
    steps, missing = rehearsal.rehearse(settings, lambda line: click.echo(line, err=True))
    table = Table("step", "seconds", "exercised")
    for step in steps:
        table.add_row(step.name, f"{step.seconds:.0f}", step.told)
    Console().print(table)
    if missing:
        click.echo(f"Not to be seen on a CPU: {'; '.join(missing)}.")
    if ship:
        rehearsal.ship(settings)
    click.echo(f"{settings.preset} passes its rehearsal")


@cli.command()
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--prefect-port", type=PORT, default=4200)
@click.option("--mlflow-port", type=PORT, default=5000)
@click.option(
    "--database",
    metavar="URL",
    envvar="ELASTIC_DATABASE",
    show_envvar=True,
    help="PostgreSQL server, postgresql://USER:PASSWORD@HOST:PORT, with the databases prefect and mlflow. Without it "
    "SQLite files. Every user of the machine can read a command line, so give a password in the variable.",
)
def up(host: str, prefect_port: int, mlflow_port: int, database: str | None) -> None:
    """Start Prefect, MLflow and a worker; Ctrl-C stops them.

    The worker runs the deployments of prefect.yaml.
    """
    from flows.commands import services

    services.up(services.ServicesParameters(host, prefect_port, mlflow_port, database))


for _command in (data, templates, model, export, ask, playground):
    cli.add_command(_command)
for _command in (serve, vllm_flags, plan, sweep, report, compare, budgets, rules, regrade):
    cli.add_command(_command)


def _points(until: str) -> float:
    """2.0 of "ci=2.0"."""
    name, _, points = until.partition("=")
    with suppress(ValueError):
        if name.strip() == "ci":
            return float(points)
    raise UserError(f'--until {until}: expected ci=POINTS, like "ci=2.0"')


def main() -> None:
    starts = sys.argv[1:2] and sys.argv[1] in _ATTENDED
    with attended(shlex.join(["elastic", *sys.argv[1:]])) if starts else nullcontext():
        command()


def command() -> None:
    """What the arguments ask for: errors of the user's making are one sentence and exit status 2."""
    try:
        cli(standalone_mode=False)
    except click.Abort:
        sys.exit(128 + signal.SIGINT)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except (click.UsageError, UserError) as error:
        told = sentence(error) if isinstance(error, click.UsageError) else str(error)
    except ModuleNotFoundError as error:
        # The package may be installed without what only flows need.
        if (missing := error.name or "").partition(".")[0] in sys.modules or find_spec("mlflow"):
            raise
        told = f"{missing} is not installed: pip install 'elastic-reasoning[pipeline]'"
    except Exception as error:
        if said := no_space(error):
            told = f"{said}: free some space; the same command then goes on"
        elif said := no_memory(error):
            told = f"{said}: free some memory, or take smaller batches; the same command then goes on"
        else:
            raise
    else:
        return
    click.echo(f"error: {told}", err=True)
    sys.exit(2)
