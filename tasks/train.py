"""GRPO under a budget: a verl job on Ray, followed to its end."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prefect import get_run_logger, task
from prefect.logging.handlers import APILogHandler

from elastic_core.data.problems import MANIFEST
from elastic_core.errors import UserError
from elastic_core.models.files import licence
from elastic_core.models.special_tokens import load_markers
from elastic_core.strategies.variants import BARE, Closing
from elastic_core.system.files import LockHeld, exclusive, replacing
from elastic_core.system.ray_cluster import RayCluster, running_cluster
from elastic_core.training import launch, model_card
from elastic_core.training.checkpoints import (
    best_checkpoint,
    checkpoint_step,
    checkpoint_steps,
    export,
    is_finished,
    latest_checkpoint,
    require_processes,
    validation_of,
)
from elastic_core.training.grpo.parameters import RESOURCES, GrpoParameters
from elastic_core.training.grpo.step_metrics import WARNING, check_metrics
from tasks.records.mlflow_tracker import Tracker
from tasks.records.stage_directory import BEST, METRICS, MODEL, Stage, seconds_to_queue, worth_retrying
from tasks.records.terminal import progress


@task(name="train", retries=1, retry_delay_seconds=5, retry_condition_fn=worth_retrying)
def train_policy(
    stage: Stage,
    tracker: Tracker,
    parent: str | None,
    parameters: GrpoParameters,
    cluster: RayCluster | None,
    base: Path,
    train_files: Sequence[Path],
    validation_files: Sequence[Path],
) -> dict[str, Any]:
    """Train `base` on problems in verl's schema, resuming from the last checkpoint; leaves MODEL, BEST and METRICS.

    Raises:
        UserError: when another process trains there, the model's tokens cannot write the closing, or MLflow lacks
            metrics of the finished training.
    """
    from elastic_core.training.grpo.config import compose

    if parameters.closing != BARE:
        try:
            Closing.parse(parameters.closing).of(*load_markers(base))
        except ValueError as error:
            raise UserError(f"train.closing: {error}") from None
    directory = stage.prepare()
    checkpoints = directory / "checkpoints"
    config = compose(
        parameters,
        model=base,
        train_files=train_files,
        validation_files=validation_files,
        out_dir=checkpoints,
        run_name=stage.label,
        mlflow=True,
    )
    # All inside: two trainings would delete each other's checkpoints, and log to one MLflow run.
    with _alone(directory), tracker.stage(stage, parent, stage.inputs) as run_id:
        tracker.link(run_id, "train-mlflow")
        if not (directory / METRICS).exists():  # Else another flow has finished it.
            resources = parameters.model_dump(include=RESOURCES)  # They may change on the way: not parameters.
            tracker.log(run_id, tags={f"train.{name}": value for name, value in resources.items()})
            if not is_finished(checkpoints, parameters.updated_steps, parameters.max_generated_tokens):
                require_processes(checkpoints, parameters.nodes * parameters.gpus_per_node)
                log_file = directory / "train.log"
                unit = "steps" if parameters.max_generated_tokens is None else "steps at most"
                pretended = (parameters.nodes, parameters.gpus_per_node) if parameters.device == "cpu" else ()
                with (
                    progress("train", parameters.updated_steps, unit) as shown,
                    running_cluster(cluster, *pretended) as running,
                ):
                    job = launch.submit(
                        running, config, directory / "verl.yaml",
                        launch.job_environment(config), tracker.job_environment(run_id),
                    )  # fmt: skip
                    get_run_logger().info("following job %s at %s, log in %s", job, running.dashboard, log_file)
                    lines = _Lines()
                    launch.follow(
                        running, job, log_file=log_file, on_line=lines.pass_on, on_step=shown.reach,
                        deadlines=launch.Deadlines(parameters.start_timeout_seconds, parameters.step_timeout_seconds),
                    )  # fmt: skip
                if shown.first_seconds is not None:
                    tracker.log(run_id, metrics={"first_step_seconds": shown.first_seconds})
                if lines.warnings:
                    tracker.log(run_id, tags={"warning": "\n".join(lines.warnings)})
            steps = checkpoint_steps(checkpoints)[-1]  # Fewer than its parameters', where tokens ended it.
            try:  # A finished training would not send missing ones again.
                check_metrics(tracker.client, run_id, steps, parameters.validate_every, parameters.validate_first)
            except RuntimeError as error:
                raise UserError(f"{error}; delete that run and {directory} to train anew") from error
            publish(stage, tracker, run_id, checkpoints, base, train_files[0].parent)
            with replacing(directory / METRICS) as temporary:
                tracker.history(run_id).write_parquet(temporary)
    return {"model": str(directory / MODEL), "mlflow_run": run_id, "steps": checkpoint_steps(checkpoints)[-1]}


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One process at a time at a training, else UserError. The lock is that of the process that follows the job: when
    it was killed, the next one finds the job."""
    try:
        with exclusive(directory, seconds_to_queue()):
            yield
    except LockHeld as holder:
        raise UserError(f"{directory}: {holder} is at this training; wait for it, or stop it") from None


def publish(stage: Stage, tracker: Tracker, run_id: str, checkpoints: Path, base: Path, data: Path) -> None:
    """Leave MODEL and, where there was validation, BEST in the stage's directory, each with its card, and both
    registered in MLflow; `data` is the directory of the built data."""
    found = {MODEL: ("last", latest_checkpoint(checkpoints)), BEST: ("best", best_checkpoint(checkpoints))}
    for directory, (name, checkpoint) in found.items():
        if checkpoint is None:
            continue
        model, validation = export(checkpoint, stage.directory / directory, base), validation_of(checkpoint)
        record: model_card.TrainingRecord = {
            "preset": stage.preset,
            "checkpoint": name,
            "step": checkpoint_step(checkpoint),
            "accuracy": validation.accuracy if validation else None,
            "samples": validation.samples if validation else None,
            "base": f"{base} ({stage.inputs['base']})",
            "licence": licence(base),
            "train": stage.inputs["train"],
            "data": {name: stage.inputs[name] for name in ("train_data", "validation_data")},
            "data_manifest": str(data / MANIFEST),
            "mlflow_run": run_id,
        }
        model_card.write(model, record)
        tags = {"stage": stage.label, "step": str(record["step"]), "data_manifest": record["data_manifest"]}
        tags["seed"] = str(stage.inputs["train"]["seed"])  # What tells the versions of one preset apart.
        tracker.register(f"elastic-{stage.preset}", name, model, run_id, tags)


class _Lines:
    """Sends the job's lines to Prefect, and warnings of the training also to the terminal."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._job, self._run = _job_logger(), get_run_logger()

    def pass_on(self, line: str) -> None:
        self._job.info(line)
        if warning := line.partition(WARNING)[2].strip():
            self._run.warning(warning)
            self.warnings.append(warning)


def _job_logger() -> logging.Logger:
    """Sends lines to Prefect, where they are read with the run. In the terminal they would drown the progress bar."""
    logger = logging.getLogger("elastic.training.job")
    if not logger.handlers:
        logger.addHandler(APILogHandler())
        logger.setLevel(logging.INFO)
        logger.propagate = False
    return logger
