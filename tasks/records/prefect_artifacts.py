"""What people see of a task: its progress, in the terminal and in Prefect's pages, with a link to MLflow's."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import cast
from uuid import UUID

from prefect.artifacts import create_link_artifact, create_progress_artifact, update_progress_artifact
from rich import progress as bars
from rich.table import Column
from rich.text import Text

from tasks.records import terminal
from tasks.records.mlflow_tracker import Tracker

_SECONDS_BETWEEN_UPDATES = 5
_SECONDS_BETWEEN_LINES = 60  # Where there is no terminal to draw a bar in.
_SHARE = "{task.percentage:.0f} %, {task.completed:,.0f} of {task.total:,.0f} {task.fields[unit]}"


@dataclass
class Progress:
    """Counts up to its total. Each update of the artifact is a request, so they are spaced out."""

    artifact: UUID
    line: bars.Progress
    first_seconds: float | None = None  # What starting takes: from the beginning to the first unit.
    began: float = field(default_factory=time.monotonic)
    updated: float = field(default_factory=time.monotonic)
    told: float = field(default_factory=time.monotonic)

    @property
    def task(self) -> bars.Task:
        """The line's only one."""
        return self.line.tasks[0]

    @property
    def done(self) -> int:
        return int(self.task.completed)

    def expect(self, total: int) -> None:
        """There turned out to be `total` units."""
        self.line.update(self.task.id, total=total)

    def reach(self, done: int) -> None:
        """`done` units are finished."""
        now = time.monotonic()
        if done and self.first_seconds is None:
            self.first_seconds = now - self.began
        self.line.update(self.task.id, completed=done)
        if now - self.updated > _SECONDS_BETWEEN_UPDATES:
            self.updated = now
            update_progress_artifact(self.artifact, self.task.percentage)
        if not self.line.console.is_terminal and now - self.told > _SECONDS_BETWEEN_LINES:
            self.told = now
            self.line.console.print(f"{self.task.description}: {_SHARE.format(task=self.task)}, {_left(self.task)}")


@contextmanager
def progress(name: str, total: int, unit: str) -> Iterator[Progress]:
    """Show the progress of `name` over `total` units."""
    # Called in a synchronous task it returns the id itself.
    artifact = cast(UUID, create_progress_artifact(0.0, key=f"{name}-progress", description=f"{name}: {total} {unit}"))
    share = bars.TextColumn(_SHARE, table_column=Column())  # Its own column would not wrap where a terminal is narrow.
    columns = ("{task.description}", bars.BarColumn(20), share, bars.TimeElapsedColumn(), _LeftColumn())
    console = terminal.console()
    with bars.Progress(
        *columns, console=console, disable=not console.is_terminal, transient=True, refresh_per_second=1,
        speed_estimate_period=300, redirect_stdout=False, redirect_stderr=False,
    ) as line:  # fmt: skip
        line.add_task(name, total=total, unit=unit)
        yield Progress(artifact, line)
    update_progress_artifact(artifact, 100.0)


class _LeftColumn(bars.ProgressColumn):
    def render(self, task: bars.Task) -> Text:
        return Text(_left(task))


def _left(task: bars.Task) -> str:
    """Time left by the speed since the first unit; before that the task was starting."""
    seconds = task.time_remaining
    return "starting" if seconds is None else f"about {timedelta(seconds=int(seconds))} left"


def artifact_key(name: str) -> str:
    """A name as Prefect takes it in a key: lower-case letters, digits and single dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def link_run(tracker: Tracker, run_id: str, key: str) -> None:
    """The page of an MLflow run, among the artifacts of this flow run. A bare database has no pages."""
    if tracker.tracking_uri.startswith("http"):
        page = f"{tracker.tracking_uri}/#/experiments/{tracker.experiment_id}/runs/{run_id}"
        create_link_artifact(page, "MLflow run", key=key, description="Its metrics, charts and artifacts in MLflow")
