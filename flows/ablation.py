"""ablation: trainings that differ in a setting, one after the other, then measured side by side in one table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import flow

from elastic_core.errors import UserError
from elastic_core.statistics.seeds import seed_name
from elastic_core.system.ray_cluster import kept_cluster
from flows.data import prepare_data
from flows.report import report
from flows.runtime.inputs import Inputs
from flows.runtime.run import FlowRun
from flows.runtime.settings import Variant
from flows.sweep import sweep
from flows.train import train, warm_start


@flow(name="ablation", flow_run_name="{preset} ablation")
def ablation(preset: str = "ablation-embedded", overrides: dict[str, Any] | None = None) -> Path:
    """Train every variant of the section `ablation`, once with each seed, and measure them beside `sweep.models`, under
    one MLflow run. After a crash the same call finishes what is missing.

    Args:
        preset: settings to run with.
        overrides: settings to replace, by dotted key.

    Returns:
        Path of the report.

    Raises:
        UserError: when the preset has no variants.
    """
    run = FlowRun.begin(preset, overrides)
    if not run.settings.ablation:
        raise UserError(f"preset {preset} has no section ablation; ablation-embedded has one to begin with")
    # What follows is one variant, or has the trained ones as checkpoints: the section would be checked against that.
    given = {**(overrides or {}), "ablation": {}, "report.pairs": [], "sweep.strategies_of": {}}
    with run.recorded("ablation") as parent:
        prepare_data(preset, overrides, parent)
        Inputs(run).require_reachable()
        if run.settings.base == "warm-start":
            warm_start(preset, overrides, parent)
        with kept_cluster():
            trained = _trained(run, preset, given, parent)
            settings = {
                **given,
                "sweep.checkpoints": {**run.settings.sweep.checkpoints, **trained},
                "sweep.models": [*run.settings.sweep.models, *trained],
                "sweep.strategies_of": run.settings.sweep.strategies_of,
                "report.pairs": run.settings.report.pairs,
            }
            sweep(preset, settings, parent)
        return report(preset, settings, parent)


def _trained(run: FlowRun, preset: str, given: Mapping[str, Any], parent: str) -> dict[str, str]:
    """The checkpoints to measure, by the names that the sweep has for them."""
    seeds = list(run.settings.training.by_seed)
    trained: dict[str, str] = {}
    for seed in seeds:
        of_seed: dict[str, str] = {}
        with_seed = {"train.seeds": [seed]} if len(seeds) > 1 else {}
        for name, variant in run.settings.ablation.items():
            of_seed[name] = str(train(preset, {**given, **with_seed, **changes(variant, of_seed)}, parent))
        measured = {name: of_seed[name] for name in run.settings.measured_variants}
        trained |= {seed_name(name, seed) if len(seeds) > 1 else name: path for name, path in measured.items()}
    return trained


def changes(variant: Variant, trained: dict[str, str]) -> dict[str, Any]:
    """The settings that a variant replaces, by dotted key.

    Args:
        trained: checkpoints of the variants before it, by name.
    """
    settings = {f"train.{key}": value for key, value in variant.train.items()}
    return settings | ({"base": trained[variant.after]} if variant.after else {})
