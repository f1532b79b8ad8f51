"""What every flow begins with: its settings, its directory, its MLflow experiment."""

from __future__ import annotations

import json
import logging
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from elastic_core.errors import UserError
from elastic_core.system.fingerprint import hash_value
from elastic_core.system.ray_cluster import prepare_process
from flows import presets
from flows.runtime import environment
from flows.runtime.settings import Settings
from tasks.records.mlflow_tracker import Tracker, flatten
from tasks.records.stage_directory import Stage, cached_task
from tasks.records.terminal import TOLD

if TYPE_CHECKING:
    from prefect import State, Task

DONE_BEFORE = "done before, nothing to do"
stage_seconds: dict[str, float] = {}
"""What each stage that this process performed has taken, by name."""
Given = ParamSpec("Given")
Result = TypeVar("Result")


@dataclass(frozen=True)
class FlowRun:
    """One invocation of a flow.

    Attributes:
        parent: id of the MLflow run that this flow's stages belong to, if any.
        given: the preset as the user gave it, where that was a file.
        overrides: settings that the user replaced.
    """

    settings: Settings
    runs: Path
    parent: str | None = None
    given: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def begin(cls, preset: str, overrides: Mapping[str, Any] | None, parent: str | None = None) -> FlowRun:
        """Raises:
        UserError: when preset or overrides are wrong.
        """
        environment.prepare()
        _show_user_errors_as_sentences()
        settings = presets.resolve(preset, overrides)
        if settings.ray.running is None:
            prepare_process()
        return cls(settings, environment.runs_directory(), parent, preset, overrides or {})

    @property
    def preset(self) -> str:
        """What --preset takes to have this run's settings."""
        return self.given or self.settings.preset

    def command(self, flow: str) -> str:
        """What runs a flow with the same settings."""
        replaced = (f"{key}={json.dumps(value)}" for key, value in flatten(self.overrides).items())
        given = (part for text in replaced for part in ("--set", text))
        return shlex.join(["elastic", "run", flow, "--preset", self.preset, *given])

    @cached_property
    def tracker(self) -> Tracker:
        return Tracker(self.settings.preset, self.runs, self.settings.mlflow.tracking_uri)

    @contextmanager
    def recorded(self, flow: str) -> Iterator[str]:
        """The MLflow run of a flow of several stages, the same for the same settings; its id is their parent."""
        settings = self.settings.model_dump(mode="json")
        run_id = self.tracker.ensure(f"{self.settings.preset}/{flow}/{hash_value(settings)[:12]}", flow)
        with self.tracker.running(run_id):
            self.tracker.log(run_id, params=flatten(settings))
            yield run_id

    def stage(self, name: str, inputs: Mapping[str, Any], request: Mapping[str, Any] | None = None) -> Stage:
        return Stage(self.runs, self.settings.preset, name, dict(inputs), dict(request or {}))

    def perform(
        self,
        task: Task[Concatenate[Stage, Tracker, str | None, Given], Result],
        stage: Stage,
        *args: Given.args,
        **keywords: Given.kwargs,
    ) -> Result:
        """Result of the stage's task, and a line telling how long it took, or that it was done before."""
        from prefect import get_run_logger

        started = time.perf_counter()
        cached: Any = cached_task(task, stage)
        state: State[Result] = cached(stage, self.tracker, self.parent, *args, **keywords, return_state=True)
        result = state.result()
        seconds = time.perf_counter() - started
        if state.name == "Cached":
            done = DONE_BEFORE
        else:
            done = f"finished in {seconds:.0f} s"
            self._record_seconds(stage, seconds)
        get_run_logger().info("%s: %s (%s)", stage.name, done, stage.directory, extra=TOLD)
        return result

    def _record_seconds(self, stage: Stage, seconds: float) -> None:
        stage_seconds[stage.name] = stage_seconds.get(stage.name, 0.0) + seconds
        if (run_id := self.tracker.find(stage.label)) is not None:
            self.tracker.log(run_id, metrics={"seconds": seconds})
        if self.parent is not None:
            self.tracker.log(self.parent, metrics={f"seconds/{stage.name}": stage_seconds[stage.name]})


class _SentenceFilter(logging.Filter):
    """Prefect logs every exception with a traceback; one of the user's making needs none."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, UserError):
            record.exc_info, record.exc_text = None, None
            record.msg, record.args = f"error: {error}", ()
        return True


def _show_user_errors_as_sentences() -> None:
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logger = logging.getLogger(name)
        if not any(isinstance(present, _SentenceFilter) for present in logger.filters):
            logger.addFilter(_SentenceFilter())
