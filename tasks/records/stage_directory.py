"""What lies where below the runs directory. A stage is a task with a directory, `runs/<preset>/<stage>/<key>/`; next
to these lie the files that presets share.

The key is a hash of everything that the stage's output depends on (contents, settings, model fingerprints), so another
setting is another directory and nothing finished runs again. The marker of success is a JSON file in that directory,
with the task's result: delete the directory to run the stage again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elastic_core.system.files import write_text
from elastic_core.system.fingerprint import hash_value
from elastic_core.system.retry import is_transient

# In a stage's directory:
INPUTS = "inputs.json"  # Inputs and request of the stage.
MODEL = "model"  # The Hugging Face checkpoint that a training leaves, its last.
BEST = "best"  # The checkpoint with the highest validation accuracy.
METRICS = "metrics.parquet"  # Training metrics as MLflow holds them: columns step, name, value.
TABLE = "table"  # A sweep's trajectory table.
REPORT, PAGE = "report.md", "report.html"
# In a preset's directory, next to its stages:
RESOLVED = "settings.toml"  # A run's settings as a preset, which may name the preset of the results that it continues.
STORES = "tables"  # Stores that its trajectory tables share.
# In the runs directory, for all presets:
SOURCES = "sources"  # Downloaded files, laid out like a mirror, to be one elsewhere.
STANDINGS = f"{SOURCES}/codeforces-standings"
BUILT = "sets"  # Built data sets, each built once for all that it depends on.
USER_DATASETS = "datasets"  # Records of the user's data sets.
USER_TEMPLATES = "templates/own.jsonl"  # Lines may be edited or deleted; the next command checks them.
EMBEDDINGS = "templates/embeddings"  # Of names of thought templates.


@dataclass(frozen=True)
class Stage:
    """Directory and inputs of a stage.

    Attributes:
        inputs: what makes two outputs different things.
        request: the part of it that is wanted, where one directory may grow (a sweep's cells); {} where it may not.
    """

    runs: Path
    preset: str
    name: str
    inputs: dict[str, Any]
    request: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return hash_value(self.inputs)[:12]

    @property
    def directory(self) -> Path:
        """One directory for each key; a stage without inputs has one, and its latest request wins (the report)."""
        stage = self.runs / self.preset / self.name
        return stage / self.key if self.inputs else stage

    @property
    def marker(self) -> Path:
        """Exists once the stage has succeeded."""
        suffix = f"-{hash_value(self.request)[:12]}" if self.request else ""
        return self.directory / f"result{suffix}.json"

    @property
    def is_done(self) -> bool:
        return self.marker.exists()

    def mark_done(self, result: Any) -> None:
        """Leave the marker, with the result of the stage's task."""
        write_text(self.marker, json.dumps({"result": result}, indent=2) + "\n", durable=True)

    @property
    def label(self) -> str:
        """How the stage is called in MLflow, the same for every attempt at it."""
        return f"{self.preset}/{self.name}/{self.key}"

    def prepare(self) -> Path:
        """The directory, made if missing, with its inputs and request in `inputs.json`."""
        made_from = {"inputs": self.inputs, "request": self.request}
        write_text(self.directory / INPUTS, json.dumps(made_from, indent=2) + "\n")
        return self.directory


def seconds_to_queue() -> float:
    """How long to wait for a process that works in the same directory: runs of deployments queue without end
    (negative), a user at a terminal gets an error without a wait."""
    from prefect import runtime

    return -1 if runtime.deployment.id else 0


def worth_retrying(task: Any, run: Any, state: Any) -> bool:
    """Whether a failed task may succeed when run again, see `is_transient`."""
    return is_transient(state.result(raise_on_failure=False))
