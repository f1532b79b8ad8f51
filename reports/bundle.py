"""A static site of several reports: a directory for each, with its results as records of Every Eval Ever, and an index.

Each report leaves a card, and the index is made of the cards that are there: a site grows report by report.

A record (github.com/evaleval/every_eval_ever, schema 0.3.0) is of one model, with a result for each cell. The schema
has no field for strategy, t and s: they stand in the details.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import polars as pl
from pydantic import BaseModel, ValidationError

from elastic_core.budget import Budget
from elastic_core.errors import UserError
from elastic_core.system.files import write_text
from elastic_core.trajectory import BUDGET
from reports.build import Report, build_report
from reports.content import ReportSources
from reports.page import policy, styles, template
from reports.wording import one_line

CARD = "card.json"


class Card(BaseModel):
    """What the index shows of a report."""

    name: str
    brief: list[str]
    date: str
    models: list[str]
    benchmarks: list[str]
    num_trajectories: int
    records: list[str]


def add_report(sources: ReportSources, name: str, site: Path) -> Report:
    """Build a report as `name` of a site; one of the same name is replaced. Its index is left to `write_index`."""
    when = datetime.now(UTC)
    directory = site / file_name(name)
    # A site is for others to read, who need no paths of this machine.
    private = ("table", "command", "preset")
    provenance = {key: value for key, value in sources.provenance.items() if key not in private}
    content = build_report(replace(sources, provenance=provenance), directory)
    records = write_records(content.summary, sources, when, directory / "every_eval_ever")
    card = Card(
        name=name,
        brief=[*content.brief],
        date=when.date().isoformat(),
        models=sorted(content.summary["model"].unique()),
        benchmarks=sorted(content.summary["benchmark"].unique()),
        num_trajectories=int(content.summary["num_trajectories"].sum()),
        records=[file.relative_to(directory).as_posix() for file in records],
    )
    write_text(directory / CARD, card.model_dump_json(indent=1) + "\n")
    return content


def write_index(site: Path) -> Path:
    """Write index.html of the reports that lie in a site, the newest first; UserError when a card is none."""
    cards = [(file.parent.name, _read(file)) for file in sorted(site.glob(f"*/{CARD}"))]
    cards.sort(key=lambda each: each[1].date, reverse=True)
    style = styles("base.css", "brief.css", "bundle.css")
    page = template("bundle.html.j2", autoescape=True, trim_blocks=True, lstrip_blocks=True)
    write_text(site / "index.html", page.render(style=style, policy=policy(style, []), cards=cards))
    return site / "index.html"


def _read(file: Path) -> Card:
    try:
        return Card.model_validate_json(file.read_bytes())
    except ValidationError:
        keys = ", ".join(sorted(Card.model_fields))
        raise UserError(
            f"{file}: found no card of a report; expected JSON with {keys}: remove the directory, or build its report "
            "again with elastic report --bundle"
        ) from None


_LIBRARY, _HUB = "elastic-reasoning", "huggingface.co/datasets/"
_SOURCE = {
    "source_name": _LIBRARY, "source_type": "evaluation_run", "source_organization_name": "unknown",
    "evaluator_relationship": "other",
}  # fmt: skip
_METRIC = {
    "metric_id": "accuracy", "metric_kind": "accuracy", "metric_unit": "proportion",
    "lower_is_better": False, "score_type": "continuous", "min_score": 0.0, "max_score": 1.0,
}  # fmt: skip


def file_name(name: str) -> str:
    """A name as part of a path; one that had to be changed has a hash at its end."""
    safe = re.sub(r"[^A-Za-z0-9._+-]", "_", name).strip(".") or "_"
    return safe if safe == name else f"{safe[:80]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def write_records(summary: pl.DataFrame, sources: ReportSources, when: datetime, directory: Path) -> list[Path]:
    """Write a record of the cells of each model, at the path that the datastore wants below `directory`."""
    files, seconds, sampling = [], str(int(when.timestamp())), sources.provenance.get("sampling", {})
    name, _, number = str(sampling.get("vllm", "")).partition(" ")
    engine = {"name": name or "unknown", "version": number or "unknown"}
    manifests = [document for name, document in sources.documents.items() if name.startswith("data of ")]
    data = {name: about for each in manifests for name, about in (each or {}).get("datasets", {}).items()}
    for (model,), cells in summary.partition_by("model", as_dict=True, maintain_order=True).items():
        weights = str(sources.provenance.get("models", {}).get(model, "unknown"))
        details = {"deployment_type": "self_deployed", "model_availability": "unknown", "weights_fingerprint": weights}
        record = {
            "schema_version": "0.3.0",
            "evaluation_id": f"{sources.preset or _LIBRARY}/{model}/{weights}/{seconds}",
            "retrieved_timestamp": seconds,
            "source_metadata": _SOURCE,
            "eval_library": {"name": _LIBRARY, "version": version(_LIBRARY)},
            "model_info": {"name": model, "id": model, "inference_engine": engine, "additional_details": details},
            "evaluation_results": [_result(cell, sampling, data) for cell in cells.iter_rows(named=True)],
        }
        place = directory / "data" / _LIBRARY / "unknown" / file_name(str(model))
        files.append(place / f"{uuid5(NAMESPACE_URL, str(record['evaluation_id']))}.json")
        write_text(files[-1], json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return files


def _result(cell: Mapping[str, Any], sampling: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    budget = Budget(cell["think_budget"], cell["solution_budget"])
    limits = {name: "unlimited" if cell[name] is None else str(cell[name]) for name in BUDGET}
    method = "Clopper-Pearson, at the effective sample size of samples clustered by problem"
    interval = {"lower": cell["ci_low"], "upper": cell["ci_high"], "confidence_level": 0.95, "method": method}
    counts = ("num_problems", "num_samples", "num_seeds", "num_trajectories", "tokens_mean")
    arguments = {name: sampling.get(name) for name in ("temperature", "top_p")} | {"reasoning": True}
    return {
        "evaluation_result_id": "/".join([cell["benchmark"], cell["strategy"], str(budget)]),
        "evaluation_name": cell["benchmark"],
        "source_data": _data(cell["benchmark"], data.get(cell["benchmark"], {})),
        "metric_config": {
            "evaluation_description": f"{cell['strategy']} at {budget}, tokens of thinking + solution",
            "metric_name": f"avg@{cell['num_samples']}",
            "metric_parameters": {"k": cell["num_samples"]},
            **_METRIC,
        },
        "score_details": {
            "score": cell["avg_at_k"],
            "details": {name: str(cell[name]) for name in counts},
            "uncertainty": {"confidence_interval": interval, "num_samples": cell["num_trajectories"]},
        },
        "generation_config": {
            "generation_args": arguments | ({} if budget.total is None else {"max_tokens": budget.total}),
            "additional_details": {"strategy": cell["strategy"], **limits, "sampling": one_line(sampling)},
        },
    }


def _data(benchmark: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """The source of a benchmark, by the manifest of its data."""
    if not (source := str(about.get("source", ""))).startswith(_HUB):
        return {"dataset_name": benchmark, "source_type": "other"}
    details = {"additional_details": {"revision": about["revision"]}} if about.get("revision") else {}
    return {"dataset_name": benchmark, "source_type": "hf_dataset", "hf_repo": source.removeprefix(_HUB), **details}
