"""The model card of an exported checkpoint: what it is, how it was trained, what was measured of it and at which
budgets, what that does not tell, and whose licence holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from elastic_core.budget import Budget
from elastic_core.models.files import CARD
from elastic_core.serving.levels import LEVELS, Levels, read_levels
from elastic_core.system.files import escaped, write_text

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

RECORD = "training.json"
_ALGORITHMS = {
    "grpo": "GRPO",
    "anytime": "anytime training (AnytimeReasoner's, thoughts cut at several budgets)",
    "reo": "REO-RL (thoughts cut at several budgets)",
}


class TrainingRecord(TypedDict):
    """Where a checkpoint ("last" or "best") comes from.

    Attributes:
        accuracy: avg@`samples` on the validation sets at that step, in [0, 1]; None when it was not validated then.
        licence: what the base's card names, None where it names none.
        train: `GrpoParameters`.
        data: contents of the training and validation files, as hashes.
        data_manifest: path of the manifest of the built data.
        mlflow_run: id of the run that holds every metric.
    """

    preset: str
    checkpoint: str
    step: int
    accuracy: float | None
    samples: int | None
    base: str
    licence: str | None
    train: dict[str, Any]
    data: dict[str, str]
    data_manifest: str
    mlflow_run: str


def write(model: Path, record: TrainingRecord) -> None:
    """Put the record and a card without measurements beside the weights."""
    write_text(model / RECORD, json.dumps(record, indent=2) + "\n")
    write_card(model, [])


def write_card(model: Path, cells: Sequence[Mapping[str, Any]]) -> Path:
    """The card of an exported model, with its cells of `reports.summary`; without any it says that there are none. With
    the effort levels that lie beside the model, where there are any. A card that would be the same is left alone."""
    record: TrainingRecord = json.loads((model / RECORD).read_text())
    record.setdefault("licence", None)
    levels = read_levels(model / LEVELS) if (model / LEVELS).exists() else None
    card, text = model / CARD, render(record, cells, levels)
    if not card.exists() or card.read_text() != text:
        write_text(card, text)
    return card


def render(record: TrainingRecord, cells: Sequence[Mapping[str, Any]], levels: Levels | None = None) -> str:
    """The card's text; what its head says of the cells, the hub shows beside the model."""
    from huggingface_hub import ModelCardData

    train, name = record["train"], f"{record['preset']}, {record['checkpoint']} checkpoint"
    algorithm = train.get("algorithm", "grpo")
    head = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["elastic-reasoning", algorithm],
        license=record["licence"],
        model_name=name if cells else None,
        eval_results=[_result(cell) for cell in cells] if cells else None,
    )
    lines = [
        *("---", head.to_yaml(), "---"),
        f"# {name}",
        "",
        f"`{record['base']}` after {record['step']} steps of {_ALGORITHMS[algorithm]} under a budget of "
        f"{train['budget']} tokens (thinking + solution; rollouts by the strategy `{train['strategy']}`).",
        "",
        _validation(record),
        "",
        "## Measured",
        "",
        *(_table(cells) if cells else ["Nothing yet: no finished sweep has measured these weights."]),
        "",
        *(_levels(levels) if levels else []),
        "## Limitations",
        "",
        *_limitations(record, cells),
        "",
        "## Licence",
        "",
        _licence(record),
        "",
        "## Training",
        "",
        *(f"- {name}: {value}" for name, value in train.items()),
        *(f"- {name}: sha256 {digest}" for name, digest in record["data"].items()),
        f"- data manifest: {record['data_manifest']}",
        f"- MLflow run: {record['mlflow_run']}",
    ]
    return "\n".join([*lines, ""])


def _limitations(record: TrainingRecord, cells: Sequence[Mapping[str, Any]]) -> list[str]:
    budgets = dict.fromkeys(str(_budget(cell)) for cell in cells)
    benchmarks = dict.fromkeys(escaped(cell["benchmark"]) for cell in cells)
    known = f"of {', '.join(benchmarks)} at {', '.join(budgets)} tokens" if cells else "of no benchmark at any budget"
    lines = [
        f"- Its accuracy is known {known}, by our prompts and graders. Other tasks, prompts, languages and budgets "
        "were not measured, nor were safety and fairness.",
        f"- It was trained under {record['train']['budget']} tokens. A thought that is cut is not a finished thought: "
        "the answer after it may be wrong where an uncut one would be right.",
        "- It is one training with one seed. Intervals tell of problems and samples, not of training again.",
        "- No reward looked at what a thought says: it need not be what the answer rests on.",
        "- Whatever limits the base limits it too.",
    ]
    if record["checkpoint"] == "best":
        lines.append("- It was chosen by its validation accuracy, which therefore flatters it.")
    return lines


def _licence(record: TrainingRecord) -> str:
    if record["licence"] is None:
        return "The base's card names none, or has not been found: find it out before these weights are passed on."
    return f"The base's, `{record['licence']}`: these weights are made from it."


def _validation(record: TrainingRecord) -> str:
    if record["accuracy"] is None:
        return "It was not validated at that step."
    best = " the highest of its training" if record["checkpoint"] == "best" else ""
    return f"Validation at that step: avg@{record['samples']} {100 * record['accuracy']:.1f} %{best and ',' + best}."


def _result(cell: Mapping[str, Any]) -> EvalResult:
    from huggingface_hub import EvalResult

    return EvalResult(
        task_type="text-generation",
        dataset_type=cell["benchmark"],
        dataset_name=cell["benchmark"],
        metric_type="accuracy",
        metric_value=round(100 * cell["avg_at_k"], 1),
        metric_name=f"avg@{cell['num_samples']} in %, {cell['strategy']} at {_budget(cell)} tokens",
    )


def _budget(cell: Mapping[str, Any]) -> Budget:
    return Budget(cell["think_budget"], cell["solution_budget"])


def _table(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        "Accuracy in % with its 95 % interval (Clopper-Pearson's, clustered by problem); tokens are those sampled per "
        "response; forced is the share of thoughts that were cut.",
        "",
        "| benchmark | strategy | t + s | problems × samples | avg@k | tokens | forced |",
        "|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        low, high = 100 * cell["ci_low"], 100 * cell["ci_high"]
        rows.append(
            f"| {escaped(cell['benchmark'])} | {escaped(cell['strategy'])} | {_budget(cell)} "
            f"| {cell['num_problems']} × {cell['num_samples']} | {100 * cell['avg_at_k']:.1f} [{low:.1f}, {high:.1f}] "
            f"| {cell['tokens_mean']:.0f} | {100 * cell['forced_fraction']:.0f} % |"
        )
    return rows


def _levels(levels: Levels) -> list[str]:
    points = f"{100 * levels.margin:g} points"
    highest = f"is shown to be at most {points} below responses without a limit"
    if levels.loss is None:
        highest = f"is the most accurate one; none is shown to be within {points} of responses without a limit"
    rows = [
        "## Effort levels",
        "",
        f"The budgets that `elastic serve` offers (`{LEVELS}`): chosen among those measured on "
        f"{', '.join(map(escaped, levels.benchmarks))}. The highest {highest}. A response's tokens are the model's and "
        "forced ones.",
        "",
        "| reasoning_effort | t + s | accuracy (%) | problems × samples | tokens, mean | tokens, 95th percentile |",
        "|---|---|---|---|---|---|",
    ]
    for name, level in levels.levels.items():
        low, high = 100 * level.accuracy_low, 100 * level.accuracy_high
        rows.append(
            f"| {name} | {level.budget} | {100 * level.accuracy:.1f} [{low:.1f}, {high:.1f}] "
            f"| {level.num_problems} × {level.num_samples} | {level.tokens_mean:.0f} | {level.tokens_p95:.0f} |"
        )
    return [*rows, ""]
