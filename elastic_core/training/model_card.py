"""The model card of an exported checkpoint: training, measurements with their budgets and limits, and licence."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from elastic_core.budget import Budget
from elastic_core.models.files import CARD
from elastic_core.serving.levels import LEVELS, Levels, read_levels
from elastic_core.system.files import escaped, write_text

RECORD = "training.json"
_ALGORITHMS = {
    "grpo": "GRPO",
    "anytime": "anytime training (AnytimeReasoner's, thoughts cut at several budgets)",
    "reo": "REO-RL (thoughts cut at several budgets)",
}


class TrainingRecord(TypedDict):
    """Origin of a checkpoint."""

    preset: str
    checkpoint: str  # "last" or "best"
    step: int
    accuracy: float | None  # avg@`samples` on the validation sets at that step, in [0, 1]; None without validation
    samples: int | None
    base: str
    licence: str | None  # named by the base's card
    train: dict[str, Any]  # `GrpoParameters`
    data: dict[str, str]  # hashes of the training and validation files
    data_manifest: str  # path of the manifest of the built data
    mlflow_run: str  # id of the run that holds every metric


def write(model: Path, record: TrainingRecord) -> None:
    """Write the record and a card without measurements to the model's directory."""
    write_text(model / RECORD, json.dumps(record, indent=2) + "\n")
    write_card(model, [])


def write_card(model: Path, cells: Sequence[Mapping[str, Any]]) -> Path:
    """The card of an exported model, with its cells of `reports.summary`; without any it says that there are none. With
    the effort levels in the model's directory, where there are any. A card that would be the same is left alone."""
    record: TrainingRecord = json.loads((model / RECORD).read_text())
    levels = read_levels(model / LEVELS) if (model / LEVELS).exists() else None
    card, text = model / CARD, render(record, cells, levels)
    if not card.exists() or card.read_text() != text:
        write_text(card, text)
    return card


def render(record: TrainingRecord, cells: Sequence[Mapping[str, Any]], levels: Levels | None = None) -> str:
    """The card's text, from `model_card.md.j2`; the hub shows the cells of its head on the model's page."""
    from huggingface_hub import EvalResult, ModelCardData
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    name, algorithm = f"{record['preset']}, {record['checkpoint']} checkpoint", record["train"].get("algorithm", "grpo")
    results = [
        EvalResult(
            task_type="text-generation",
            dataset_type=cell["benchmark"],
            dataset_name=cell["benchmark"],
            metric_type="accuracy",
            metric_value=round(100 * cell["avg_at_k"], 1),
            metric_name=f"avg@{cell['num_samples']} in %, {cell['strategy']} at {_budget(cell)} tokens",
        )
        for cell in cells
    ]
    head = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["elastic-reasoning", algorithm],
        license=record["licence"],
        model_name=name if cells else None,
        eval_results=results or None,
    )
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"escaped": escaped, "budget": _budget, "percent": lambda share: f"{100 * share:.1f}"}
    return environment.get_template("model_card.md.j2").render(
        record=record,
        cells=cells,
        levels=levels,
        name=name,
        algorithm=_ALGORITHMS.get(algorithm, f"the advantages of {algorithm}"),
        head=head.to_yaml(),
        file=LEVELS,
    )


def _budget(cell: Mapping[str, Any]) -> str:
    return str(Budget(cell["think_budget"], cell["solution_budget"]))
