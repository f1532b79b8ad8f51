"""MLflow: one experiment per preset, a run per pipeline, nested runs per stage and per cell. A run is found again by
its label, so an interrupted stage goes on in the run it began; its name (`run_name`) is for people."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

import polars as pl

from elastic_core.data.problems import Manifest
from elastic_core.system.files import replacing_directory
from elastic_core.system.fingerprint import model_fingerprint
from elastic_core.system.nested import leaves

if TYPE_CHECKING:
    from mlflow.entities import Run

    from tasks.records.stage_directory import Stage

_log = logging.getLogger(__name__)

LABEL = "elastic.label"
_PARENT = "mlflow.parentRunId"
_TABLES = "mlflow.loggedArtifacts"  # Tag that tells MLflow's pages which artifacts are tables.
_LARGEST_BATCH, _MOST_PARAMETERS = 1000, 100  # Metrics, and parameters, that MLflow takes in one request.
_LONGEST_TAG = 8000  # Characters.
Point = tuple[str, int, float]  # Of a metric: its name, a step, its value there.
_WEIGHTS = "elastic.weights"  # Tag of a model version: the fingerprint of its weights, configuration and tokenizer.
_CREDENTIALS = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")


class Result(NamedTuple):
    """A run that is only recorded. Its tags may change from one record to the next; MLflow keeps its first params."""

    label: str
    name: str
    tags: Mapping[str, Any]
    params: Mapping[str, Any]
    metrics: Mapping[str, float]


class Tracker:
    """The runs of a preset's experiment, at an MLflow server or in a database; without `tracking_uri` at
    MLFLOW_TRACKING_URI. With a database artifacts lie below `runs`."""

    def __init__(self, preset: str, runs: Path, tracking_uri: str | None = None) -> None:
        from filelock import FileLock
        from mlflow import MlflowClient

        self.tracking_uri = tracking_uri or os.environ["MLFLOW_TRACKING_URI"]
        # With a database MLflow would put artifacts into the current directory.
        local = None if self.tracking_uri.startswith("http") else (runs / "mlartifacts").as_uri()
        # The first client creates the database's tables: two at a time end with an error each.
        with FileLock(runs / ".mlflow.lock"):
            self.client = MlflowClient(self.tracking_uri)
            found = self.client.get_experiment_by_name(preset)
            # For servers that choose the page by the experiment; MLflow 3.17 takes the one that the browser chose last.
            kind = {"mlflow.experimentKind": "custom_model_development"}
            self.experiment_id = found.experiment_id if found else self.client.create_experiment(preset, local, kind)

    def find(self, label: str) -> str | None:
        """Id of the run with this label."""
        runs = self.client.search_runs([self.experiment_id], f"tags.`{LABEL}` = '{label}'", max_results=1)
        return runs[0].info.run_id if runs else None

    @contextmanager
    def stage(self, stage: Stage, parent: str | None, params: Mapping[str, Any] | None = None) -> Iterator[str]:
        """The run of a stage, RUNNING inside; its id."""
        run_id = self.ensure(stage.label, run_name(stage.name), parent)
        with self.running(run_id):
            self.log(run_id, params=flatten(params or {}))
            yield run_id

    def ensure(self, label: str, name: str, parent: str | None = None, tags: Mapping[str, Any] | None = None) -> str:
        """Id of the run with this label, created when there is none; (re)attached to `parent`. Its tag `stage`, by
        which runs are filtered, is its name unless `tags` say otherwise."""
        tags = {"stage": name, **(tags or {}), **({_PARENT: parent} if parent else {})}
        run_id = self.find(label)
        if run_id is None:
            return self._create(label, name, tags)
        self.log(run_id, tags=tags)
        return run_id

    def record(self, parent: str, results: Sequence[Result]) -> None:
        """A finished run below `parent` for each result, in few requests; a known label keeps its run."""
        from mlflow.store.entities import PagedList

        known: dict[str, Run] = {}
        page: PagedList[Any] | None = None
        while page is None or page.token:
            page = self.client.search_runs(
                [self.experiment_id], f"tags.`{_PARENT}` = '{parent}'", page_token=page.token if page else None
            )
            known |= {run.data.tags[LABEL]: run for run in page if LABEL in run.data.tags}
        for result in results:
            tags, run = {**result.tags, _PARENT: parent}, known.get(result.label)
            run_id = run.info.run_id if run else self._create(result.label, result.name, tags)
            there = run.data.params if run else {}
            params = {name: value for name, value in result.params.items() if name not in there}
            self.log(run_id, metrics=result.metrics, params=params, tags=tags)
            self.client.set_terminated(run_id, "FINISHED")

    def keep_points(
        self, label: str, name: str, points: Sequence[Point], parent: str | None, tags: Mapping[str, Any]
    ) -> str:
        """Id of a finished run with this label that holds these points and no others. MLflow takes no point back: a run
        that holds another one is deleted, and made anew."""
        run_id, wanted = self.find(label), set(points)
        held = set(self.history(run_id).select("name", "step", "value").iter_rows()) if run_id else set()
        if run_id and held - wanted:
            self.client.delete_run(run_id)
            held = set()
        run_id = self.ensure(label, name, parent, tags)
        self.log_points(run_id, sorted(wanted - held))
        self.client.set_terminated(run_id, "FINISHED")
        return run_id

    def describe(self, run_id: str, text: str, charts: Sequence[str]) -> None:
        """The run's description, in Markdown: `text` with the charts in the place of {charts}, as many as fit."""
        room = _LONGEST_TAG - len(text)
        lengths = accumulate(len(chart) + 3 for chart in charts)
        fitting = [chart for chart, length in zip(charts, lengths, strict=True) if length <= room]
        self.client.set_tag(run_id, "mlflow.note.content", text.format(charts=" · ".join(fitting)))

    def _create(self, label: str, name: str, tags: Mapping[str, Any]) -> str:
        named = {LABEL: label, **{key: str(value) for key, value in tags.items()}}
        return str(self.client.create_run(self.experiment_id, run_name=name, tags=named).info.run_id)

    @contextmanager
    def running(self, run_id: str) -> Iterator[None]:
        """The run is RUNNING inside, FINISHED after, FAILED after an exception."""
        from mlflow.exceptions import MlflowException

        self.client.update_run(run_id, "RUNNING")
        try:
            yield
        except BaseException:
            try:
                self.client.set_terminated(run_id, "FAILED")
            except (MlflowException, OSError) as error:
                # The reason of the failure may be that MLflow is away: that is what must be raised.
                _log.warning("MLflow run %s could not be marked as failed: %s", run_id, error)
            raise
        self.client.set_terminated(run_id, "FINISHED")

    def log(
        self,
        run_id: str,
        *,
        metrics: Mapping[str, float] | None = None,
        params: Mapping[str, Any] | None = None,
        tags: Mapping[str, Any] | None = None,
    ) -> None:
        """Metrics, parameters and tags, in as few requests as MLflow takes them."""
        from mlflow.entities import Metric, Param, RunTag

        now, given = int(time.time() * 1000), iter((params or {}).items())
        rest = {
            "metrics": [Metric(name, float(value), now, 0) for name, value in (metrics or {}).items()],
            "tags": [RunTag(name, str(value)) for name, value in (tags or {}).items()],
        }
        while (some := list(islice(given, _MOST_PARAMETERS))) or rest:
            # Characters that MLflow takes in a name; names of models may have others, as "trained@2" has.
            named = [(re.sub(r"[^\w\-. :/]", "-", name.replace("@", "-seed-")), value) for name, value in some]
            self.client.log_batch(run_id, params=[Param(name, str(value)[:6000]) for name, value in named], **rest)
            rest = {}

    def log_points(self, run_id: str, points: Sequence[Point], at: datetime | None = None) -> None:
        """Metrics of any number of steps, of this moment unless another is given."""
        from mlflow.entities import Metric

        moment = int(1000 * (at.timestamp() if at else time.time()))
        metrics = [Metric(name, value, moment, step) for name, step, value in points]
        for start in range(0, len(metrics), _LARGEST_BATCH):
            self.client.log_batch(run_id, metrics=metrics[start : start + _LARGEST_BATCH])

    def log_table(self, run_id: str, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """A table as an artifact NAME.json that MLflow's pages show. Logged again it is replaced; MLflow's `log_table`
        would append."""
        table = {"columns": list(rows[0]) if rows else [], "data": [list(row.values()) for row in rows]}
        self.client.log_dict(run_id, table, name)
        self.client.set_tag(run_id, _TABLES, json.dumps([{"path": name, "type": "table"}]))

    def log_datasets(self, run_id: str, manifest: Manifest, directory: Path) -> None:
        """Every built data set as an input of the run."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        inputs = [
            DatasetInput(
                Dataset(
                    name=name,
                    digest=entry["sha256"][:36],  # MLflow takes no more.
                    source_type=entry["source"].split("/")[0],
                    source=json.dumps({key: entry[key] for key in ("source", "revision", "licence", "files")}),
                    profile=json.dumps({"num_rows": entry["kept_rows"], "file": str(directory / entry["file"])}),
                ),
                tags=[InputTag("mlflow.data.context", entry["split"])],
            )
            for name, entry in manifest["datasets"].items()
        ]
        self.client.log_inputs(run_id, datasets=inputs)

    def register(self, name: str, alias: str, model: Path, run_id: str, tags: Mapping[str, str]) -> str:
        """The version of registered model `name` that holds these weights, which `alias` then points to; made when
        there is none, with a link to its run. With a database it refers to the directory `model`; a server, which
        takes no paths of its clients, gets a copy."""
        from mlflow.exceptions import MlflowException

        fingerprint = model_fingerprint(model)
        try:
            self.client.get_registered_model(name)
        except MlflowException:
            self.client.create_registered_model(name)
        known = self.client.search_model_versions(f"name = '{name}'")
        version = next((each.version for each in known if each.tags.get(_WEIGHTS) == fingerprint), None)
        if version is None:
            source = str(model)
            if self.tracking_uri.startswith("http"):
                self.client.log_artifacts(run_id, str(model), model.name)
                source = f"{self.client.get_run(run_id).info.artifact_uri}/{model.name}"
            named = {f"elastic.{key}": value for key, value in tags.items()}
            version = self.client.create_model_version(name, source, run_id, {_WEIGHTS: fingerprint, **named}).version
        self.client.set_registered_model_alias(name, alias, version)
        return str(version)

    def newest(self, name: str, runs: Path) -> tuple[str, Path] | None:
        """Version and directory of the newest weights of a registered model, None when there are none: where training
        left them, or below `runs` a copy of the server's. Raises MlflowException when MLflow does not answer."""
        from mlflow.exceptions import MlflowException

        try:
            found = self.client.get_model_version_by_alias(name, "last")
        except MlflowException as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):  # No model, or no alias.
                return None
            raise
        left = runs / found.tags["elastic.stage"] / Path(str(found.source)).name
        copy = left.parents[2] / "registered" / str(found.version)
        if not left.is_dir() and not copy.is_dir():
            with replacing_directory(copy) as temporary:
                self.client.download_artifacts(str(found.run_id), left.name, str(temporary))
        return str(found.version), left if left.is_dir() else copy / left.name

    def renew(self, run_id: str, file: Path) -> None:
        """Put a file of a registered model into the run's copy of it, if it has one: with a database it has none."""
        folder = file.parent.name
        if self.client.list_artifacts(run_id, folder):
            self.client.log_artifact(run_id, str(file), folder)

    def link(self, run_id: str, key: str) -> None:
        """Put the page of a run among the artifacts of this flow run. A bare database has no pages."""
        from prefect.artifacts import create_link_artifact

        if self.tracking_uri.startswith("http"):
            page = f"{self.tracking_uri}/#/experiments/{self.experiment_id}/runs/{run_id}"
            create_link_artifact(page, "MLflow run", key=key, description="Its metrics, charts and artifacts in MLflow")

    def job_environment(self, run_id: str) -> dict[str, str]:
        """Variables by which a job logs to the run, wherever it runs."""
        credentials = {name: os.environ[name] for name in _CREDENTIALS if name in os.environ}
        return {"MLFLOW_TRACKING_URI": self.tracking_uri, "MLFLOW_RUN_ID": run_id, **credentials}

    def history(self, run_id: str) -> pl.DataFrame:
        """Every metric the run holds: columns step, name, value."""
        rows = [
            (metric.step, name, metric.value)
            for name in self.client.get_run(run_id).data.metrics
            for metric in self.client.get_metric_history(run_id, name)
        ]
        schema = {"step": pl.Int64, "name": pl.String, "value": pl.Float64}
        return pl.DataFrame(rows, schema, orient="row").sort("name", "step")


def run_name(what: str, *details: str) -> str:
    """What MLflow calls a run: the name of a stage or flow ("sweep"), and of what lies below a stage the model and what
    is recorded of it ("trained · math500 · separate 1024+1024", "trained · over tokens", "trained · by date")."""
    return " · ".join([what, *details])[:250]


def chart(experiment_id: str, run_ids: Sequence[str], metric: str, over: str = "step") -> str:
    """The page of MLflow that draws a metric of several runs over "step" or "wall" time, relative to other pages."""
    asked: dict[str, Any] = {"runs": list(run_ids), "metric": metric, "experiments": [experiment_id]}
    asked |= {"plot_metric_keys": [metric], "x_axis": over, "show_point": True}
    values = {name: json.dumps(value, separators=(",", ":")) for name, value in asked.items()} | {"x_axis": over}
    return f"#/metric?{urlencode(values, safe=',/')}"


def flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings as dotted names, as MLflow's parameter columns show them; none of an empty table."""
    return {".".join(path): value for path, value in leaves(values) if not isinstance(value, Mapping)}
