"""What the runs of a shortened preset left, read back: that it is complete, and what was exercised."""

from __future__ import annotations

import re
from math import isfinite
from pathlib import Path

import polars as pl

from elastic_core.data.problems import read_manifest
from elastic_core.errors import UserError
from elastic_core.models.files import tensors
from elastic_core.sweep.cost import throughput_file
from elastic_core.sweep.grid import checkpoints
from elastic_core.sweep.table import SweepTable
from elastic_core.training.grpo.step_metrics import AGREEMENT, LEAST_AGREEMENT, STEP, disagrees
from elastic_core.training.launch import FINISHED_STEP
from flows.commands.checks.runner import newest
from flows.runtime.settings import Settings
from tasks.records.stage_directory import BEST, METRICS, MODEL, PAGE, TABLE

GRADIENT, SECONDS = "actor/grad_norm", "timing_s/step"
COLUMNS = {
    "critic/score/mean": "mean reward",
    GRADIENT: "gradient norm",
    SECONDS: "seconds",
    AGREEMENT: "correlation of sampler and trainer",
}
"""Metrics of a step, and how a table calls them."""
_RESUMED = re.compile(rf"step:\d+ - {STEP}:\S+\s*$")


def exercised(settings: Settings, results: Path) -> dict[str, str]:
    """What each stage of a rehearsal did, by the stage's name.

    Args:
        settings: those of the rehearsal.
        results: directory of its results.

    Raises:
        UserError: when something is missing or wrong.
    """
    found = {"data": _data(newest(results, "data/*"))}
    if settings.base == "warm-start":
        found["warm-start"] = _warm_start(settings, newest(results, "warm-start/*"))
    if settings.train is not None:
        stage = newest(results, "train/*")
        found |= {"train": _training(settings, stage), "export": _models(settings, stage)}
    found["sweep"] = _sweep(settings, newest(results, "sweep/*"))
    _require((results / "report" / PAGE).exists(), f"{results}: no report")
    found["report"] = "figures, tables and the page; its accuracies are a random model's"
    return found


def _data(stage: Path) -> str:
    manifest = read_manifest(stage)["datasets"]
    for name, entry in manifest.items():
        _require(entry["kept_rows"] > 0, f"{stage}: {name} has no row left")
    graders = sorted({entry["grader"] for entry in manifest.values() if entry["grader"]})
    return f"{len(manifest)} data sets mapped and measured with the twin's tokenizer; graders: {', '.join(graders)}"


def _warm_start(settings: Settings, stage: Path) -> str:
    _require(any((stage / MODEL).glob("*.safetensors")), f"{stage}: no model")
    sft = settings.warm_start.sft
    if sft is None:
        return "the miniature's corpus"
    return f"chat template {sft.chat_template}, {sft.gpus} FSDP2 ranks over gloo, resumed after the kill, exported"


def _training(settings: Settings, stage: Path) -> str:
    p, metrics = settings.training, pl.read_parquet(stage / METRICS)

    def steps(name: str) -> list[int]:
        return sorted(metrics.filter(pl.col("name").str.contains(name))["step"].unique().to_list())

    def mean(name: str) -> float:
        return float(metrics.filter(pl.col("name") == name)["value"].mean() or 0)  # type: ignore[arg-type]

    _require(steps("^rollout/forced$") == list(range(1, p.steps + 1)), f"{stage}: not every step has metrics")
    validated = steps("^val-core/")
    _require(
        validated == list(range(p.steps + 1)), f"{stage}: validated at steps {validated}, expected every step from 0"
    )
    equal, groups, forced = (mean(f"rollout/{name}") for name in ("groups_without_variance", "groups", "forced"))
    exercised = {
        f"{p.nodes} Ray nodes": p.nodes > 1,
        f"{p.nodes * p.gpus_per_node} FSDP2 ranks over gloo, each with a vLLM replica": True,
        f"{p.rollout_workers} rollout workers": True,
        "validation from step 0": True,
        f"updates a step, of several micro-batches: {p.batch_size // p.mini_batch_size}": True,
        "KL to the reference": p.kl_coefficient > 0,
        "resumed after the kill": (stage / "train.1.log").exists(),
        "thoughts that the model closed": forced < 1,
        "thoughts that were forced": forced > 0,
        "rewards that differ within a group": equal < groups,
    }
    return "; ".join(name for name, seen in exercised.items() if seen)


def _models(settings: Settings, stage: Path) -> str:
    expected = set(tensors(Path(settings.base))) if Path(settings.base).is_dir() else None
    for name in (MODEL, BEST):
        found = set(tensors(stage / name))
        _require(bool(found) and expected in (None, found), f"{stage / name}: its tensors are not those of the twin")
    return "the last and the best checkpoint, with the twin's tensors, cards, and versions in MLflow's registry"


def _sweep(settings: Settings, stage: Path) -> str:
    sweep = settings.sweep
    cells = SweepTable(stage / TABLE).scan().select("model", "strategy", "benchmark").unique().collect()
    for column, expected in (
        ("model", settings.models),
        ("strategy", sweep.every_strategy),
        ("benchmark", settings.data.benchmarks),
    ):
        missing = set(expected) - set(cells[column])
        _require(not missing, f"{stage}: the table has no row of {column} {', '.join(sorted(missing))}")
    pair = next((model for model in settings.models if len(set(checkpoints(model).values())) > 1), None)
    swap = ""
    if pair:
        drawn = "its engines drew tokens" if throughput_file(stage, pair).exists() else "its models' own tokens"
        swap = f", {pair} among them ({drawn}),"
    engines = settings.engine.data_parallel_size
    return (
        f"{len(settings.models)} models{swap} × {', '.join(sweep.every_strategy)} × "
        f"{len(settings.data.benchmarks)} benchmarks; engines of a model side by side: {engines}"
    )


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise UserError(f"the rehearsal ended, but {otherwise}")


def judge(metrics: pl.DataFrame, expected: int) -> tuple[str, list[dict[str, str]]]:
    """What was seen of a training with so many steps, and a row for each.

    Args:
        metrics: columns step, name, value.

    Raises:
        UserError: when a step or one of its metrics is missing, a gradient is not finite, or sampler and trainer do not
            agree.
    """
    steps: dict[int, dict[str, float]] = {}
    for step, name, value in metrics.select("step", "name", "value").sort("step").iter_rows():
        if step > 0 and name in COLUMNS:  # Before the first is only a validation.
            steps.setdefault(step, {})[name] = float(value)
    if list(steps) != list(range(1, expected + 1)):
        raise UserError(f"metrics of steps {list(steps)} were recorded, expected 1 to {expected}")
    for step, values in steps.items():
        if missing := [name for name in COLUMNS if name not in values]:
            raise UserError(f"the training has no metric {', '.join(missing)} of step {step}")
        if not isfinite(values[GRADIENT]):
            raise UserError(f"the norm of the gradient of step {step} is {values[GRADIENT]}")
        if disagrees(values[AGREEMENT]):
            raise UserError(
                f"in step {step} the probabilities of sampler and trainer correlate by {values[AGREEMENT]:.3f}, "
                f"expected at least {LEAST_AGREEMENT}: vLLM computes with other weights than the trainer"
            )
    lowest = min(values[AGREEMENT] for values in steps.values())
    seconds = ", ".join(f"{values[SECONDS]:.0f}" for values in steps.values())
    rows = [
        {"step": str(step), **{COLUMNS[name]: f"{values[name]:.5g}" for name in COLUMNS}}
        for step, values in steps.items()
    ]
    return f"sampler and trainer correlate by {lowest:.4f} or more in every step; seconds a step: {seconds}", rows


def first_step(log: Path) -> int:
    """The first step that a job finished, by its log, which names the step that it resumed from by number only.

    Raises:
        UserError: when it finished none.
    """
    lines = [line for line in log.read_text(errors="replace").splitlines() if not _RESUMED.search(line)]
    steps = [int(found[1]) for line in lines if (found := FINISHED_STEP.search(line)) and int(found[1])]
    if not steps:
        raise UserError(f"{log}: no step was finished")
    return steps[0]
