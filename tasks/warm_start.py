"""Supervised fine-tuning, of the miniature on its corpus or of any model on conversations, by verl's SFT trainer in a
separate process."""

from __future__ import annotations

import os
import re
import subprocess
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prefect import get_run_logger, task

from elastic_core.miniature.corpus import RECIPES
from elastic_core.miniature.warm_start import BASE, prepare, save_with_efforts
from elastic_core.models.files import num_threads
from elastic_core.reasonflux.chat_templates import fitting_template
from elastic_core.reasonflux.sft import unused_fields, write_rows
from elastic_core.system.network import HOST, ON_LOOPBACK
from elastic_core.system.processes import PYTHON, end_with_parent
from elastic_core.system.retry import ProcessLost
from elastic_core.training.launch import FINISHED_STEP, KEPT_MEMORY
from elastic_core.training.sft import is_finished
from elastic_core.training.sft_parameters import SftParameters, WarmStart
from tasks.records.mlflow_tracker import Tracker
from tasks.records.stage_directory import MODEL, Stage, worth_retrying
from tasks.records.terminal import progress


@dataclass(frozen=True)
class Imitation:
    """Fine-tuning of a Hugging Face checkpoint on a built data set of conversations, from the files `sources`."""

    parameters: SftParameters
    model: Path
    conversations: Path
    sources: tuple[Path, ...]


_KILLED = re.compile(r"Signal \d+ \(SIGKILL\) received")
"""torchrun's line about a process that was killed; another's own error is told otherwise."""
ROWS = "rows.parquet"
"""Token ids and loss mask of the conversations, in the stage's directory; their report is beside them."""


@task(name="warm-start", retries=1, retry_delay_seconds=5, retry_condition_fn=worth_retrying)
def fine_tune(stage: Stage, tracker: Tracker, parent: str | None, imitation: Imitation | None = None) -> dict[str, Any]:
    """Fine-tune on conversations, else on the miniature's corpus, resuming from the last checkpoint; leaves MODEL."""
    directory = stage.prepare()
    with tracker.stage(stage, parent, stage.inputs) as run_id:
        if imitation is None:
            config = warm_start_config(stage.inputs["warm_start"], directory)
            launch = Launch(threads=num_threads(config.model))
        else:
            from transformers import AutoTokenizer

            sft, conversations = imitation.parameters, imitation.conversations
            tokenizer = AutoTokenizer.from_pretrained(imitation.model)
            template = fitting_template(sft.chat_template, tokenizer)
            report = write_rows(conversations, tokenizer, template, sft.cutoff, directory / ROWS)
            get_run_logger().info("%s: %s", conversations.stem, report)
            if unused := unused_fields(imitation.sources):
                found = ", ".join(f"{name} ({rows} rows)" for name, rows in unused.items())
                get_run_logger().warning("%s: fields that training does not read: %s", conversations.stem, found)
            tracker.log(run_id, metrics={f"rows/{name}": count for name, count in asdict(report).items()})
            paths = directory / "run", directory / MODEL
            config = sft.warm_start(imitation.model, directory / ROWS, report.num_rows, *paths)
            launch = Launch(sft.device == "cpu", sft.gpus, num_threads(imitation.model))
        if not is_finished(config):
            file = directory / "config.json"
            file.write_text(config.model_dump_json(indent=2))
            with progress("warm-start", config.total_steps, "steps") as shown:
                environment = {"MLFLOW_TRACKING_URI": tracker.tracking_uri, "MLFLOW_RUN_ID": run_id}
                for step in _steps(launch, file, directory / "train.log", environment):
                    shown.reach(step)
    return {"model": str(config.output_dir), "mlflow_run": run_id, "steps": config.total_steps}


def warm_start_config(settings: dict[str, Any], directory: Path) -> WarmStart:
    """The miniature's recipe with the settings' changes."""
    recipe = RECIPES[settings["recipe"]](settings["seed"])
    config = prepare(directory, directory / MODEL, recipe, settings["steps"])
    changes: dict[str, Any] = {"save_every": settings["save_every"], "loggers": ("console", "mlflow")}
    if settings["initial"] != "random":
        changes["model"] = BASE if settings["initial"] == "shipped" else Path(settings["initial"])
    if recipe.efforts:
        initial = directory / "with-efforts"
        if not initial.exists():
            save_with_efforts(changes.get("model", config.model), initial)
        changes["model"] = initial
    if settings["learning_rate"] is not None:
        changes["learning_rate"] = settings["learning_rate"]
    return config.model_copy(update=changes)


@dataclass(frozen=True)
class Launch:
    """How the trainer is started: on a CPU as one process with threads, else one process per GPU."""

    cpu: bool = True
    num_processes: int = 1
    threads: int = 1

    def command(self, config: Path) -> list[str]:
        several = ["-m", "elastic_core.system.private_stores", "--standalone", f"--local-addr={HOST}"]
        several += ["--nproc-per-node", str(self.num_processes)]
        launcher = several if self.num_processes > 1 else []
        return [*PYTHON, "-u", *launcher, "-m", "elastic_core.training.sft", str(config)]

    def environment(self) -> dict[str, str]:
        own = {**ON_LOOPBACK, "PYTHONSAFEPATH": "1"}  # torchrun starts its processes without -P.
        if self.cpu:
            # Threads that spin while they wait take the cores from everything else.
            own |= {"OMP_NUM_THREADS": str(self.threads), "OMP_WAIT_POLICY": "PASSIVE"}
            own |= KEPT_MEMORY if self.threads > 1 else {}
        chosen = {name: os.environ.get(name, value) for name, value in own.items()}
        return {"VERL_PLATFORM": "cpu", **chosen} if self.cpu else chosen


def _steps(launch: Launch, config: Path, log_file: Path, environment: Mapping[str, str]) -> Any:
    """Run the trainer and yield each finished step. Raises ProcessLost when one of its processes was killed, else
    RuntimeError when it fails, with the end of its log."""
    last: deque[str] = deque(maxlen=30)
    process = subprocess.Popen(
        launch.command(config),
        env={**os.environ, **environment, **launch.environment()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=end_with_parent,  # A second trainer and an orphaned one would spoil each other's checkpoints.
    )
    assert process.stdout is not None
    try:
        with log_file.open("a") as log:
            for line in process.stdout:
                log.write(line)
                last.append(line)
                if match := FINISHED_STEP.search(line):
                    yield int(match[1])
        if status := process.wait():
            kind = ProcessLost if status < 0 or any(_KILLED.search(line) for line in last) else RuntimeError
            raise kind(f"the trainer ended with status {status}; log in {log_file}\n{''.join(last)}")
    finally:
        process.terminate()
        process.wait()
