"""What a rehearsal left, read back: that it is complete, and what was exercised. No number here is a result."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from elastic_core.data.problems import read_manifest
from elastic_core.errors import UserError
from elastic_core.models.files import tensors
from elastic_core.sweep.grid import checkpoints
from elastic_core.sweep.table import SweepTable, throughput_file
from flows.runtime.settings import Settings
from tasks.records.stage_directory import BEST, METRICS, MODEL, PAGE, TABLE


def exercised(settings: Settings, results: Path) -> dict[str, str]:
    """What each stage did, by the stage's name.

    Args:
        settings: those of the rehearsal.
        results: directory of its results.

    Raises:
        UserError: when something is not there, or not as it must be.
    """
    found = {"data": _data(_one(results, "data/*"))}
    if settings.base == "warm-start":
        found["warm-start"] = _warm_start(settings, _one(results, "warm-start/*"))
    if settings.train is not None:
        stage = _one(results, "train/*")
        found["train"] = _training(settings, stage)
        found["export"] = _models(settings, stage)
    found["sweep"] = _sweep(settings, _one(results, "sweep/*"))
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
    rows = SweepTable(stage / TABLE).scan()
    cells = rows.select("model", "strategy", "benchmark").unique().collect()
    for column, expected in (
        ("model", settings.models),
        ("strategy", sweep.every_strategy),
        ("benchmark", settings.data.benchmarks),
    ):
        missing = set(expected) - set(cells[column])
        _require(not missing, f"{stage}: the table has no row of {column} {', '.join(sorted(missing))}")
    pairs = [model for model in settings.models if len(set(checkpoints(model).values())) > 1]
    swap = f", {pairs[0]} among them ({_drawn(stage, pairs[0])})," if pairs else ""
    engines = settings.engine.data_parallel_size
    return (
        f"{len(settings.models)} models{swap} × {', '.join(sweep.every_strategy)} × "
        f"{len(settings.data.benchmarks)} benchmarks; engines of a model side by side: {engines}"
    )


def _drawn(stage: Path, pair: str) -> str:
    drawn = throughput_file(stage, pair).exists()
    return "its engines drew tokens" if drawn else "answered from its models' own tokens"


def _one(results: Path, pattern: str) -> Path:
    found = sorted(results.glob(pattern), key=lambda path: path.stat().st_mtime)
    _require(bool(found), f"{results}: no {pattern}")
    return found[-1]


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise UserError(f"the rehearsal ended, but {otherwise}")
