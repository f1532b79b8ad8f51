"""What people see of a task: its progress, in the terminal and in Prefect's pages; a link from there to MLflow's; and
every cell of a sweep in both: one MLflow run per cell, its curves and its table on the sweep's own run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from uuid import UUID

import polars as pl
import polars.selectors as cs
from prefect.artifacts import (
    create_link_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from tqdm import tqdm

from elastic_core.budget import Budget
from elastic_core.sweep.grid import without_seed
from elastic_core.trajectory import CELL
from reports.comparison import metric_name
from reports.wording import with_bounds
from tasks.tracking import Result, Tracker

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


def link_run(tracker: Tracker, run_id: str, key: str) -> None:
    """The page of an MLflow run, among the artifacts of this flow run. A bare database has no pages."""
    if tracker.tracking_uri.startswith("http"):
        page = f"{tracker.tracking_uri}/#/experiments/{tracker.experiment_id}/runs/{run_id}"
        create_link_artifact(page, "MLflow run", key=key, description="Its metrics, charts and artifacts in MLflow")


_BUDGET = {"think_budget": "t", "solution_budget": "s"}
_NOTE = """\
**Accuracy over tokens**: the charts of `accuracy/BENCHMARK/MODEL/STRATEGY`, whose step is the mean of sampled tokens.

**Cells against each other**: filter the experiment's runs by `tags.stage = "cell"` (and, for one benchmark,
`tags.benchmark = "NAME"`), open the sweep's row, and chart or compare them: parameters `t`, `s`, `model` and
`strategy`, metrics `avg_at_k`, `tokens_mean` and `forced_fraction`. An unlimited budget is no parameter, only the tag
`t = "unlimited"`.

**Every cell**: the artifact `cells.json`. Two sweeps, paired by problem: `elastic compare RUN_A RUN_B`."""


def record_cells(tracker: Tracker, run_id: str, label: str, summary: pl.DataFrame, anytime: pl.DataFrame) -> None:
    """On the sweep's run accuracy is logged over tokens, so that MLflow's chart of it is the accuracy-vs-tokens plot.

    Args:
        summary: as `reports.summary.summarize` returns it.
        anytime: as `anytime_accuracy` returns it; with several solution budgets, the largest is a model's metric.
    """
    cells = summary.drop("num_seeds", cs.list()).to_dicts()  # Here every seed is a model by itself.
    tracker.record(run_id, [_result(label, cell) for cell in cells])
    points = [(metric_name("accuracy", cell), round(cell["tokens_mean"]), cell["avg_at_k"]) for cell in cells]
    tracker.log_points(run_id, points)
    ladders = anytime.sort("solution_budget", nulls_last=True).iter_rows(named=True)
    ends = ("", "_low", "_high")
    tracker.log(
        run_id, metrics={metric_name("anytime", row) + end: row[f"anytime{end}"] for row in ladders for end in ends}
    )
    tracker.log_table(run_id, "cells.json", cells)
    tracker.client.set_tag(run_id, "mlflow.note.content", _NOTE)
    create_table_artifact([_line(cell) for cell in cells], key="sweep", description=f"Every cell of {label}")
    link_run(tracker, run_id, "sweep-mlflow")


def _result(label: str, cell: dict[str, Any]) -> Result:
    """Parameters are what a cell is chosen by, and numbers where they are numbers, or a chart's axis would sort them as
    text: an unlimited budget is a tag only."""
    key = {_BUDGET.get(name, name): cell[name] for name in CELL}
    name = f"{cell['model']} {cell['benchmark']} {cell['strategy']} {_shown(key['t'])}+{_shown(key['s'])}"
    metrics = {column: value for column, value in cell.items() if column not in CELL and value is not None}
    metrics |= {"avg_at_k_low": metrics.pop("ci_low"), "avg_at_k_high": metrics.pop("ci_high")}
    tags = {"stage": "cell", **{name: _shown(value) for name, value in key.items()}}
    _, seed = without_seed(cell["model"])
    params = {name: value for name, value in (key | {"train_seed": seed}).items() if value is not None}
    return Result(f"{label}/{name}", name, tags, params, metrics)


def _line(cell: dict[str, Any]) -> dict[str, Any]:
    """A cell as people read it."""
    return {
        **{name: cell[name] for name in ("benchmark", "model", "strategy")},
        "budget": str(Budget(cell["think_budget"], cell["solution_budget"])),
        "accuracy, % [95 %]": with_bounds(cell["avg_at_k"], cell["ci_low"], cell["ci_high"]),
        "thinking tokens": f"{cell['think_tokens_mean']:.1f}",
        "solution tokens": f"{cell['solution_tokens_mean']:.1f}",
        "cut by us, %": f"{100 * cell['forced_fraction']:.0f}",
        "problems × samples": f"{cell['num_problems']} × {cell['num_samples']}",
    }


def _shown(value: object) -> str:
    return "unlimited" if value is None else str(value)
