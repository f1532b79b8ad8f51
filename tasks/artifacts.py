"""What people see of a task: its progress, in the terminal and in Prefect's pages, with a link to MLflow's."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast
from uuid import UUID

from prefect.artifacts import create_link_artifact, create_progress_artifact, update_progress_artifact
from tqdm import tqdm

from tasks.tracking import Tracker

_SECONDS_BETWEEN_UPDATES = 5


class Progress:
    """Counts up to `total`; each artifact update is a request, so they are spaced out."""

    def __init__(self, bar: tqdm, artifact: UUID) -> None:
        self._bar, self._artifact = bar, artifact
        self._updated = time.monotonic()

    @property
    def done(self) -> int:
        return int(self._bar.n)

    def expect(self, total: int) -> None:
        """There turned out to be `total` units."""
        self._bar.total = total

    def reach(self, done: int) -> None:
        """`done` units are finished."""
        self._bar.update(done - self._bar.n)
        if time.monotonic() - self._updated > _SECONDS_BETWEEN_UPDATES:
            self._updated = time.monotonic()
            update_progress_artifact(self._artifact, 100 * done / max(1, self._bar.total))


@contextmanager
def progress(name: str, total: int, unit: str) -> Iterator[Progress]:
    """Show the progress of `name` over `total` units."""
    # Called in a synchronous task it returns the id itself.
    artifact = cast(UUID, create_progress_artifact(0.0, key=f"{name}-progress", description=f"{name}: {total} {unit}"))
    with tqdm(total=total, unit=unit, desc=name, mininterval=2, dynamic_ncols=True) as bar:
        yield Progress(bar, artifact)
    update_progress_artifact(artifact, 100.0)


def artifact_key(name: str) -> str:
    """A name as Prefect takes it in a key: lower-case letters, digits and single dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def link_run(tracker: Tracker, run_id: str, key: str) -> None:
    """The page of an MLflow run, among the artifacts of this flow run. A bare database has no pages."""
    if tracker.tracking_uri.startswith("http"):
        page = f"{tracker.tracking_uri}/#/experiments/{tracker.experiment_id}/runs/{run_id}"
        create_link_artifact(page, "MLflow run", key=key, description="Its metrics, charts and artifacts in MLflow")
