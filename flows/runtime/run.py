"""One invocation of a flow: its settings, resolved once and handed from flow to flow, its stages and their records."""

from __future__ import annotations

import copy
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from elastic_core.errors import UserError
from elastic_core.system.files import write_text
from elastic_core.system.fingerprint import hash_value
from elastic_core.system.ray_cluster import prepare_process
from flows import presets
from flows.runtime import environment
from flows.runtime.settings import Settings
from flows.runtime.stages import Stages
from tasks.records.mlflow_tracker import Tracker, flatten, run_name
from tasks.records.stage_directory import RESOLVED, Stage
from tasks.records.terminal import TOLD

if TYPE_CHECKING:
    from prefect import Flow, Task

DONE_BEFORE = "done before, nothing to do"
stage_seconds: dict[str, float] = {}  # What each stage that this process performed has taken, by name.
Given = ParamSpec("Given")


class FlowRun(Stages):
    """One invocation of a flow, and of the flows that it calls, with their stages."""

    parent: str | None = None  # Id of the MLflow run that this flow's stages belong to.

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """What Prefect's pages show of a flow that takes this as a parameter."""
        yield from {"preset": self.preset, "overrides": self.overrides}.items()

    @classmethod
    def begin(cls, preset: str, overrides: Mapping[str, Any] | None = None) -> FlowRun:
        """Resolve the settings and prepare the process. UserError when those are wrong, before anything is written."""
        for logger in map(logging.getLogger, ("prefect.flow_runs", "prefect.task_runs")):
            logger.addFilter(_user_errors_as_sentences)  # Once, however often it is added.
        settings = presets.resolve(preset, overrides)
        _require_known(settings)
        environment.prepare()
        if settings.ray.running is None:
            prepare_process()
        return cls(settings, environment.runs_directory(), preset, overrides)

    @classmethod
    def of_deployment(cls, preset: str, overrides: Mapping[str, Any] | None) -> FlowRun:
        """`begin`, with the settings written next to the results."""
        run = cls.begin(preset, overrides)
        run.write_settings()
        return run

    def with_changes(self, changes: Mapping[str, Any]) -> FlowRun:
        """The run with other settings, by dotted key. Raises UserError when they do not fit the rest."""
        settings = presets.changed(self.settings, changes)
        return FlowRun(settings, self.runs, self.given, {**self.overrides, **changes}).with_parent(self.parent)

    def write_settings(self) -> None:
        """Leave `settings.toml` in the preset's directory, a preset of this run's settings."""
        file, text = self.runs / self.settings.preset / RESOLVED, presets.as_toml(self.settings)
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            write_text(file, text)

    @cached_property
    def tracker(self) -> Tracker:
        return Tracker(self.settings.preset, self.runs, self.settings.mlflow.tracking_uri)

    @contextmanager
    def recorded(self, flow: str) -> Iterator[FlowRun]:
        """The run with the MLflow run of a flow of several stages as its parent, the same for the same settings."""
        settings = self.settings.model_dump(mode="json")
        run_id = self.tracker.ensure(f"{self.settings.preset}/{flow}/{hash_value(settings)[:12]}", run_name(flow))
        with self.tracker.running(run_id):
            self.tracker.log(run_id, params=flatten(settings))
            yield self.with_parent(run_id)

    def with_parent(self, parent: str | None) -> FlowRun:
        """The run with its stages in another MLflow run."""
        child = copy.copy(self)
        child.parent = parent
        return child

    def perform(
        self,
        task: Task[Concatenate[Stage, Tracker, str | None, Given], Any],
        stage: Stage,
        *args: Given.args,
        **keywords: Given.kwargs,
    ) -> None:
        """Perform a stage's task, unless the stage is done; and say how long it took, or that it was done before."""
        from prefect import get_run_logger
        from prefect.cache_policies import NO_CACHE

        name, done = stage.name, DONE_BEFORE
        if not stage.is_done:
            started = time.perf_counter()
            uncached = task.with_options(cache_policy=NO_CACHE)
            stage.mark_done(uncached(stage, self.tracker, self.parent, *args, **keywords))
            seconds = time.perf_counter() - started
            done = f"finished in {seconds:.0f} s"
            stage_seconds[name] = stage_seconds.get(name, 0.0) + seconds
            if (run_id := self.tracker.find(stage.label)) is not None:
                self.tracker.log(run_id, metrics={"seconds": seconds})
            if self.parent is not None:
                self.tracker.log(self.parent, metrics={f"seconds/{name}": stage_seconds[name]})
        get_run_logger().info("%s: %s (%s)", name, done, stage.directory, extra=TOLD)


def for_deployments(inner: Flow[[FlowRun], Path], default: str = "embedded") -> Flow[..., Path]:
    """The same flow as a deployment starts it: its settings are resolved here."""
    from prefect import flow

    @flow(name=inner.name, description=inner.description, flow_run_name=f"{{preset}} {inner.name}")
    def entrance(preset: str = default, overrides: dict[str, Any] | None = None) -> Path:
        """Resolve the settings and run the flow.

        Args:
            preset: settings to run with.
            overrides: settings to replace, by dotted key.
        """
        return inner.fn(FlowRun.of_deployment(preset, overrides))

    return entrance


def _require_known(settings: Settings) -> None:
    """Raise UserError for the first of the settings that go to verl and vLLM as they are which these do not know, or
    which is set already: refused at the entrance, not hours later."""
    if settings.engine.vllm:
        from elastic_core.engines.vllm import require_arguments

        require_arguments(settings.engine.vllm)
    if settings.train is None:
        return
    for changes in ({}, *(variant.train for variant in settings.ablation.values())):
        parameters = settings.train.changed(changes)
        if parameters.verl:
            from elastic_core.training.grpo.config import compose

            nowhere = Path("runs")  # The model may not be made yet.
            with redirect_stdout(sys.stderr):  # verl reports there that its checks passed.
                compose(parameters, model=nowhere, train_files=[], validation_files=[], out_dir=nowhere, run_name="")


def _user_errors_as_sentences(record: logging.LogRecord) -> bool:
    """Prefect logs every exception with a traceback; one of the user's making needs none."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, UserError):
        record.exc_info, record.exc_text = None, None
        record.msg, record.args = f"error: {error}", ()
    return True
