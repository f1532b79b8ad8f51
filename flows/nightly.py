"""nightly: the newest trained model against its base, on samples that no other night drew; accuracy by date."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import polars as pl
from prefect import flow, get_run_logger, runtime

from elastic_core.budget import Budget
from elastic_core.statistics.budgets import anytime_accuracy
from elastic_core.sweep.grid import checkpoint_names
from elastic_core.system.fingerprint import hash_value
from flows.data import run_prepare_data
from flows.runtime.run import FlowRun, for_deployments
from flows.runtime.settings import TRAINED, Settings
from flows.sweep import measure_grid, measured_cells
from flows.train import run_warm_start
from reports.summary import cell_problems, headline, summarize_problems
from reports.wording import plain
from tasks.records.mlflow_tracker import Point, Tracker, chart, run_name
from tasks.records.stage_directory import TABLE
from tasks.records.terminal import TOLD

NEWEST = "newest"  # The newest registered model's name in the sweep.
_NOTE = """\
**Accuracy by date**: {charts}

A line per model, at each budget. This run itself has anytime accuracy, free tokens and the newest model's gain over
base, by date. A step is a day since 1970-01-01; `model_version` of `newest · by date` says which weights a night
measured."""


@flow(name="nightly", flow_run_name="{run.settings.preset} nightly", validate_parameters=False)
def run_nightly(run: FlowRun) -> Path:
    """Measure the preset's models that no training leaves, and the newest that MLflow has of its trainings, if any,
    with samples drawn anew, and add a point to their history in MLflow. The day is that which the flow run was due on,
    in UTC; one that has its point keeps it. Returns the directory of the night's trajectory table."""
    return measure_night(run, runtime.flow_run.scheduled_start_time.astimezone(UTC).date())


nightly = for_deployments(run_nightly)


def measure_night(run: FlowRun, on: date) -> Path:
    """The flow, for a day."""
    newest = run.tracker.newest(f"elastic-{run.settings.preset}", run.runs)
    if newest is None:
        only = "no training of %s is registered yet: base alone is measured"
        get_run_logger().info(only, run.settings.preset, extra=TOLD)
    night = run.with_changes(nightly_overrides(run.settings, on, newest[1] if newest else None))
    if not night.data.is_done:
        run_prepare_data(night)
    if run.settings.base == "warm-start":
        run_warm_start(run)
    label = history_label(night)
    run_id = run.tracker.ensure(label, "nightly")
    with run.tracker.running(run_id):
        measure_grid(measured := night.with_parent(run_id))
        record_night(run.tracker, label, measured_cells(measured), on, newest[0] if newest else None)
    return measured.sweep.directory / TABLE


def nightly_overrides(settings: Settings, on: date, newest: Path | None) -> dict[str, Any]:
    """Settings of a night, by dotted key; `newest` is the directory of the newest model."""
    sweep = settings.sweep
    models = [model for model in sweep.models if not {*TRAINED} & {*checkpoint_names([model])}] or ["base"]
    return {
        "sweep.models": [*models, NEWEST] if newest else models,
        "sweep.checkpoints": {**sweep.checkpoints, **({NEWEST: str(newest)} if newest else {})},
        "sweep.seed": int(f"{on:%Y%m%d}"),
        "report.pairs": [],
    }


def history_label(run: FlowRun) -> str:
    """Nights that measure alike have one history, whatever model is the newest."""
    made_from = run.sweep.inputs
    models = {name: weights for name, weights in made_from["models"].items() if name != NEWEST}
    sampling = {name: value for name, value in made_from["sampling"].items() if name != "seed"}
    alike = {**made_from, "models": models, "sampling": sampling}
    return f"{run.settings.preset}/nightly/{hash_value(alike)[:12]}"


def record_night(tracker: Tracker, label: str, rows: pl.DataFrame, on: date, version: str | None) -> None:
    """Add a night to the history: to the run of `label` the headline, and below it for every model a run with
    accuracy/BENCHMARK/STRATEGY/BUDGET and its bounds, the same names for every model, so that one chart has them all.

    Args:
        rows: of the night's trajectory table.
        version: of the registered model that was measured as NEWEST.
    """
    problems = cell_problems(rows)
    summary = summarize_problems(problems)
    step, parent = (on - date(1970, 1, 1)).days, tracker.ensure(label, "nightly")
    numbers = headline(problems, summary, anytime_accuracy(problems), {})
    _add(tracker, parent, [(name, step, value) for name, value in numbers.items()], on)
    histories, shown = [], {}
    for (model,), cells in summary.sort("model").partition_by("model", as_dict=True, maintain_order=True).items():
        points: list[Point] = [("model_version", step, float(version))] if version and model == NEWEST else []
        for cell in cells.iter_rows(named=True):
            budget = str(Budget(cell["think_budget"], cell["solution_budget"]))
            metric = f"accuracy/{cell['benchmark']}/{cell['strategy']}/{budget.replace('+', '-')}"
            ends = {"": "avg_at_k", "_low": "ci_low", "_high": "ci_high"}
            points += [(metric + end, step, cell[column]) for end, column in ends.items()]
            shown[metric] = f"{cell['benchmark']}, {plain(cell['strategy'])} {budget}"
        history = tracker.ensure(
            f"{label}/{model}", run_name(model, "by date"), parent, {"stage": "history", "model": model}
        )
        _add(tracker, history, points, on)
        tracker.client.set_terminated(history, "FINISHED")
        histories.append(history)
    charts = [f"[{name}]({chart(tracker.experiment_id, histories, metric, 'wall')})" for metric, name in shown.items()]
    tracker.describe(parent, _NOTE, charts)


def _add(tracker: Tracker, run_id: str, points: list[Point], on: date) -> None:
    there = set(tracker.history(run_id).select("name", "step").iter_rows())
    tracker.log_points(run_id, [point for point in points if point[:2] not in there], datetime.combine(on, time(), UTC))
