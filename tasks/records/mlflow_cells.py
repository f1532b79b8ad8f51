"""Every cell of a sweep, where people look: in MLflow a run per cell, and per model a run of its accuracy over tokens,
which its charts draw for several models; in Prefect a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import polars.selectors as cs
from prefect.artifacts import create_table_artifact

from elastic_core.budget import Budget
from elastic_core.statistics.estimates import without_seed
from elastic_core.strategies import SERVED
from elastic_core.strategies.variants import BARE, split_variant
from elastic_core.sweep.grid import split_model
from elastic_core.training import model_card
from elastic_core.trajectory import CELL
from reports.figures import hex_colours
from reports.summary import anytime_metrics
from reports.tables.comparisons import every_cell
from reports.wording import plain
from tasks.records.mlflow_tracker import Point, Result, Tracker, chart, run_name
from tasks.records.stage_directory import Stage

_BUDGET = {"think_budget": "t", "solution_budget": "s"}
_NOTE = """\
**Accuracy over tokens**: {charts}

A line per model, in percent, at the mean of sampled tokens; MLflow calls this axis "Step". The bounds of the 95 %
interval are the metrics of the same name that end in `/low` and `/high`.

**Cells against each other**: filter the experiment's runs by `tags.stage = "cell"` (and, for one benchmark,
`tags.benchmark = "NAME"`), open the sweep's row, and chart or compare them: parameters `t`, `s`, `model`, `strategy`
and `train_budget`, metrics `avg_at_k`, `tokens_mean` and `forced_fraction`. An unlimited budget is not a parameter, but
the tag `t = "unlimited"`.

**Every cell**: the artifact `cells.json` of the sweep. Two sweeps, paired by problem: `elastic compare RUN_A RUN_B`."""


def record_cells(
    tracker: Tracker,
    run_id: str,
    parent: str | None,
    stage: Stage,
    places: Mapping[str, Path | str],
    summary: pl.DataFrame,
    anytime: pl.DataFrame,
) -> None:
    """Record a sweep as it stands. What an earlier record had and this one has not is in no chart.

    Args:
        run_id, parent: the sweep's run, and the pipeline's, which has the same note.
        places: where each checkpoint lies, or the address that it is served at, by name.
        summary, anytime: of `reports.summary.summarize` and `anytime_accuracy`.
    """
    cells = summary.drop("num_seeds", cs.list()).to_dicts()  # Here every seed is a model by itself.
    told_apart = {model: _model(model, stage, places) for model in sorted({cell["model"] for cell in cells})}
    tracker.record(run_id, [_result(stage, cell, told_apart[cell["model"]]) for cell in cells])
    # Of each model a run of its accuracy over tokens: a metric for each benchmark and strategy, by the same names for
    # every model, so that MLflow draws those of several in one chart.
    curves, colours = [], hex_colours(without_seed(model)[0] for model in told_apart)
    for model, facts in told_apart.items():
        ours = [cell for cell in cells if cell["model"] == model]
        points: list[Point] = [
            (_metric(cell) + bound, round(cell["tokens_mean"]), 100 * cell[column])
            for cell in ours
            for bound, column in (("", "avg_at_k"), ("/low", "ci_low"), ("/high", "ci_high"))
        ]
        tags = {"stage": "curve", "model": model, "k": min(cell["num_samples"] for cell in ours), **facts}
        tags["mlflow.runColor"] = colours[without_seed(model)[0]]
        label, name = f"{stage.label}/accuracy/{model}", run_name(model, "over tokens")
        curves.append(tracker.keep_points(label, name, points, run_id, tags))
    tracker.log(run_id, metrics=anytime_metrics(anytime))
    tracker.log_table(run_id, "cells.json", cells)
    for noted in filter(None, (run_id, parent)):
        tracker.describe(noted, _NOTE, _charts(tracker, curves, cells))
    table = every_cell(summary)
    lines = [dict(zip(table.header, (place.text for place in line), strict=True)) for line in table.lines]
    create_table_artifact(lines, key="sweep", description=f"Every cell of {stage.label}")
    tracker.link(run_id, "sweep-mlflow")


def _model(model: str, stage: Stage, places: Mapping[str, Path | str]) -> dict[str, Any]:
    """What tells a model apart: its weights and, where its checkpoint has a record, its training; of a pair, both."""
    names = split_model(model)
    records = [place / model_card.RECORD for name in names if isinstance(place := places[name], Path)]
    trainings = [json.loads(file.read_text(encoding="utf-8")) for file in records if file.exists()]
    found = {
        "model_path": [places[name] for name in names],
        "model_fingerprint": [stage.inputs["models"][name] for name in names],
        "train_budget": [each["train"]["budget"] for each in trainings],
        "train_steps": [each["step"] for each in trainings],
        "train_seed": [each["train"]["seed"] for each in trainings],
    }
    facts = {name: ">".join(map(str, values)) for name, values in found.items() if values}
    _, seed = without_seed(model)
    return facts if seed is None else facts | {"train_seed": seed}


def _result(stage: Stage, cell: dict[str, Any], model: Mapping[str, Any]) -> Result:
    """Parameters are what a cell is chosen by, and numbers where they are numbers, or a chart's axis would sort them as
    text: an unlimited budget is a tag only. So is what may change: where the model lies, and k."""
    key = {_BUDGET.get(name, name): cell[name] for name in CELL}
    label = f"{cell['model']} {cell['benchmark']} {cell['strategy']} {_shown(key['t'])}+{_shown(key['s'])}"
    budget = Budget(cell["think_budget"], cell["solution_budget"])
    shown = cell["strategy"] if budget == Budget(None, None) else f"{cell['strategy']} {budget}"
    metrics = {column: value for column, value in cell.items() if column not in CELL and value is not None}
    metrics |= {"avg_at_k_low": metrics.pop("ci_low"), "avg_at_k_high": metrics.pop("ci_high")}
    changing = {"k": cell["num_samples"], "model_path": model["model_path"]}
    _, closing, effort = split_variant(cell["strategy"])
    key |= {"closing": closing, "effort": effort} if closing != BARE or effort else {}
    tags = {"stage": "cell", **{name: _shown(value) for name, value in key.items()}, **changing}
    sampling = {name: stage.inputs["sampling"][name] for name in ("temperature", "top_p")}
    params = {**key, **{name: value for name, value in model.items() if name not in tags}, **sampling}
    params = {name: value for name, value in params.items() if value is not None} | {"sweep": stage.key}
    name = run_name(cell["model"], cell["benchmark"], shown)
    return Result(f"{stage.label}/{label}", name, tags, params, metrics)


def _metric(cell: Mapping[str, Any]) -> str:
    # The title of its chart. MLflow labels the axis "Step", and no setting changes that (3.17).
    return f"accuracy in percent over tokens/{cell['benchmark']}/{cell['strategy']}"


def _charts(tracker: Tracker, curves: Sequence[str], cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """A link to the chart of every benchmark and strategy that ran under budgets, separate budgeting first."""
    limited = {
        (cell["strategy"] != SERVED, cell["strategy"], cell["benchmark"]): _metric(cell)
        for cell in cells
        if cell["think_budget"] is not None
    }
    return [
        f"[{benchmark}, {plain(strategy)}]({chart(tracker.experiment_id, curves, metric)})"
        for (_, strategy, benchmark), metric in sorted(limited.items())
    ]


def _shown(value: object) -> str:
    return "unlimited" if value is None else str(value)
