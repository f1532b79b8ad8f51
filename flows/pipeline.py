"""pipeline: data → warm start → training under a budget → the grid of budget evaluations → report. ablation: trainings
that differ in a setting, one after the other, then measured side by side in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow

from elastic_core.errors import UserError
from elastic_core.statistics.estimates import seed_name
from elastic_core.system.ray_cluster import kept_cluster
from flows.data import run_prepare_data
from flows.runtime.run import FlowRun, for_deployments
from flows.runtime.settings import Variant
from flows.sweep import run_report, run_sweep
from flows.train import require_chat_template, run_train, run_warm_start


@flow(name="pipeline", flow_run_name="{run.settings.preset} pipeline", validate_parameters=False)
def run_pipeline(run: FlowRun) -> Path:
    """Everything, under one MLflow run; returns the path of the report. After a crash the same call finishes the
    missing stages; after success it does nothing and says so."""
    require_chat_template(run.settings)
    with run.recorded("pipeline") as run:
        run_prepare_data(run)
        run.require_reachable()
        steps = run.steps("pipeline")
        if "warm-start" in steps:
            run_warm_start(run)
        with kept_cluster():
            if "train" in steps:
                run_train(run)
            run_sweep(run)
        return run_report(run)


pipeline = for_deployments(run_pipeline)


@flow(name="ablation", flow_run_name="{run.settings.preset} ablation", validate_parameters=False)
def run_ablation(run: FlowRun) -> Path:
    """Train every variant of the section `ablation`, once with each seed, and measure them with `sweep.models`, under
    one MLflow run; returns the path of the report. After a crash the same call finishes the missing stages.

    Raises:
        UserError: when the preset has no variants.
    """
    settings = run.settings
    if not settings.ablation:
        raise UserError(f"preset {run.preset} has no section ablation; ablation-embedded has one to begin with")
    with run.recorded("ablation") as run:
        run_prepare_data(run)
        run.require_reachable()
        if settings.base == "warm-start":
            run_warm_start(run)
        with kept_cluster():
            # These three name the variants, which are not models of the sweep before they are trained.
            single = run.with_changes({"ablation": {}, "report.pairs": [], "sweep.strategies_of": {}})
            # The checkpoints to measure, by the names that the sweep has for them.
            seeds = list(single.settings.training.by_seed)
            trained: dict[str, str] = {}
            for seed in seeds:
                of_seed: dict[str, str] = {}
                with_seed = {"train.seeds": [seed]} if len(seeds) > 1 else {}
                for name, variant in settings.ablation.items():
                    of_seed[name] = str(run_train(single.with_changes({**with_seed, **changes(variant, of_seed)})))
                    if variant.measure:
                        trained[seed_name(name, seed) if len(seeds) > 1 else name] = of_seed[name]
            kept = {"sweep.strategies_of": settings.sweep.strategies_of, "report.pairs": settings.report.pairs}
            checkpoints = {**settings.sweep.checkpoints, **trained}
            models = [*settings.sweep.models, *trained]
            measured = single.with_changes({**kept, "sweep.checkpoints": checkpoints, "sweep.models": models})
            run_sweep(measured)
        return run_report(measured)


ablation = for_deployments(run_ablation, "ablation-embedded")


def changes(variant: Variant, trained: dict[str, str]) -> dict[str, Any]:
    """The settings that a variant replaces, by dotted key; `trained` are checkpoints of those before it, by name."""
    settings = {f"train.{key}": value for key, value in variant.train.items()}
    return settings | ({"base": trained[variant.after]} if variant.after else {})
