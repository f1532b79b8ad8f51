"""What lies where below the runs directory. A stage is a task whose result lies in the stage's own directory,
`runs/<preset>/<stage>/<key>/`; what presets share lies beside these.

The key is a hash of everything the stage's output depends on (contents, settings, model fingerprints; never a run id),
so another setting is another directory, nothing is ever mixed, and nothing finished runs again. Prefect's own cache
holds the marker of success, a JSON file in that directory: deleting the directory is all it takes to run it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elastic_core.errors import UserError, nearest
from elastic_core.system.files import write_text
from elastic_core.system.fingerprint import hash_files, hash_value
from elastic_core.system.retry import is_transient

if TYPE_CHECKING:
    from prefect import Task

    from elastic_core.sweep.table import SweepTable

MODEL = "model"
"""Directory of the Hugging Face checkpoint that a training stage leaves."""
BEST = "best"
"""Directory of the checkpoint with the highest validation accuracy, beside MODEL, which is the last."""
METRICS = "metrics.parquet"
"""Training metrics by step, as MLflow holds them: columns step, name, value."""
TABLE = "table"
"""Directory of a sweep's trajectory table, in the stage's."""
REPORT, PAGE = "report.md", "report.html"
"""The report's text and its page, in its stage's directory."""
STORES = "tables"
"""Directory of the stores that the tables of a preset share, beside its stages."""

SOURCES = "sources"
"""Below the runs directory, for all presets: downloaded files, laid out like a mirror, to be one elsewhere."""
STANDINGS = f"{SOURCES}/codeforces-standings"
"""The standings of Codeforces contests."""
BUILT = "sets"
"""Built data sets, for every preset: each is built once for all that it depends on."""
USER_DATASETS = "datasets"
"""Records of the user's data sets."""
USER_TEMPLATES = "templates/own.jsonl"
"""The user's thought templates. Lines may be edited or deleted; the next command checks them."""
EMBEDDINGS = "templates/embeddings"
"""Embeddings of names of thought templates."""


@dataclass(frozen=True)
class Stage:
    """Where a stage's output goes and what it is made from.

    Attributes:
        inputs: what makes two outputs different things.
        request: how much of it is asked for, where one directory may grow (a sweep's cells); {} where it may not.
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
        """Without inputs there is one directory, whose latest request wins (the report)."""
        stage = self.runs / self.preset / self.name
        return stage / self.key if self.inputs else stage

    @property
    def marker(self) -> Path:
        """Exists once the stage has succeeded."""
        suffix = f"-{hash_value(self.request)[:12]}" if self.request else ""
        return self.directory / f"result{suffix}.json"

    @property
    def label(self) -> str:
        """How the stage is called in MLflow, the same for every attempt at it."""
        return f"{self.preset}/{self.name}/{self.key}"

    def prepare(self) -> Path:
        """The directory, made if missing, with what is asked of it in `inputs.json`."""
        asked = {"inputs": self.inputs, "request": self.request}
        write_text(self.directory / "inputs.json", json.dumps(asked, indent=2) + "\n")
        return self.directory


def cached_task(task: Task[..., Any], stage: Stage) -> Callable[..., Any]:
    """The task, answered from the stage's marker when it has succeeded before."""
    from prefect.serializers import JSONSerializer

    key = str(stage.marker.relative_to(stage.runs))
    return task.with_options(
        cache_key_fn=lambda *_: key,
        result_storage=stage.runs,
        result_serializer=JSONSerializer(),
        persist_result=True,
    )


def seconds_to_queue() -> float:
    """How long to wait for a process that works in the same directory: runs of deployments queue without end
    (negative), a user at a terminal is told at once who is at it."""
    from prefect import runtime

    return -1 if runtime.deployment.id else 0


def worth_retrying(task: Any, run: Any, state: Any) -> bool:
    """Whether a failed task may succeed when run again, see `is_transient`."""
    return is_transient(state.result(raise_on_failure=False))


def open_table(directory: Path) -> SweepTable:
    """The trajectory table in its own directory, or in that of the sweep that holds it.

    Raises:
        UserError: when there is none.
    """
    from elastic_core.sweep.store import ManifestMismatch
    from elastic_core.sweep.table import SweepTable

    try:
        return SweepTable(directory / TABLE if (directory / TABLE).is_dir() else directory)
    except (OSError, ManifestMismatch) as error:
        hint = nearest_sweep(directory)
        raise UserError(
            f"{directory} is no trajectory table ({error}){hint}; expected runs/PRESET/sweep/KEY/table"
        ) from None


def nearest_sweep(directory: Path) -> str:
    """The hint at the sweep, or the table, whose path is most like one that does not exist; or nothing."""
    path = directory.absolute()
    if path.exists():
        return ""
    # Of runs/PRESET/sweep/KEY, or of runs/PRESET/sweep/KEY/table.
    places = zip(path.parents[2:4], ("*/sweep/*", f"*/sweep/*/{TABLE}"), strict=False)
    return nearest(str(path), [str(found) for runs, sweeps in places for found in runs.glob(sweeps)])


def benchmark_files(table: SweepTable) -> dict[str, Path]:
    """The built data sets that a table was made with, by benchmark, as far as they are still there."""
    found = {}
    for name, sha256 in table.manifest.benchmarks.items():
        for file in sorted(preset_directory(table).glob(f"data/*/{name}.parquet")):
            if hash_files([file]) == sha256:
                found[name] = file
                break
    return found


def preset_directory(table: SweepTable) -> Path:
    """runs/PRESET of runs/PRESET/sweep/KEY/table."""
    return (table.directory / "../../..").resolve()
