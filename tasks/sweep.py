"""The grid of budget evaluations: engines on Ray, rows into the trajectory table, one MLflow run per cell."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from prefect import get_run_logger, task
from prefect.artifacts import create_table_artifact

from elastic_core.budget import parse_grid
from elastic_core.data.problems import Problem, read_problems
from elastic_core.engines.parameters import EngineParameters
from elastic_core.engines.shared import SharedDraws
from elastic_core.errors import UserError
from elastic_core.markers import load_markers
from elastic_core.strategies import Sampling
from elastic_core.sweep.executor import SweepPlan, SweepResult, plan_sweep, run_sweep
from elastic_core.sweep.grid import build_cells
from elastic_core.sweep.manifest import Manifest
from elastic_core.sweep.rows import RowBuilder
from elastic_core.sweep.store import TableLocked, TrajectoryStore
from elastic_core.training.local_ray import RayCluster
from reports.summary import CELL, summarize
from tasks.cluster import connected, ray_cluster
from tasks.progress import Progress, progress
from tasks.stage import TABLE, Stage, worth_retrying
from tasks.tracking import Tracker, flatten


class ModelCounts(NamedTuple):
    """What the sweep of one model took. Tokens: drawn by the engine, and answered from longer draws of the engine."""

    rows_written: int
    rows_present: int
    tokens_generated: int
    tokens_reused: int
    grading_seconds: float
    seconds: float


@task(name="sweep", retries=1, retry_delay_seconds=5, retry_condition_fn=worth_retrying)
def measure(
    stage: Stage,
    tracker: Tracker,
    parent: str | None,
    engine: EngineParameters,
    cluster: RayCluster | None,
    models: Mapping[str, Path],
    benchmark_files: Mapping[str, Path],
) -> dict[str, Any]:
    """Generate and grade what the stage's request asks for and the table lacks, model by model."""
    store = TrajectoryStore(stage.prepare() / TABLE)
    problems = {name: read_problems(file) for name, file in benchmark_files.items()}
    run_id = tracker.ensure(stage.label, "sweep", parent)
    counts = ModelCounts(0, 0, 0, 0, 0.0, 0.0)._asdict()
    with tracker.running(run_id):
        tracker.log(run_id, params=flatten(stage.inputs))
        try:
            with store.writing(_manifest(stage, models, engine)):
                for name, result in _run_models(stage, store, engine, cluster, models, problems):
                    counts = {key: value + getattr(result, key) for key, value in counts.items()}
                    get_run_logger().info(
                        "sweep of %s: %d rows in %.0f s (grading %.1f s, beside generation), %d tokens generated, "
                        "%d answered from longer draws", name, result.rows_written, result.seconds,
                        result.grading_seconds, result.tokens_generated, result.tokens_reused,
                    )  # fmt: skip
        except TableLocked as error:
            raise UserError(str(error)) from None
        tracker.log(run_id, metrics=counts)
        _record_cells(tracker, run_id, stage, summarize(store.read()))
    return {"table": str(store.directory), "mlflow_run": run_id, **counts}


def _manifest(stage: Stage, models: Mapping[str, Path], engine: EngineParameters) -> Manifest:
    return Manifest(
        models=stage.inputs["models"],
        engines=dict.fromkeys(models, engine.fingerprint),
        benchmarks=stage.inputs["benchmarks"],
        settings={"preset": stage.preset, **stage.inputs["sampling"]},
    )


def _run_models(
    stage: Stage,
    store: TrajectoryStore,
    engine: EngineParameters,
    cluster: RayCluster | None,
    models: Mapping[str, Path],
    problems: Mapping[str, Sequence[Problem]],
) -> list[tuple[str, ModelCounts]]:
    """Sweep one model after the other; neither Ray nor an engine is started when nothing is missing."""
    request, sampling = stage.request, stage.inputs["sampling"]
    plans = {
        name: plan_sweep(
            build_cells([name], list(problems), request["strategies"], parse_grid(request["budgets"])),
            problems,
            num_samples=request["samples"],
            seed=sampling["seed"],
            store=store,
        )
        for name in models
    }
    missing = sum(len(plan.missing) for plan in plans.values())
    if not missing:
        return []
    done = []
    with ray_cluster(cluster) as addresses, connected(addresses), progress("sweep", missing, "rows") as shown:
        for name, plan in plans.items():
            rows = RowBuilder(*load_markers(models[name]), stage.inputs["models"][name], engine.fingerprint)
            drawn = Sampling(sampling["temperature"], sampling["top_p"])
            done.append((name, asyncio.run(_run_model(str(models[name]), engine, plan, drawn, rows, store, shown))))
    return done


async def _run_model(
    model: str,
    parameters: EngineParameters,
    plan: SweepPlan,
    sampling: Sampling,
    rows: RowBuilder,
    store: TrajectoryStore,
    shown: Progress,
) -> ModelCounts:
    from elastic_core.engines.ray_pool import RayEngine

    before = shown.done

    def update(result: SweepResult) -> None:
        shown.reach(before + result.rows_written)

    async with RayEngine(model, parameters) as engine:
        shared = SharedDraws(engine)
        result = await run_sweep(
            plan, sampling=sampling, engines={"policy": shared}, rows=rows, store=store, on_progress=update,
            max_in_flight=2 * parameters.max_num_seqs,
        )  # fmt: skip
    return ModelCounts(
        result.rows_written,
        result.rows_present,
        shared.generated,
        shared.reused,
        result.grading_seconds,
        result.seconds,
    )


def _record_cells(tracker: Tracker, run_id: str, stage: Stage, summary: pl.DataFrame) -> None:
    """One MLflow run per cell, and on the sweep's own run accuracy over tokens, so that MLflow's chart of it is the
    accuracy-vs-tokens plot."""
    for cell in summary.iter_rows(named=True):
        key = {name: "unlimited" if cell[name] is None else str(cell[name]) for name in CELL}
        tags = {
            ("t" if name == "think_budget" else "s" if name == "solution_budget" else name): v
            for name, v in key.items()
        }
        budget = f"{key['think_budget']}+{key['solution_budget']}"
        name = f"{cell['model']} {cell['benchmark']} {cell['strategy']} {budget}"
        metrics = {column: value for column, value in cell.items() if column not in CELL and value is not None}
        metrics |= {"avg_at_k_low": metrics.pop("ci_low"), "avg_at_k_high": metrics.pop("ci_high")}
        cell_run = tracker.ensure(f"{stage.label}/{name}", name, run_id, tags)
        with tracker.running(cell_run):
            tracker.log(cell_run, metrics=metrics, params=key)
        curve = f"accuracy/{cell['benchmark']}/{cell['model']}/{cell['strategy']}"
        tracker.log(run_id, metrics={curve: cell["avg_at_k"]}, step=round(cell["tokens_mean"]))
    table = [
        {name: "unlimited" if value is None else value for name, value in cell.items()} for cell in summary.to_dicts()
    ]
    create_table_artifact(table, key="sweep", description=f"Every cell of {stage.label}")
