"""Models: made ready, looked at before training, exported, tried on a page. And their sweeps: what one will cost, how
far it is, how two compare, its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from elastic_core.errors import UserError
from flows.cli.options import PATH, PORT, built_data, changes_of, settings_options


@click.group()
def model() -> None:
    """Make a model ready for the pipeline."""


@model.command()
@click.argument("model")
@click.option("--to", type=PATH, required=True, metavar="DIR", help="Where the new model goes.")
@click.option(
    "--think", metavar="TOKEN", help="Token of the model that becomes <think>; without it a spare or new one."
)
@click.option("--think-end", metavar="TOKEN", help="Token of the model that becomes </think>.")
def prepare(model: str, to: Path, think: str | None, think_end: str | None) -> None:
    """Give MODEL what a budget on thoughts takes: <think> and </think> as single tokens, an end-of-text, and a chat
    template that opens the thought. MODEL is a Hugging Face checkpoint directory, a .gguf file, or OWNER/NAME on the
    hub.

    It learns what the markers mean by fine-tuning: docs/own-model.md.
    """
    from elastic_core.prepared_model import prepare as prepare_model

    click.echo(prepare_model(model, to, think, think_end))
    click.echo(f"Next: elastic doctor --set base={to}")


@click.command()
@click.option(
    "--dry-run", is_flag=True, help="Print verl's whole configuration as YAML; nothing is started, nor fetched."
)
@settings_options("Settings of the training.")
def train(dry_run: bool, preset: str, overrides: tuple[str, ...]) -> None:
    """Look at a training. To run one: elastic run train."""
    from elastic_core.hub import is_local
    from flows import doctor, environment, presets

    environment.prepare()
    from flows import train as flow

    if not dry_run:
        raise UserError(f"nothing to look at; give --dry-run, or to train: elastic run train --preset {preset}")
    settings = presets.resolve(preset, changes_of(overrides))
    here = [use for use in doctor.models_in_use(settings) if is_local(use.model)]
    composed = flow.composed(settings)
    doctor.require(*doctor.look(here))
    click.echo(composed, nl=False)


@click.command()
@settings_options("Settings that the model was trained with.")
@click.option(
    "--model",
    type=click.Choice(("trained", "best")),
    default="trained",
    show_default=True,
    help="The last checkpoint, or the one with the highest validation accuracy.",
)
@click.option("--to", type=PATH, metavar="DIR", help="Copy it to DIR.")
@click.option("--push", metavar="OWNER/NAME", help="Push it to the hub, as a private repository.")
@click.option(
    "--lm-eval",
    "tasks",
    type=PATH,
    metavar="DIR",
    help="Instead, write the preset's benchmarks to DIR as tasks of lm-evaluation-harness.",
)
def export(
    preset: str, overrides: tuple[str, ...], model: Any, to: Path | None, push: str | None, tasks: Path | None
) -> None:
    """A trained model in Hugging Face format, with a card that holds what the sweep measured of it."""
    from flows import environment
    from flows.export import export_lm_eval, export_model

    if tasks is not None and (to is not None or push is not None):
        raise UserError("--lm-eval writes tasks and no model; give it without --to and --push")
    environment.prepare()
    changes = changes_of(overrides)
    click.echo(
        export_model(preset, changes, model, to, push) if tasks is None else export_lm_eval(preset, changes, tasks)
    )


@click.command()
@settings_options("Whose models, benchmarks, engine and sampling to take.")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="[NAME=]DIR",
    help="A further model, and the first to be chosen: a checkpoint directory, or OWNER/NAME on the hub.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; others need a password.")
@click.option("--port", type=PORT, default=7860, show_default=True)
@click.option(
    "--password-file",
    type=PATH,
    help="File whose first line is the password to ask for; without it $ELASTIC_PLAYGROUND_PASSWORD, if set.",
)
@click.option("--concurrent", type=click.IntRange(1, 64), default=2, show_default=True, help="Runs at the same time.")
def playground(
    preset: str,
    overrides: tuple[str, ...],
    models: tuple[str, ...],
    host: str,
    port: int,
    password_file: Path | None,
    concurrent: int,
) -> None:
    """Try a model under token budgets, strategies side by side, on a page in the browser."""
    from flows import playground as page

    page.require_gradio()
    parameters = page.PlaygroundParameters(host=host, port=port, concurrent=concurrent)
    password = page.require_access(parameters, password_file)
    from flows.playground.choices import find_choices

    page.serve(find_choices(preset, changes_of(overrides), models), parameters, password)


_OPTIONS = settings_options("Settings of the sweep.")


@click.group()
def plan() -> None:
    """Say what a run would cost before it runs."""


@plan.command("sweep")
@_OPTIONS
def plan_sweep(preset: str, overrides: tuple[str, ...]) -> None:
    """Cells, tokens, time and disk space of a sweep; nothing is started."""
    from flows import environment

    environment.prepare()
    from flows import sweep

    click.echo(sweep.costs(preset, changes_of(overrides)))


@click.group()
def sweep() -> None:
    """Look at sweeps. To run one: elastic run sweep."""


@sweep.command()
@_OPTIONS
def status(preset: str, overrides: tuple[str, ...]) -> None:
    """How far the grid is filled, also while the sweep runs."""
    from flows import environment

    environment.prepare()
    from flows import sweep

    click.echo(sweep.status(preset, changes_of(overrides)))


@click.command()
@click.option(
    "--from",
    "table",
    type=PATH,
    metavar="TABLE",
    required=True,
    help="A trajectory table, runs/PRESET/sweep/KEY/table; its sweep may be half done.",
)
@click.option("--to", "directory", type=PATH, metavar="DIR", help="Where to; beside TABLE by default.")
@click.option("--price", type=click.FloatRange(min=0), help="Of a million output tokens, to say what responses cost.")
def report(table: Path, directory: Path | None, price: float | None) -> None:
    """Figures, tables and text of a trajectory table. To report a preset's sweep and record it: elastic run report."""
    from flows import environment

    environment.prepare()
    from reports.build import build_report
    from tasks.report import machine, report_sources

    sources = report_sources(table, machine(), price)
    content = build_report(sources, directory or table.resolve().parent / "report")
    click.echo(content.verdict)
    if content.coverage is not None:
        click.echo(content.coverage)
    click.echo(content.directory / "report.md")
    click.echo((content.directory / "report.html").resolve().as_uri())


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


@click.command()
@click.argument("table", type=PATH)
@built_data
def regrade(table: Path, data: Path | None) -> None:
    """Grade TABLE (runs/PRESET/sweep/KEY/table) once more; answers, scores and statuses are rewritten."""
    from flows import environment, tables

    environment.prepare()
    click.echo(tables.regrade_table(table, data))
