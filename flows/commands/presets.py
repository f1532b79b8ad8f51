"""`elastic presets`: the purpose of each preset, and whether it passed its rehearsal."""

from __future__ import annotations

import click
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from flows import presets as files
from flows.commands.checks import rehearsal
from flows.commands.doctor.resources import gpu_demands
from flows.runtime import environment


@click.command()
def presets() -> None:
    """List the presets, and whether each has passed its rehearsal.

    For each: its purpose, its first model, its GPUs, and whether it has passed a rehearsal since it was changed. For
    a model of Elastic Reasoning also the settings that its authors' programs have otherwise.
    """
    rehearsals = environment.runs_directory() / rehearsal.REHEARSALS
    console = Console(highlight=False)
    resolved = {name: files.resolve(name) for name in files.names()}
    usable = {name: rehearsal.is_usable(settings, rehearsals) for name, settings in resolved.items()}
    for name, settings in resolved.items():
        gpus = max((demand.total for demand in gpu_demands(settings)), default=0)
        nodes = settings.train.nodes if settings.train else 1
        needed = f"{nodes} × {gpus}" if nodes > 1 else str(gpus or "no")
        model = settings.warm_start.initial if settings.base == "warm-start" else settings.base
        rest = f"{model}, {needed} GPU{'' if gpus == 1 else 's'}, {'' if usable[name] else 'not '}rehearsed"
        begin = "[bold green]begin here[/bold green], " if name == "embedded" else ""
        console.print(f"[bold]{name}[/bold]: {begin}{rest}", soft_wrap=True)
        about = [files.purpose(name)]
        if (otherwise := files.unpublished(settings)) is not None:
            about.append(
                f"Not as published: {', '.join(otherwise)}." if otherwise else "As published, by its settings."
            )
        console.print(Padding.indent(Text("\n".join(about)), 4))
    click.echo("What published programs do otherwise, and what restores it: docs/seeds.md")
    if not all(usable.values()):
        click.echo("Rehearse a preset before its first use, and after a change: elastic rehearse --preset NAME")
