"""`elastic run FLOW`, the entrance: settings are resolved once, what is done already is found out, the machine is
checked, and only then does anything start. `elastic evaluate MODEL` is the pipeline of a preset of its own."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from urllib.parse import urlsplit

import click

from elastic_core.engines.endpoint import CHAT, is_endpoint, parse_address
from elastic_core.errors import UserError, nearest
from elastic_core.models.files import is_local
from flows import presets
from flows.commands.doctor import look, models_in_use, require_machine
from flows.commands.doctor.machine import require
from flows.commands.options import remember
from flows.runtime import environment
from flows.runtime.run import DONE_BEFORE, FlowRun, stage_seconds
from flows.runtime.settings import TRAINED
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
EVALUATE = "evaluate"  # The preset of `elastic evaluate`.
_IN_TEXT = ["vanilla", "unconstrained", "effort"]
"""Strategies of a model behind a chat API; it is told efforts, and cut after t + s tokens."""


def start(flow: str, preset: str, changes: Mapping[str, Any], *, verbose: bool = False, dry_run: bool = False) -> None:
    """Run a flow, unless it is done before, and print what to look at; `dry_run` prints its configuration. Raises
    UserError when the settings are wrong, or this machine cannot run the flow."""
    run = FlowRun.begin(preset, changes)
    _ = run.datasets  # Data that does not exist is refused without a server.
    if dry_run:
        _show(flow, run)
        return
    done = finished(flow, run)
    if done is None:
        require_machine(run.settings, _TAKES_GPUS.get(flow))
    remember(preset, changes)
    run.write_settings()
    if done is None:
        _perform(flow, run, verbose)
        return
    result, said = done
    # One line in a terminal, of which the path alone is the command's output.
    click.echo(f"{flow}: {DONE_BEFORE}: ", nl=bool(said), err=True)
    if said:
        click.echo(said)
    click.echo(result)


def _show(flow: str, run: FlowRun) -> None:
    """Print verl's configuration as YAML for a flow that is one training, else the settings as a preset; and why this
    machine cannot run it, to stderr, as it may be meant for another. UserError when a model here cannot be trained."""
    settings, fine_tuning = run.settings, flow == "warm-start"
    if flow == "train" or (fine_tuning and settings.warm_start.sft is not None):
        from flows.train import composed

        text = composed(settings, fine_tuning=fine_tuning)
        require(*look([use for use in models_in_use(settings) if is_local(use.model)]))
    else:
        text = presets.as_toml(settings)
    try:
        require_machine(settings, _TAKES_GPUS.get(flow))
    except UserError as error:
        click.echo(f"not on this machine: {error}", err=True)
    click.echo(text, nl=False)


def _perform(flow: str, run: FlowRun, verbose: bool) -> None:
    from flows.sweep import closing

    environment.end_orphaned_servers()
    started = time.perf_counter()
    with nullcontext() if verbose else terminal.quiet(run.runs / run.settings.preset / f"{flow}.log"):
        try:
            result = _load(flow)(run)
        finally:
            # At exit a temporary server says goodbye, and its events worker that it has some left to send: both would
            # follow what must be our last line.
            for name in ("prefect", "EventsWorker"):
                logging.getLogger(name).setLevel(logging.ERROR)
    stages = ", ".join(f"{name} {seconds:.0f}" for name, seconds in stage_seconds.items())
    click.echo(f"{flow} finished in {time.perf_counter() - started:.0f} s{stages and ': '}{stages}", err=True)
    click.echo(closing(result) if result.name == REPORT else result)


def finished(flow: str, run: FlowRun) -> tuple[Path, str] | None:
    """What to look at, and what it says, of a flow that has nothing to do. None where something is missing or wrong, or
    the flow does more than its stages leave: the flow sees to it."""
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
    result = last.directory / _RESULTS.get(flow, "")
    if flow != "sweep":
        return result, ""
    from flows.sweep import conclusion

    return result, conclusion(run)


def _load(flow: str) -> Callable[[FlowRun], Path]:
    """The flow as a function of a run, imported late: it imports Prefect, which reads the prepared environment."""
    name = {"prepare-data": "data", "warm-start": "train", "report": "sweep", "ablation": "pipeline"}.get(flow, flow)
    function: Callable[[FlowRun], Path] = resolve_name(f"flows.{name}:run_{flow.replace('-', '_')}")
    return function


def settings_of(
    model: str,
    *,
    benchmarks: Sequence[str],
    budgets: Sequence[str],
    samples: int | None,
    problems: int | None,
    gpus: int,
    tokenizer: str | None,
    family: str | None = None,
) -> dict[str, Any]:
    """What `elastic evaluate` replaces in its preset, which has a value for all that is not given.

    Args:
        gpus: of this machine, one engine each; 0 takes its CPU.
        tokenizer: of a model behind a server that takes token ids, and of no other.
        family: whose marks its thoughts have, where that is not seen.

    Raises:
        UserError: when there is no such model, or `tokenizer` is missing or has no effect.
    """
    if not is_endpoint(model) and is_local(model) and not Path(model).exists():
        beside = [file.name for file in Path(model).absolute().parent.glob("*")]
        raise UserError(
            f"{model}: no such directory{nearest(Path(model).name, beside)}; expected a checkpoint directory, "
            "OWNER/NAME on the hub, or a server's address like http://host:8000/v1#MODEL"
        )
    name = name_of(model)
    given = {"data.benchmarks": [*benchmarks], "sweep.budgets": [*budgets]}
    numbers = {"sweep.samples": samples, "sweep.problems": problems}
    changes: dict[str, Any] = {key: value for key, value in {**given, **numbers}.items() if value}
    changes |= {"sweep.models": [name], "sweep.checkpoints": {name: model}}
    if family is not None:
        changes |= {"models": {each: {"family": family} for each in ("base", name)}}
    needs_tokenizer = is_endpoint(model) and not model.startswith(CHAT)
    if needs_tokenizer != (tokenizer is not None):
        raise UserError(
            f"{model} takes token ids: give --tokenizer DIR or OWNER/NAME, the tokenizer of the model that it serves"
            if needs_tokenizer
            else f"--tokenizer {tokenizer}: {model} brings its own; leave it out"
        )
    if needs_tokenizer:
        return changes | {"base": tokenizer, "sweep.tokenizers": {name: tokenizer}}
    if is_endpoint(model):
        return changes | {"sweep.strategies": _IN_TEXT}
    on_cpu = {"engine.device": "cpu", "engine.dtype": "float32", "engine.enforce_eager": True}
    return changes | {"base": model} | ({"engine.data_parallel_size": gpus} if gpus else on_cpu)


def name_of(model: str) -> str:
    """What the model is called in tables and figures: its last name, after the one before it where a preset's own
    models have that name. Raises UserError when an address cannot be read."""
    if is_endpoint(model):
        try:
            address = parse_address(model)
        except ValueError as error:
            raise UserError(str(error)) from None
        model = f"{urlsplit(address.url).netloc}/{address.model}"
    parts = Path(model).resolve().parts if Path(model).is_dir() else model.rstrip("/").split("/")
    taken = parts[-1] in ("base", *TRAINED)
    return re.sub(r"[^A-Za-z0-9._-]", "-", "-".join(parts[-2:] if taken else parts[-1:]))
