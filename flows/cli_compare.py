"""`elastic compare RUN_A RUN_B`: two sweeps against each other."""

from __future__ import annotations

import click


@click.command()
@click.argument("run_a")
@click.argument("run_b")
def compare(run_a: str, run_b: str) -> None:
    """Compare two sweeps, cell by cell and paired by problem; the table is printed, and logged to MLflow.

    RUN_A and RUN_B are MLflow runs (of a pipeline, a sweep or a single cell; by id or name), or directories of sweeps
    (runs/PRESET/sweep/KEY).
    """
    from flows import environment
    from flows.compare import compare as compare_runs

    environment.prepare()
    click.echo(compare_runs(run_a, run_b, environment.runs_directory()))
