"""`elastic run FLOW`, the entrance: settings are resolved once, what is done already is found out, the machine is
checked, and only then does anything start."""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import click

from elastic_core.errors import UserError
from flows import presets
from flows.commands.doctor import require_machine
from flows.runtime import environment, last_run
from flows.runtime.run import DONE_BEFORE, FlowRun, stage_seconds
from reports.tables.codeforces import BENCHMARK
from tasks.records import terminal
from tasks.records.stage_directory import MODEL, PAGE, REPORT, TABLE, Stage

_TAKES_GPUS = {
    "prepare-data": (),
    "report": (),
    "warm-start": ("warm-start",),
    "train": ("warm-start", "train"),
    "sweep": ("sweep",),
}
"""Of flows that do not take GPUs for every stage, those that they take them for."""
_RESULTS = {"warm-start": MODEL, "train": MODEL, "sweep": TABLE, "report": PAGE, "pipeline": PAGE}
"""What to look at of a flow lies in the directory of a stage; else it is the directory."""


def start(flow: str, preset: str, changes: Mapping[str, Any], *, verbose: bool = False, dry_run: bool = False) -> None:
    """Run a flow, unless it is done before, and print what to look at.

    Args:
        dry_run: print the resolved settings and start nothing.

    Raises:
        UserError: when the settings are wrong, or this machine cannot run the flow.
    """
    run = FlowRun.begin(preset, changes)
    _ = run.inputs.data.chosen  # Data that does not exist is refused without a server.
    done = None if dry_run else finished(flow, run)
    if done is None:
        require_machine(run.settings, _TAKES_GPUS.get(flow))
    if dry_run:
        click.echo(presets.as_toml(run.settings), nl=False)
        return
    last_run.remember(preset, changes)
    run.write_settings()
    if done is None:
        _perform(flow, run, verbose)
        return
    # One line in a terminal, of which the path alone is the command's output.
    click.echo(f"{flow}: {DONE_BEFORE}: ", nl=bool(done.said), err=True)
    if done.said:
        click.echo(done.said)
    click.echo(done.result)


def _perform(flow: str, run: FlowRun, verbose: bool) -> None:
    from flows.sweep import closing

    environment.end_orphaned_servers()
    started = time.perf_counter()
    log = run.runs / run.settings.preset / f"{flow}.log"
    with nullcontext() if verbose else terminal.quiet(log):
        try:
            result = _load(flow)(run)
        finally:
            _mute_farewell()
    stages = ", ".join(f"{name} {seconds:.0f}" for name, seconds in stage_seconds.items())
    click.echo(f"{flow} finished in {time.perf_counter() - started:.0f} s{stages and ': '}{stages}", err=True)
    click.echo(closing(result) if result.name == REPORT else result)


class Finished(NamedTuple):
    """Of a flow that has nothing to do: what to look at, and what it says beside that."""

    result: Path
    said: str = ""


def finished(flow: str, run: FlowRun) -> Finished | None:
    """None where something is missing or wrong, or the flow does more than its stages leave: the flow sees to it."""
    stages: list[Stage] = []
    try:
        for stage in _stages(flow, run):
            if not stage.marker.exists():
                return None
            stages.append(stage)
    except UserError:
        return None
    if not stages:
        return None
    last = next(stage for stage in stages if stage.name == stages[-1].name)  # Of several trainings the first.
    result = last.directory / _RESULTS.get(flow, "")
    if flow != "sweep":
        return Finished(result)
    from flows.sweep import conclusion

    return Finished(result, conclusion(run.inputs))


def _stages(flow: str, run: FlowRun) -> Iterator[Stage]:
    """In their order: what a stage is made from is known when those before it are there. None of a flow that does more
    than what its stages leave."""
    settings, inputs, pipeline = run.settings, run.inputs, flow == "pipeline"
    if flow in ("report", "pipeline") and BENCHMARK in settings.data.benchmarks:
        return  # Standings that could not be had yesterday are looked for again.
    if flow in ("prepare-data", "train", "sweep", "pipeline"):
        yield inputs.data.stage
    if flow == "warm-start" or (pipeline and settings.base == "warm-start"):
        yield inputs.warm_start
    if flow == "train" or (pipeline and settings.train is not None):
        yield from inputs.trainings.values()
    if flow in ("sweep", "report", "pipeline"):
        yield inputs.sweep
    if flow in ("report", "pipeline"):
        yield inputs.report()


def _load(flow: str) -> Callable[[FlowRun], Path]:
    """The flow as a function of a run, imported late: it imports Prefect, which reads the prepared environment."""
    module = {"prepare-data": "data", "warm-start": "train", "report": "sweep"}.get(flow, flow)
    function: Callable[[FlowRun], Path] = getattr(
        importlib.import_module(f"flows.{module}"), f"run_{flow.replace('-', '_')}"
    )
    return function


def _mute_farewell() -> None:
    """Without PREFECT_API_URL a flow's temporary server says goodbye at exit, and its events worker that it still has
    some to send: both after what must be our last line."""
    for name in ("prefect", "EventsWorker"):
        logging.getLogger(name).setLevel(logging.ERROR)
