"""What each stage's output depends on, and where the models of a run lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from elastic_core import hub
from elastic_core.data.lock import HashCache
from elastic_core.data.problems import Problem, read_problems
from elastic_core.errors import UserError
from elastic_core.fingerprint import hash_files, model_fingerprint
from elastic_core.miniature.warm_start import BASE
from elastic_core.reasonflux.parameters import REASONFLUX_ZERO
from elastic_core.strategies.reasonflux_zero import Templates
from elastic_core.sweep.subset import first_problems, rows_of
from elastic_core.training.config import DEADLINES
from flows.data_sources import data_files, fine_tuning_data, initial_checkpoint, mirror
from flows.run import FlowRun
from flows.settings import TRAINED
from flows.thought_templates import load_templates
from tasks.stage import BEST, MODEL, Stage


def warm_start_stage(run: FlowRun) -> Stage:
    settings = run.settings.warm_start
    if settings.sft is None:
        inputs: dict[str, Any] = {"warm_start": settings.model_dump(exclude={"sft"})}
        if settings.initial != "random":
            inputs["initial"] = fingerprint(run, initial_model(run))
        return run.stage("warm-start", inputs)
    return run.stage(
        "warm-start",
        {
            "initial": fingerprint(run, initial_model(run)),
            "data": hash_files([fine_tuning_data(run).conversations]),
            "sft": settings.sft.model_dump(mode="json", exclude={"data"}, exclude_none=True),
        },
    )


def initial_model(run: FlowRun) -> Path:
    """The checkpoint that fine-tuning goes on from.

    Raises:
        UserError: when it is not there.
    """
    advice = 'warm_start.initial names it: give a directory, OWNER/NAME on the hub, or "shipped"'
    return _present(run, initial_checkpoint(run), advice)


def train_stage(run: FlowRun) -> Stage:
    data = run.settings.data
    return run.stage(
        "train",
        {
            "base": fingerprint(run, base_model(run)),
            "train_data": hash_files(data_files(run, data.train)),
            "validation_data": hash_files(data_files(run, data.validation)),
            "train": run.settings.training.model_dump(mode="json", exclude_none=True, exclude=DEADLINES),
        },
    )


def sweep_stage(run: FlowRun) -> Stage:
    """One trajectory table per set of models, benchmarks and sampling settings; cells, samples and problems may be
    added to it.

    Thought templates are part of the request, as they decide the rows of one strategy alone.
    """
    settings = run.settings.sweep
    templates = sweep_templates(run)
    return run.stage(
        "sweep",
        {
            "models": {name: fingerprint(run, path) for name, path in checkpoints(run).items()},
            "benchmarks": {name: hash_files([file]) for name, file in benchmark_files(run).items()},
            "engine": run.settings.engine.fingerprint,
            "sampling": settings.model_dump(include={"temperature", "top_p", "seed", "sharing"}),
        },
        settings.model_dump(include={"models", "strategies", "budgets", "samples", "until_ci", "max_samples"})
        | {"templates": {REASONFLUX_ZERO: templates.fingerprint} if templates else {}}
        | ({} if settings.problems is None else {"problems": settings.problems}),
    )


def sweep_templates(run: FlowRun) -> Templates | None:
    """The thought templates of a sweep that uses any.

    Raises:
        UserError: when the library is not there, or broken.
    """
    settings = run.settings.sweep
    if REASONFLUX_ZERO not in settings.strategies:
        return None
    return load_templates(settings.templates, run.runs, mirror(run))


def benchmark_files(run: FlowRun) -> dict[str, Path]:
    names = run.settings.data.benchmarks
    return dict(zip(names, data_files(run, names), strict=True))


def benchmark_problems(run: FlowRun) -> dict[str, list[Problem]]:
    """The problems that the sweep measures, by benchmark; they must have been built."""
    built = {name: read_problems(file) for name, file in benchmark_files(run).items()}
    return first_problems(built, run.settings.sweep.problems)


def measured_rows(run: FlowRun) -> pl.Expr:
    """Whether a row of the trajectory table is of a problem that the sweep measures: the table may hold more."""
    if run.settings.sweep.problems is None:
        return pl.col("benchmark").is_in(run.settings.data.benchmarks)
    return rows_of({name: [problem.id for problem in given] for name, given in benchmark_problems(run).items()})


def checkpoints(run: FlowRun) -> dict[str, Path]:
    """Checkpoints that the sweep measures, by name.

    Raises:
        UserError: when one is not there.
    """
    return {name: _checkpoint(run, name) for name in run.settings.sweep.checkpoint_names}


def _checkpoint(run: FlowRun, name: str) -> Path:
    if name == "base":
        return base_model(run)
    if name in TRAINED:
        return trained_model(run, name)
    advice = f"sweep.checkpoints.{name} names it: give a directory, or OWNER/NAME on the hub"
    return _present(run, hub.locate(run.settings.sweep.checkpoints[name]), advice)


def base_model(run: FlowRun) -> Path:
    """The checkpoint that training starts from.

    Raises:
        UserError: when it is not there.
    """
    base = run.settings.base
    if base == "warm-start":
        advice = f"run first: elastic run warm-start --preset {run.preset}"
        return _present(run, warm_start_stage(run).directory / MODEL, advice)
    advice = (
        'give --set base=DIRECTORY with a Hugging Face checkpoint, OWNER/NAME on the hub, "shipped" or "warm-start"'
    )
    return _present(run, BASE if base == "shipped" else hub.locate(base), advice)


def trained_model(run: FlowRun, name: str = "trained") -> Path:
    """The checkpoint that training left, by one of the names `TRAINED`.

    Raises:
        UserError: when training has not finished under these settings, or without a best one.
    """
    stage = train_stage(run)
    if not stage.marker.exists():
        raise UserError(
            f"no trained checkpoint at {stage.directory}; run first: elastic run train --preset {run.preset}"
        )
    directory = stage.directory / {"trained": MODEL, "best": BEST}[name]
    if not directory.exists():
        raise UserError(f"{directory}: there is no {name} checkpoint, as none was validated (train.validate_every)")
    return directory


def fingerprint(run: FlowRun, checkpoint: Path) -> str:
    """As `model_fingerprint`; the gigabytes of a real model are read once, and again when they have changed."""
    hashes = HashCache(run.runs / "hashes.json")
    value = model_fingerprint(checkpoint, hashes.sha256)
    hashes.save()
    return value


def _present(run: FlowRun, checkpoint: Path, advice: str) -> Path:
    try:
        fingerprint(run, checkpoint)
    except ValueError as error:
        raise UserError(f"{error}; {advice}") from None
    return checkpoint.resolve()
