"""Supervised fine-tuning on the miniature's warm-start corpus, by verl's SFT trainer in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

from prefect import task

from elastic_core.miniature.warm_start import BASE, prepare
from elastic_core.processes import end_with_parent
from elastic_core.training.launch import FINISHED_STEP
from elastic_core.training.sft import WarmStart, is_finished
from tasks.progress import progress
from tasks.stage import MODEL, Stage, worth_retrying
from tasks.tracking import Tracker, flatten


@task(name="warm-start", retries=1, retry_delay_seconds=5, retry_condition_fn=worth_retrying)
def fine_tune(stage: Stage, tracker: Tracker, parent: str | None) -> dict[str, Any]:
    """Fine-tune, resuming from the last checkpoint; leaves MODEL."""
    directory = stage.prepare()
    config = warm_start_config(stage.inputs["warm_start"], directory)
    run_id = tracker.ensure(stage.label, "warm-start", parent)
    with tracker.running(run_id):
        tracker.log(run_id, params=flatten(stage.inputs))
        if not is_finished(config):
            file = directory / "config.json"
            file.write_text(config.model_dump_json(indent=2))
            with progress("warm-start", config.total_steps, "steps") as shown:
                environment = {"MLFLOW_TRACKING_URI": tracker.tracking_uri, "MLFLOW_RUN_ID": run_id}
                for step in _steps(file, directory / "train.log", environment):
                    shown.reach(step)
    return {"model": str(config.output_dir), "mlflow_run": run_id, "steps": config.total_steps}


def warm_start_config(settings: dict[str, Any], directory: Path) -> WarmStart:
    """The miniature's recipe with the settings' changes."""
    from elastic_core.miniature.corpus import default_recipe

    config = prepare(directory, directory / MODEL, default_recipe(settings["seed"]), settings["steps"])
    changes: dict[str, Any] = {"save_every": settings["save_every"], "loggers": ("console", "mlflow")}
    if settings["initial"] == "shipped":
        changes["model"] = BASE
    if settings["learning_rate"] is not None:
        changes["learning_rate"] = settings["learning_rate"]
    return config.model_copy(update=changes)


def _steps(config: Path, log_file: Path, environment: dict[str, str]) -> Any:
    """Run the trainer and yield each finished step.

    Raises:
        RuntimeError: when it fails, with the end of its log.
    """
    last: deque[str] = deque(maxlen=30)
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "elastic_core.training.sft", str(config)],
        # Threads cost this small a model more than they bring, and on a busy machine far more.
        env={"OMP_NUM_THREADS": "1", **os.environ, **environment, "VERL_PLATFORM": "cpu"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=end_with_parent,  # A second trainer beside an orphaned one would spoil its checkpoints.
    )
    assert process.stdout is not None
    try:
        with log_file.open("a") as log:
            for line in process.stdout:
                log.write(line)
                last.append(line)
                if match := FINISHED_STEP.search(line):
                    yield int(match[1])
        if process.wait():
            raise RuntimeError(
                f"the trainer ended with status {process.returncode}; log in {log_file}\n{''.join(last)}"
            )
    finally:
        process.terminate()
        process.wait()
