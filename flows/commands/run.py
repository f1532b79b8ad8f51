"""`elastic run FLOW`, the entrance: settings are resolved once, finished stages are found, the machine is checked,
and only then does anything start."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from elastic_core.errors import UserError
from flows import presets
from flows.commands.cli import warn_renamed
from flows.commands.options import OneOf, settings_options, verbose_option
from flows.runtime import environment
from tasks.records import terminal
from tasks.records.stage_directory import MODEL, PAGE, REPORT, TABLE, Stage

if TYPE_CHECKING:
    from flows.runtime.run import FlowRun

REPORT_FLOW = "report"  # Of `elastic report --preset`.


class Flow(NamedTuple):
    """A flow's module in `flows`; the stages that it takes GPUs for (None: all); and what to look at of it, a name in
    the directory of its last stage ("": the directory)."""

    module: str
    takes_gpus: tuple[str, ...] | None = None
    result: str = ""


FLOWS = {
    "prepare-data": Flow("data", ()),
    "warm-start": Flow("train", ("warm-start",), MODEL),
    "train": Flow("train", ("warm-start", "train"), MODEL),
    "sweep": Flow("sweep", ("sweep",), TABLE),
    "pipeline": Flow("pipeline", result=PAGE),
    "ablation": Flow("pipeline"),
    "nightly": Flow("nightly"),
    REPORT_FLOW: Flow("sweep", (), PAGE),
}
tree_option = click.option(
    "--mirror", metavar="DIR", help="Local tree of source files; the same as --set data.mirror=DIR."
)


@click.command()
@click.argument("flow", type=OneOf([*FLOWS]), metavar="FLOW")
@settings_options("Settings to run with.")
@tree_option
@click.option(
    "--until", metavar="ci=POINTS", help="Add samples until every cell's 95 % interval is within ±POINTS points."
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the resolved settings as a preset; of train and warm-start verl's configuration. Nothing is started.",
)
@verbose_option
def run(
    flow: str, preset: str, overrides: dict[str, Any], mirror: str | None, until: str | None, **options: bool
) -> None:
    """Run FLOW on this machine, now.

    FLOW is prepare-data, warm-start, train, sweep, pipeline (all of these, and a report), ablation or nightly. The same
    command after a crash finishes the missing stages; after success it does nothing and says so.
    """
    if flow == REPORT_FLOW:
        warn_renamed("run report", "report --preset PRESET")
    changes = overrides
    if mirror is not None:
        changes["data.mirror"] = mirror
    if until is not None:
        changes["sweep.until_ci"] = _points(until)
    start(flow, preset, changes, **options)


def _points(until: str) -> float:
    """Return 2.0 for "ci=2.0"."""
    name, _, points = until.partition("=")
    with suppress(ValueError):
        if name.strip() == "ci":
            return float(points)
    raise UserError(f'--until {until}: expected ci=POINTS, like "ci=2.0"')


def start(flow: str, preset: str, changes: Mapping[str, Any], *, verbose: bool = False, dry_run: bool = False) -> None:
    """Run a flow, unless it is done before, and print what to look at; `dry_run` prints its configuration. Raises
    UserError when the settings are wrong, or this machine cannot run the flow."""
    # Imported here, so that --help is fast.
    from flows.commands.doctor.resources import require_machine
    from flows.runtime.run import DONE_BEFORE, FlowRun

    run = FlowRun.begin(preset, changes)
    _ = run.datasets  # Data that does not exist is refused without a server.
    if dry_run:
        _show(flow, run)
        return
    if flow == REPORT_FLOW:
        run.require_data()
    done = finished(flow, run)
    if done is None:
        require_machine(run.settings, FLOWS[flow].takes_gpus)
    presets.remember(preset, changes)
    run.write_settings()
    if done is None:
        _perform(flow, run, verbose)
        return
    result, conclusion = done
    # One line in a terminal, of which the path alone is the command's output.
    click.echo(f"{flow}: {DONE_BEFORE}: ", nl=bool(conclusion), err=True)
    if conclusion:
        click.echo(conclusion)
    click.echo(result)


def _show(flow: str, run: FlowRun) -> None:
    """Print verl's configuration as YAML for a flow that is one training, else the settings as a preset; and why this
    machine cannot run it, to stderr, as it may be meant for another. UserError when a model here cannot be trained."""
    from flows.commands.doctor.resources import require_machine

    settings, fine_tuning = run.settings, flow == "warm-start"
    if flow == "train" or (fine_tuning and settings.warm_start.sft is not None):
        from elastic_core.models.files import is_local
        from flows.commands.doctor import findings_of_models, models_in_use
        from flows.commands.doctor.machine import require
        from flows.train import composed

        text = composed(settings, fine_tuning=fine_tuning)
        require(*findings_of_models([use for use in models_in_use(settings) if is_local(use.model)]))
    else:
        text = presets.as_toml(settings)
    try:
        require_machine(settings, FLOWS[flow].takes_gpus)
    except UserError as error:
        click.echo(f"not on this machine: {error}", err=True)
    click.echo(text, nl=False)


def _perform(flow: str, run: FlowRun, verbose: bool) -> None:
    from flows.runtime.run import stage_seconds
    from flows.sweep import closing

    environment.end_orphaned_servers()
    started = time.perf_counter()
    with nullcontext() if verbose else terminal.quiet(run.runs / run.settings.preset / f"{flow}.log"):
        try:
            # Imported late: it imports Prefect, which reads the prepared environment.
            result: Path = resolve_name(f"flows.{FLOWS[flow].module}:run_{flow.replace('-', '_')}")(run)
        finally:
            # At exit a temporary server says goodbye, and its events worker that it has some left to send: both would
            # follow what must be our last line.
            for name in ("prefect", "EventsWorker"):
                logging.getLogger(name).setLevel(logging.ERROR)
    stages = ", ".join(f"{name} {seconds:.0f}" for name, seconds in stage_seconds.items())
    click.echo(f"{flow} finished in {time.perf_counter() - started:.0f} s{stages and ': '}{stages}", err=True)
    click.echo(closing(result) if result.name == REPORT else result)


def finished(flow: str, run: FlowRun) -> tuple[Path, str] | None:
    """Return the result of a flow that has nothing to do, and its conclusion; None where something is missing or wrong,
    or the flow does more than its stages leave: then the flow runs."""
    stages: list[Stage] = []
    try:
        for stage in run.stages_of(flow):
            if not stage.is_done:
                return None
            stages.append(stage)
    except UserError:
        return None
    if not stages:
        return None
    last = next(stage for stage in stages if stage.name == stages[-1].name)  # Of several trainings the first.
    result = last.directory / FLOWS[flow].result
    if flow != "sweep":
        return result, ""
    from flows.sweep import conclusion

    return result, conclusion(run)
