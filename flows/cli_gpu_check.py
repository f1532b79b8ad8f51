"""`elastic gpu-check`."""

from __future__ import annotations

import sys

import click


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
